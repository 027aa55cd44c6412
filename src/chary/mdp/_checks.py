"""Checks of the numbers of an MDP: each is checked once, and copied read-only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats, Ints, frozen
from chary.errors import CharyError, InvalidMDP, check_integer
from chary.texts import shown

if TYPE_CHECKING:
    from chary.mdp.setting import RewardScale, Setting


ROW_SUM_TOLERANCE = 1e-9


def as_numbers(name: str, values: ArrayLike, error: type[CharyError] = InvalidMDP) -> NDArray[Any]:
    """Return an array of whole or real numbers or booleans.

    Raises:
        InvalidMDP: or `error`, if they are not numbers, or lists of different lengths.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as problem:
        raise error(f"{name!r} must be an array of numbers, got {type(values).__name__}.") from problem
    if array.dtype.kind not in "biuf":
        got = array.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise error(f"{name!r} must be an array of numbers, got {got}.")
    return array


def as_floats(name: str, values: ArrayLike) -> Floats:
    array = as_numbers(name, values).astype(float, copy=False)
    if not np.isfinite(array).all():
        raise InvalidMDP(f"{name!r} must be finite, got {float(array[~np.isfinite(array)][0])}.")
    return array


def as_rewards(R: ArrayLike, S: int, A: int) -> Floats:
    rewards = as_floats("R", R)
    if rewards.shape not in ((S, A), (S, A, S)):
        raise InvalidMDP(f"'R' must have shape ({S}, {A}) or ({S}, {A}, {S}), got {rewards.shape}.")
    return rewards


def as_list(name: str, states: Iterable[int]) -> list[int]:
    """Return whole numbers as a list, since an iterator can be read only once."""
    if isinstance(states, np.ndarray) and states.ndim != 1:
        raise InvalidMDP(f"{name!r} must be a list of states, got an array of shape {states.shape}.")
    if not isinstance(states, Iterable):
        raise InvalidMDP(f"{name!r} must be a list of states, got {shown(states)}.")
    return [check_integer(name, state, minimum=0, error=InvalidMDP) for state in states]


def terminal_mask(terminal: Iterable[int], S: int) -> Bools:
    states = np.asarray(as_list("terminal", terminal), dtype=np.int64)
    if len(states) and states.max() >= S:
        raise InvalidMDP(f"'terminal' must contain states 0..{S - 1}, got {int(states[states >= S][0])}.")
    mask = np.zeros(S, dtype=bool)
    mask[states] = True
    return mask


def allowed_mask(allowed: ArrayLike | None, S: int, A: int, terminal: Bools) -> Bools:
    mask = np.array(np.ones((S, A)) if allowed is None else as_numbers("allowed", allowed), dtype=bool)
    if mask.shape != (S, A):
        raise InvalidMDP(f"'allowed' must have shape ({S}, {A}), got {mask.shape}.")
    mask[terminal] = False
    stuck = ~mask.any(axis=1) & ~terminal
    if stuck.any():
        raise InvalidMDP(
            f"'allowed' must leave every state an action, got 0 in state {int(np.flatnonzero(stuck)[0])}. "
            "Allow one, or list the state as terminal."
        )
    return mask


def number_pairs(mask: Bools) -> tuple[Ints, Ints, Ints]:
    pair_index = np.full(mask.shape, -1, dtype=np.int64)
    pair_index[mask] = np.arange(mask.sum())
    pair_start = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    return frozen(pair_index), frozen(pair_start), frozen(np.nonzero(mask)[1].astype(np.int64))


def as_support(support: ArrayLike | None, mask: Bools, S: int, A: int) -> Ints:
    declared = np.asarray(S if support is None else as_numbers("support", support))
    if not np.issubdtype(declared.dtype, np.integer) or declared.shape not in ((), (S, A)):
        raise InvalidMDP(
            f"'support' must be a whole number or one for each pair, shape ({S}, {A}), got {shown(support)}."
        )
    each = np.broadcast_to(declared, (S, A))[mask]
    if ((each < 1) | (each > S)).any():
        raise InvalidMDP(f"'support' must lie in 1..{S}, got {int(each[(each < 1) | (each > S)][0])}.")
    return frozen(each.astype(np.int64))


def as_start(start: ArrayLike | int, S: int, terminal: Bools) -> Floats:
    given = as_numbers("start", start)
    if given.ndim == 0:
        state = check_integer("start", given[()], minimum=0, error=InvalidMDP)
        if state >= S:
            raise InvalidMDP(f"'start' must be a state 0..{S - 1}, got {state}.")
        distribution = np.zeros(S)
        distribution[state] = 1.0
    else:
        distribution = as_floats("start", given)
        if distribution.shape != (S,):
            raise InvalidMDP(
                f"'start' must be a state or a distribution of shape ({S},), got {distribution.shape}."
            )
        if (distribution < 0).any() or abs(distribution.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidMDP(
                f"'start' must contain probabilities that sum to 1, got a sum of {distribution.sum():.12g}."
            )
    ended = np.flatnonzero((distribution > 0) & terminal)
    if len(ended):
        raise InvalidMDP(f"'start' must not be a terminal state, got state {int(ended[0])}.")
    return frozen(distribution)


def check_probabilities(p: Floats) -> None:
    if (p < 0).any():
        raise InvalidMDP(f"'P' must contain probabilities >= 0, got {float(p.min())}.")


def check_rows(setting: Setting, pair: Ints, x: Ints, p: Floats) -> None:
    if not np.isfinite(p).all():
        raise InvalidMDP(f"'P' must be finite, got {float(p[~np.isfinite(p)][0])}.")
    check_probabilities(p)

    def place(q: int) -> str:
        s = int(np.searchsorted(setting.pair_start, q, side="right")) - 1
        return f"state {s}, action {int(setting.pair_action[q])}"

    twice = np.flatnonzero((np.diff(pair) == 0) & (np.diff(x) == 0))
    if len(twice):
        i = int(twice[0])
        raise InvalidMDP(
            f"'P' must list a successor once, got successor {int(x[i])} twice at {place(int(pair[i]))}."
        )
    sums = np.bincount(pair, weights=p, minlength=setting.n_pairs)
    wrong = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if len(wrong):
        q = int(wrong[0])
        raise InvalidMDP(f"'P' must have rows that sum to 1, got {sums[q]:.12g} at {place(q)}.")
    reached = np.bincount(pair[p > 0], minlength=setting.n_pairs)
    beyond = np.flatnonzero(reached > setting.support)
    if len(beyond):
        q = int(beyond[0])
        raise InvalidMDP(
            f"'support' must be at least the number of successors, got {int(setting.support[q])} "
            f"for {int(reached[q])} at {place(q)}."
        )


def check_rewards(scaled: Floats, scale: RewardScale) -> Floats:
    # Scaling by the extremes themselves may give 1 + 1e-16; anything more is a mistake.
    if len(scaled) and not (
        np.isfinite(scaled).all() and scaled.min() >= -1e-12 and scaled.max() <= 1 + 1e-12
    ):
        worst = scaled[~np.isfinite(scaled) | (scaled < -1e-12) | (scaled > 1 + 1e-12)][0]
        raise InvalidMDP(
            f"'R' must lie in [{scale.low:g}, {scale.high:g}], "
            f"got {scale.low + float(worst) * scale.span:g}. "
            "Pass reward_range=(low, high) to scale rewards explicitly."
        )
    return np.clip(scaled, 0.0, 1.0)


def cumulative_rows(row_start: Ints, p: Floats) -> Floats:
    total = np.empty_like(p, dtype=float)
    for begin, end in pairwise(row_start):
        total[begin:end] = np.cumsum(p[begin:end])
    return total
