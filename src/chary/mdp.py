"""Finite MDPs: validated once, sparse inside, read-only ever after."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.errors import InvalidMDP, InvalidSetting, check_choice, check_integer, check_real

__all__ = ["REWARD_KNOWLEDGE", "FiniteMDP", "KnownReward", "RewardScale", "Setting"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

REWARD_KNOWLEDGE = ("estimated", "known")
ROW_SUM_TOLERANCE = 1e-9


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
        ends = _terminal_mask(terminal, S)
        mask = _allowed_mask(allowed, S, A, ends)
        pair_index, pair_start, pair_action = _number_pairs(mask)
        return cls(
            n_states=S,
            n_actions=A,
            horizon=H,
            discount=check_real("discount", discount, low=0.0, high=1.0, open_low=True, error=InvalidMDP),
            pair_start=pair_start,
            pair_action=pair_action,
            pair_index=pair_index,
            terminal=_frozen(ends),
            value_cap=_value_cap(value_cap, H),
            support=_support(support, mask, S, A),
            scale=_scale(scale),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FiniteMDP:
    """A finite-horizon MDP with rewards in [0, 1], stored as successor lists.

    Pair p leads to `successor[row_start[p]:row_start[p + 1]]` (ascending) with `probability` and earns
    `reward` (scaled) on that transition. `start` is the distribution of the first state, (S,).
    Build one with `from_arrays`, `from_sparse` or `from_successors`.
    """

    name: str
    setting: Setting
    row_start: Ints
    successor: Ints
    probability: Floats
    reward: Floats
    cumulative: Floats
    start: Floats
    known: KnownReward
    recorded_policy: Ints | None = field(default=None)

    @property
    def n_states(self) -> int:
        """S."""
        return self.setting.n_states

    @property
    def n_actions(self) -> int:
        """A."""
        return self.setting.n_actions

    @property
    def horizon(self) -> int:
        """H."""
        return self.setting.horizon

    @property
    def scale(self) -> RewardScale:
        """The map between the user's reward units and the scaled ones."""
        return self.setting.scale

    @property
    def restricts_actions(self) -> bool:
        """Whether some action is not allowed in some non-terminal state."""
        return bool((~self.setting.allowed[~self.setting.terminal]).any())

    def told(self, reward: str = "estimated") -> Setting:
        """Return what an agent may know of this problem: with `reward="known"`, its reward function too."""
        check_choice("reward", reward, REWARD_KNOWLEDGE)
        if reward == "estimated":
            return self.setting
        values = {name: getattr(self.setting, name) for name in Setting.__dataclass_fields__}
        return Setting(**{**values, "known": self.known})

    def row(self, s: int, a: int) -> tuple[Ints, Floats, Floats]:
        """Return successors, probabilities and scaled rewards of playing `a` in `s`."""
        p = self.setting.pair_index[s, a]
        if p < 0:
            raise InvalidMDP(f"'a' must be allowed in state {s}, got {a}.")
        span = slice(self.row_start[p], self.row_start[p + 1])
        return self.successor[span], self.probability[span], self.reward[span]

    def dense(self) -> tuple[Floats, Floats]:
        """Return P of shape (S, A, S) and R of shape (S, A), zero where not allowed; for small problems."""
        S, A = self.n_states, self.n_actions
        P, R = np.zeros((S, A, S)), np.zeros((S, A))
        for s in range(S):
            for a in np.flatnonzero(self.setting.allowed[s]):
                x, p, r = self.row(s, int(a))
                P[s, a, x] = p
                R[s, a] = p @ r
        return P, R

    @classmethod
    def from_arrays(
        cls, P: ArrayLike, R: ArrayLike, *, allowed: ArrayLike | None = None, **options: Any
    ) -> FiniteMDP:
        """Build from dense arrays.

        `P` has shape (S, A, S); `R` has shape (S, A), or (S, A, S) for rewards that depend on the
        successor. Rows of pairs that are not allowed are not looked at. `options` are those of
        `from_successors`.

        Example:
            >>> P = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
            >>> FiniteMDP.from_arrays(P, np.array([[0.0], [1.0]]), horizon=3).n_states
            2
        """
        dense = _floats("P", P)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
            raise InvalidMDP(f"'P' must have shape (S, A, S), got {dense.shape}.")
        S, A = dense.shape[:2]
        rewards = _rewards(R, S, A)
        options["terminal"] = _listed("terminal", options.get("terminal", ()))
        mask = _allowed_mask(allowed, S, A, _terminal_mask(options["terminal"], S))
        _check_probabilities(dense[mask])
        s, a, x = np.nonzero((dense > 0) & mask[:, :, None])
        r = rewards[s, a] if rewards.ndim == 2 else rewards[s, a, x]
        listed = rewards if rewards.ndim == 3 else None
        return cls._assemble(S, A, s, a, x, dense[s, a, x], r, mask, rewards, listed, **options)

    @classmethod
    def from_sparse(
        cls, P: Any, R: ArrayLike, *, allowed: ArrayLike | None = None, **options: Any
    ) -> FiniteMDP:
        """Build from SciPy sparse rows.

        `P` is a sparse matrix of shape (S * A, S) whose row s * A + a belongs to (s, a), or a
        sequence of A sparse matrices of shape (S, S), one an action. `R` has shape (S, A).
        """
        from scipy import sparse

        matrices = [P] if sparse.issparse(P) else list(P)
        if not matrices or not all(sparse.issparse(m) for m in matrices):
            raise InvalidMDP(
                f"'P' must be a SciPy sparse matrix or a sequence of them, got {type(P).__name__}."
            )
        # tocoo, not tocsr: the latter would add duplicate entries up in silence.
        entries = [m.tocoo() for m in matrices]
        S = int(entries[0].shape[1])
        if sparse.issparse(P):
            A, rest = divmod(int(entries[0].shape[0]), max(S, 1))
            if rest or A == 0:
                raise InvalidMDP(f"'P' must have shape (S * A, S), got {entries[0].shape}.")
            s, a = np.divmod(entries[0].row.astype(np.int64), A)
            x, p = entries[0].col.astype(np.int64), entries[0].data
        else:
            A = len(entries)
            if any(m.shape != (S, S) for m in entries):
                raise InvalidMDP(f"'P' must hold matrices of shape (S, S), got {[m.shape for m in entries]}.")
            s = np.concatenate([m.row for m in entries]).astype(np.int64)
            a = np.concatenate([np.full(len(m.row), i) for i, m in enumerate(entries)]).astype(np.int64)
            x = np.concatenate([m.col for m in entries]).astype(np.int64)
            p = np.concatenate([m.data for m in entries])
        rewards = _rewards(R, S, A)
        if rewards.ndim == 3:
            raise InvalidMDP(
                "'R' must have shape (S, A) with sparse rows; use from_successors for r(s, a, s')."
            )
        options["terminal"] = _listed("terminal", options.get("terminal", ()))
        mask = _allowed_mask(allowed, S, A, _terminal_mask(options["terminal"], S))
        return cls._assemble(
            S, A, s, a, x, np.asarray(p, dtype=float), rewards[s, a], mask, rewards, None, **options
        )

    @classmethod
    def from_successors(
        cls,
        rows: Mapping[tuple[int, int], Sequence[tuple[int, float, float]]],
        *,
        n_states: int,
        n_actions: int,
        **options: Any,
    ) -> FiniteMDP:
        """Build from one list of (successor, probability, reward) for each allowed pair (s, a).

        Args:
            rows: The lists; a pair without one is not allowed.
            n_states: The number S of states.
            n_actions: The number A of actions.
            **options: `horizon` (required); `name`; `start`, a state or a distribution of shape (S,),
                state 0 by default; `terminal`, states that end the episode; `discount`;
                `value_cap`, an upper bound on the optimal value in scaled units; `support`, the
                declared number of successors; `reward_range`, (low, high) of the user's rewards,
                (0, 1) by default; `pad`, which makes terminal states absorbing with reward 0, so that a
                reward offset cannot change which policy is best; `recorded_policy`, an action a
                state or probabilities of shape (S, A).

        Raises:
            InvalidMDP: if the lists or options do not describe an MDP.
        """
        S = check_integer("n_states", n_states, minimum=1, error=InvalidMDP)
        A = check_integer("n_actions", n_actions, minimum=1, error=InvalidMDP)
        mask = np.zeros((S, A), dtype=bool)
        entries: list[tuple[int, int, int, float, float]] = []
        for (s, a), successors in rows.items():
            if not (0 <= s < S and 0 <= a < A):
                raise InvalidMDP(f"'rows' must use states < {S} and actions < {A}, got the pair ({s}, {a}).")
            mask[s, a] = True
            entries.extend((s, a, x, p, r) for x, p, r in successors)
        table = np.array(entries, dtype=float).reshape(-1, 5)
        whole = np.isfinite(table[:, 2]) & (table[:, 2] == np.floor(table[:, 2]))
        if not whole.all():
            raise InvalidMDP(f"'rows' must lead to whole-numbered states, got {float(table[~whole, 2][0])}.")
        from_state, action, to_state = (table[:, i].astype(np.int64) for i in range(3))
        options["terminal"] = _listed("terminal", options.get("terminal", ()))
        mask[_terminal_mask(options["terminal"], S)] = False
        return cls._assemble(
            S, A, from_state, action, to_state, table[:, 3], table[:, 4], mask, None, None, **options
        )

    @classmethod
    def _assemble(
        cls,
        S: int,
        A: int,
        s: Ints,
        a: Ints,
        x: Ints,
        p: Floats,
        r: Floats,
        mask: Bools,
        pair_reward: Floats | None,
        listed_reward: Floats | None,
        *,
        horizon: int,
        name: str = "custom",
        start: ArrayLike | int = 0,
        terminal: Iterable[int] = (),
        discount: float = 1.0,
        value_cap: float | None = None,
        support: ArrayLike | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        pad: bool = False,
        recorded_policy: ArrayLike | None = None,
    ) -> FiniteMDP:
        ends = _terminal_mask(terminal, S)
        scale = _scale(reward_range)
        if pad:
            absorbing = np.flatnonzero(ends)
            keep = ~ends[s]
            s, a, x = (
                np.concatenate([v[keep], w]) for v, w in ((s, absorbing), (a, 0 * absorbing), (x, absorbing))
            )
            p, r = (
                np.concatenate([p[keep], np.ones(len(absorbing))]),
                np.concatenate([r[keep], np.zeros(len(absorbing))]),
            )
            mask = mask.copy()
            mask[ends], ends = False, np.zeros(S, dtype=bool)
            mask[absorbing, 0] = True
            if pair_reward is not None:
                pair_reward = pair_reward.copy()
                pair_reward[absorbing] = 0.0
            if listed_reward is not None:
                listed_reward = listed_reward.copy()
                listed_reward[absorbing] = 0.0
        elif scale.low != 0.0 and ends.any():
            raise InvalidMDP(
                f"'reward_range' must start at 0 where episodes can end early, got {scale.low:g} with "
                "terminal states: the offset would pay for ending early. Use pad=True to make terminal "
                "states absorbing with reward 0."
            )
        told = Setting.declare(
            n_states=S,
            n_actions=A,
            horizon=horizon,
            allowed=mask,
            terminal=np.flatnonzero(ends),
            discount=discount,
            value_cap=value_cap,
            support=support,
            scale=scale,
        )
        inside = mask[s, a]
        s, a, x, p, r = s[inside], a[inside], x[inside], p[inside], r[inside]
        if len(x) and (x.min() < 0 or x.max() >= S):
            raise InvalidMDP(
                f"'P' must lead to states 0..{S - 1}, got a successor {int(x[(x < 0) | (x >= S)][0])}."
            )
        pair = told.pair_index[s, a]
        order = np.lexsort((x, pair))
        pair, x, p, r = pair[order], x[order], p[order], r[order]
        _check_rows(told, pair, x, p)
        scaled = _check_rewards((r - scale.low) / scale.span, scale)
        positive = p > 0
        pair, x, p, scaled = pair[positive], x[positive], p[positive], scaled[positive]
        row_start = np.searchsorted(pair, np.arange(told.n_pairs + 1)).astype(np.int64)
        return cls(
            name=name,
            setting=told,
            row_start=_frozen(row_start),
            successor=_frozen(x.astype(np.int64)),
            probability=_frozen(p.astype(float)),
            reward=_frozen(scaled),
            cumulative=_frozen(_cumulative(row_start, p)),
            start=_start(start, S, told.terminal),
            known=_known_reward(told, row_start, x, scaled, pair_reward, listed_reward),
            recorded_policy=None
            if recorded_policy is None
            else as_policy("recorded_policy", recorded_policy, told),
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
        weights = _floats(name, table)
        if (weights < 0).any():
            raise InvalidSetting(f"{name!r} must hold probabilities >= 0, got {float(weights.min())}.")
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
    return _frozen(actions)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    kept = np.array(array, copy=True, order="C")
    kept.setflags(write=False)
    return kept


def _floats(name: str, values: ArrayLike) -> Floats:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InvalidMDP(f"{name!r} must be an array of numbers, got {type(values).__name__}.") from problem
    if not np.isfinite(array).all():
        raise InvalidMDP(f"{name!r} must be finite, got {float(array[~np.isfinite(array)][0])}.")
    return array


def _rewards(R: ArrayLike, S: int, A: int) -> Floats:
    rewards = _floats("R", R)
    if rewards.shape not in ((S, A), (S, A, S)):
        raise InvalidMDP(f"'R' must have shape ({S}, {A}) or ({S}, {A}, {S}), got {rewards.shape}.")
    return rewards


def _scale(reward_range: tuple[float, float] | RewardScale) -> RewardScale:
    low, high = (float(v) for v in reward_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidMDP(f"'reward_range' must be finite with low < high, got {(low, high)}.")
    return RewardScale(low, high)


def _value_cap(value_cap: float | None, horizon: int) -> float:
    if value_cap is None:
        return float(horizon)
    return check_real("value_cap", value_cap, low=0.0, open_low=True, open_high=True, error=InvalidMDP)


def _listed(name: str, states: Iterable[int]) -> list[int]:
    """Return whole numbers as a list: an iterator could be read only once."""
    if not isinstance(states, Iterable):
        raise InvalidMDP(f"{name!r} must be a list of states, got {states!r}.")
    return [check_integer(name, state, minimum=0, error=InvalidMDP) for state in states]


def _terminal_mask(terminal: Iterable[int], S: int) -> Bools:
    states = np.asarray(_listed("terminal", terminal), dtype=np.int64)
    if len(states) and states.max() >= S:
        raise InvalidMDP(f"'terminal' must hold states 0..{S - 1}, got {int(states[states >= S][0])}.")
    mask = np.zeros(S, dtype=bool)
    mask[states] = True
    return mask


def _allowed_mask(allowed: ArrayLike | None, S: int, A: int, terminal: Bools) -> Bools:
    mask = np.ones((S, A), dtype=bool) if allowed is None else np.array(allowed, dtype=bool)
    if mask.shape != (S, A):
        raise InvalidMDP(f"'allowed' must have shape ({S}, {A}), got {mask.shape}.")
    mask[terminal] = False
    stuck = ~mask.any(axis=1) & ~terminal
    if stuck.any():
        raise InvalidMDP(
            f"'allowed' must leave every state an action, got none in state {int(np.flatnonzero(stuck)[0])}. "
            "Allow one, or list the state as terminal."
        )
    return mask


def _number_pairs(mask: Bools) -> tuple[Ints, Ints, Ints]:
    pair_index = np.full(mask.shape, -1, dtype=np.int64)
    pair_index[mask] = np.arange(mask.sum())
    pair_start = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    return _frozen(pair_index), _frozen(pair_start), _frozen(np.nonzero(mask)[1].astype(np.int64))


def _support(support: ArrayLike | None, mask: Bools, S: int, A: int) -> Ints:
    declared = np.asarray(S if support is None else support)
    if not np.issubdtype(declared.dtype, np.integer) or declared.shape not in ((), (S, A)):
        raise InvalidMDP(
            f"'support' must be a whole number or one for each pair, shape ({S}, {A}), got {support!r}."
        )
    each = np.broadcast_to(declared, (S, A))[mask]
    if ((each < 1) | (each > S)).any():
        raise InvalidMDP(f"'support' must lie in 1..{S}, got {int(each[(each < 1) | (each > S)][0])}.")
    return _frozen(each.astype(np.int64))


def _start(start: ArrayLike | int, S: int, terminal: Bools) -> Floats:
    given = np.asarray(start)
    if given.ndim == 0:
        state = check_integer("start", given[()], minimum=0, error=InvalidMDP)
        if state >= S:
            raise InvalidMDP(f"'start' must be a state 0..{S - 1}, got {state}.")
        distribution = np.zeros(S)
        distribution[state] = 1.0
    else:
        distribution = _floats("start", given)
        if distribution.shape != (S,):
            raise InvalidMDP(
                f"'start' must be a state or a distribution of shape ({S},), got {distribution.shape}."
            )
        if (distribution < 0).any() or abs(distribution.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidMDP(
                f"'start' must hold probabilities that sum to 1, got a sum of {distribution.sum():.12g}."
            )
    ended = np.flatnonzero((distribution > 0) & terminal)
    if len(ended):
        raise InvalidMDP(f"'start' must not lie on a terminal state, got state {int(ended[0])}.")
    return _frozen(distribution)


def _check_probabilities(p: Floats) -> None:
    if (p < 0).any():
        raise InvalidMDP(f"'P' must hold probabilities >= 0, got {float(p.min())}.")


def _check_rows(setting: Setting, pair: Ints, x: Ints, p: Floats) -> None:
    if not np.isfinite(p).all():
        raise InvalidMDP(f"'P' must be finite, got {float(p[~np.isfinite(p)][0])}.")
    _check_probabilities(p)

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


def _check_rewards(scaled: Floats, scale: RewardScale) -> Floats:
    # A scaling by the extremes themselves may leave 1 + 1e-16; anything more is the user's mistake.
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


def _cumulative(row_start: Ints, p: Floats) -> Floats:
    total = np.empty_like(p, dtype=float)
    for begin, end in pairwise(row_start):
        total[begin:end] = np.cumsum(p[begin:end])
    return total


def _known_reward(
    setting: Setting,
    row_start: Ints,
    x: Ints,
    scaled: Floats,
    pair_reward: Floats | None,
    listed_reward: Floats | None,
) -> KnownReward:
    """Keep the declared reward function, also where its transitions have probability 0.

    Any value at an impossible successor leaves the bounds valid; those the user gave are kept (clipped to
    [0, 1]), and a successor of which nothing was said may earn anything in [0, 1].
    """
    n, S = setting.n_pairs, setting.n_states
    scale = setting.scale
    if listed_reward is not None:
        every = np.clip((listed_reward[setting.allowed] - scale.low) / scale.span, 0.0, 1.0)
        return KnownReward(
            _frozen(np.arange(n + 1, dtype=np.int64) * S),
            _frozen(np.tile(np.arange(S, dtype=np.int64), n)),
            _frozen(every.reshape(-1)),
            _frozen(np.zeros(n)),
            _frozen(np.ones(n)),
        )
    if pair_reward is not None:
        each = np.clip((pair_reward[setting.allowed] - scale.low) / scale.span, 0.0, 1.0)
        empty = np.zeros(0)
        return KnownReward(
            _frozen(np.zeros(n + 1, dtype=np.int64)),
            _frozen(empty.astype(np.int64)),
            _frozen(empty),
            _frozen(each),
            _frozen(each),
        )
    return KnownReward(
        _frozen(row_start),
        _frozen(x.astype(np.int64)),
        _frozen(scaled),
        _frozen(np.zeros(n)),
        _frozen(np.ones(n)),
    )
