"""What chary raises: one family, each message with the name, the rule, the value and a way out."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable

__all__ = [
    "CharyError",
    "InvalidAction",
    "InvalidBudget",
    "InvalidData",
    "InvalidMDP",
    "InvalidSetting",
    "OutOfOrder",
    "PlannerMismatch",
    "UnknownName",
    "Unwritable",
    "check_choice",
    "check_integer",
    "check_real",
]


class CharyError(ValueError):
    """Any mistake in what chary was given; the message is one sentence fit to show a user."""


class InvalidBudget(CharyError):
    """A budget, a step bound or a charge that no rule can work with."""


class InvalidMDP(CharyError):
    """Transition, reward, start or mask arrays that do not describe a finite MDP."""


class InvalidSetting(CharyError):
    """An option outside its range, or options that exclude each other."""


class Unwritable(InvalidSetting):
    """A folder that the disk refuses to write to: whatever is to be written next would meet the same."""


class UnknownName(CharyError):
    """A problem, agent, rule or other name that chary does not have."""


class InvalidAction(CharyError):
    """An action that does not exist, or is not allowed in the present state."""


class InvalidData(CharyError):
    """An observation, a reward or a transition that contradicts what was declared."""


class OutOfOrder(CharyError):
    """A call of the step API that does not follow from the calls before it."""


class PlannerMismatch(CharyError):
    """The incremental planner and the full pass disagree: a mistake in chary, found by `check_every`."""


def check_choice(name: str, value: str, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`; otherwise suggest the nearest.

    Example:
        >>> check_choice("rule", "strict", ["strict", "capped"])
        'strict'

    Raises:
        UnknownName: naming the options and, where one is close, the likely one.
    """
    known = list(options)
    if isinstance(value, str) and value in known:
        return value
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownName(f"{name!r} must be one of {', '.join(known)}, got {value!r}.{hint}")


def check_integer(
    name: str, value: object, *, minimum: int, error: type[CharyError] = InvalidSetting, way_out: str = ""
) -> int:
    """Return `value` as an int if it is a whole number >= `minimum`.

    Booleans are refused: they are whole numbers to Python, but never what a user meant by a count.
    """
    whole: int | None = None
    if not isinstance(value, bool):
        try:
            whole = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            whole = None
    if whole is None or whole < minimum:
        raise error(
            f"{name!r} must be a whole number >= {minimum}, got {value!r}.{' ' + way_out if way_out else ''}"
        )
    return whole


def check_real(
    name: str,
    value: object,
    *,
    low: float,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    error: type[CharyError] = InvalidSetting,
    way_out: str = "",
) -> float:
    """Return `value` as a float if it lies in the interval from `low` to `high`.

    An infinite bound that is not open admits infinity itself; NaN is never admitted.
    """
    number = math.nan
    if not isinstance(value, (bool, str, bytes)):
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise error(
            f"{name!r} must lie in {left}{low:g}, {high:g}{right}, got {value!r}."
            f"{' ' + way_out if way_out else ''}"
        )
    return number
