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
WHOLE = ("episode", "t", "state", "action", "next_state")
OBSERVED = ("state", "next_state")

WHOLE_RULE = "be a whole number >= 0"
REAL_RULE = "be a finite number"
TRUTH_RULE = "be 0 or 1, or true or false"


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


def as_wholes(name: str, column: NDArray[Any], places: Places) -> Ints:
    """Return whole numbers >= 0; whole floats are accepted, booleans are not."""
    kind = column.dtype.kind
    if kind == "O":
        values, wrong = _each(column, _whole, np.int64)
    elif kind in "iu":
        wrong = (column < 0) | (column > LARGEST)
        values = np.where(wrong, 0, column).astype(np.int64)
    elif kind == "f":
        # From 2**53 on floats skip whole numbers, so the intended one is unknown.
        wrong = ~((column >= 0) & (column < 2**53))
        whole = np.where(wrong, 0, column)
        values = whole.astype(np.int64)
        wrong |= values != whole
    else:
        raise _wrong_type(name, "whole numbers", column)
    way_out = "Number the episodes 0, 1, 2, ..." if name == "episode" else ""
    places.refuse(name, WHOLE_RULE, wrong, lambda i: shown(column[i]), way_out)
    return values


def as_reals(name: str, column: NDArray[Any], places: Places) -> Floats:
    """Return finite numbers as floats."""
    kind = column.dtype.kind
    if kind == "O":
        values, wrong = _each(column, _real, np.float64)
    elif kind in "iuf":
        with np.errstate(over="ignore"):
            values = column.astype(np.float64)
        wrong = ~np.isfinite(values)
    else:
        raise _wrong_type(name, "numbers", column)
    places.refuse(name, REAL_RULE, wrong, lambda i: shown(column[i]))
    return values


def as_truths(name: str, column: NDArray[Any], places: Places) -> Bools:
    """Return booleans, from booleans or from 0 and 1."""
    kind = column.dtype.kind
    if kind == "O":
        values, wrong = _each(column, _truth, np.bool_)
    elif kind in "biuf":
        wrong = ~np.isin(column, (0, 1))
        values = column == 1
    else:
        raise _wrong_type(name, "booleans", column)
    places.refuse(name, TRUTH_RULE, wrong, lambda i: shown(column[i]))
    return values


def sorted_order(episode: Ints, t: Ints) -> NDArray[np.intp] | None:
    """Return the stable order by episode and step, None if entries are in this order already."""
    step = np.diff(episode)
    if ((step > 0) | ((step == 0) & (np.diff(t) > 0))).all():
        return None
    return np.lexsort((t, episode))


def _wrong_type(name: str, wanted: str, column: NDArray[Any]) -> InvalidData:
    example = f" such as {shown(column[0])}" if len(column) else ""
    return InvalidData(f"{name!r} must contain {wanted}, got {column.dtype}{example} in every row.")


def _each(
    column: NDArray[Any], read: Callable[[object], Any], kind: type[np.generic]
) -> tuple[NDArray[Any], Bools]:
    """Read objects one by one; `read` returns None for an invalid one."""
    found = [read(value) for value in column]
    wrong = np.array([value is None for value in found], dtype=bool)
    return np.array([0 if value is None else value for value in found], dtype=kind), wrong


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
