"""The risk of posterior worlds, measured on siblings: how often a budget is exceeded per episode."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

from chary.agents import CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.calibrate.search import FRESH, SEARCHED, Arena, Effort, arena, check_effort
from chary.calibrate.siblings import (
    Siblings,
    simulation_of,
)
from chary.errors import InvalidSetting, check_real, check_type
from chary.mdp import FiniteMDP
from chary.model.risk_calibration import RiskRecord, rate_limit

# Nominal risks tried are the agent's times or divided by this, between these limits.
STEP = math.sqrt(10.0)
SMALLEST_RISK, LARGEST_RISK = 1e-9, 0.4
DEFAULT_RUNS = 20


class RiskTrial(NamedTuple):
    """The result of a nominal risk: the number of episodes that exceeded the budget, one entry per run.

    `siblings` are those of the `search`, or others for a `check`; `upper` is the 95 % upper limit on the rate
    per episode, `exploring` the share of runs that left the baseline. `verdict` is `passed`, `failed`, or
    `unfinished` where time ran out.
    """

    risk: float
    siblings: str
    violations: tuple[int, ...]
    episodes: int
    upper: float
    exploring: float
    verdict: str

    @property
    def rate(self) -> float:
        """The share of episodes that exceeded the budget."""
        return sum(self.violations) / max(1, self.episodes * len(self.violations))


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskCalibration:
    """The result of calibrating a risk: the largest nominal one that passed, with its record; and all trials.

    `record` is what the standing of runs names, None if no risk passed, and `agent` is the agent that has it.
    `configuration` is what was played, and `rate` the wanted rate. `trials` are in the order of their making.
    """

    record: RiskRecord | None
    agent: CharyUCBVI
    configuration: Mapping[str, Any]
    rate: float
    seed: int
    trials: tuple[RiskTrial, ...]

    @property
    def risk(self) -> float | None:
        """The nominal risk that passed, None if none did."""
        return None if self.record is None else self.record.risk

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "risk": self.risk,
            "rate": self.rate,
            "calibration": None if self.record is None else self.record.to_plain(),
            "configuration": dict(self.configuration),
            "seed": self.seed,
            "trials": [
                {**trial._asdict(), "violations": list(trial.violations), "rate": trial.rate}
                for trial in self.trials
            ],
        }

    def describe(self) -> str:
        """Return the result in words."""
        if self.record is None:
            tried = (
                ", ".join(f"{trial.risk:.3g} {trial.verdict} ({trial.upper:.3g})" for trial in self.trials)
                or "none"
            )
            return (
                f"No nominal risk kept the rate of violations at {self.rate:.3g} per episode on siblings of "
                f"{self.configuration['problem']} (tried, with upper 95 % limits: {tried})."
            )
        last = self.trials[-1]
        return (
            f"Use risk {self.record.risk:.3g} for at most {self.rate:.3g} violations per episode: "
            f"{self.record.describe()}; {last.exploring:.0%} of the runs left the baseline. The standing of "
            "runs with exactly these settings names this measurement."
        )


def calibrate_risk(
    problem: str | FiniteMDP | Siblings,
    agent: CharyUCBVI,
    *,
    episodes: int,
    warmup: int = 500,
    rate: float | None = None,
    check: bool = False,
    runs: int = DEFAULT_RUNS,
    seed: int = 0,
    minutes: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> RiskCalibration:
    """Find the largest nominal risk of posterior worlds that keeps a rate of violations on siblings.

    Each run plays the agent on another sibling of the problem. A nominal risk passes if the upper 95 % limit
    on the rate of violations per episode, over whole runs, is at most `rate`. The search starts with the
    agent's own risk and goes down, or up, in factors of the square root of 10; what it found must pass once
    more, on siblings that the search has not seen. The result holds for this agent, this budget and this
    number of episodes, and for nothing else.

    Args:
        problem: Name of a problem with siblings, a finite MDP, around which they are drawn, or
            `LogSiblings`, resampled from a log.
        agent: What plays, with all its options; bonus posterior.
        episodes: Number of online episodes per run, >= 1: as many as will be played.
        warmup: Number of uniformly random episodes before them, >= 0; with `LogSiblings` a log comes before
            them instead.
        rate: Share of episodes, in (0, 1), that may exceed the budget, by default the agent's risk.
        check: Whether to test the agent's own risk and search for no other.
        runs: Number of sibling problems played at each risk, >= 2.
        seed: Random seed for siblings and runs.
        minutes: Time limit, > 0, by default none. The search ends after two thirds of it.
        workers: Number of processes, by default one per core.
        executor: Processes to use in place of new ones.
        progress: Called with the number of finished runs and of expected runs.
        **options: Options of the problem.

    Raises:
        CharyError: if an option is out of range, or so few episodes are played that no risk could ever pass.

    Example:
        >>> agent = CharyUCBVI(eta=0.3, bonus="posterior", worlds=4, risk=0.1)
        >>> found = calibrate_risk("riverswim", agent, episodes=20, runs=3, rate=0.5, check=True, workers=1)
        >>> found.risk, found.record.episodes
        (0.1, 60)
    """
    check_type("agent", agent, CharyUCBVI, "a CharyUCBVI")
    if agent.bonus != POSTERIOR:
        raise InvalidSetting(
            f"'bonus' must be 'posterior' to calibrate a risk, got {agent.bonus!r}. Use calibrate."
        )
    wanted = agent.risk if rate is None else rate
    check_real("rate", wanted, low=0.0, high=1.0, open_low=True, open_high=True)
    effort = Effort(episodes, warmup, check, runs, seed, minutes, workers, executor, progress)
    check_effort(agent, effort, least_runs=2)
    least = rate_limit([0] * runs, [episodes] * runs)
    if least > wanted:
        raise InvalidSetting(
            f"'runs' times 'episodes' must be large enough to show a rate of {wanted:.3g}, got {runs} and "
            f"{episodes}, whose limit without any violation is {least:.3g}. Play more, or want a larger rate."
        )
    with arena(problem, options, agent, effort, foreseen=4) as place:
        search = _Search(place, wanted)
        risk = agent.risk if check else search.largest(agent.risk)
        place.confirm()
        passed = search.confirmed(risk)
    record = None
    if passed is not None:
        record = RiskRecord(
            problem=place.family.name,
            options=dict(place.family.options),
            played={**place.played, "risk": passed.risk},
            rate=wanted,
            violations=passed.violations,
            exploring=passed.exploring,
            seed=seed,
            siblings=place.family.about,
        )
    return RiskCalibration(
        record=record,
        agent=agent if record is None else replace(agent, risk=record.risk, calibration=record),
        configuration=place.configuration,
        rate=wanted,
        seed=seed,
        trials=tuple(search.trials),
    )


@final
@dataclass(slots=True)
class _Search:
    """The trials of one calibration."""

    place: Arena
    wanted: float
    trials: list[RiskTrial] = field(default_factory=list)

    def largest(self, start: float) -> float | None:
        """Return the largest risk that passes on the siblings of the search, None if none does."""
        risk = start
        if self._passes(risk):
            while risk * STEP <= LARGEST_RISK and not self.place.late and self._passes(risk * STEP):
                risk *= STEP
            return risk
        while risk / STEP >= SMALLEST_RISK and not self.place.late:
            risk /= STEP
            if self._passes(risk):
                return risk
        return None

    def confirmed(self, risk: float | None) -> RiskTrial | None:
        """Return the trial on fresh siblings that a risk passes, or else that of the next smaller one."""
        while risk is not None and risk >= SMALLEST_RISK:
            trial = self._attempt(risk, FRESH)
            if trial.verdict == "passed":
                return trial
            known = [each.risk for each in self.trials if each.verdict == "passed" and each.risk < risk]
            risk = max(known, default=None)
        return None

    def _passes(self, risk: float) -> bool:
        return self._attempt(risk, SEARCHED).verdict == "passed"

    def _attempt(self, risk: float, siblings: str) -> RiskTrial:
        """Play all runs of one risk."""
        place, runs = self.place, self.place.effort.runs
        orders = place.orders(siblings, {"risk": risk})
        futures = [] if place.late else [place.pool.submit(_play, order) for order in orders]
        waiting = set(futures)
        while waiting and not place.late:
            _, waiting = wait(waiting, place.left, FIRST_COMPLETED)
            place.report(len(futures) - len(waiting))
        for each in waiting:
            each.cancel()
        ended = [each.result() for each in futures if each.done() and not each.cancelled()]
        wait([each for each in waiting if not each.cancelled()])
        place.done += len(ended)
        violations, episodes = tuple(broken for broken, _ in ended), place.effort.episodes
        upper = rate_limit(violations, [episodes] * len(ended)) if len(ended) > 1 else 1.0
        whole = len(ended) == runs
        trial = RiskTrial(
            risk=risk,
            siblings=siblings,
            violations=violations,
            episodes=episodes,
            upper=upper,
            exploring=sum(left for _, left in ended) / max(1, len(ended)),
            verdict="unfinished" if not whole else "passed" if upper <= self.wanted else "failed",
        )
        self.trials.append(trial)
        return trial


def _play(work: str) -> tuple[int, bool]:
    """Play one sibling; return the number of episodes over budget, and whether any step deviated."""
    given = json.loads(work)
    label = f"{given['siblings']} {given['run']}"
    simulation = simulation_of(given, label)
    simulation.start()
    while simulation.done < given["episodes"]:
        simulation.advance()
    run = simulation.result()
    return int(run.violations().sum()), bool(run.deviating_steps.any())
