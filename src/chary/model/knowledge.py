"""Counts together with their radii: all that a tabular learner knows."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.counts import FIRST_ROOM, learn_into
from chary.model.radii import Radii, radii_for
from chary.model.rows import Rows, empty_rows, repacked, room_needed

__all__ = ["LEARNT_RADII", "Knowledge"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The radii that change with the counts; the others are fixed by the problem and the family.
LEARNT_RADII = ("width", "reward_above", "reward_below", "spread")


@final
class Knowledge:
    """What was observed and how far the truth may lie from it.

    `episodes` are the online episodes the bounds must hold for and `total_episodes` those of the warm-up
    too; None where the family needs none.
    """

    __slots__ = ("radii", "rows")

    def __init__(self, rows: Rows, radii: Radii) -> None:
        self.rows = rows
        self.radii = radii

    @classmethod
    def empty(
        cls, setting: Setting, bounds: Bounds, *, episodes: int | None, total_episodes: int | None
    ) -> Knowledge:
        """Return the knowledge of a learner that has seen nothing."""
        radii = radii_for(setting, bounds, episodes=episodes, total_episodes=total_episodes)
        return cls(empty_rows(setting, FIRST_ROOM), radii)

    def learn(self, states: Ints, pairs: Ints, nexts: Ints, rewards: Floats) -> None:
        """Count transitions in the order given; rewards are scaled."""
        self.make_room(room_needed(self.rows, pairs, len(pairs)))
        learn_into(self.rows, self.radii, states, pairs, nexts, rewards, len(pairs))

    def make_room(self, need: int) -> None:
        """Make sure that `need` entries are free, moving all rows together where they are not."""
        if self.rows.used[0] + need > len(self.rows.successor):
            self.rows = repacked(self.rows, 4 * need)

    def copy(self) -> Knowledge:
        """Return the same knowledge in arrays of its own."""
        return Knowledge(
            Rows(**{name: array.copy() for name, array in self.rows._asdict().items()}),
            self.radii._replace(
                **{name: getattr(self.radii, name).copy() for name in ("terminal", *LEARNT_RADII)}
            ),
        )
