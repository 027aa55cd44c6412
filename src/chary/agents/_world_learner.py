"""The posterior worlds of a step API, and the plans made from them: `_learner.Learner` for worlds."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents._learnt import (
    as_columns,
    batch_arrays,
    batches_from,
    explorer_arrays,
    explorers_from,
    generator_values,
    rank_from,
)
from chary.agents._world_schedule import WorldSchedule
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import Transition
from chary.agents.worlds import WorldsSpec
from chary.arrays import Ints
from chary.errors import InvalidData, check_choice, check_integer
from chary.mdp.setting import Setting
from chary.model.rows import LOST
from chary.planner.joint import JointPlan
from chary.planner.plan import Shorts
from chary.policies import ROLES, OwnBaseline, as_policy_table
from chary.standing import Grounds
from chary.storage.sealed import as_array, under


@final
class WorldLearner:
    """Worlds, the plan that follows from them, and the explorers of chains that have played a step.

    What is learnt waits until it is enough to plan again. A plan reads the worlds it was made from, so these
    are copied before they change while an open episode is pinned to it. Plans are numbered, and their
    `version` is how many batches the worlds had learnt. The batches since the oldest plan in use are kept:
    with its worlds and their generator, this plan and all later ones can be made again.
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
        generator: np.random.Generator | None,
        length: tuple[int | None, int] = (None, 0),
        losses: bool = False,
    ) -> None:
        self._spec, self._setting = spec, setting
        self._prior, self._rank, self._own, self._losses = prior, rank, own, losses
        self._seed, self._length = generator, length
        self._schedule = self._new_schedule()
        self.logs = False
        self._plan: JointPlan | None = None
        self.plans = self.version = 0
        self._journal: deque[Columns] = deque()
        self._waiting: list[Columns] = []
        self.explorers: dict[int, Shorts] = {}

    @property
    def plan(self) -> JointPlan:
        """The plan of all that the worlds have learnt."""
        if self._plan is None:
            self._plan = self._make_plan()
            self.plans += 1
        return self._plan

    @property
    def ledgers(self) -> int:
        """The number of deficits that an episode has."""
        return self._schedule.ledgers

    @property
    def grounds(self) -> Grounds:
        """Everything that the promise leans on, as far as it concerns what was learnt."""
        role = None if self._own is None else self._own.role
        told = self._spec.grounds(self._setting)
        if isinstance(self._spec, CharyUCBVI):
            episodes, warmup = self._length
            prior = "given" if (self._prior >= 0).any() else "none"
            used = {"prior": prior if role is None else f"own policy as {role}"}
            used = self._spec.calibrated(episodes or 0, warmup) | used
            if self.logs and not warmup:
                # A record that was made from a log names it.
                del used["warmup"]
            told = self._spec.with_measured_risk(told, used)
        return replace(told, logs=self.logs, own=role, losses_expected=self._losses)

    def begin_with(self, columns: Columns) -> None:
        """Learn logged transitions."""
        self.logs = True
        self._teach(columns)
        self._plan = None

    def learn(self, steps: Sequence[Transition], pinned: Collection[JointPlan]) -> None:
        """Take in steps, and learn them once they are enough; `pinned` are the plans still in use."""
        if steps:
            self._waiting.append(as_columns(steps, self._setting))
        if not self._waiting or sum(len(each[0]) for each in self._waiting) < self._schedule.due:
            return
        schedule = self._schedule
        if any(plan.worlds is schedule.worlds for plan in pinned):
            schedule.worlds = schedule.worlds.copy()
        batch = _joined(self._waiting)
        self._teach(batch)
        self._plan, self._waiting = None, []
        self.version += 1
        self._journal.append(batch)

    def learn_rollout(self, steps: Sequence[Transition]) -> None:
        """Do nothing: `apart` is False."""

    def forget(self, chains: Iterable[int]) -> None:
        """Forget the explorers of chains that have ended."""
        for chain in chains:
            self.explorers.pop(chain, None)

    def trim(self, oldest: int) -> None:
        """Forget what was learnt before version `oldest`, that of the oldest plan in use."""
        while len(self._journal) > self.version - oldest:
            self._journal.popleft()

    def successors(self) -> tuple[list[int], list[int]]:
        """Return the pairs and successors of all that was learnt, losses aside."""
        counts = self._schedule.worlds.counts
        pairs, successors = counts.pair.tolist(), counts.successor.tolist()
        for _, new, nexts, _, _ in self._waiting:
            pairs += new[nexts != LOST].tolist()
            successors += nexts[nexts != LOST].tolist()
        return pairs, successors

    def record(self, oldest: JointPlan | None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and plain values for `restore`; `oldest` is the oldest plan in use."""
        schedule, own = self._schedule, self._own
        pinned = oldest if self._journal else None
        worlds, shape = (schedule.worlds, schedule.shape) if pinned is None else (pinned.worlds, pinned.shape)
        arrays = {f"worlds.{name}": array for name, array in worlds.to_arrays().items()}
        arrays |= {"prior": self._prior, "terminal": shape.terminal}
        if self._spec.ties != "index":
            arrays["rank"] = self._rank
        if own is not None:
            arrays["own.table"] = own.table
        arrays |= batch_arrays("journal", self._journal)
        arrays |= batch_arrays("waiting", self._waiting)
        arrays["explorers"], places = explorer_arrays(self.explorers, self._setting)
        return arrays, {
            "own": None if own is None else own.role,
            "plans": self.plans,
            "version": self.version,
            "planned": self._plan is not None,
            "journal": [len(each[0]) for each in self._journal],
            "waiting": [len(each[0]) for each in self._waiting],
            "explorers": places,
            "generator": generator_values(worlds.generator),
        }

    def restore(
        self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], versions: Collection[int]
    ) -> dict[int, JointPlan]:
        """Take on what `record` returned, and return the plans of `versions`, made again to the bit.

        Raises:
            InvalidData: if they are not of this problem.
        """
        setting = self._setting
        S, A = setting.n_states, setting.n_actions
        # -1 stands for no prior.
        self._prior = as_array("prior", {"prior": arrays["prior"] + 1}, (S,), np.int64, below=A + 1) - 1
        if about["own"] is not None:
            table = as_array("own.table", arrays, (setting.horizon, S), np.int64, below=A)
            role = check_choice("role", about["own"], ROLES)
            self._own = OwnBaseline(table=as_policy_table(table, setting), role=role)
        self._rank = rank_from(arrays, self._spec, setting)
        schedule = self._schedule = self._new_schedule()
        schedule.worlds.restore(under("worlds.", arrays))
        schedule.worlds.generator.bit_generator.state = dict(about["generator"])
        terminal = as_array("terminal", arrays, (S,), bool)
        if (setting.terminal & ~terminal).any():
            raise InvalidData("'terminal' must contain the states declared terminal, got fewer.")
        schedule.shape = schedule.shape._replace(terminal=terminal)
        self.explorers |= explorers_from(arrays["explorers"], about["explorers"], setting)
        for number in (about["plans"], about["version"], *about["journal"], *about["waiting"]):
            check_integer("learner", number, minimum=0, error=InvalidData)
        if len(about["journal"]) > about["version"]:
            raise InvalidData(f"'journal' must be of {about['version']} batches at most, got more.")
        plans: dict[int, JointPlan] = {}
        self.version = int(about["version"]) - len(about["journal"])
        for batch in batches_from("journal", arrays, about["journal"], setting):
            if self.version in versions:
                plans[self.version] = self._make_plan()
                schedule.worlds = schedule.worlds.copy()
            self._teach(batch)
            self._journal.append(batch)
            self.version += 1
        self._waiting = batches_from("waiting", arrays, about["waiting"], setting)
        if about["planned"] or self.version in versions:
            plans[self.version] = self._make_plan()
        self._plan = plans[self.version] if about["planned"] else None
        self.plans = int(about["plans"])
        return plans

    def _new_schedule(self) -> WorldSchedule:
        return WorldSchedule(
            self._spec,
            self._setting,
            prior=self._prior,
            rank=self._rank,
            generator=self._seed,
            own=self._own,
            losses=self._losses,
        )

    def _teach(self, columns: Columns) -> None:
        _, pairs, nexts, rewards, ended = columns
        self._schedule.learn(pairs, nexts, rewards, nexts[ended])

    def _make_plan(self) -> JointPlan:
        schedule, own = self._schedule, self._own
        arrays = schedule.planned()
        return JointPlan(
            arrays,
            schedule.worlds,
            schedule.shape,
            schedule.panel,
            priced=self._spec.shielded,
            explorers=self.explorers,
            fixed=own is not None and bool((arrays.baseline == own.table)[:, ~self._setting.terminal].all()),
        )


def _joined(batches: Sequence[Columns]) -> Columns:
    """Return batches as one."""
    states, pairs, nexts, rewards, ended = (np.concatenate(column) for column in zip(*batches, strict=True))
    return states, pairs, nexts, rewards, ended
