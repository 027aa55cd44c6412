"""HTML pages that need no other file: one skeleton, one style sheet and Jinja2 templates with autoescape."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import chary
from chary.charts.palette import night_of
from chary.errors import check_installed
from chary.texts import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["Table", "data", "render", "require_jinja", "script"]

# Where the hashes of the scripts go, and the scripts; an element of another type is not run.
SOURCES = "script-src hashes-of-the-scripts;"
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
HTML_SIGNS = re.compile("[<>&\u2028\u2029]")

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
    content = page.render(version=chary.__version__, template_of=template_of, **values)
    # The policy is in the head, and the scripts that it allows are below it.
    return content.replace(SOURCES, f"script-src {_sources(content)};", 1).encode()


def script(source: str) -> Markup:
    """Return a script for a page, without anything that would end its element."""
    from markupsafe import Markup

    # A browser reads a line break of Windows as one of Unix before it compares hashes.
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    return Markup(text.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def data(values: Any) -> Markup:
    """Return values as JSON for a script element: no text in them can end it."""
    from markupsafe import Markup

    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(HTML_SIGNS.sub(lambda sign: f"\\u{ord(sign.group()):04x}", text))


def _text(value: Any) -> Any:
    """Return what a template shows: texts without control characters, which no browser shows."""
    return visible(value, keep="\n\t") if type(value) is str else value


def _sources(content: str) -> str:
    """Return the hashes of a page's scripts, for its security policy."""
    found = (sha256(text.encode()).digest() for text in SCRIPT.findall(content))
    return " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in found)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("chary.pages"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["hue"] = _hue
    return environment


def _hue(colour: str) -> str:
    """Return the style of an element of class `hue`: its colour by day and at night.

    Example:
        >>> _hue("#0B3C6B")
        '--day:#0B3C6B;--night:#A9B4FF'
    """
    return f"--day:{colour};--night:{night_of(colour)}"
