"""HTML pages that need no other file: one skeleton, one style sheet and Jinja2 templates with autoescape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import chary
from chary.errors import check_installed

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Table", "render", "require_jinja"]

T = TypeVar("T")


class Table(NamedTuple):
    """Cells of text under their headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, columns: Sequence[tuple[str, Callable[[T], str]]], items: Iterable[T]) -> Table:
        """Return a table with one row per item; each column has a heading and the text for an item."""
        return cls([name for name, _ in columns], [[cell(item) for _, cell in columns] for item in items])


def require_jinja() -> None:
    """Check that Jinja2 is installed.

    Raises:
        InvalidSetting: if it is not, with the command that installs it.
    """
    check_installed("jinja2", "Writing a page", "figures")


def render(template: str, folders: Sequence[str], values: Mapping[str, Any]) -> bytes:
    """Return a page.

    Args:
        template: A file in `templates`, which extends base.html.
        folders: Folders with one template per section, named after its key; the first that has it counts.
        values: The values that the template shows. Texts are escaped. Every page has a `title`, and
            `sections`, the names of its sections by key.

    Raises:
        InvalidSetting: if Jinja2 is not installed.
    """
    require_jinja()

    def template_of(key: str) -> list[str]:
        return [f"{folder}/{key}.html" for folder in folders]

    page = _environment().get_template(template)
    return page.render(version=chary.__version__, template_of=template_of, **values).encode()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader("chary.pages"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
