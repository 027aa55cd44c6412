"""What an agent may be told about a problem: its shape, its reward scale, its rewards, never P."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary._mdp_checks import (
    allowed_mask,
    as_floats,
    as_support,
    as_value_cap,
    frozen,
    number_pairs,
    terminal_mask,
)
from chary.errors import InvalidMDP, InvalidSetting, check_integer, check_real

__all__ = ["KnownReward", "RewardScale", "Setting", "as_policy"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
        """How many of the user's units make one scaled unit."""
        return self.high - self.low

    def scaled_difference(self, amount: float) -> float:
        """Turn a difference of rewards (a budget, a deficit, a regret) into scaled units."""
        return amount / self.span

    def raw_difference(self, amount: float) -> float:
        """Turn a difference of scaled rewards into the user's units."""
        return amount * self.span

    @classmethod
    def of(cls, reward_range: tuple[float, float]) -> RewardScale:
        """Return the scale of rewards between two finite numbers, low < high.

        Raises:
            InvalidMDP: if they are not.
        """
        try:
            low, high = (float(v) for v in reward_range)
        except (TypeError, ValueError) as problem:
            raise InvalidMDP(f"'reward_range' must be two numbers, got {reward_range!r}.") from problem
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidMDP(f"'reward_range' must be finite with low < high, got {(low, high)}.")
        return cls(low, high)


class KnownReward(NamedTuple):
    """The declared reward function r(s, a, s'), a list of successors for each pair.

    Pair p lists `successor[start[p]:start[p + 1]]`, ascending, with their rewards; a successor that is
    not listed earns between `other_low[p]` and `other_high[p]`.
    """

    start: Ints
    successor: Ints
    reward: Floats
    other_low: Floats
    other_high: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """All that an agent is told about a problem: its shape, never its transition probabilities.

    Pairs (s, a) with a allowed in s are numbered by s, then a: the pairs of state s are
    `pair_start[s]:pair_start[s + 1]`, `pair_action[p]` is the action and `pair_index[s, a]` the
    number (-1 where not allowed). `support[p]` is the declared number of possible successors (S
    where nothing was declared). `known` is None where rewards are estimated.
    """

    n_states: int
    n_actions: int
    horizon: int
    discount: float
    pair_start: Ints
    pair_action: Ints
    pair_index: Ints
    terminal: Bools
    value_cap: float
    support: Ints
    known: KnownReward | None = None
    scale: RewardScale = RewardScale()  # noqa: RUF009 - an immutable value

    @property
    def n_pairs(self) -> int:
        """The number of allowed state-action pairs."""
        return len(self.pair_action)

    @property
    def allowed(self) -> Bools:
        """Which action may be played where, shape (S, A)."""
        return self.pair_index >= 0

    @property
    def value_bounds(self) -> Floats:
        """vmax_t = min(value cap, sum of gamma^i over the steps left), shape (H + 1,)."""
        steps = self.discount ** np.arange(self.horizon)
        left = np.concatenate([np.cumsum(steps)[::-1], [0.0]])
        bounds: Floats = np.minimum(left, self.value_cap)
        return bounds

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays by name, for `from_arrays`."""
        shape = np.array([self.n_states, self.n_actions, self.horizon])
        numbers = np.array([self.discount, self.value_cap, self.scale.low, self.scale.high])
        arrays: dict[str, NDArray[Any]] = {
            "shape": shape,
            "numbers": numbers,
            "allowed": self.allowed,
            "terminal": self.terminal,
            "support": self.support,
        }
        known = {} if self.known is None else self.known._asdict()
        return arrays | {f"known.{name}": array for name, array in known.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Setting:
        """Return the setting that `to_arrays` was asked of.

        Raises:
            InvalidMDP: if they describe none.
        """
        try:
            n_states, n_actions, horizon = (int(n) for n in arrays["shape"])
            discount, value_cap, low, high = (float(x) for x in arrays["numbers"])
            told = cls.declare(
                n_states=n_states,
                n_actions=n_actions,
                horizon=horizon,
                allowed=arrays["allowed"],
                terminal=np.flatnonzero(arrays["terminal"]).tolist(),
                discount=discount,
                value_cap=value_cap,
                scale=RewardScale(low, high),
            )
            support = np.array(arrays["support"], dtype=np.int64)
            known = None
            if "known.start" in arrays:
                known = KnownReward(
                    *(frozen(np.array(arrays[f"known.{name}"])) for name in KnownReward._fields)
                )
        except (KeyError, ValueError, TypeError) as problem:
            raise InvalidMDP(f"'arrays' must describe a setting, got {problem}.") from problem
        P, S = told.n_pairs, told.n_states
        fits = support.shape == (P,) and bool(((support >= 1) & (support <= S)).all())
        if known is not None:
            entries = len(known.successor)
            fits &= known.start.shape == (P + 1,) and known.start[0] == 0 and known.start[-1] == entries
            fits &= bool((np.diff(known.start) >= 0).all()) and known.reward.shape == (entries,)
            fits &= bool(((known.successor >= 0) & (known.successor < S)).all())
            fits &= known.other_low.shape == known.other_high.shape == (P,)
        if not fits:
            raise InvalidMDP(f"'arrays' must describe a setting of {P} pairs, got others.")
        return replace(told, support=frozen(support), known=known)

    @property
    def digest(self) -> str:
        """What tells this problem from every other one: a hash of all that an agent is told."""
        total = hashlib.sha256()
        for name, array in sorted(self.to_arrays().items()):
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    @classmethod
    def declare(
        cls,
        *,
        n_states: int,
        n_actions: int,
        horizon: int,
        allowed: ArrayLike | None = None,
        terminal: Iterable[int] = (),
        discount: float = 1.0,
        value_cap: float | None = None,
        support: ArrayLike | None = None,
        scale: RewardScale = RewardScale(),  # noqa: B008 - an immutable value
    ) -> Setting:
        """Describe a problem of which nothing but the shape is known, for use with the step API.

        Args:
            n_states: The number S of states, numbered from 0.
            n_actions: The number A of actions, numbered from 0.
            horizon: The number H of steps after which an episode ends at the latest.
            allowed: Which action may be played where, (S, A) booleans; all by default.
            terminal: The states that end an episode.
            discount: gamma, in (0, 1].
            value_cap: An upper bound on the optimal value, in scaled units; H by default.
            support: The number of possible successors, one number or one for each (s, a).
            scale: The affine map to rewards in [0, 1].

        Raises:
            InvalidMDP: if a shape, a mask or a number makes no sense.
        """
        S = check_integer("n_states", n_states, minimum=1, error=InvalidMDP)
        A = check_integer("n_actions", n_actions, minimum=1, error=InvalidMDP)
        H = check_integer("horizon", horizon, minimum=1, error=InvalidMDP)
        ends = terminal_mask(terminal, S)
        mask = allowed_mask(allowed, S, A, ends)
        if scale.low != 0.0 and ends.any():
            raise InvalidMDP(
                f"'scale' must start at 0 where episodes can end early, got {scale.low:g}: it would pay to "
                "end early. Pad episodes: make terminal states absorbing with reward 0."
            )
        pair_index, pair_start, pair_action = number_pairs(mask)
        return cls(
            n_states=S,
            n_actions=A,
            horizon=H,
            discount=check_real("discount", discount, low=0.0, high=1.0, open_low=True, error=InvalidMDP),
            pair_start=pair_start,
            pair_action=pair_action,
            pair_index=pair_index,
            terminal=frozen(ends),
            value_cap=as_value_cap(value_cap, H),
            support=as_support(support, mask, S, A),
            scale=RewardScale.of(scale),
        )


def as_policy(name: str, policy: ArrayLike, setting: Setting) -> Ints:
    """Return a deterministic stationary policy, (S,) actions, from actions or probabilities.

    A stochastic policy, shape (S, A), is turned into its most probable action (the lowest index among
    equals). Terminal states play 0.

    Raises:
        InvalidSetting: if it plays an action that is not allowed.
    """
    table = np.asarray(policy)
    S, A = setting.n_states, setting.n_actions
    if table.shape == (S, A):
        weights = as_floats(name, table)
        sums = weights.sum(axis=1)[~setting.terminal]
        if (weights < 0).any():
            raise InvalidSetting(f"{name!r} must hold probabilities >= 0, got {float(weights.min())}.")
        if not (sums > 0).all():
            raise InvalidSetting(f"{name!r} must prefer some action in every state, got a row of zeros.")
        actions = weights.argmax(axis=1)
    elif table.shape == (S,) and np.issubdtype(table.dtype, np.integer):
        actions = table
    else:
        raise InvalidSetting(
            f"{name!r} must hold one action a state, shape ({S},), or probabilities, shape ({S}, {A}), "
            f"got {table.dtype} of shape {table.shape}."
        )
    actions = np.where(setting.terminal, 0, actions).astype(np.int64)
    valid = (actions >= 0) & (actions < A)
    valid &= setting.allowed[np.arange(S), np.clip(actions, 0, A - 1)] | setting.terminal
    if not valid.all():
        s = int(np.flatnonzero(~valid)[0])
        raise InvalidSetting(
            f"{name!r} must play allowed actions only, got action {int(actions[s])} in state {s}."
        )
    return frozen(actions)
