"""The knowledge of a tabular agent, and the plans made from it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents._learnt import (
    as_columns,
    batch_arrays,
    batches_from,
    explorer_arrays,
    explorers_from,
    rank_from,
)
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import AgentSpec, Transition
from chary.arrays import Floats, Ints
from chary.errors import InvalidData, InvalidSetting, check_choice, check_integer, check_real, check_type
from chary.mdp._checks import as_start
from chary.mdp.setting import Setting
from chary.model.calibration import CalibrationRecord
from chary.model.knowledge import Knowledge
from chary.planner._backup import LOWER
from chary.planner.plan import (
    PlanOptions,
    Shorts,
    TabularPlan,
    check_cap,
    explorer_of,
    own_plan,
    policy_values,
)
from chary.policies import ROLES, OwnBaseline, as_policy_table
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
class Learner:
    """Counts, the plan that follows from them, and the explorers of open chains.

    A plan reads the counts it was made from, so these are copied before they change while an open episode is
    pinned to it. Plans are numbered, and their `version` is how many batches had been learnt before them;
    what was learnt since the oldest plan in use was made is kept, so that this plan and all later ones can be
    made again.
    """

    def __init__(
        self,
        spec: AgentSpec,
        setting: Setting,
        *,
        prior: Ints,
        own: OwnBaseline | None,
        max_episodes: int | None,
        warmup: int,
        rank: Ints,
        losses: bool = False,
    ) -> None:
        total = None if max_episodes is None else max_episodes + warmup

        def nothing() -> Knowledge:
            known = Knowledge.empty(
                setting, spec.bounds, episodes=max_episodes, total_episodes=total, rank=rank
            )
            if losses:
                known.expect_losses()
            return known

        self._spec = spec
        self._setting = setting
        self._prior = prior
        self._own = own
        self._old_floor: OldFloor | None = None
        self._losses = losses
        self._length = (max_episodes, warmup)
        self.logs = False
        self.knowledge = nothing()
        # With data `meta`, explorers learn from the warm-up and whole meta-rollouts alone.
        self._separate = nothing() if isinstance(spec, CharyUCBVI) and spec.data == "meta" else None
        self._plan: TabularPlan | None = None
        self.plans = 0
        self.version = 0
        self._journal: deque[Columns] = deque()
        self.explorers: dict[int, Shorts] = {}
        self._latest_explorer: Shorts | None = None

    @property
    def apart(self) -> bool:
        """True where explorers learn from meta-rollouts alone."""
        return self._separate is not None

    @property
    def plan(self) -> TabularPlan:
        """The plan of all that was learnt."""
        if self._plan is None:
            plan = self._make_plan(self.knowledge)
            check_cap(
                self._setting, self._spec.bounds, self.knowledge, plan.arrays.baseline, plan.arrays.v_lower
            )
            self._plan = plan
            self.plans += 1
        return self._plan

    def begin_with(self, columns: Columns) -> None:
        """Count logged transitions, for baseline and explorers."""
        self.logs = True
        for knowledge in (self.knowledge, self._separate):
            if knowledge is not None:
                count_columns(knowledge, columns)
        self.renew()

    @property
    def grounds(self) -> Grounds:
        """Everything that the promise leans on, as far as it concerns what was learnt."""
        role = None if self._own is None else self._own.role
        told = self._spec.grounds(self._setting)
        record = self._spec.calibration if isinstance(self._spec, CharyUCBVI) else None
        if isinstance(self._spec, CharyUCBVI) and isinstance(record, CalibrationRecord):
            told = replace(
                told,
                outside=self._outside(self._spec, record),
                calibrated_on=f"{record.given}; episodes follow one another",
            )
        return replace(told, logs=self.logs, own=role, losses_expected=self._losses)

    def _outside(self, spec: CharyUCBVI, record: CalibrationRecord) -> tuple[str, ...]:
        """Return how this agent is used differently from what its bonus scale was calibrated for."""
        episodes, warmup = self._length
        prior = "given" if (self._prior >= 0).any() else "none"
        used = {**spec.calibrated(episodes or 0, warmup), "prior": prior}
        if self.logs and not warmup:
            # A record that was made from a log names it.
            del used["warmup"]
        others = (
            ("calibrated with a learnt baseline, played with your own policy", self._own is not None),
            ("calibrated after random episodes, played after logs", self.logs and record.siblings is None),
            ("calibrated without lost outcomes, played with them", bool(self.knowledge.lost)),
        )
        return record.mismatches(used) + tuple(phrase for phrase, differs in others if differs)

    def renew(self) -> None:
        """Forget the plan: the next one will be made from what is known then."""
        self._plan = self._latest_explorer = None

    def learn(self, steps: Sequence[Transition], pinned: Collection[TabularPlan]) -> None:
        """Count the steps of a complete episode; `pinned` are the plans that are still in use."""
        self.renew()
        if not steps:
            return
        if any(plan.knowledge is self.knowledge for plan in pinned):
            self.knowledge = self.knowledge.copy()
        columns = as_columns(steps, self._setting)
        count_columns(self.knowledge, columns)
        self.version += 1
        self._journal.append(columns)

    def learn_rollout(self, steps: Sequence[Transition]) -> None:
        """Let explorers learn from a whole meta-rollout."""
        if self._separate is not None and steps:
            count_columns(self._separate, as_columns(steps, self._setting))
            self._latest_explorer = None

    def forget(self, chains: Iterable[int]) -> None:
        """Forget the explorers of chains that have ended."""
        for chain in chains:
            self.explorers.pop(chain, None)

    def trim(self, oldest: int) -> None:
        """Forget what was learnt before version `oldest`, that of the oldest plan in use."""
        while len(self._journal) > self.version - oldest:
            self._journal.popleft()

    def record(self, oldest: TabularPlan | None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and plain values for `restore`; `oldest` is the oldest plan in use."""
        base = oldest.knowledge if self._journal and oldest is not None else self.knowledge
        arrays = {f"counts.{name}": array for name, array in base.to_arrays().items()}
        arrays["prior"] = self._prior
        if self._spec.ties != "index":
            arrays["rank"] = self.knowledge.rows.rank
        own = self._own
        if own is not None:
            arrays["own.table"] = own.table
        if self._separate is not None:
            arrays |= {f"meta.{name}": array for name, array in self._separate.to_arrays().items()}
        arrays |= batch_arrays("journal", self._journal)
        arrays["explorers"], places = explorer_arrays(self.explorers, self._setting)
        about: dict[str, Any] = {
            "own": None if own is None else own.role,
            "old_floor": None,
            "plans": self.plans,
            "version": self.version,
            "planned": self._plan is not None,
            "journal": [len(each[0]) for each in self._journal],
            "explorers": places,
        }
        if self._old_floor is not None and self.version - len(self._journal) <= self._old_floor.last:
            arrays["own.start"] = self._old_floor.start
            about["old_floor"] = [self._old_floor.value, self._old_floor.last]
        return arrays, about

    def restore(
        self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], versions: Collection[int]
    ) -> dict[int, TabularPlan]:
        """Take on what `record` returned, and return the plans of `versions`, made again to the bit.

        Raises:
            InvalidData: if they are not of this problem.
        """
        setting = self._setting
        S, A = setting.n_states, setting.n_actions
        # -1 stands for no prior.
        self._prior = as_array("prior", {"prior": arrays["prior"] + 1}, (S,), np.int64, below=A + 1) - 1
        if about["own"] is not None:
            self._restore_own(arrays, about)
        rank = rank_from(arrays, self._spec, setting)
        for name, knowledge in (("counts", self.knowledge), ("meta", self._separate)):
            if knowledge is not None:
                knowledge.rows = knowledge.rows._replace(rank=rank)
                kept = under(f"{name}.", arrays)
                check_counts(name, kept, setting)
                knowledge.restore(kept)
        self.explorers |= explorers_from(arrays["explorers"], about["explorers"], setting)
        for number in (about["plans"], about["version"], *about["journal"]):
            check_integer("learner", number, minimum=0, error=InvalidData)
        if len(about["journal"]) > about["version"]:
            raise InvalidData(f"'journal' must be of {about['version']} batches at most, got more.")
        plans: dict[int, TabularPlan] = {}
        self.version = int(about["version"]) - len(about["journal"])
        for columns in batches_from("journal", arrays, about["journal"], setting):
            if self.version in versions:
                plans[self.version] = self._make_plan(self.knowledge)
                self.knowledge = self.knowledge.copy()
            count_columns(self.knowledge, columns)
            self._journal.append(columns)
            self.version += 1
        if about["planned"] or self.version in versions:
            plans[self.version] = self._make_plan(self.knowledge)
        self._plan = plans[self.version] if about["planned"] else None
        self.plans = int(about["plans"])
        return plans

    def successors(self) -> tuple[list[int], list[int]]:
        """Return the pairs and successors of all that was counted, losses aside."""
        rows, S = self.knowledge.rows, self._setting.n_states
        places = np.concatenate([np.arange(b, b + n) for b, n in zip(rows.begin, rows.length, strict=True)])
        pairs, successors = np.repeat(np.arange(len(rows.length)), rows.length), rows.successor[places]
        return pairs[successors < S].tolist(), successors[successors < S].tolist()

    def new_explorer(self) -> Shorts:
        """Return the explorer of a chain that starts now; chains that start from the same counts share it."""
        if self._latest_explorer is None:
            knowledge = self.knowledge if self._separate is None else self._separate
            self._latest_explorer = explorer_of(self._setting, knowledge)
        return self._latest_explorer

    def _restore_own(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        setting, S = self._setting, self._setting.n_states
        # Version 0.1 kept the role together with the value that its floor compared.
        old = isinstance(about["own"], list)
        role, value = about["own"] if old else (about["own"], None)
        table = as_array("own.table", arrays, (setting.horizon, S), np.int64, below=setting.n_actions)
        self._own = OwnBaseline(table=as_policy_table(table, setting), role=check_choice("role", role, ROLES))
        kept = [value, about["version"]] if old and role == "floor" else about.get("old_floor")
        if kept is not None:
            start = as_start(as_array("own.start", arrays, (S,), np.float64), S, setting.terminal)
            if kept[0] is not None:
                check_real("value_floor", kept[0], low=-math.inf, open_low=True, open_high=True)
            last = check_integer("old_floor", kept[1], minimum=0, error=InvalidData)
            self._old_floor = OldFloor(start, kept[0], last)

    def _make_plan(self, knowledge: Knowledge) -> TabularPlan:
        options: PlanOptions = {
            "charge": self._spec.charge if isinstance(self._spec, CharyUCBVI) else "paper",
            "upper": self._spec.shielded,
            "explorers": self.explorers,
            "new_explorer": self.new_explorer,
        }
        if self._own is not None:
            own = self._own
            if self._old_floor is not None and self.version <= self._old_floor.last:
                own = replace(own, role=self._old_floor.role(self._setting, knowledge, own.table))
            return own_plan(self._setting, knowledge, own, **options)
        return TabularPlan(self._setting, knowledge, self._prior, **options)


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
