"""Rewards: their scale, and declared reward functions in the user's units as the planners read them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Bools, Floats, Ints, frozen
from chary.errors import InvalidMDP, as_float
from chary.mdp._checks import as_numbers
from chary.texts import shown

# How far a reward, in scaled units, may be outside its range because of rounding.
REWARD_TOLERANCE = 1e-9


class RewardScale(NamedTuple):
    """The affine map between the user's rewards and the scaled ones: scaled = (raw - low) / (high - low).

    Example:
        >>> RewardScale(-10.0, 30.0).scaled_difference(4.0)
        0.1
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def span(self) -> float:
        """The number of the user's units per scaled unit."""
        return self.high - self.low

    def scaled_difference(self, amount: float) -> float:
        """Return a difference of rewards (a budget, a deficit, a regret) in scaled units."""
        return amount / self.span

    def raw_difference(self, amount: float) -> float:
        """Return a difference of scaled rewards in the user's units."""
        return amount * self.span

    @classmethod
    def of(cls, reward_range: tuple[float, float]) -> RewardScale:
        """Return the scale of rewards between two finite numbers, low < high, whose difference is finite.

        Raises:
            InvalidMDP: if they are not.
        """
        try:
            low, high = (as_float(v) for v in reward_range)
        except (TypeError, ValueError) as problem:
            raise InvalidMDP(f"'reward_range' must be two numbers, got {shown(reward_range)}.") from problem
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidMDP(f"'reward_range' must be finite with low < high, got {(low, high)}.")
        if not math.isfinite(high - low):
            raise InvalidMDP(
                f"'reward_range' must have a finite span, got {(low, high)}. Use other units of reward."
            )
        return cls(low, high)


class KnownReward(NamedTuple):
    """The declared reward function r(s, a, s'), one list of successors per pair.

    Pair p lists `successor[start[p]:start[p + 1]]`, ascending, with their rewards; a successor that is
    not listed earns between `other_low[p]` and `other_high[p]`.
    """

    start: Ints
    successor: Ints
    reward: Floats
    other_low: Floats
    other_high: Floats


# A table (S, A) or (S, A, S), or a function of state and action, or of state, action and next state.
Reward: TypeAlias = ArrayLike | Callable[..., SupportsFloat | None]


def reward_table(reward: Reward, allowed: Bools) -> Floats:
    """Return declared rewards as a table (S, A) or (S, A, S) in the user's units, NaN where not known.

    Args:
        reward: The table, or a function that returns one reward. For next states that cannot follow, None and
            NaN stand for no reward.
        allowed: The allowed actions, (S, A); a function is called for these alone.

    Raises:
        InvalidMDP: if it is neither, or of another shape, or a reward is not a number.
    """
    S, A = allowed.shape
    if callable(reward):
        return _asked(reward, allowed)
    try:
        table = as_numbers("reward", reward).astype(float)
    except InvalidMDP as problem:
        raise InvalidMDP(
            f"'reward' must be a table of numbers or a function, got {shown(reward)}."
        ) from problem
    if table.shape not in ((S, A), (S, A, S)):
        raise InvalidMDP(
            f"'reward' must be a function, or a table of shape ({S}, {A}) or ({S}, {A}, {S}), got shape "
            f"{table.shape}."
        )
    return table


def _asked(function: Callable[..., SupportsFloat | None], allowed: Bools) -> Floats:
    """Return the table of a function of state and action, or of state, action and next state."""
    S, A = allowed.shape
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    needed = [each for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    if len(needed) not in (2, 3):
        raise InvalidMDP(
            f"'reward' must be a function of state and action, or of state, action and next state, got "
            f"{shown(function)}. Wrap it: lambda state, action: ..., or lambda state, action, after: ..."
        )
    table = np.full((S, A) if len(needed) == 2 else (S, A, S), np.nan)
    for s, a in np.argwhere(allowed).tolist():
        for x in range(S) if len(needed) == 3 else (None,):
            earned = function(s, a) if x is None else function(s, a, x)
            number = math.nan if earned is None else as_float(earned)
            if math.isnan(number) and not (earned is None or isinstance(earned, float)):
                raise InvalidMDP(
                    f"'reward' must return numbers, got {shown(earned)} in state {s} for action {a}. Return "
                    "None for a next state that cannot follow."
                )
            table[(s, a) if x is None else (s, a, x)] = number
    return table


def range_of(table: Floats, allowed: Bools) -> tuple[float, float]:
    """Return the range of known rewards, with 0 in it: nothing is earned after an ending."""
    known = table[allowed]
    known = known[np.isfinite(known)]
    low, high = min(float(known.min(initial=0.0)), 0.0), max(float(known.max(initial=0.0)), 0.0)
    return (low, high) if low < high else (0.0, 1.0)


def known_reward(table: Floats, allowed: Bools, scale: RewardScale) -> KnownReward:
    """Return rewards as planners read them: scaled, and by pair.

    Raises:
        InvalidMDP: if one is outside the range, or an allowed action has none.
    """
    each = (table[allowed] - scale.low) / scale.span
    n = len(each)
    missing = np.isnan(each)
    wrong = ~((each >= -REWARD_TOLERANCE) & (each <= 1 + REWARD_TOLERANCE) | missing)
    nothing = missing.reshape(n, -1).all(axis=1)
    if wrong.any() or nothing.any():
        place = tuple(np.argwhere(wrong if wrong.any() else nothing)[0].tolist())
        s, a = np.argwhere(allowed)[place[0]].tolist()
        if wrong.any():
            got = f"{float(table[(s, a, *place[1:])]):g}"
            raise InvalidMDP(
                f"'reward' must lie in [{scale.low:g}, {scale.high:g}], got {got} in state {s} for action "
                f"{a}. Declare a wider reward_range."
            )
        raise InvalidMDP(
            f"'reward' must be known for every allowed action, got none in state {s} for action {a}. Leave "
            "it out: rewards are then estimated."
        )
    each = np.clip(each, 0.0, 1.0)
    if each.ndim == 1:
        columns = (np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros(0), each, each)
    else:
        start = np.concatenate([[0], np.cumsum((~missing).sum(axis=1))]).astype(np.int64)
        successor = np.nonzero(~missing)[1].astype(np.int64)
        columns = (start, successor, each[~missing], np.zeros(n), np.ones(n))
    return KnownReward(*(frozen(array) for array in columns))
