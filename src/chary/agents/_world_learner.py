"""The posterior worlds of a step API, and the plans made from them: `_learner.Learner` for worlds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents._learnt import as_columns, batch_arrays, batches_from, generator_values
from chary.agents._plan_maker import Arrays, PlanMaker
from chary.agents._world_schedule import WorldSchedule
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import Transition
from chary.agents.worlds import WorldsSpec
from chary.arrays import Ints
from chary.errors import InvalidData, check_integer
from chary.mdp.setting import Setting
from chary.model.risk_calibration import RiskRecord
from chary.model.rows import LOST
from chary.model.worlds import Worlds
from chary.planner._worlds import Shape
from chary.planner.joint import JointPlan
from chary.policies import OwnBaseline
from chary.standing import Grounds
from chary.storage.sealed import as_array, under


@final
class WorldLearner(PlanMaker[JointPlan]):
    """Worlds, and the plans that follow from them; what is learnt waits until it is enough to plan again.

    Explorers are those of chains that have played a step. To make plans again takes the generator of the
    worlds that the oldest one was made from, too.
    """

    # Worlds that explore learn from the same data as those that judge.
    apart: ClassVar[bool] = False

    def __init__(
        self,
        spec: WorldsSpec,
        setting: Setting,
        *,
        prior: Ints,
        own: OwnBaseline | None,
        rank: Ints,
        length: tuple[int | None, int],
        generator: np.random.Generator | None,
        losses: bool = False,
        adopts: bool = False,
    ) -> None:
        super().__init__(
            spec, setting, prior=prior, own=own, rank=rank, length=length, losses=losses, adopts=adopts
        )
        self._worlds_spec, self._seed = spec, generator
        self._schedule = self._new_schedule()
        self._waiting: list[Columns] = []

    @property
    def ledgers(self) -> int:
        """The number of deficits that an episode has."""
        return self._schedule.ledgers

    def _measured_grounds(self) -> Grounds:
        told = self._spec.grounds(self._setting)
        record = self._spec.calibration if isinstance(self._spec, CharyUCBVI) else None
        if not isinstance(self._spec, CharyUCBVI) or not isinstance(record, RiskRecord):
            return told
        apart = self._outside(record, self._spec, losses=self._schedule.worlds.losses)
        return replace(told, coverage=f"{record.coverage(apart)}; episodes follow one another")

    def begin_with(self, columns: Columns) -> None:
        """Learn logged transitions."""
        self.logs = True
        if self._lent:
            self._part()
        self._teach(columns)
        self._schedule.begin()
        self._plan = None

    def learn(self, steps: Sequence[Transition], pinned: Collection[JointPlan]) -> None:
        """Take in steps, and learn them once they are enough; `pinned` are the plans still in use."""
        if steps:
            self._waiting.append(as_columns(steps, self._setting))
        self._learn_if_due(pinned)

    def learn_log(self, columns: Columns, pinned: Collection[JointPlan]) -> None:
        """Take in logged transitions, while episodes may be open."""
        self.logs = True
        self._waiting.append(columns)
        self._learn_if_due(pinned)

    def _learn_if_due(self, pinned: Collection[JointPlan]) -> None:
        waits_for_draft = self.adopts and self._plan is not None
        if not waits_for_draft and sum(len(each[0]) for each in self._waiting) >= self._schedule.due:
            self._learn_waiting(pinned)
            self._plan = None

    def _learn_waiting(self, pinned: Collection[JointPlan]) -> None:
        if self._waiting:
            worlds = self._schedule.worlds
            if self._lent or any(plan.worlds is worlds for plan in (*pinned, *self.held.values())):
                self._part()
            self._learn(_joined(self._waiting))
            self._waiting = []

    def learn_rollout(self, steps: Sequence[Transition]) -> None:
        """Do nothing: `apart` is False."""

    def successors(self) -> tuple[list[int], list[int]]:
        """Return the pairs and successors of all that was learnt, losses aside."""
        counts = self._schedule.worlds.counts
        pairs, successors = counts.pair.tolist(), counts.successor.tolist()
        for _, new, nexts, _, _ in self._waiting:
            pairs += new[nexts != LOST].tolist()
            successors += nexts[nexts != LOST].tolist()
        return pairs, successors

    def _memory(self, oldest: JointPlan | None) -> tuple[Arrays, dict[str, Any]]:
        schedule = self._schedule
        worlds, shape = (schedule.worlds, schedule.shape) if oldest is None else (oldest.worlds, oldest.shape)
        arrays = {f"worlds.{name}": array for name, array in worlds.to_arrays().items()}
        arrays |= {"terminal": shape.terminal} | batch_arrays("waiting", self._waiting)
        return arrays, {
            "waiting": [len(each[0]) for each in self._waiting],
            "generator": generator_values(worlds.generator),
            "before": schedule.before,
        }

    def _recall(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        setting = self._setting
        schedule = self._schedule = self._new_schedule()
        schedule.worlds.restore(under("worlds.", arrays))
        schedule.worlds.generator.bit_generator.state = dict(about["generator"])
        terminal = as_array("terminal", arrays, (setting.n_states,), bool)
        if (setting.terminal & ~terminal).any():
            raise InvalidData("'terminal' must contain the states declared terminal, got fewer.")
        schedule.shape = schedule.shape._replace(terminal=terminal)
        # Agents saved earlier counted the log, too.
        schedule.before = check_integer("before", about.get("before", 0), minimum=0, error=InvalidData)
        if schedule.before > schedule.worlds.learnt:
            raise InvalidData(
                f"'before' must be at most the {schedule.worlds.learnt} transitions learnt, got "
                f"{schedule.before}."
            )
        for number in about["waiting"]:
            check_integer("learner", number, minimum=0, error=InvalidData)
        self._waiting = batches_from("waiting", arrays, about["waiting"], setting)

    def _part(self) -> None:
        self._schedule.worlds, self._lent = self._schedule.worlds.copy(), False

    def _new_schedule(self) -> WorldSchedule:
        return WorldSchedule(
            self._worlds_spec,
            self._setting,
            prior=self._prior,
            rank=self._rank,
            generator=self._seed,
            own=self._own,
            losses=self._losses,
        )

    def _teach(self, batch: Columns) -> None:
        _, pairs, nexts, rewards, ended = batch
        self._schedule.learn(pairs, nexts, rewards, nexts[ended])

    def _rests_on(self, plan: JointPlan) -> dict[str, Any]:
        worlds = plan.worlds
        numbers = {"learnt": worlds.learnt, "generator": generator_values(worlds.generator)}
        return {**worlds.counts._asdict(), "terminal": plan.shape.terminal, **numbers}

    def _plan_later(self) -> JointPlan:
        worlds, shape = self._schedule.worlds, self._schedule.shape
        self._lent = True

        def whole() -> JointPlan:
            return self._planned(worlds, shape, alone=True)

        options: dict[str, Any] = {"priced": self._spec.shielded, "explorers": self.explorers}
        return JointPlan.later(whole, worlds, shape, self._schedule.panel, **options)

    def _make_plan(self) -> JointPlan:
        return self._planned(self._schedule.worlds, self._schedule.shape)

    def _planned(self, worlds: Worlds, shape: Shape, *, alone: bool = False) -> JointPlan:
        schedule, own = self._schedule, self._own
        arrays = schedule.planned(worlds=worlds, shape=shape, alone=alone)
        return JointPlan(
            arrays,
            worlds,
            shape,
            schedule.panel,
            priced=self._spec.shielded,
            explorers=self.explorers,
            fixed=own is not None and bool((arrays.baseline == own.table)[:, ~self._setting.terminal].all()),
        )


def _joined(batches: Sequence[Columns]) -> Columns:
    """Return batches as one."""
    states, pairs, nexts, rewards, ended = (np.concatenate(column) for column in zip(*batches, strict=True))
    return states, pairs, nexts, rewards, ended
