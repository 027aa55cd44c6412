"""Counts together with their radii: the knowledge of a tabular learner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary._compile import jit, kernel_of
from chary.arrays import Floats, Ints
from chary.errors import InvalidData
from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.radii import Radii, radii_for, refresh_into
from chary.model.rows import ENTRIES, TOTALS, Rows, count_kernel, empty_rows, repacked, room_needed
from chary.texts import shown

FIRST_ROOM = 1024
# The radii that change with the counts; the others are fixed by the problem and the family.
LEARNT_RADII = ("width", "reward_above", "reward_below", "spread")


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


@final
class Knowledge:
    """Counts N(s, a), N(s, a, x) and sums of rewards, and how far the truth may lie from them.

    `rows` grow with the data, never with S * A * S, and nothing in them is forgotten. Outcomes may be lost,
    section 10: `lost` maps each pair that lost any to the state that stands for them, behind those of the
    problem.

    Example:
        >>> setting = Setting.declare(n_states=2, n_actions=1, horizon=3)
        >>> knowledge = Knowledge.empty(setting, Bounds(), episodes=None, total_episodes=None)
        >>> knowledge.learn(np.array([0]), np.array([0]), np.array([1]), np.array([0.5]))
        >>> knowledge.total(0, 0), knowledge.successors(0, 0), knowledge.reward_mean(0, 0)
        (1, {1: 1}, 0.5)
    """

    __slots__ = ("lost", "radii", "rows")

    def __init__(self, rows: Rows, radii: Radii, lost: dict[int, int] | None = None) -> None:
        self.rows = rows
        self.radii = radii
        self.lost: dict[int, int] = {} if lost is None else lost

    @classmethod
    def empty(
        cls,
        setting: Setting,
        bounds: Bounds,
        *,
        episodes: int | None,
        total_episodes: int | None,
        rank: Ints | None = None,
    ) -> Knowledge:
        """Return the knowledge of a learner that has seen nothing.

        `episodes` are the online episodes the bounds must hold for and `total_episodes` those of the warm-up
        too; None where the family needs none. `rank` (P,) is the order of a state's pairs that decides
        ties, by default that of the actions' numbers.
        """
        radii = radii_for(setting, bounds, episodes=episodes, total_episodes=total_episodes)
        return cls(empty_rows(setting, FIRST_ROOM, rank), radii)

    def learn(self, states: Ints, pairs: Ints, nexts: Ints, rewards: Floats) -> None:
        """Count transitions in the order given; rewards are scaled, a next state of -1 is a lost outcome."""
        gone = nexts < 0
        if gone.any():
            self._add_lost(pairs[gone].tolist())
            nexts = nexts.copy()
            nexts[gone] = [self.lost[p] for p in pairs[gone].tolist()]
        self.make_room(room_needed(self.rows, pairs, len(pairs)))
        learn_into(self.rows, self.radii, states, pairs, nexts, rewards, len(pairs))

    def expect_losses(self) -> None:
        """Let the bounds allow for lost outcomes of every pair; before anything is counted."""
        self.radii = self.radii._replace(losses=True, support=self.radii.support + 1)
        self._add_states(1)

    def _add_lost(self, pairs: Iterable[int]) -> None:
        """Give every pair that has lost outcomes a state that stands for them."""
        for p in dict.fromkeys(pairs):
            if p not in self.lost:
                self.lost[p] = len(self.rows.visits)
                self._add_states(1)
                if not self.radii.losses:
                    support = self.radii.support.copy()
                    support[p] += 1
                    self.radii = self.radii._replace(support=support)

    def _add_states(self, n: int) -> None:
        """Add states that end an episode and in which no action is allowed."""
        rows, P = self.rows, len(self.rows.total)
        self.rows = rows._replace(
            visits=np.append(rows.visits, np.zeros(n)), pair_start=np.append(rows.pair_start, np.full(n, P))
        )
        self.radii = self.radii._replace(terminal=np.append(self.radii.terminal, np.ones(n, dtype=bool)))

    def make_room(self, need: int) -> None:
        """Make sure that `need` entries are free, moving all rows together where they are not."""
        if self.rows.used[0] + need > len(self.rows.successor):
            self.rows = repacked(self.rows, 4 * need)

    def total(self, s: int, a: int) -> int:
        """Return N(s, a)."""
        return int(self.rows.total[self._pair(s, a)])

    def successors(self, s: int, a: int) -> dict[int, int]:
        """Return N(s, a, x) by x."""
        rows, p = self.rows, self._pair(s, a)
        span = slice(rows.begin[p], rows.begin[p] + rows.length[p])
        return {int(x): int(n) for x, n in zip(rows.successor[span], rows.weight[span], strict=True)}

    def reward_mean(self, s: int, a: int) -> float:
        """Return the mean scaled reward of (s, a), NaN where it was never played."""
        n = self.total(s, a)
        return float(self.rows.reward_total[self._pair(s, a)] / n) if n else float("nan")

    def _pair(self, s: int, a: int) -> int:
        S, A = self.rows.pair_index.shape
        if not (0 <= s < S and 0 <= a < A):
            raise InvalidData(
                f"'state' and 'action' must lie in 0..{S - 1} and 0..{A - 1}, got {shown(s)} and {a!r}."
            )
        p = int(self.rows.pair_index[s, a])
        if p < 0:
            raise InvalidData(f"'action' must be allowed in state {s}, got {shown(a)}.")
        return p

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that was learnt, each row's entries behind those of the row before, for `restore`."""
        rows = self.rows
        before = np.cumsum(rows.length) - rows.length
        places = np.arange(int(rows.length.sum())) + np.repeat(rows.begin - before, rows.length)
        entries = {name: getattr(rows, name)[places] for name in ENTRIES}
        learnt = {name: getattr(self.radii, name).copy() for name in ("terminal", *LEARNT_RADII)}
        arrays = entries | {name: getattr(rows, name).copy() for name in ("length", *TOTALS)} | learnt
        return arrays | ({"lost": np.array(list(self.lost))} if self.lost else {})

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `to_arrays` returned; rows may move in memory, which changes no number.

        Raises:
            InvalidData: if they are not counts of this problem.
        """
        if "lost" in arrays:
            self._restore_lost(arrays["lost"])
        S = len(self.rows.visits)
        entries = len(np.asarray(arrays["successor"]).ravel())
        kept: dict[str, NDArray[Any]] = {}
        for name in (*ENTRIES, "length", *TOTALS, "terminal", *LEARNT_RADII):
            mine = getattr(self.radii if name in ("terminal", *LEARNT_RADII) else self.rows, name)
            shape = (entries,) if name in ENTRIES else mine.shape
            kept[name] = np.array(arrays[name])
            if kept[name].shape != shape or kept[name].dtype != mine.dtype:
                raise InvalidData(
                    f"{name!r} must be {mine.dtype} of shape {shape}, got {kept[name].dtype} of shape "
                    f"{kept[name].shape}."
                )
        length, successor, weight = kept["length"], kept["successor"], kept["weight"]
        if (length < 0).any() or int(length.sum()) != entries:
            raise InvalidData(f"'length' must add up to {entries} entries, got {int(length.sum())}.")
        begin = np.cumsum(length) - length
        first = np.zeros(entries, dtype=bool)
        first[begin[length > 0]] = True
        ascending = first | (np.diff(successor, prepend=-1) > 0)
        if not (ascending.all() and (successor >= 0).all() and (successor < S).all()):
            raise InvalidData(f"'successor' must be states below {S}, ascending in every row.")
        pairs = np.repeat(np.arange(len(length)), length)
        own = np.array([self.lost.get(p, -1) for p in pairs.tolist()], dtype=np.int64)
        if ((successor >= self.radii.lost_from) & (successor != own)).any():
            raise InvalidData(
                "'successor' must be states of the problem, or the pair's own for what is lost."
            )
        counted = np.bincount(pairs, weights=weight, minlength=len(length))
        if not ((weight >= 1.0).all() and np.array_equal(counted, kept["total"])):
            raise InvalidData("'weight' must be counts that add up to 'total' in every row.")
        longest = int(length.max(initial=0))
        self.rows = self.rows._replace(
            begin=begin,
            length=length,
            capacity=length.copy(),
            used=np.array([entries, longest], dtype=np.int64),
            **{name: kept[name] for name in (*ENTRIES, *TOTALS)},
        )
        for name in ("terminal", *LEARNT_RADII):
            getattr(self.radii, name)[:] = kept[name]

    def _restore_lost(self, pairs: NDArray[Any]) -> None:
        whole = pairs.ndim == 1 and np.issubdtype(pairs.dtype, np.integer)
        if not (whole and (pairs >= 0).all() and (pairs < len(self.rows.total)).all()):
            raise InvalidData("'lost' must hold pairs of this problem, got others.")
        self._add_lost(pairs.tolist())

    def copy(self) -> Knowledge:
        """Return the same knowledge in new arrays."""
        return Knowledge(
            Rows(**{name: array.copy() for name, array in self.rows._asdict().items()}),
            self.radii._replace(
                **{name: getattr(self.radii, name).copy() for name in ("terminal", *LEARNT_RADII)}
            ),
            dict(self.lost),
        )
