"""The errors that chary raises: one family, each message with the name, the rule, the value and a way out."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable, Sequence, Sized
from importlib.util import find_spec
from typing import Any

from chary.texts import clipped, shown, visible

# The largest int64, the type of counts in kernels.
LARGEST = 2**63 - 1

# What one computer can be asked for: a run keeps numbers of every episode, a sweep a folder per run, and
# every worker is a process. More is a slip of the finger.
MOST_EPISODES = 10**8
MOST_RUNS = 10**5
MOST_WORKERS = 10**4
MOST_WORLDS = 10**4


class CharyError(ValueError):
    """An invalid argument or input; the message is one sentence for the user, on one line.

    It has at most 500 characters; the middle of a longer one is summarised.
    """

    def __init__(self, message: str) -> None:
        super().__init__(clipped(visible(" ".join(line.strip() for line in message.splitlines()))))


class InvalidBudget(CharyError):
    """A budget, a step bound or a charge that no rule can work with."""


class InvalidMDP(CharyError):
    """Transition, reward, start or mask arrays that do not describe a finite MDP."""


class InvalidSetting(CharyError):
    """An option outside its range, or options that exclude each other."""


class Unwritable(InvalidSetting):
    """A folder that cannot be written to: every later write to it would fail, too."""


class UnknownName(CharyError):
    """A problem, agent, rule or other name that chary does not have."""


class InvalidAction(CharyError):
    """An action that does not exist, or is not allowed in the current state."""


class InvalidData(CharyError):
    """An observation, a reward or a transition that contradicts what was declared."""


class InvalidLog(InvalidData):
    """Logged decisions with invalid rows; `faults` lists all that were found, see `chary.data.Fault`."""

    def __init__(self, message: str, faults: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class OutOfOrder(CharyError):
    """A call of the step API that does not follow from the calls before it."""


class FailedCode(CharyError):
    """Code of the user's own, an agent, a problem or a callback, raised an error: the cause of this one."""


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
    raise UnknownName(
        f"{name!r} must be one of {', '.join(known)}, got {shown(value)}.{did_you_mean(value, known)}"
    )


def did_you_mean(value: object, known: Iterable[str]) -> str:
    """Return a question about the known name that is most similar to `value`, empty if none is similar."""
    text = value if isinstance(value, str) else shown(value)
    close = difflib.get_close_matches(text[:60], list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_integer(
    name: str,
    value: object,
    *,
    minimum: int,
    largest: int | None = LARGEST,
    error: type[CharyError] = InvalidSetting,
    way_out: str = "",
) -> int:
    """Return `value` as an int if it is a whole number from `minimum` to `largest`, None for no limit."""
    whole = as_whole(value)
    too_large = whole is not None and largest is not None and whole > largest
    if whole is None or whole < minimum or too_large:
        raise error(
            f"{name!r} must be a whole number >= {minimum}{f' and <= {largest}' if too_large else ''}, got "
            f"{shown(value)}.{' ' + way_out if way_out else ''}"
        )
    return whole


def as_whole(value: object) -> int | None:
    """Return a whole number as an int, None for anything else.

    Booleans are refused: they are whole numbers in Python, but never meant as a count.
    """
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_index(name: str, value: object, size: int, *, error: type[CharyError]) -> int:
    """Return `value` as an int if it is a whole number from 0 to `size` - 1."""
    index = check_integer(name, value, minimum=0, error=error)
    if index >= size:
        raise error(f"{name!r} must lie in 0..{size - 1}, got {index}.")
    return index


def check_installed(package: str, purpose: str, extra: str) -> None:
    """Check that an optional package is installed.

    Raises:
        InvalidSetting: if it is not, with the command that installs it.
    """
    if find_spec(package) is None:
        raise InvalidSetting(f"{purpose} needs {package}. Run: pip install 'chary[{extra}]'.")


def check_type(
    name: str,
    value: object,
    kind: type | tuple[type, ...],
    what: str,
    *,
    error: type[CharyError] = InvalidSetting,
    way_out: str = "",
) -> None:
    """Raise unless `value` is an instance of `kind`, called `what` in the message."""
    if not isinstance(value, kind):
        way_out = " " + way_out if way_out else ""
        raise error(f"{name!r} must be {what}, got {type(value).__name__}.{way_out}")


def check_truth(name: str, value: object, *, error: type[CharyError] = InvalidSetting) -> bool:
    """Return `value` if it is True or False, of Python or of NumPy."""
    # NumPy is not imported here; its booleans are called `bool`, or `bool_` before version 2.
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise error(f"{name!r} must be True or False, got {shown(value)}.")


def check_seed(seed: object) -> int:
    """Return a seed: a whole number >= 0 of any size."""
    return check_integer("seed", seed, minimum=0, largest=None)


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
    """Return `value` as a float if it is in the interval from `low` to `high`.

    An infinite bound that is not open includes infinity; NaN is never accepted.
    """
    number = as_float(value)
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise error(
            f"{name!r} must lie in {left}{low:g}, {high:g}{right}, got {shown(value)}."
            f"{' ' + way_out if way_out else ''}"
        )
    return number


def as_float(value: object) -> float:
    """Return a real number as a float, NaN for anything else.

    `float` alone would accept texts and arrays of one number.
    """
    # The common case first: there are millions of rewards and charges.
    if type(value) is float:
        return value
    if isinstance(value, (bool, str, bytes, bytearray)):
        return math.nan
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        return math.nan
    if isinstance(value, Sized) and not isinstance(value, numbers.Real):
        # An array without dimensions has no length, although its class defines one.
        try:
            len(value)
        except TypeError:
            pass
        else:
            return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
