"""The part of a problem that an agent may know: its shape, its reward scale, its rewards, never P."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats, Ints, frozen
from chary.errors import InvalidMDP, InvalidSetting, check_integer, check_real, check_truth, check_type
from chary.mdp import _checks as checks
from chary.mdp._endings import policy_with_ending, reward_with_ending, support_with_ending, with_ending
from chary.mdp._rewards import (
    REWARD_TOLERANCE,
    KnownReward,
    Reward,
    RewardScale,
    known_reward,
    range_of,
    reward_table,
)
from chary.storage.sealed import as_array
from chary.texts import shown

__all__ = [
    "MOST_ENTRIES",
    "REWARD_TOLERANCE",
    "KnownReward",
    "Reward",
    "RewardScale",
    "Setting",
    "as_policy",
    "check_setting",
    "check_table",
    "reward_table",
]

# A larger table of floats than 16 GiB is a mistake.
MOST_ENTRIES = 2**31


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """All that an agent knows about a problem: its shape, never its transition probabilities.

    Pairs (s, a) with a allowed in s are numbered by s, then a: the pairs of state s are
    `pair_start[s]:pair_start[s + 1]`, `pair_action[p]` is the action and `pair_index[s, a]` the
    number (-1 where not allowed). `support[p]` is the declared number of possible successors (S
    by default). `known` is None where rewards are estimated. `ending` is the separate state of early
    endings, None where they have none.
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
    ending: int | None = None

    @property
    def n_pairs(self) -> int:
        """The number of allowed state-action pairs."""
        return len(self.pair_action)

    @property
    def allowed(self) -> Bools:
        """The actions allowed in each state, booleans of shape (S, A)."""
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
        if self.ending is not None:
            arrays["ending"] = np.array([self.ending])
        known = {} if self.known is None else self.known._asdict()
        return arrays | {f"known.{name}": array for name, array in known.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Setting:
        """Return the setting that `to_arrays` described.

        Raises:
            InvalidMDP: if the arrays do not describe one.
        """
        check_type("arrays", arrays, Mapping, "arrays by name", error=InvalidMDP)
        read = partial(as_array, error=InvalidMDP)
        n_states, n_actions, horizon = read("shape", arrays, (3,), np.int64).tolist()
        discount, value_cap, low, high = read("numbers", arrays, (4,), np.float64).tolist()
        told = cls.declare(
            n_states=n_states,
            n_actions=n_actions,
            horizon=horizon,
            allowed=read("allowed", arrays, (n_states, n_actions), np.bool_),
            terminal=np.flatnonzero(read("terminal", arrays, (n_states,), np.bool_)).tolist(),
            discount=discount,
            value_cap=value_cap,
            scale=RewardScale(low, high),
        )
        P, S = told.n_pairs, told.n_states
        support = read("support", arrays, (P,), np.int64)
        fits = bool(((support >= 1) & (support <= S)).all())
        known = None
        if "known.start" in arrays:
            start = read("known.start", arrays, (P + 1,), np.int64)
            successor = read("known.successor", arrays, (None,), np.int64)
            n = len(successor)
            reward = read("known.reward", arrays, (n,), np.float64)
            other = [read(f"known.other_{side}", arrays, (P,), np.float64) for side in ("low", "high")]
            known = KnownReward(*(frozen(each) for each in (start, successor, reward, *other)))
            fits &= start[0] == 0 and start[-1] == n and bool((np.diff(start) >= 0).all())
            # Successors are found by bisection, so each row must be in ascending order.
            first = np.isin(np.arange(n), start)
            ascending = first | (np.diff(successor, prepend=-1) > 0)
            fits &= bool((ascending & (successor >= 0) & (successor < S)).all())
            fits &= all(bool(((each >= 0) & (each <= 1)).all()) for each in (reward, *other))
        ending = int(read("ending", arrays, (1,), np.int64)[0]) if "ending" in arrays else None
        fits &= ending is None or (0 <= ending < S and told.pair_index[ending, 1:].max(initial=-1) < 0)
        if not fits:
            raise InvalidMDP(f"'arrays' must describe a setting of {P} pairs, got others.")
        return replace(told, support=frozen(support), known=known, ending=ending)

    @property
    def digest(self) -> str:
        """A hash of all that an agent knows about the problem, which identifies it."""
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
        scale: RewardScale | None = None,
        reward_range: tuple[float, float] | None = None,
        reward: Reward | None = None,
        early_endings: bool = False,
    ) -> Setting:
        """Describe a problem of which only the shape is known, for use with the step API.

        Rewards, budgets and charges are in your own units once you have declared between which numbers a
        reward can lie: nothing has to be scaled.

        Args:
            n_states: The number S of states, numbered from 0.
            n_actions: The number A of actions, numbered from 0.
            horizon: The largest number H of steps per episode.
            allowed: Which action may be played where, (S, A) booleans; all by default.
            terminal: The states that end an episode.
            discount: gamma, in (0, 1].
            value_cap: An upper bound on the expected return of every policy: in the user's units with
                `reward_range` or `reward`, else in scaled ones. None by default.
            support: The number of possible successors, one number or one per (s, a).
            scale: The same as `reward_range`, as a value.
            reward_range: The lowest and the highest possible reward, (0, 1) by default; with `reward` those
                that it has.
            reward: The reward function, where it is known: a table (S, A) or (S, A, S), or a function of
                state and action, or of state, action and next state, that returns a reward in the user's
                units, None (NaN in a table) for a next state that cannot follow. Agents use it with
                `reward="known"`.
            early_endings: Whether episodes may end before the horizon in any state. A separate state is added
                for that, after all others: agents and logs lead every ending to it by themselves, where
                nothing more is earned. Rewards can then also be 0.

        Raises:
            InvalidMDP: if a shape, a mask or a number is invalid.

        Example:
            >>> shop = Setting.declare(n_states=3, n_actions=2, horizon=5, reward_range=(-20, 80))
            >>> shop.scale.span
            100.0
            >>> Setting.declare(n_states=3, n_actions=2, horizon=5, reward=lambda s, a: 8.0 * s - a).scale
            RewardScale(low=-1.0, high=16.0)
            >>> clinic = Setting.declare(
            ...     n_states=12, n_actions=3, horizon=6, reward_range=(-900, 0), early_endings=True
            ... )
            >>> clinic.n_states, clinic.ending
            (13, 12)
        """
        S = check_integer("n_states", n_states, minimum=1, error=InvalidMDP)
        A = check_integer("n_actions", n_actions, minimum=1, error=InvalidMDP)
        H = check_integer("horizon", horizon, minimum=1, error=InvalidMDP)
        check_table(f"{S} states and {A} actions", S * A)
        check_table(f"{H} steps and {S} states", H * S)
        ends = checks.terminal_mask(terminal, S)
        mask = checks.allowed_mask(allowed, S, A, ends)
        if reward_range is not None and scale is not None:
            raise InvalidMDP(f"'reward_range' must be given without a scale, got {shown(scale)} as well.")
        table = None if reward is None else reward_table(reward, mask)
        own_units = reward_range is not None or table is not None
        if table is not None and reward_range is None and scale is None:
            reward_range = range_of(table, mask)
        scale = RewardScale.of(next((each for each in (reward_range, scale) if each is not None), (0.0, 1.0)))
        if early := check_truth("early_endings", early_endings, error=InvalidMDP):
            scale = RewardScale(min(scale.low, 0.0), max(scale.high, 0.0))
        offset, ending = scale.low != 0.0, None
        if offset and ends.any():
            raise InvalidMDP(
                f"'{'reward_range' if own_units else 'scale'}' must start at 0 where episodes can end early, "
                f"got {scale.low:g}: ending early would be rewarded. Use early_endings=True and leave "
                "terminal states out, or make them absorbing with reward 0."
            )
        successors = checks.as_support(support, mask, S, A)
        if early:
            mask, ends = with_ending(mask, ends, offset)
            successors, table = support_with_ending(successors, offset), reward_with_ending(table)
            ending, S = S, S + 1
        gamma = check_real("discount", discount, low=0.0, high=1.0, open_low=True, error=InvalidMDP)
        cap = H if value_cap is None else value_cap
        if own_units and value_cap is not None:
            least = scale.low * float(np.sum(gamma ** np.arange(H)))
            most = check_real("value_cap", cap, low=least, open_low=True, open_high=True, error=InvalidMDP)
            cap = min((most - least) / scale.span, float(H))
        pair_index, pair_start, pair_action = checks.number_pairs(mask)
        return cls(
            n_states=S,
            n_actions=A,
            horizon=H,
            discount=gamma,
            pair_start=pair_start,
            pair_action=pair_action,
            pair_index=pair_index,
            terminal=frozen(ends),
            value_cap=check_real("value_cap", cap, low=0.0, open_low=True, open_high=True, error=InvalidMDP),
            support=frozen(successors),
            known=None if table is None else known_reward(table, mask, scale),
            scale=scale,
            ending=ending,
        )


def check_setting(setting: object) -> None:
    """Raise InvalidSetting unless `setting` is a Setting."""
    way_out = "Use Setting.declare(...), or the `setting` of a FiniteMDP."
    check_type("setting", setting, Setting, "a Setting", way_out=way_out)


def check_table(sizes: str, entries: int) -> None:
    """Raise InvalidMDP if a table of numbers would not fit into memory."""
    if entries > MOST_ENTRIES:
        raise InvalidMDP(f"a problem's tables must have no more than {MOST_ENTRIES} entries, got {sizes}.")


def as_policy(name: str, policy: ArrayLike, setting: Setting) -> Ints:
    """Return a deterministic stationary policy, (S,) actions, from actions or probabilities.

    A stochastic policy, shape (S, A), becomes its most probable action (the lowest index among
    equals). Terminal states play 0.

    Raises:
        InvalidSetting: if it plays an action that is not allowed.
    """
    S, A = setting.n_states, setting.n_actions
    table = policy_with_ending(checks.as_numbers(name, policy, InvalidSetting), S, A, setting.ending)
    if table.shape == (S, A):
        weights = checks.as_floats(name, table)
        preferred = np.asarray(weights.max(axis=1) > 0)[~setting.terminal]
        if (weights < 0).any():
            raise InvalidSetting(f"{name!r} must contain probabilities >= 0, got {float(weights.min())}.")
        if not preferred.all():
            raise InvalidSetting(f"{name!r} must prefer some action in every state, got a row of zeros.")
        actions = weights.argmax(axis=1)
    elif table.shape == (S,) and np.issubdtype(table.dtype, np.integer):
        actions = table
    else:
        raise InvalidSetting(
            f"{name!r} must contain one action per state, shape ({S},), or probabilities, shape ({S}, {A}), "
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
