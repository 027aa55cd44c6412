"""What conditions and algorithms of every family of problems are checked by and written with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from chary.errors import InvalidSetting, check_real

__all__ = [
    "ROLES",
    "WITHOUT_BUDGET",
    "check_etas",
    "check_label",
    "check_name",
    "check_text",
    "check_unique",
    "names_of",
    "tupled",
    "without_defaults",
]

# What an algorithm stands for when the report answers the paper's claims; empty for none of these.
ROLES = ("", "unconstrained", "conservative", "mixture", "baseline", "paper", "ours", "chosen", "naive")

# Rules that keep no budget.
WITHOUT_BUDGET = ("unlimited", "closed")


def names_of(cls: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(each.name for each in fields(cls))


def tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values with tuples, which are frozen, in place of the lists that files have."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def without_defaults(value: Any, left_out: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a dataclass that are not what they are without being given."""
    return {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.name not in left_out and getattr(value, each.name) != each.default
    }


def check_name(name: object) -> str:
    """Return a name that may be that of a folder, and of nothing outside it."""
    if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)):
        raise InvalidSetting(f"'name' must be made of letters, digits, '-', '_' and '.', got {name!r}.")
    return name


def check_label(label: object) -> None:
    """Raise InvalidSetting unless `label` is a text with something in it."""
    if not (isinstance(label, str) and label.strip()):
        raise InvalidSetting(f"'label' must be a text, got {label!r}.")


def check_text(what: str, text: object) -> None:
    """Raise InvalidSetting unless `text` is one."""
    if not isinstance(text, str):
        raise InvalidSetting(f"{what!r} must be a text, got {text!r}.")


def check_etas(etas: object) -> None:
    """Raise InvalidSetting unless `etas` are budgets, finite, >= 0 and each given once."""
    if not (isinstance(etas, tuple) and etas):
        raise InvalidSetting(f"'etas' must be a list of budgets, got {etas!r}.")
    for eta in etas:
        if not math.isfinite(check_real("etas", eta, low=0.0)):
            raise InvalidSetting(f"'etas' must be finite, got {eta!r}. Use rule 'unlimited' for no budget.")
    check_unique("etas", etas)


def check_unique(name: str, values: Sequence[object], *, empty: bool = False) -> None:
    """Raise InvalidSetting if a value is there twice, or there is none."""
    if not (values or empty):
        raise InvalidSetting(f"{name!r} must hold at least one, got none.")
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise InvalidSetting(f"{name!r} must differ from each other, got {twice[0]} twice.")
