"""Finite MDPs: validated once, stored as sparse rows, read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Bools, Floats, Ints, frozen
from chary.errors import InvalidMDP, check_choice, check_index, check_integer, check_truth, check_type
from chary.mdp import _checks as checks
from chary.mdp._rewards import known_reward
from chary.mdp.setting import KnownReward, RewardScale, Setting, as_policy, check_table
from chary.texts import shown

REWARD_KNOWLEDGE = ("estimated", "known")


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
    recorded_policy: Ints | None = None

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

    @property
    def digest(self) -> str:
        """A hash of the setting and of all rows, which identifies the problem."""
        total = hashlib.sha256(self.setting.digest.encode())
        for array in (self.row_start, self.successor, self.probability, self.reward, self.start):
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def told(self, reward: str = "estimated") -> Setting:
        """Return what an agent may know of this problem; if `reward` is known, its reward function, too."""
        check_choice("reward", reward, REWARD_KNOWLEDGE)
        if reward == "estimated":
            return self.setting
        return replace(self.setting, known=self.known)

    def row(self, s: int, a: int) -> tuple[Ints, Floats, Floats]:
        """Return successors, probabilities and scaled rewards of playing `a` in `s`."""
        action = check_integer("a", a, minimum=0, error=InvalidMDP)
        state = check_index("s", s, self.n_states, error=InvalidMDP)
        p = self.setting.pair_index[state, action] if action < self.n_actions else -1
        if p < 0:
            raise InvalidMDP(f"'a' must be allowed in state {state}, got {action}.")
        span = slice(self.row_start[p], self.row_start[p + 1])
        return self.successor[span], self.probability[span], self.reward[span]

    def dense(self) -> tuple[Floats, Floats]:
        """Return P of shape (S, A, S) and R of shape (S, A), zero where not allowed; for small problems."""
        S, A = self.n_states, self.n_actions
        P, R = np.zeros((S, A, S)), np.zeros((S, A))
        for s, a in np.argwhere(self.setting.allowed).tolist():
            x, p, r = self.row(s, a)
            P[s, a, x], R[s, a] = p, p @ r
        return P, R

    def relabelled(self, labels: ArrayLike) -> FiniteMDP:
        """Return the same problem with other numbers for its actions: action a of s becomes `labels[s, a]`.

        No result should depend on the order of labels; this is the way to test it.

        Raises:
            InvalidMDP: if `labels` is not of shape (S, A) with a permutation of the actions per state.

        Example:
            >>> mdp = FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], horizon=1)
            >>> mdp.relabelled([[1, 0]]).row(0, 0)[2]
            array([1.])
        """
        setting, S, A = self.setting, self.n_states, self.n_actions
        new = checks.as_numbers("labels", labels, InvalidMDP)
        if new.shape != (S, A) or (np.sort(new, axis=1) != np.arange(A)).any():
            raise InvalidMDP(
                f"'labels' must contain a permutation of 0..{A - 1} for each of {S} states, got "
                f"{shown(labels)}."
            )
        new = new.astype(np.int64)
        state = np.repeat(np.arange(S), np.diff(setting.pair_start))
        action = new[state, setting.pair_action]
        order = np.lexsort((action, state))

        def moved(start: Ints) -> tuple[Ints, Ints]:
            """Return where the rows begin in the new order, and the place of every entry before."""
            begin = np.concatenate([[0], np.cumsum(np.diff(start)[order])]).astype(np.int64)
            return begin, np.repeat(start[:-1][order] - begin[:-1], np.diff(begin)) + np.arange(begin[-1])

        row_start, entry = moved(self.row_start)
        known_start, known_entry = moved(self.known.start)
        mask = np.zeros((S, A), dtype=bool)
        mask[state, action] = True
        pair_index, _, pair_action = checks.number_pairs(mask)
        policy = self.recorded_policy
        return replace(
            self,
            setting=replace(
                setting,
                pair_index=pair_index,
                pair_action=pair_action,
                support=frozen(setting.support[order]),
            ),
            row_start=frozen(row_start),
            successor=frozen(self.successor[entry]),
            probability=frozen(self.probability[entry]),
            reward=frozen(self.reward[entry]),
            cumulative=frozen(self.cumulative[entry]),
            known=KnownReward(
                frozen(known_start),
                *(frozen(array[known_entry]) for array in (self.known.successor, self.known.reward)),
                *(frozen(array[order]) for array in (self.known.other_low, self.known.other_high)),
            ),
            recorded_policy=None
            if policy is None
            else frozen(np.where(setting.terminal, 0, new[np.arange(S), policy])),
        )

    @classmethod
    def from_arrays(
        cls, P: ArrayLike, R: ArrayLike, *, allowed: ArrayLike | None = None, **options: Any
    ) -> FiniteMDP:
        """Build from dense arrays.

        `P` has shape (S, A, S); `R` has shape (S, A), or (S, A, S) for rewards that depend on the
        successor. Rows of pairs that are not allowed are ignored. `options` are those of `from_successors`.

        Example:
            >>> P = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
            >>> FiniteMDP.from_arrays(P, np.array([[0.0], [1.0]]), horizon=3).n_states
            2
        """
        chosen = _Options.of(options)
        dense = checks.as_floats("P", P)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
            raise InvalidMDP(f"'P' must have shape (S, A, S), got {dense.shape}.")
        S, A = dense.shape[:2]
        rewards = checks.as_rewards(R, S, A)
        mask = checks.allowed_mask(allowed, S, A, checks.terminal_mask(chosen.terminal, S))
        checks.check_probabilities(dense[mask])
        s, a, x = np.nonzero((dense > 0) & mask[:, :, None])
        r = rewards[s, a] if rewards.ndim == 2 else rewards[s, a, x]
        return cls._assemble(chosen, _Entries(s, a, x, dense[s, a, x], r), mask, rewards)

    @classmethod
    def from_sparse(
        cls, P: Any, R: ArrayLike, *, allowed: ArrayLike | None = None, **options: Any
    ) -> FiniteMDP:
        """Build from SciPy sparse rows.

        `P` is a sparse matrix of shape (S * A, S) whose row s * A + a belongs to (s, a), or a
        sequence of A sparse matrices of shape (S, S), one per action. `R` has shape (S, A).
        """
        from scipy import sparse

        chosen = _Options.of(options)
        matrices = list(P) if isinstance(P, (list, tuple)) else [P]
        if not matrices or not all(sparse.issparse(m) for m in matrices):
            raise InvalidMDP(
                f"'P' must be a SciPy sparse matrix or a sequence of them, got {type(P).__name__}."
            )
        # tocoo, not tocsr: the latter would silently add up duplicate entries.
        entries = [m.tocoo() for m in matrices]
        S = int(entries[0].shape[1])
        if sparse.issparse(P):
            A, rest = divmod(int(entries[0].shape[0]), max(S, 1))
            if rest or A == 0:
                raise InvalidMDP(f"'P' must have shape (S * A, S), got {entries[0].shape}.")
            s, a = np.divmod(entries[0].row.astype(np.int64), A)
        else:
            A = len(entries)
            if any(m.shape != (S, S) for m in entries):
                raise InvalidMDP(
                    f"'P' must contain matrices of shape (S, S), got {[m.shape for m in entries]}."
                )
            s = np.concatenate([m.row for m in entries]).astype(np.int64)
            a = np.concatenate([np.full(len(m.row), i) for i, m in enumerate(entries)]).astype(np.int64)
        x = np.concatenate([m.col for m in entries]).astype(np.int64)
        p = np.concatenate([m.data for m in entries])
        rewards = checks.as_rewards(R, S, A)
        if rewards.ndim == 3:
            raise InvalidMDP(
                "'R' must have shape (S, A) with sparse rows; use from_successors for r(s, a, s')."
            )
        mask = checks.allowed_mask(allowed, S, A, checks.terminal_mask(chosen.terminal, S))
        found = _Entries(s, a, x, np.asarray(p, dtype=float), rewards[s, a])
        return cls._assemble(chosen, found, mask, rewards)

    @classmethod
    def from_successors(
        cls,
        rows: Mapping[tuple[int, int], Sequence[tuple[int, float, float]]],
        *,
        n_states: int,
        n_actions: int,
        **options: Any,
    ) -> FiniteMDP:
        """Build from one list of (successor, probability, reward) per allowed pair (s, a).

        Args:
            rows: The lists; a pair without one is not allowed.
            n_states: The number S of states.
            n_actions: The number A of actions.
            **options: `horizon` (required); `name`; `start`, a state or a distribution of shape (S,),
                state 0 by default; `terminal`, states that end the episode; `discount`;
                `value_cap`, an upper bound on the optimal value in scaled units; `support`, the
                declared number of successors; `reward_range`, (low, high) of the user's rewards,
                (0, 1) by default; `pad`, which makes terminal states absorbing with reward 0, so that a
                reward offset cannot change which policy is best; `recorded_policy`, one action per
                state or probabilities of shape (S, A).

        Raises:
            InvalidMDP: if the lists or options do not describe an MDP.
        """
        chosen = _Options.of(options)
        S = check_integer("n_states", n_states, minimum=1, error=InvalidMDP)
        A = check_integer("n_actions", n_actions, minimum=1, error=InvalidMDP)
        try:
            listed = [(s, a, x, p, r) for (s, a), successors in rows.items() for x, p, r in successors]
            pairs = np.array(list(rows), dtype=np.int64).reshape(-1, 2)
            table = np.array(listed, dtype=float).reshape(-1, 5)
        except (AttributeError, TypeError, ValueError, OverflowError) as problem:
            raise InvalidMDP(
                "'rows' must map pairs (s, a) to lists of (successor, probability, reward), "
                f"got something else: {problem}."
            ) from problem
        outside = ((pairs < 0) | (pairs >= [S, A])).any(axis=1)
        if outside.any():
            s, a = (int(i) for i in pairs[outside][0])
            raise InvalidMDP(f"'rows' must use states < {S} and actions < {A}, got the pair ({s}, {a}).")
        check_table(f"{S} states and {A} actions", S * A)
        mask = np.zeros((S, A), dtype=bool)
        mask[pairs[:, 0], pairs[:, 1]] = True
        whole = (np.abs(table[:, 2]) < 2**53) & (table[:, 2] == np.floor(table[:, 2]))
        if not whole.all():
            raise InvalidMDP(f"'rows' must lead to whole-numbered states, got {float(table[~whole, 2][0])}.")
        from_state, action, to_state = (table[:, i].astype(np.int64) for i in range(3))
        mask[checks.terminal_mask(chosen.terminal, S)] = False
        entries = _Entries(from_state, action, to_state, table[:, 3], table[:, 4])
        return cls._assemble(chosen, entries, mask, None)

    @classmethod
    def _assemble(
        cls, options: _Options, entries: _Entries, mask: Bools, declared: Floats | None
    ) -> FiniteMDP:
        """Return the MDP of some entries at allowed pairs; `declared` are rewards, (S, A) or (S, A, S)."""
        S, A = mask.shape
        ends = checks.terminal_mask(options.terminal, S)
        scale = RewardScale.of(options.reward_range)
        start = checks.as_start(options.start, S, ends)
        check_type("name", options.name, str, "a text", error=InvalidMDP)
        if check_truth("pad", options.pad, error=InvalidMDP):
            entries, mask, declared = _padded(entries, mask, declared, ends)
            ends = np.zeros(S, dtype=bool)
        elif scale.low != 0.0 and ends.any():
            raise InvalidMDP(
                f"'reward_range' must start at 0 where episodes can end early, got {scale.low:g} with "
                "terminal states: the offset would reward ending early. Use pad=True to make terminal "
                "states absorbing with reward 0."
            )
        told = Setting.declare(
            n_states=S,
            n_actions=A,
            horizon=options.horizon,
            allowed=mask,
            terminal=np.flatnonzero(ends),
            discount=options.discount,
            value_cap=options.value_cap,
            support=options.support,
            scale=scale,
        )
        s, a, x, p, r = entries.where(mask[entries.s, entries.a])
        if len(x) and (x.min() < 0 or x.max() >= S):
            raise InvalidMDP(
                f"'P' must lead to states 0..{S - 1}, got a successor {int(x[(x < 0) | (x >= S)][0])}."
            )
        pair = told.pair_index[s, a]
        order = np.lexsort((x, pair))
        pair, x, p, r = pair[order], x[order], p[order], r[order]
        checks.check_rows(told, pair, x, p)
        scaled = checks.check_rewards((r - scale.low) / scale.span, scale)
        positive = p > 0
        pair, x, p, scaled = pair[positive], x[positive], p[positive], scaled[positive]
        row_start = np.searchsorted(pair, np.arange(told.n_pairs + 1)).astype(np.int64)
        policy = options.recorded_policy
        return cls(
            name=options.name,
            setting=told,
            row_start=frozen(row_start),
            successor=frozen(x.astype(np.int64)),
            probability=frozen(p.astype(float)),
            reward=frozen(scaled),
            cumulative=frozen(checks.cumulative_rows(row_start, p)),
            start=start,
            known=_known_reward(told, row_start, x, scaled, declared),
            recorded_policy=None if policy is None else as_policy("recorded_policy", policy, told),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Options:
    """The options that all three constructors share, see `FiniteMDP.from_successors`."""

    horizon: int
    name: str = "custom"
    start: ArrayLike | int = 0
    terminal: Iterable[int] = ()
    discount: float = 1.0
    value_cap: float | None = None
    support: ArrayLike | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    pad: bool = False
    recorded_policy: ArrayLike | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Options:
        """Return the given options, or raise InvalidMDP at an unknown one or a missing horizon."""
        known = [each.name for each in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise InvalidMDP(
                    f"{name!r} is not an option of a FiniteMDP ({', '.join(known)}), got {shown(value)}."
                )
        if "horizon" not in given:
            raise InvalidMDP("'horizon' must be given. It is the number of steps of an episode.")
        terminal = checks.as_list("terminal", given.get("terminal", ()))
        return cls(**{**given, "terminal": terminal})


class _Entries(NamedTuple):
    """Transitions by entry, all arrays of one length: playing a in s leads to x with p and earns r."""

    s: Ints
    a: Ints
    x: Ints
    p: Floats
    r: Floats

    def where(self, keep: Bools) -> _Entries:
        return _Entries(self.s[keep], self.a[keep], self.x[keep], self.p[keep], self.r[keep])


def _padded(
    entries: _Entries, mask: Bools, declared: Floats | None, ends: Bools
) -> tuple[_Entries, Bools, Floats | None]:
    """Return the same with terminal states that are absorbing: their action 0 stays there and earns 0."""
    stay = np.flatnonzero(ends)
    s, a, x, p, r = entries.where(~ends[entries.s])
    s, a, x = (np.concatenate(both) for both in ((s, stay), (a, 0 * stay), (x, stay)))
    p, r = np.concatenate([p, np.ones(len(stay))]), np.concatenate([r, np.zeros(len(stay))])
    mask = mask.copy()
    mask[ends] = False
    mask[stay, 0] = True
    if declared is not None:
        declared = declared.copy()
        declared[stay] = 0.0
    return _Entries(s, a, x, p, r), mask, declared


def _known_reward(
    setting: Setting, row_start: Ints, x: Ints, scaled: Floats, declared: Floats | None
) -> KnownReward:
    """Return the declared reward function, including transitions of probability 0.

    Any value at an impossible successor leaves the bounds valid; those that the user gave are kept (clipped
    to [0, 1]), and a successor without a declared reward may earn anything in [0, 1].
    """
    if declared is not None:
        within = np.clip(declared, setting.scale.low, setting.scale.high)
        return known_reward(within, setting.allowed, setting.scale)
    any_reward = (np.zeros(setting.n_pairs), np.ones(setting.n_pairs))
    return KnownReward(*(frozen(each) for each in (row_start, x.astype(np.int64), scaled, *any_reward)))
