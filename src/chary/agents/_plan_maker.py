"""The part that learners share: numbered plans, and what is kept to make those still in use again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents._learnt import batch_arrays, batches_from, explorer_arrays, explorers_from, rank_from
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.draft import Draft
from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.errors import InvalidData, check_choice, check_integer
from chary.mdp.setting import Setting
from chary.model.calibration import CalibrationRecord
from chary.model.risk_calibration import RiskRecord
from chary.planner.explorers import Explorers
from chary.policies import ROLES, OwnBaseline, as_policy_table
from chary.standing import Grounds
from chary.storage.sealed import as_array

Arrays = dict[str, NDArray[Any]]
P = TypeVar("P")


class PlanMaker(ABC, Generic[P]):
    """What was learnt, the plan that follows from it, and the explorers of open chains.

    A plan reads the data it was made from, so these are copied before they change while an open episode is
    pinned to it. Plans are numbered, and their `version` is how many batches had been learnt before them.
    What was learnt since the oldest plan in use was made is kept, so that this plan and all later ones can be
    made again.
    """

    def __init__(
        self,
        spec: AgentSpec,
        setting: Setting,
        *,
        prior: Ints,
        own: OwnBaseline | None,
        rank: Ints,
        length: tuple[int | None, int],
        losses: bool,
        adopts: bool,
    ) -> None:
        self._spec, self._setting = spec, setting
        self._prior, self._own, self._rank, self._losses = prior, own, rank, losses
        # The numbers of episodes declared: online ones and those of the warm-up.
        self._length = length
        self.logs = False
        self.plans = self.version = 0
        self._plan: P | None = None
        self._journal: deque[Columns] = deque()
        self.explorers = Explorers()
        # The version of the plan in force, and where plans are adopted the draft that may follow it.
        self.adopts, self.in_force = adopts, 0
        self.drafted: Draft | None = None
        # Whether a plan that is made later, perhaps in another thread, reads what was learnt so far.
        self._lent = False

    @property
    def plan(self) -> P:
        """The plan of all that was learnt."""
        if self._plan is None:
            self._plan = self._make_checked_plan()
            self.in_force = self.version
            self.plans += 1
        return self._plan

    @property
    def held(self) -> dict[int, P]:
        """The plans that are needed besides those of open episodes, by version."""
        held = {} if self.drafted is None else {self.drafted.version: self.drafted.plan}
        return held if self._plan is None or not self.adopts else {self.in_force: self._plan, **held}

    def draft(self, pinned: Collection[P]) -> Draft:
        """Return a plan of all that was learnt, to be made and adopted; `pinned` are plans still in use."""
        self._learn_waiting(pinned)
        self.drafted = self._as_draft()
        return self.drafted

    def adopt(self) -> None:
        """Put the draft in force."""
        assert self.drafted is not None
        self._plan, self.in_force = self.drafted.plan, self.drafted.version
        self.drafted = None
        self.plans += 1

    def discard(self) -> None:
        """Drop the draft."""
        self.drafted = None

    def _as_draft(self) -> Draft:
        plan = self._plan_later()
        return Draft(plan, self.version, lambda: self._rests_on(plan))

    @property
    def grounds(self) -> Grounds:
        """Everything that the promise leans on, as far as it concerns what was learnt."""
        role = None if self._own is None else self._own.role
        return replace(self._measured_grounds(), logs=self.logs, own=role, losses_expected=self._losses)

    def _outside(
        self, record: CalibrationRecord | RiskRecord, spec: CharyUCBVI, *, losses: bool
    ) -> tuple[str, ...]:
        """Return how this agent is used differently from the runs that a record was measured in."""
        episodes, warmup = self._length
        used = {**spec.calibrated(episodes or 0, warmup), "prior": self._baseline_given(record)}
        if self.logs and not warmup:
            # A record that was made from a log names it.
            del used["warmup"]
        learnt = isinstance(record, CalibrationRecord)
        others = (
            ("calibrated with a learnt baseline, played with your own policy", learnt and bool(self._own)),
            ("calibrated after random episodes, played after logs", self.logs and record.siblings is None),
            ("calibrated without lost outcomes, played with them", losses),
        )
        return record.mismatches(used) + tuple(phrase for phrase, differs in others if differs)

    def _baseline_given(self, record: CalibrationRecord | RiskRecord) -> str:
        """Return the part that the user's policies have in the baseline, as a record names it."""
        if self._own is not None and isinstance(record, RiskRecord):
            return f"own policy as {self._own.role}"
        return "given" if (self._prior >= 0).any() else "none"

    def forget(self, chains: Iterable[int]) -> None:
        """Forget the explorers of chains that have ended."""
        for chain in chains:
            self.explorers.forget(chain)

    def trim(self, oldest: int) -> None:
        """Forget what was learnt before version `oldest`, that of the oldest plan of an open episode."""
        oldest = min(oldest, *self.held, oldest)
        while len(self._journal) > self.version - oldest:
            self._journal.popleft()

    @final
    def record(self, oldest: P | None) -> tuple[Arrays, dict[str, Any]]:
        """Return arrays and plain values for `restore`; `oldest` is the oldest plan in use."""
        own = self._own
        arrays, about = self._memory(oldest if self._journal else None)
        arrays["prior"] = self._prior
        if self._spec.ties != "index":
            arrays["rank"] = self._rank
        if own is not None:
            arrays["own.table"] = own.table
        arrays |= batch_arrays("journal", self._journal)
        self.explorers.make_all()
        arrays["explorers"], places = explorer_arrays(self.explorers, self._setting)
        adopted = {} if self.drafted is None else {"draft": self.drafted.version}
        return arrays, {
            **({"adopted": {"in_force": self.in_force, **adopted}} if self.adopts else {}),
            "own": None if own is None else own.role,
            "plans": self.plans,
            "version": self.version,
            "planned": self._plan is not None,
            "journal": [len(each[0]) for each in self._journal],
            "explorers": places,
            **about,
        }

    @final
    def restore(
        self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], versions: Collection[int]
    ) -> dict[int, P]:
        """Take on what `record` returned, and return the plans of `versions`, made again to the bit.

        Raises:
            InvalidData: if they are not of this problem.
        """
        setting = self._setting
        S, A = setting.n_states, setting.n_actions
        # -1 stands for no prior.
        self._prior = as_array("prior", {"prior": arrays["prior"] + 1}, (S,), np.int64, below=A + 1) - 1
        if about["own"] is not None:
            # Version 0.1 kept the role together with the value that its floor compared.
            role = about["own"][0] if isinstance(about["own"], list) else about["own"]
            table = as_policy_table(
                as_array("own.table", arrays, (setting.horizon, S), np.int64, below=A), setting
            )
            self._own = OwnBaseline(table=table, role=check_choice("role", role, ROLES))
        self._rank = rank_from(arrays, self._spec, setting)
        self._recall(arrays, about)
        self.explorers.update(explorers_from(arrays["explorers"], about["explorers"], setting))
        for number in (about["plans"], about["version"], *about["journal"]):
            check_integer("learner", number, minimum=0, error=InvalidData)
        if len(about["journal"]) > about["version"]:
            raise InvalidData(f"'journal' must be of {about['version']} batches at most, got more.")
        adopted = about.get("adopted", {})
        for version in adopted.values():
            check_integer("adopted", version, minimum=0, error=InvalidData)
        versions = {*versions, *adopted.values()}
        make = self._plan_later if self.adopts else self._make_plan
        plans: dict[int, P] = {}
        self.version = int(about["version"]) - len(about["journal"])
        for batch in batches_from("journal", arrays, about["journal"], setting):
            if self.version in versions:
                plans[self.version] = make()
                self._part()
            self._learn(batch)
        if about["planned"] or self.version in versions:
            plans[self.version] = make()
        self.in_force = adopted.get("in_force", self.version)
        self._plan = plans[self.in_force] if about["planned"] else None
        if "draft" in adopted:
            plan, version = plans[adopted["draft"]], adopted["draft"]
            self.drafted = Draft(cast("Any", plan), version, lambda: self._rests_on(plan))
        self.plans = int(about["plans"])
        return plans

    def _learn(self, batch: Columns) -> None:
        """Learn a batch, and keep it."""
        self._teach(batch)
        self.version += 1
        self._journal.append(batch)

    def check(self) -> None:
        """Raise InvalidData where what was learnt contradicts what was declared, before anything changes."""

    def _make_checked_plan(self) -> P:
        """Return a plan that a new episode may be pinned to."""
        return self._make_plan()

    @abstractmethod
    def _measured_grounds(self) -> Grounds:
        """Return what the promise leans on, what was measured included."""

    @abstractmethod
    def _make_plan(self) -> P:
        """Return the plan of what was learnt so far."""

    @abstractmethod
    def _plan_later(self) -> Any:
        """Return the same plan, which is made when it is first needed, in any thread."""

    @abstractmethod
    def _rests_on(self, plan: P) -> dict[str, Any]:
        """Return all that a plan follows from, as arrays and plain values."""

    @abstractmethod
    def _learn_waiting(self, pinned: Collection[P]) -> None:
        """Learn what has waited until there is enough of it."""

    @abstractmethod
    def _part(self) -> None:
        """Copy what plans read, before it changes."""

    @abstractmethod
    def _teach(self, batch: Columns) -> None:
        """Learn a batch of transitions."""

    @abstractmethod
    def _memory(self, oldest: P | None) -> tuple[Arrays, dict[str, Any]]:
        """Return what was learnt before the journal, which `oldest` was made from if it is given."""

    @abstractmethod
    def _recall(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Take on what `_memory` returned."""
