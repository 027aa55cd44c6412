"""Checks of the columns of a log: each is checked once, and an error names the first invalid row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary import texts
from chary.arrays import Bools, Floats, Ints
from chary.errors import LARGEST, InvalidData, InvalidLog, InvalidSetting, as_whole, check_integer

COLUMNS = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
OBSERVED = ("state", "next_state")

# The kind of each column.
KINDS = dict.fromkeys(COLUMNS, "whole") | {"episode": "id", "reward": "real", "terminated": "truth"}
# The pairs of texts that stand for false and true.
STYLES = ({"0": False, "1": True}, {"false": False, "true": True}, {"no": False, "yes": True})
RULES = {
    "whole": "be a whole number >= 0",
    "real": "be a finite number",
    "truth": "be 0 or 1, or true or false",
    "text": "be a text that is not empty",
}
# Texts that stand for a missing value.
MISSING = frozenset({"", "-", "n/a", "na", "nan", "none", "null", "<na>"})
MEND_MISSING = (
    "Fill in missing values by what was observed, or leave out their whole episodes: drop_bad_episodes=True "
    "(--drop-bad-episodes)."
)
# How many values of one fault are kept, and how many other faults one message names.
VALUES_KEPT = 1000
FAULTS_NAMED = 3
# So many texts of a column, of so many characters together, are named where labels are missing.
LABELS_TOLD, LONGEST_TOLD = 20, 220


class Fault(NamedTuple):
    """A rule that some rows of a log break: the numbers of all of them, and what the first ones contain.

    Example:
        >>> Fault("reward", "be a finite number", "row", (7, 9), ("'x'", "'y'")).describe()
        "'reward' must be a finite number, got 'x' in row 7 and 1 more row."
    """

    column: str
    rule: str
    unit: str
    rows: Sequence[int]
    got: Sequence[str]
    way_out: str = ""

    def describe(self) -> str:
        """Return the rule, the first value and its row, and the number of others."""
        place = where(self.unit, int(self.rows[0]), len(self.rows) - 1)
        return f"{self.column!r} must {self.rule}, got {self.got[0]} in {place}."

    def lines(self, most: int) -> list[str]:
        """Return one line per row, at most so many."""
        kept = islice(zip(self.rows, self.got, strict=False), most)
        return [f"{self.unit} {row}: {self.column!r} must {self.rule}, got {got}" for row, got in kept]


def refusal(faults: Sequence[Fault]) -> InvalidLog:
    """Return the error for some faults: the first one in full, and where the others are."""
    first, *others = faults
    way_out = f" {first.way_out}" if first.way_out else ""
    also = [f"{each.column!r} in {each.unit} {each.rows[0]}" for each in others[:FAULTS_NAMED]]
    if len(others) > FAULTS_NAMED:
        also.append(f"{len(others) - FAULTS_NAMED} more")
    more = f" Also invalid: {'; '.join(also)}. `chary data inspect --faults` lists all." if also else ""
    return InvalidLog(f"{first.describe()}{way_out}{more}", faults)


class Places(NamedTuple):
    """The place that each entry of a log came from: the row of a file, or the index in an array.

    Faults are collected in `faults`; where that is None, the first one is raised.
    """

    number: Ints
    unit: str
    faults: list[Fault] | None = None

    def at(self, index: int) -> str:
        """Return "row 7"."""
        return f"{self.unit} {int(self.number[index])}"

    def refuse(
        self, name: str, rule: str, wrong: Bools, got: Callable[[int], str], way_out: str = ""
    ) -> None:
        """Raise InvalidLog if there are invalid entries, or collect them; `got` describes an entry."""
        if not wrong.any():
            return
        at = np.flatnonzero(wrong)
        at = at[np.argsort(self.number[at], kind="stable")]
        values = tuple(got(int(i)) for i in at[:VALUES_KEPT])
        fault = Fault(name, rule, self.unit, self.number[at].tolist(), values, way_out)
        if self.faults is None:
            raise refusal([fault])
        self.faults.append(fault)

    def among(self, kept: Bools | NDArray[np.intp]) -> Places:
        """Return the places of some entries, or in another order."""
        return self._replace(number=self.number[kept])

    def faulty(self) -> Bools:
        """Return which entries have a collected fault."""
        rows = [row for fault in self.faults or () for row in fault.rows]
        return np.isin(self.number, np.array(rows, dtype=np.int64))


def where(unit: str, number: int, more: int) -> str:
    """Return "row 7 and 3 more rows"."""
    others = "" if not more else f" and {more} more {unit if more == 1 else plural(unit)}"
    return f"{unit} {number}{others}"


def plural(unit: str) -> str:
    """Return the plural of "row", "entry" or "transition"."""
    return "entries" if unit == "entry" else f"{unit}s"


def shown(value: object) -> str:
    """Return a value for a message: numbers plainly, anything else quoted, and at most 60 characters."""
    return texts.shown(value.item() if isinstance(value, np.generic) else value, 60)


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
    """Return a column of some kind, see `KINDS`; where faults are collected, invalid entries become 0."""
    wanted, types, dtype, one, several = READERS[kind]
    if column.dtype.kind == "O":
        found = [one(value) for value in column]
        wrong = np.array([value is None for value in found], dtype=bool)
        values = np.array([dtype(0) if value is None else value for value in found], dtype=dtype)
    elif column.dtype.kind in types:
        values, wrong = several(column)
    else:
        example = f" such as {shown(column[0])}" if len(column) else ""
        way_out = f" {_mend_texts(name, column.tolist())}" if column.dtype.kind in "US" else ""
        raise InvalidData(
            f"{name!r} must contain {wanted}, got {column.dtype}{example} in every row.{way_out}"
        )
    missing = wrong & _missing(column)
    places.refuse(name, "have a value in every row", missing, lambda i: "a missing value", MEND_MISSING)
    wrong &= ~missing
    texts = wrong.any() and isinstance(column[wrong][0], str)
    way_out = _mend_texts(name, column[wrong].tolist()) if texts else ""
    places.refuse(name, RULES[kind], wrong, lambda i: shown(column[i]), way_out)
    return values


def style_of(texts: Iterable[str]) -> dict[str, bool]:
    """Return the pair of texts that the first readable cell has; a column has only one."""
    return next((style for text in texts for style in STYLES if text in style), {})


def worded(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of texts such as yes and no as booleans; what cannot be read stays as it is."""
    if column.dtype.kind not in "OUT" or not all(isinstance(value, str) for value in column.tolist()):
        return column
    cells = [text.strip().lower() for text in column.tolist()]
    style = style_of(cells)
    told = [style.get(cell, text) for cell, text in zip(cells, column.tolist(), strict=True)]
    return np.array(told, dtype=object)


def _mend_texts(name: str, values: Sequence[Any]) -> str:
    """Return the way out for a column that contains texts in place of numbers."""
    try:
        float(values[0])
    except ValueError:
        return list_labels(name, values)
    way_out = f"{str(values[0])!r} is a text: turn the column into numbers first."
    return f"{way_out} {list_labels(name, values)}".strip()


def list_labels(name: str, values: Iterable[Any]) -> str:
    """Return the way out for a column that may have labels and contains texts; few ones are named."""
    if name not in (*OBSERVED, "action"):
        return ""
    labelled = name.removeprefix("next_")
    found = sorted({str(value).strip() for value in values} - {""})
    told = ", ".join(json.dumps(text, ensure_ascii=False) for text in found[:LABELS_TOLD])
    few = len(found) <= LABELS_TOLD and len(told) <= LONGEST_TOLD and told.isprintable()
    texts = f", {told}, by" if few else " by"
    return f"If these are texts, list them{texts} labels={{{labelled!r}: [...]}} (--label {labelled}=...)."


def as_ids(name: str, column: NDArray[Any], places: Places) -> tuple[Ints, tuple[str, ...]]:
    """Return ids as numbers, and their texts if they are texts, numbered in the order of the source.

    The first entry decides whether ids are texts or numbers.
    """
    if not len(column) or not isinstance(column[0], str):
        return as_kind("whole", name, column, places), ()
    texts = as_kind("text", name, column.astype(object), places)
    seen = {text: k for k, text in enumerate(dict.fromkeys(texts.tolist()))}
    return np.array([seen[text] for text in texts], dtype=np.int64), tuple(seen)


def as_labelled(name: str, column: NDArray[Any], labels: Sequence[str], places: Places) -> Ints:
    """Return the places of texts in the list of those that a column may contain."""
    numbers: dict[str | None, int] = {label: k for k, label in enumerate(labels)}
    cells = [value.strip() if isinstance(value, str) else None for value in column.tolist()]
    wrong = np.array([cell not in numbers for cell in cells], dtype=bool)
    missing = wrong & _missing(column)
    places.refuse(name, "have a value in every row", missing, lambda i: "a missing value", MEND_MISSING)
    wrong &= ~missing
    named = ", ".join(map(repr, labels[:5])) + (f" or {len(labels) - 5} more" if len(labels) > 5 else "")
    places.refuse(name, f"be one of the labels {named}", wrong, lambda i: shown(column[i]))
    return np.array([numbers.get(cell, 0) for cell in cells], dtype=np.int64)


def _missing(column: NDArray[Any]) -> Bools:
    """Return which entries stand for a missing value: None, NaN, pandas' NA, or a text such as NA."""
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind != "O":
        return np.zeros(len(column), dtype=bool)
    return np.array([str(value).strip().lower() in MISSING for value in column], dtype=bool)


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


def text_of(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    return text if text.lower() not in MISSING else None


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
    "text": ("texts", "", np.object_, text_of, _reals),
}


def check_first_step(first_step: object) -> int:
    """Return the number that the first step of an episode has, 0 or 1."""
    first = check_integer("first_step", first_step, minimum=0)
    if first > 1:
        raise InvalidSetting(f"'first_step' must be 0 or 1, got {shown(first_step)}.")
    return first


def from_zero(t: Ints, first: int, places: Places) -> Ints:
    """Return steps counted from `first` on as steps counted from 0 on."""
    # A value that could not be read is 0 here, and has its own fault.
    below = (t < first) & ~places.faulty()
    places.refuse("t", f"be at least {first}, the first step", below, lambda i: str(t[i]))
    return np.maximum(t - first, 0)


def check_steps(columns: dict[str, NDArray[Any]], places: Places, first: int = 0) -> None:
    """Raise InvalidLog unless sorted columns are whole episodes, step by step, or collect what is wrong.

    Of an episode, the first rule that it breaks is collected: others would follow from it. `first` is the
    number of the first step where the columns come from.
    """
    episode, t, state = columns["episode"], columns["t"], columns["state"]
    same = np.concatenate([[False], episode[1:] == episode[:-1]])
    before = np.maximum(np.arange(len(t)) - 1, 0)
    after = np.minimum(np.arange(len(t)) + 1, len(t) - 1)

    def step(i: int) -> str:
        return f"episode {episode[i]}, t {t[i] + first}"

    def refuse(name: str, rule: str, wrong: Bools, got: Callable[[int], str], way_out: str = "") -> None:
        if wrong.any() and places.faults:
            wrong = wrong & ~np.isin(episode, episode[places.faulty()])
        places.refuse(name, rule, wrong, got, way_out)

    from_one = len(t) > 0 and t.min() == 1 and not first
    refuse(
        "t",
        "be different for every step of an episode",
        same & (t == t[before]),
        lambda i: f"{step(i)}, as in {places.at(int(before[i]))},",
    )
    refuse(
        "t",
        f"count {first}, {first + 1}, {first + 2}, ... within an episode",
        t != np.where(same, t[before] + 1, 0),
        lambda i: f"{step(i)}, {f'after t {t[before[i]] + first},' if same[i] else 'as its first step'}",
        "No row has step 0. If steps are counted from 1: first_step=1 (--first-step 1)." if from_one else "",
    )
    refuse(
        "terminated",
        "be the last step of an episode",
        same & columns["terminated"][before],
        lambda i: f"{step(i)}, after the end in {places.at(int(before[i]))},",
    )
    refuse(
        "next_state",
        "be the state in which the next step starts",
        np.concatenate([same[1:], [False]]) & (columns["next_state"] != state[after]),
        lambda i: f"{columns['next_state'][i]}, and then {state[after[i]]} in {places.at(int(after[i]))},",
    )
