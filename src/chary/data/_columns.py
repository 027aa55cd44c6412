"""Checks of the columns of a log: each is checked once, and an error names the first invalid row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats, Ints
from chary.errors import LARGEST, InvalidData, as_whole

COLUMNS = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
OBSERVED = ("state", "next_state")

# The kind of each column.
KINDS = dict.fromkeys(("episode", "t", "state", "action", "next_state"), "whole") | {
    "reward": "real",
    "terminated": "truth",
}
RULES = {
    "whole": "be a whole number >= 0",
    "real": "be a finite number",
    "truth": "be 0 or 1, or true or false",
}


class Places(NamedTuple):
    """The place that each entry of a log came from: the row of a file, or the index in an array."""

    number: Ints
    unit: str

    def first(self, wrong: Bools) -> int:
        """Return the index of the invalid entry that comes first in the source."""
        at = np.flatnonzero(wrong)
        return int(at[np.argmin(self.number[at])])

    def said(self, wrong: Bools) -> str:
        """Return "row 7", or "row 7 and 3 more rows"."""
        return where(self.unit, int(self.number[self.first(wrong)]), int(wrong.sum()) - 1)

    def at(self, index: int) -> str:
        """Return "row 7"."""
        return f"{self.unit} {int(self.number[index])}"

    def refuse(
        self, name: str, rule: str, wrong: Bools, got: Callable[[int], str], way_out: str = ""
    ) -> None:
        """Raise InvalidData if there are invalid entries; `got` describes the one at an index."""
        if not wrong.any():
            return
        first = self.first(wrong)
        raise InvalidData(
            f"{name!r} must {rule}, got {got(first)} in {self.said(wrong)}.{' ' + way_out if way_out else ''}"
        )


def where(unit: str, number: int, more: int) -> str:
    """Return "row 7 and 3 more rows"."""
    others = "" if not more else f" and {more} more {unit if more == 1 else plural(unit)}"
    return f"{unit} {number}{others}"


def plural(unit: str) -> str:
    """Return the plural of "row", "entry" or "transition"."""
    return "entries" if unit == "entry" else f"{unit}s"


def shown(value: object) -> str:
    """Return a value for a message: numbers plainly, anything else quoted, and at most 60 characters."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_column(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return one column of any type; values of mixed types keep their types."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            # NumPy turns [1, "x"] into texts, and the first entry would look invalid, too.
            array = np.array(values, dtype=object)
    except (TypeError, ValueError, OverflowError, RuntimeError) as problem:
        raise InvalidData(f"{name!r} must be one column of values, got {shown(values)}.") from problem
    if array.ndim != 1:
        raise InvalidData(
            f"{name!r} must be one column of values, shape (N,), got shape {array.shape} of {array.dtype}."
        )
    return array


def as_kind(kind: str, name: str, column: NDArray[Any], places: Places) -> NDArray[Any]:
    """Return a column of some kind, see `KINDS`; the error names the first invalid entry."""
    wanted, types, dtype, one, several = READERS[kind]
    if column.dtype.kind == "O":
        found = [one(value) for value in column]
        wrong = np.array([value is None for value in found], dtype=bool)
        values = np.array([0 if value is None else value for value in found], dtype=dtype)
    elif column.dtype.kind in types:
        values, wrong = several(column)
    else:
        example = f" such as {shown(column[0])}" if len(column) else ""
        raise InvalidData(f"{name!r} must contain {wanted}, got {column.dtype}{example} in every row.")
    way_out = "Number the episodes 0, 1, 2, ..." if name == "episode" else ""
    places.refuse(name, RULES[kind], wrong, lambda i: shown(column[i]), way_out)
    return values


def sorted_order(episode: Ints, t: Ints) -> NDArray[np.intp] | None:
    """Return the stable order by episode and step, None if entries are in this order already."""
    step = np.diff(episode)
    if ((step > 0) | ((step == 0) & (np.diff(t) > 0))).all():
        return None
    return np.lexsort((t, episode))


def _whole(value: object) -> int | None:
    if isinstance(value, (float, np.floating)) and 0 <= value < 2**53 and value == int(value):
        return int(value)
    whole = as_whole(value)
    return whole if whole is not None and 0 <= whole <= LARGEST else None


def _real(value: object) -> float | None:
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return None
    try:
        real = float(value)
    except OverflowError:
        return None
    return real if math.isfinite(real) else None


def _truth(value: object) -> bool | None:
    if isinstance(value, (bool, np.bool_, int, np.integer, float, np.floating)) and value in (0, 1):
        return bool(value)
    return None


def _wholes(column: NDArray[Any]) -> tuple[Ints, Bools]:
    """Return whole numbers, and which are not valid ones; whole floats are, booleans are not."""
    if column.dtype.kind in "iu":
        wrong = (column < 0) | (column > LARGEST)
        return np.where(wrong, 0, column).astype(np.int64), wrong
    # From 2**53 on floats skip whole numbers, so the intended one is unknown.
    wrong = ~((column >= 0) & (column < 2**53))
    whole = np.where(wrong, 0, column)
    values = whole.astype(np.int64)
    return values, wrong | (values != whole)


def _reals(column: NDArray[Any]) -> tuple[Floats, Bools]:
    with np.errstate(over="ignore"):
        values = column.astype(np.float64)
    return values, ~np.isfinite(values)


def _truths(column: NDArray[Any]) -> tuple[Bools, Bools]:
    return column == 1, ~np.isin(column, (0, 1))


# What a column of a kind contains, the types that it may have, the type that it gets, and how entries are
# read: objects one by one, None where one is not valid, and the others all at once.
READERS: dict[str, tuple[str, str, type[np.generic], Callable[[object], Any], Callable[..., Any]]] = {
    "whole": ("whole numbers", "iuf", np.int64, _whole, _wholes),
    "real": ("numbers", "iuf", np.float64, _real, _reals),
    "truth": ("booleans", "biuf", np.bool_, _truth, _truths),
}


def check_steps(columns: dict[str, NDArray[Any]], places: Places) -> None:
    """Raise InvalidData unless sorted columns are whole episodes, step by step."""
    episode, t, state = columns["episode"], columns["t"], columns["state"]
    same = np.concatenate([[False], episode[1:] == episode[:-1]])
    before = np.maximum(np.arange(len(t)) - 1, 0)

    def step(i: int) -> str:
        return f"episode {episode[i]}, t {t[i]}"

    places.refuse(
        "t",
        "be different for every step of an episode",
        same & (t == t[before]),
        lambda i: f"{step(i)}, as in {places.at(int(before[i]))},",
    )
    places.refuse(
        "t",
        "count 0, 1, 2, ... within an episode",
        t != np.where(same, t[before] + 1, 0),
        lambda i: f"{step(i)}, {f'after t {t[before[i]]},' if same[i] else 'as its first step'}",
    )
    places.refuse(
        "terminated",
        "be the last step of an episode",
        same & columns["terminated"][before],
        lambda i: f"{step(i)}, after the end in {places.at(int(before[i]))},",
    )
    after = np.minimum(np.arange(len(t)) + 1, len(t) - 1)
    broken = np.concatenate([same[1:], [False]]) & (columns["next_state"] != state[after])
    places.refuse(
        "next_state",
        "be the state in which the next step starts",
        broken,
        lambda i: f"{columns['next_state'][i]}, and then {state[after[i]]} in {places.at(int(after[i]))},",
    )
