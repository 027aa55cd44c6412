"""What both calibrations share: the checks, the siblings, the processes and the limit of time."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, final

from chary._workers import check_workers, usable_cores, worker_pool
from chary.agents import CharyUCBVI
from chary.calibrate.siblings import Siblings, check_family, order_of, played_of, siblings_of
from chary.errors import (
    MOST_EPISODES,
    MOST_RUNS,
    InvalidSetting,
    check_integer,
    check_real,
    check_seed,
)
from chary.mdp import FiniteMDP
from chary.texts import shown

# Siblings of the search, and those that confirm its result or check a given value.
SEARCHED, FRESH = "search", "check"

# The share of the time limit after which a search ends; the rest is for the confirmation.
SEARCH_SHARE = 2 / 3

Progress = Callable[[int, int], None]


class Effort(NamedTuple):
    """How much is played and by whom: the arguments that `calibrate` and `calibrate_risk` share."""

    episodes: int
    warmup: int
    check: bool
    runs: int
    seed: int
    minutes: float | None
    workers: int | None
    executor: Executor | None
    progress: Progress | None


def check_effort(agent: CharyUCBVI, effort: Effort, *, least_runs: int) -> None:
    """Check what both calibrations are given.

    Raises:
        InvalidSetting: if a number is out of range, or the agent has no budget or a prior of one problem.
    """
    if agent.eta is None or math.isinf(agent.eta):
        raise InvalidSetting(f"'eta' must be finite to calibrate for it, got {shown(agent.eta)}.")
    if not (agent.prior is None or isinstance(agent.prior, str)):
        raise InvalidSetting(
            "'prior' must be none or 'recorded' to calibrate: actions of one problem mean nothing on its "
            "siblings, got an array."
        )
    check_integer("episodes", effort.episodes, minimum=1, largest=MOST_EPISODES)
    check_integer("warmup", effort.warmup, minimum=0, largest=MOST_EPISODES)
    check_integer("runs", effort.runs, minimum=least_runs, largest=MOST_RUNS)
    check_seed(effort.seed)
    if effort.minutes is not None:
        check_real("minutes", effort.minutes, low=0.0, open_low=True)
    if effort.workers is not None:
        check_workers(effort.workers)


@final
@dataclass(slots=True, kw_only=True)
class Arena:
    """Where the trials of one calibration are played: siblings, processes, and the time that is left."""

    family: Siblings
    order: Mapping[str, Any]
    agent: CharyUCBVI
    effort: Effort
    pool: Executor
    foreseen: int
    deadline: float
    end: float
    done: int = 0

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.deadline

    @property
    def left(self) -> float | None:
        """Seconds left, None without a limit."""
        return None if math.isinf(self.deadline) else max(0.0, self.deadline - time.monotonic())

    @property
    def played(self) -> dict[str, Any]:
        """What is played: the agent's options, episodes and warm-up."""
        return played_of(self.family, self.agent, self.effort.episodes, self.effort.warmup)

    @property
    def configuration(self) -> dict[str, Any]:
        """The problem and what is played on its siblings."""
        return {"problem": self.family.name, "options": dict(self.family.options), **self.played}

    def confirm(self) -> None:
        """Let the confirmation have the time that the search left."""
        self.deadline = self.end

    def orders(self, siblings: str, changed: Mapping[str, Any], **more: Any) -> list[str]:
        """Return what workers are told, one text per run; `changed` are other options of the agent."""
        agent = replace(self.agent, **changed, calibration=None)
        work = {
            "family": self.order,
            "agent": {each.name: getattr(agent, each.name) for each in fields(agent)},
            "siblings": siblings,
            "episodes": self.effort.episodes,
            "warmup": self.effort.warmup,
            "seed": self.effort.seed,
            **more,
        }
        return [json.dumps({**work, "run": i}) for i in range(self.effort.runs)]

    def report(self, ended: int) -> None:
        """Tell the caller how many runs of this trial have ended."""
        if self.effort.progress is not None:
            expected = max(self.foreseen, self.done + self.effort.runs)
            self.effort.progress(self.done + ended, expected)


@contextmanager
def arena(
    problem: str | FiniteMDP | Siblings,
    options: dict[str, Any],
    agent: CharyUCBVI,
    effort: Effort,
    *,
    foreseen: int,
) -> Iterator[Arena]:
    """Yield the arena of one calibration; `foreseen` is the number of trials that a search makes.

    Raises:
        CharyError: if the problem has no siblings, or the agent does not fit them.
    """
    began, limit = time.monotonic(), math.inf if effort.minutes is None else 60 * effort.minutes
    family = siblings_of(problem, options)
    effort = effort._replace(warmup=check_family(family, agent, effort.warmup))
    processes = min(effort.runs, effort.workers or usable_cores())
    with (
        TemporaryDirectory() as folder,
        worker_pool(processes) if effort.executor is None else nullcontext(effort.executor) as pool,
    ):
        yield Arena(
            family=family,
            order=order_of(family, Path(folder)),
            agent=agent,
            effort=effort,
            pool=pool,
            foreseen=effort.runs * (1 if effort.check else foreseen),
            deadline=began + limit * (1 if effort.check else SEARCH_SHARE),
            end=began + limit,
        )
