"""Plans as values: what a tabular learner believes, frozen for the episodes that began with it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from chary.mdp import Setting
from chary.model.knowledge import Knowledge
from chary.planner._backup import new_scratch
from chary.planner._kernels import (
    CHARGES,
    DIFFERENCE,
    Explorer,
    charge_of,
    explore_into,
    new_explorer,
    new_plan_arrays,
    plan_into,
)

__all__ = ["TabularPlan", "optimistic_policy"]

Ints = NDArray[np.int64]


@final
class TabularPlan:
    """The three answers the shield asks for, from counts and bounds; `chary.shield.Plan` for states 0..S-1.

    `arrays` are the values and the baseline, see `PlanArrays`. `explorers` maps open chains to their
    frozen policies, (H, S), and is shared by all plans of an agent; a chain that is not in it starts
    here, with the policy that `new_explorer` makes.
    """

    __slots__ = ("_kind", "_new_explorer", "_scratch", "arrays", "explorers", "knowledge")

    def __init__(
        self,
        setting: Setting,
        knowledge: Knowledge,
        prior: Ints,
        *,
        charge: str = "coupled",
        upper: bool = True,
        explorers: MutableMapping[int, Ints] | None = None,
        new_explorer: Callable[[], Ints] | None = None,
    ) -> None:
        self._kind = CHARGES.index(charge)
        self._scratch = new_scratch(setting.n_states)
        self.knowledge = knowledge
        self.explorers: MutableMapping[int, Ints] = {} if explorers is None else explorers
        self._new_explorer = new_explorer or (lambda: optimistic_policy(setting, knowledge))
        self.arrays = new_plan_arrays(setting.n_states, setting.horizon, differences=self._kind == DIFFERENCE)
        plan_into(self.arrays, knowledge.rows, knowledge.radii, prior, self._kind, upper, self._scratch)

    def explore(self, chain: int, clock: int, s: int) -> int:
        """Return the action of that chain's explorer, pi_hat."""
        if chain not in self.explorers:
            self.explorers[chain] = self._new_explorer()
        return int(self.explorers[chain][clock, s])

    def baseline(self, t: int, s: int) -> int:
        """Return the baseline's action, pi_bar."""
        return int(self.arrays.baseline[t, s])

    def charge(self, t: int, s: int, a: int) -> float:
        """Return the charge of playing `a`, section 3."""
        knowledge = self.knowledge
        return float(
            charge_of(self._kind, knowledge.rows, knowledge.radii, self.arrays, t, s, a, self._scratch)
        )


def optimistic_policy(setting: Setting, knowledge: Knowledge, explorer: Explorer | None = None) -> Ints:
    """Return the explorer, (H, S): the argmax of the upper Q, ties to the lowest index.

    An `explorer` handed in is filled, and keeps the falling ceiling of UCBVI's own bonuses.
    """
    room = explorer or new_explorer(setting.n_states, setting.n_pairs, setting.horizon, falling=False)
    explore_into(room, knowledge.rows, knowledge.radii, new_scratch(setting.n_states))
    return np.array(room.policy)
