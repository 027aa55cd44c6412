"""What was observed: transition counts that grow with the data, never with S * A * S."""

from __future__ import annotations

import numpy as np

from chary._compile import jit, kernel_of
from chary.arrays import Floats, Ints
from chary.errors import InvalidData, InvalidSetting
from chary.mdp import Setting
from chary.model.radii import Radii, refresh_into
from chary.model.rows import Rows, count_into, count_kernel, empty_rows, repacked, room_needed

__all__ = ["Counts", "learn_into", "learn_kernel"]


FIRST_ROOM = 1024


@jit
def learn_into(
    rows: Rows, radii: Radii, states: Ints, pairs: Ints, nexts: Ints, rewards: Floats, steps: int
) -> None:
    """Count the first `steps` transitions and refresh the radii of their pairs."""
    for i in range(steps):
        count_kernel(rows, pairs[i], nexts[i], rewards[i])
        rows.visits[states[i]] += 1.0
    for i in range(steps):
        refresh_into(radii, rows, pairs[i])


learn_kernel = kernel_of(learn_into)


class Counts:
    """Counts N(s, a), N(s, a, x) and reward sums of one problem, merged with + and never forgotten.

    Example:
        >>> counts = Counts(Setting.declare(n_states=2, n_actions=1, horizon=3))
        >>> counts.observe(0, 0, 0.5, 1)
        >>> counts.total(0, 0), counts.successors(0, 0)
        (1, {1: 1})
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rows = empty_rows(setting, FIRST_ROOM)

    def observe(self, s: int, a: int, reward: float, s_next: int) -> None:
        """Count one transition with its scaled reward.

        Raises:
            InvalidData: if the state, the action or the reward is outside what the setting declares.
        """
        p = self.pair(s, a)
        if not 0 <= s_next < self.setting.n_states:
            raise InvalidData(f"'next_state' must lie in 0..{self.setting.n_states - 1}, got {s_next!r}.")
        if not 0.0 <= reward <= 1.0:
            raise InvalidData(f"'reward' must lie in [0, 1] once scaled, got {reward!r}.")
        self.make_room(np.array([p]))
        count_into(self.rows, p, s_next, float(reward))
        self.rows.visits[s] += 1.0

    def pair(self, s: int, a: int) -> int:
        """Return the number of the pair (s, a)."""
        if not (0 <= s < self.setting.n_states and 0 <= a < self.setting.n_actions):
            raise InvalidData(
                f"'state' and 'action' must lie in 0..{self.setting.n_states - 1} and "
                f"0..{self.setting.n_actions - 1}, got {s!r} and {a!r}."
            )
        p = int(self.setting.pair_index[s, a])
        if p < 0:
            raise InvalidData(f"'action' must be allowed in state {s}, got {a!r}.")
        return p

    def make_room(self, pairs: Ints) -> None:
        """Make sure that counting these pairs cannot run out of entries."""
        need = room_needed(self.rows, pairs, len(pairs))
        if self.rows.used[0] + need > len(self.rows.successor):
            self.rows = repacked(self.rows, 2 * need)

    def total(self, s: int, a: int) -> int:
        """Return N(s, a)."""
        return int(self.rows.total[self.pair(s, a)])

    def successors(self, s: int, a: int) -> dict[int, int]:
        """Return N(s, a, x) by x."""
        p = self.pair(s, a)
        span = slice(self.rows.begin[p], self.rows.begin[p] + self.rows.length[p])
        return {
            int(x): int(n) for x, n in zip(self.rows.successor[span], self.rows.weight[span], strict=True)
        }

    def reward_mean(self, s: int, a: int) -> float:
        """Return the mean scaled reward of (s, a), NaN where it was never played."""
        p = self.pair(s, a)
        return float(self.rows.reward_total[p] / self.rows.total[p]) if self.rows.total[p] else float("nan")

    def dense(self) -> tuple[Floats, Floats, Floats]:
        """Return counts (P, S), reward sums (P, S) and sums of squared rewards (P,), for small problems."""
        P, S = self.setting.n_pairs, self.setting.n_states
        counts, rewards = np.zeros((P, S)), np.zeros((P, S))
        for p in range(P):
            span = slice(self.rows.begin[p], self.rows.begin[p] + self.rows.length[p])
            counts[p, self.rows.successor[span]] = self.rows.weight[span]
            rewards[p, self.rows.successor[span]] = self.rows.reward[span]
        return counts, rewards, self.rows.square_total.copy()

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both; associative and commutative up to rounding of the reward sums."""
        mine, theirs = self.setting, other.setting
        if mine.n_states != theirs.n_states or not np.array_equal(mine.pair_index, theirs.pair_index):
            raise InvalidSetting(
                f"'other' must count the same problem, {mine.n_states} states and {mine.n_pairs} pairs, "
                f"got {theirs.n_states} and {theirs.n_pairs}."
            )
        merged = Counts(mine)
        merged.rows = repacked(
            self.rows, 2 * int(other.rows.length.sum() + self.rows.length.sum()) + FIRST_ROOM
        )
        for p in range(mine.n_pairs):
            begin = other.rows.begin[p]
            merged.make_room(np.full(int(other.rows.length[p]), p))
            for i in range(begin, begin + int(other.rows.length[p])):
                _merge_into(
                    merged.rows, p, other.rows.successor[i], other.rows.weight[i], other.rows.reward[i]
                )
        merged.rows = merged.rows._replace(
            total=self.rows.total + other.rows.total,
            reward_total=self.rows.reward_total + other.rows.reward_total,
            square_total=self.rows.square_total + other.rows.square_total,
            visits=self.rows.visits + other.rows.visits,
        )
        return merged


@jit
def _merge_into(rows: Rows, p: int, x: int, weight: float, reward: float) -> None:
    """Add a whole entry; the totals are the caller's business."""
    count_into(rows, p, x, 0.0)
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        if rows.successor[i] == x:
            rows.weight[i] += weight - 1.0
            rows.reward[i] += reward
