"""A plan of posterior worlds as a value: what the shield asks, frozen for the episodes begun with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, ClassVar, final

import numpy as np

from chary._compile import bare, calling, jit_bare
from chary.arrays import Floats
from chary.model.worlds import Worlds
from chary.planner._worlds import Shape, WorldPlan, price_worlds_into, upper_kernel
from chary.planner.deferred import Deferred
from chary.planner.explorers import Explorers, Shorts
from chary.shield.ledger import authorise
from chary.shield.worlds import Panel, Votes, upper, vote_into

# The vote of the shield, compiled for arrays.
vote_lanes_into: Any = jit_bare(calling(vote_into, authorise=bare(authorise), upper=upper_kernel))
upper_of_lanes: Any = jit_bare(upper)


def votes_of(panel: Panel, worlds: int) -> Votes:
    """Return how worlds vote on arrays."""
    return Votes(worlds, panel, vote=vote_lanes_into, deficits=_no_deficits, trusted=True)


def _no_deficits(worlds: int) -> Any:
    # An array, which mypy takes for no sequence.
    return np.zeros(worlds)


@final
class JointPlan(Deferred):
    """One plan for all worlds; `chary.shield.PlanOfWorlds` for states 0..S-1.

    It reads `worlds` as they were when it was made. A chain that has played a step has a frozen policy in
    `explorers`, which all plans of an agent share; any other one takes the explorer of the plan that is
    asked. Without `priced` steps cost nothing. The attribute `fixed` says whether the baseline is the policy
    that the user declared.
    """

    __slots__ = ("_panel", "_priced", "_prices", "arrays", "explorers", "fixed", "shape", "worlds")

    MADE: ClassVar[tuple[str, ...]] = ("arrays", "fixed")
    arrays: WorldPlan
    fixed: bool

    def __init__(
        self,
        arrays: WorldPlan,
        worlds: Worlds,
        shape: Shape,
        panel: Panel,
        *,
        priced: bool = True,
        explorers: MutableMapping[int, Shorts] | None = None,
        fixed: bool = False,
    ) -> None:
        self._later = None
        self.arrays, self.worlds, self.shape, self.fixed = arrays, worlds, shape, fixed
        self._panel, self._priced = panel, priced
        self.explorers: MutableMapping[int, Shorts] = {} if explorers is None else explorers
        # The gaps of steps that were prepared, (B, K), and the row of each by step, state and action.
        self._prices: tuple[Floats, dict[tuple[int, int, int], int]] = (np.zeros((0, 0)), {})

    @classmethod
    def later(
        cls,
        whole: Callable[[], JointPlan],
        worlds: Worlds,
        shape: Shape,
        panel: Panel,
        *,
        priced: bool,
        explorers: MutableMapping[int, Shorts],
    ) -> JointPlan:
        """Return the plan that `whole` returns, which is called once its values are needed."""
        plan = cls.__new__(cls)
        plan._later = whole
        plan.worlds, plan.shape, plan._panel, plan._priced = worlds, shape, panel, priced
        plan.explorers, plan._prices = explorers, (np.zeros((0, 0)), {})
        return plan

    def explore(self, chain: int, clock: int, s: int) -> int:
        """Return the action of that chain's explorer, pi_hat."""
        frozen = self.explorers.get(chain)
        if frozen is None:
            explorer = self.arrays.explorer
            return int(explorer[clock, s, chain % explorer.shape[2]])
        return int(frozen[clock, s])

    def freeze(self, chain: int) -> None:
        """Keep the explorer of a chain that plays its first step by this plan."""
        if chain in self.explorers:
            return
        if isinstance(self.explorers, Explorers) and not self.is_made:
            self.explorers.put_off(chain, lambda: self._explorer_of(chain))
        else:
            self.explorers[chain] = self._explorer_of(chain)

    def _explorer_of(self, chain: int) -> Shorts:
        explorer = self.arrays.explorer
        return explorer[:, :, chain % explorer.shape[2]].copy()

    def baseline(self, t: int, s: int) -> int:
        """Return the baseline's action, pi_bar."""
        return int(self.arrays.baseline[t, s])

    def charge(self, t: int, s: int, a: int) -> float:
        """Return what the panel takes for an upper bound on the gap of playing `a`; inf if not allowed."""
        if not self._priced or a == self.arrays.baseline[t, s]:
            return 0.0
        if self.shape.pair_index[s, a] < 0:
            return math.inf
        return float(upper_of_lanes(self.charges(t, s, a), self._panel))

    def charges(self, t: int, s: int, a: int) -> Floats:
        """Return the gap of playing `a` in every judging world, (K,); inf where it is not allowed."""
        prices, places = self._prices
        place = places.get((t, s, a))
        if place is not None:
            return prices[place].copy()
        gaps = np.full((1, self.arrays.judges), math.inf)
        if self.shape.pair_index[s, a] >= 0:
            price_worlds_into(gaps, self.arrays, self.worlds.rows, self.shape, np.array([[t, s, a]]))
        return gaps[0]

    def values(self, t: int, s: int, a: int) -> Floats:
        """Return what playing `a` and then the baseline is worth in every judging world, (K,)."""
        arrays, shape, most = self.arrays, self.shape, float(self.shape.vmax[t])
        if a == arrays.baseline[t, s]:
            return arrays.value[t, s, : arrays.judges].copy()
        # The gap against the most that anything is worth here.
        against = arrays._replace(top=np.full((t + 1, s + 1, arrays.value.shape[2]), most))
        gaps = np.empty((1, arrays.judges))
        price_worlds_into(gaps, against, self.worlds.rows, shape, np.array([[t, s, a]]))
        return most - gaps[0]

    def prepare(self, stages: Iterable[int], states: Iterable[int], actions: Iterable[int | None]) -> None:
        """Compute the gaps of many steps in one call, in place of those prepared before; None is no step."""
        asked = {(t, s, a) for t, s, a in zip(stages, states, actions, strict=True) if a is not None}
        places = {step: i for i, step in enumerate(asked)}
        prices = np.empty((len(places), self.arrays.judges))
        if places:
            price_worlds_into(prices, self.arrays, self.worlds.rows, self.shape, np.array(list(places)))
        self._prices = prices, places
