"""The knowledge of a tabular agent, and the plans made from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents._learnt import as_columns
from chary.agents._plan_maker import Arrays, PlanMaker
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import AgentSpec, Transition
from chary.arrays import Floats, Ints
from chary.errors import InvalidData, InvalidSetting, check_integer, check_real, check_type
from chary.mdp._checks import as_start
from chary.mdp.setting import Setting
from chary.model.calibration import CalibrationRecord
from chary.model.knowledge import Knowledge
from chary.planner._backup import LOWER
from chary.planner.explorers import Shorts
from chary.planner.plan import (
    OwnExplorer,
    PlanOptions,
    TabularPlan,
    check_cap,
    explorer_of,
    own_plan,
    policy_values,
)
from chary.policies import OwnBaseline
from chary.standing import Grounds
from chary.storage.sealed import as_array, under

# Counted at a time: room for all of them is made before.
MOST_STEPS = 1000


class OldFloor(NamedTuple):
    """The floor of agents saved by version 0.1: the better of two policies by their lower bounds.

    It could prefer a worse policy. Episodes that were open then keep the baseline they began with, up to
    the plans of version `last`.
    """

    start: Floats
    value: float | None
    last: int

    def role(self, setting: Setting, knowledge: Knowledge, own: Ints) -> str:
        """Return the role that `own` had: the only baseline, or the one that decides ties."""
        learnt = TabularPlan(setting, knowledge, own, upper=False).arrays.v_lower[0]
        mine = float(self.start @ policy_values(knowledge, own, LOWER)[0, : len(self.start)])
        bound = mine if self.value is None else max(mine, self.value)
        return "prior" if float(self.start @ learnt[: len(self.start)]) > bound else "only"


@final
class Learner(PlanMaker[TabularPlan]):
    """Counts, and the plans by bounds that follow from them."""

    def __init__(
        self,
        spec: AgentSpec,
        setting: Setting,
        *,
        prior: Ints,
        own: OwnBaseline | None,
        rank: Ints,
        length: tuple[int | None, int],
        losses: bool = False,
        adopts: bool = False,
    ) -> None:
        super().__init__(
            spec, setting, prior=prior, own=own, rank=rank, length=length, losses=losses, adopts=adopts
        )
        episodes, warmup = length
        total = None if episodes is None else episodes + warmup

        def nothing() -> Knowledge:
            known = Knowledge.empty(setting, spec.bounds, episodes=episodes, total_episodes=total, rank=rank)
            if losses:
                known.expect_losses()
            return known

        self._old_floor: OldFloor | None = None
        self.knowledge = nothing()
        # With data `meta`, explorers learn from the warm-up and whole meta-rollouts alone.
        self._separate = nothing() if isinstance(spec, CharyUCBVI) and spec.data == "meta" else None
        self._latest_explorer: Shorts | None = None
        # A plan that was checked and that no episode is pinned to yet.
        self._next: TabularPlan | None = None

    @property
    def apart(self) -> bool:
        """True where explorers learn from meta-rollouts alone."""
        return self._separate is not None

    def begin_with(self, columns: Columns) -> None:
        """Count logged transitions, for baseline and explorers."""
        self.logs = True
        if self._lent:
            self._part()
        self._teach(columns)
        if self._separate is not None:
            count_columns(self._separate, columns)
        self.renew()

    def _measured_grounds(self) -> Grounds:
        told = self._spec.grounds(self._setting)
        record = self._spec.calibration if isinstance(self._spec, CharyUCBVI) else None
        if not isinstance(self._spec, CharyUCBVI) or not isinstance(record, CalibrationRecord):
            return told
        return replace(
            told,
            outside=self._outside(record, self._spec, losses=bool(self.knowledge.lost)),
            calibrated_on=f"{record.given}; episodes follow one another",
        )

    def renew(self) -> None:
        """Forget the plan: the next one will be made from what is known then."""
        self._plan = self._next = self._latest_explorer = None

    def learn(self, steps: Sequence[Transition], pinned: Collection[TabularPlan]) -> None:
        """Count the steps of a complete episode; `pinned` are the plans that are still in use."""
        self._outdate()
        if steps:
            self._count(as_columns(steps, self._setting), pinned)

    def learn_log(self, columns: Columns, pinned: Collection[TabularPlan]) -> None:
        """Count logged transitions, for baseline and explorers, while episodes may be open."""
        self.logs = True
        self._outdate()
        self._count(columns, pinned)
        if self._separate is not None:
            count_columns(self._separate, columns)

    def _outdate(self) -> None:
        """Forget the plan, unless it stays in force until another one is adopted."""
        if self.adopts and self._plan is not None:
            self._latest_explorer = None
        else:
            self.renew()

    def _count(self, columns: Columns, pinned: Collection[TabularPlan]) -> None:
        if self._lent or any(plan.knowledge is self.knowledge for plan in (*pinned, *self.held.values())):
            self._part()
        self._learn(columns)

    def learn_rollout(self, steps: Sequence[Transition]) -> None:
        """Let explorers learn from a whole meta-rollout."""
        if self._separate is not None and steps:
            count_columns(self._separate, as_columns(steps, self._setting))
            self._latest_explorer = None

    def successors(self) -> tuple[list[int], list[int]]:
        """Return the pairs and successors of all that was counted, losses aside."""
        return counted_successors(self.knowledge, self._setting)

    def new_explorer(self) -> Shorts:
        """Return the explorer of a chain that starts now; chains that start from the same counts share it."""
        if self._latest_explorer is None:
            knowledge = self.knowledge if self._separate is None else self._separate
            self._latest_explorer = explorer_of(self._setting, knowledge)
        return self._latest_explorer

    def _memory(self, oldest: TabularPlan | None) -> tuple[Arrays, dict[str, Any]]:
        base = self.knowledge if oldest is None else oldest.knowledge
        arrays = {f"counts.{name}": array for name, array in base.to_arrays().items()}
        if self._separate is not None:
            arrays |= {f"meta.{name}": array for name, array in self._separate.to_arrays().items()}
        old = self._old_floor
        if old is None or self.version - len(self._journal) > old.last:
            return arrays, {"old_floor": None}
        return arrays | {"own.start": old.start}, {"old_floor": [old.value, old.last]}

    def _recall(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        setting, own = self._setting, about["own"]
        # Version 0.1 had the floor that `OldFloor` describes, and no list of what is left of it.
        value, last = own[1] if isinstance(own, list) else None, about["version"]
        kept = [value, last] if isinstance(own, list) and own[0] == "floor" else about.get("old_floor")
        if own is not None and kept is not None:
            S = setting.n_states
            start = as_start(as_array("own.start", arrays, (S,), np.float64), S, setting.terminal)
            if kept[0] is not None:
                check_real("value_floor", kept[0], low=-math.inf, open_low=True, open_high=True)
            last = check_integer("old_floor", kept[1], minimum=0, error=InvalidData)
            self._old_floor = OldFloor(start, kept[0], last)
        for name, knowledge in (("counts", self.knowledge), ("meta", self._separate)):
            if knowledge is not None:
                knowledge.rows = knowledge.rows._replace(rank=self._rank)
                counts = under(f"{name}.", arrays)
                check_counts(name, counts, setting)
                knowledge.restore(counts)

    def _part(self) -> None:
        self.knowledge, self._lent = self.knowledge.copy(), False

    def _teach(self, batch: Columns) -> None:
        count_columns(self.knowledge, batch)

    def check(self) -> None:
        """Raise InvalidData where values exceed the declared cap, before an episode is pinned to a plan."""
        if self._plan is None:
            self._next = self._make_checked_plan()

    def _make_checked_plan(self) -> TabularPlan:
        return self._make_plan(checked=True) if self._next is None else self._next

    def _learn_waiting(self, pinned: Collection[TabularPlan]) -> None:
        """Do nothing: everything is counted at once."""

    def _rests_on(self, plan: TabularPlan) -> dict[str, Any]:
        return plan.knowledge.to_arrays()

    def _plan_later(self) -> TabularPlan:
        knowledge, explorer = self.knowledge, self._chain_explorer(self.knowledge)
        self._lent = True

        def whole() -> TabularPlan:
            return self._make_plan(knowledge, checked=True)

        return TabularPlan.later(whole, knowledge, self.explorers, explorer)

    def _chain_explorer(self, knowledge: Knowledge) -> Callable[[], Shorts]:
        """Return what makes the explorers of chains that start with a plan of `knowledge`.

        Where plans are adopted it is the plan that decides, as far as explorers learn from the same data.
        """
        if self.adopts and self._separate is None:
            return OwnExplorer(self._setting, knowledge)
        return self.new_explorer

    def _make_plan(self, knowledge: Knowledge | None = None, *, checked: bool = False) -> TabularPlan:
        knowledge = self.knowledge if knowledge is None else knowledge
        plan = self._unchecked_plan(knowledge)
        if checked:
            arrays = plan.arrays
            check_cap(self._setting, self._spec.bounds, knowledge, arrays.baseline, arrays.v_lower)
        return plan

    def _unchecked_plan(self, knowledge: Knowledge) -> TabularPlan:
        options: PlanOptions = {
            "charge": self._spec.charge if isinstance(self._spec, CharyUCBVI) else "paper",
            "upper": self._spec.shielded,
            "explorers": self.explorers,
            "new_explorer": self._chain_explorer(knowledge),
        }
        if self._own is not None:
            own = self._own
            if self._old_floor is not None and self.version <= self._old_floor.last:
                own = replace(own, role=self._old_floor.role(self._setting, knowledge, own.table))
            return own_plan(self._setting, knowledge, own, **options)
        return TabularPlan(self._setting, knowledge, self._prior, **options)


def counted_successors(knowledge: Knowledge, setting: Setting) -> tuple[list[int], list[int]]:
    """Return the pairs and successors of all that was counted, losses aside."""
    rows, S = knowledge.rows, setting.n_states
    places = np.concatenate([np.arange(b, b + n) for b, n in zip(rows.begin, rows.length, strict=True)])
    pairs, successors = np.repeat(np.arange(len(rows.length)), rows.length), rows.successor[places]
    return pairs[successors < S].tolist(), successors[successors < S].tolist()


def count_columns(knowledge: Knowledge, columns: Columns) -> None:
    """Count transitions by column."""
    states, pairs, nexts, rewards, ended = columns
    for first in range(0, len(states), MOST_STEPS):
        span = slice(first, first + MOST_STEPS)
        knowledge.learn(states[span], pairs[span], nexts[span], rewards[span])
    knowledge.radii.terminal[nexts[ended]] = True


def check_counts(name: str, arrays: Mapping[str, NDArray[Any]], setting: Setting) -> None:
    """Raise InvalidData unless the numbers of some counts can be ones of this problem.

    Rows, types and shapes are checked by `Knowledge.restore`.
    """
    length = np.asarray(arrays["length"])
    fits = length.dtype == np.int64 and bool(((length >= 0) & (length <= setting.n_states + 1)).all())
    for each, array in arrays.items():
        if each not in ("length", "successor", "terminal", "lost"):
            fits = fits and np.asarray(array).dtype == np.float64 and bool((array >= 0).all())
    for each in ("weight", "reward", "total", "reward_total", "square_total", "visits"):
        fits = fits and bool(np.isfinite(arrays[each]).all())
    if not fits:
        raise InvalidData(f"{name!r} must be counts of this problem, got others.")


def check_own(own: OwnBaseline, setting: Setting, *, given: bool) -> None:
    """Raise InvalidSetting unless `own` is declared for this problem and no prior was `given`."""
    check_type("own", own, OwnBaseline, "an OwnBaseline", way_out="Use OwnBaseline.declare.")
    if given:
        raise InvalidSetting(f"'own' must come without a prior, got role {own.role!r} and a prior as well.")
    if own.table.shape != (setting.horizon, setting.n_states):
        raise InvalidSetting(
            f"'own' must be declared for this problem, shape {(setting.horizon, setting.n_states)}, got a "
            f"table of shape {own.table.shape}."
        )
