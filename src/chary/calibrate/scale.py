"""Calibration, docs/algorithm.md section 6: the smallest bonus scale whose charges cover the true deficit.

It uses sibling MDPs, never the problem that is evaluated afterwards, and never regret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, final

import numpy as np

from chary.agents import CharyUCBVI
from chary.calibrate.search import FRESH, SEARCHED, Arena, Effort, arena, check_effort
from chary.calibrate.siblings import (
    Siblings,
    simulation_of,
)
from chary.errors import (
    InvalidSetting,
    check_choice,
    check_real,
    check_type,
)
from chary.mdp import FiniteMDP
from chary.model.calibration import CalibrationRecord, largest_failures, least_runs

__all__ = ["CALIBRATED_FAMILIES", "ScaleCalibration", "Trial", "calibrate"]

CALIBRATED_FAMILIES = ("hoeffding", "bernstein")

# A ledger falls short of the true deficit only by more than rounding.
DEFICIT_TOLERANCE = 1e-12

# Scales tried are the agent's times or divided by 4, 16, ... between these limits.
SMALLEST_SCALE = 4.0**-12
LARGEST_SCALE = 4.0**4


class Trial(NamedTuple):
    """The result of a scale: the number of runs in which some episode's ledger was below z*, and causes.

    A trial ends as soon as its verdict is certain; `runs` were played of those `planned`. `siblings` are
    those of the `search`, or others for a `check`. `failed_at` are the episodes in which runs failed, and
    after which they were not continued. `value_failures` and `bonus_failures` are runs in which some bound
    failed at a deviating step; `exploring` is the share of runs that left the baseline. `verdict` is
    `passed`, `failed`, or `unfinished` where time ran out.
    """

    scale: float
    siblings: str
    planned: int
    runs: int
    failures: int
    failed_at: tuple[int, ...]
    value_failures: int
    bonus_failures: int
    exploring: float
    verdict: str


class Outcome(NamedTuple):
    """One run on a sibling: the first episode whose ledger was too small, and what else was seen."""

    failed_at: int | None
    value_failed: bool
    bonus_failed: bool
    explored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCalibration:
    """The result of a calibration: a scale that passed, with its record, or none; and all trials.

    `record` is what runs need for the standing `calibrated`, and `agent` is the agent that has it.
    `configuration` is what was played, whatever the result. `trials` are in the order of their making.
    """

    record: CalibrationRecord | None
    agent: CharyUCBVI
    configuration: Mapping[str, Any]
    seed: int
    trials: tuple[Trial, ...]

    @property
    def scale(self) -> float | None:
        """The scale that passed, None if none did."""
        return None if self.record is None else self.record.bonus_scale

    @property
    def standing(self) -> str:
        """The level of runs with this configuration and scale: calibrated or uncertified."""
        return "uncertified" if self.record is None else "calibrated"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "scale": self.scale,
            "standing": self.standing,
            "calibration": None if self.record is None else self.record.to_plain(),
            "configuration": dict(self.configuration),
            "seed": self.seed,
            "trials": [trial._asdict() for trial in self.trials],
        }

    def describe(self) -> str:
        """Return the result in words."""
        played = self.configuration
        where = (
            f"on siblings of {played['problem']} with rule {played['rule']}, charge {played['charge']} and "
            f"eta {played['eta']:g} over {played['episodes']:,} episodes"
        )
        last = self.trials[-1] if self.trials else None
        if self.record is None:
            tried = ", ".join(f"{trial.scale:.4g} {trial.verdict}" for trial in self.trials) or "none"
            return (
                f"No scale of {played['bonus']} passed {where}: runs are uncertified (scales tried: {tried})."
            )
        assert last is not None
        return (
            f"{played['bonus']} passed with scale {self.record.bonus_scale:.4g} {where}: the booked deficit "
            f"was below the true one in {last.failures} of {last.runs} runs (upper 95 % limit "
            f"{self.record.upper:.3f}, delta {self.record.delta:g}); a value bound failed in "
            f"{last.value_failures} runs and a bonus in {last.bonus_failures}; {last.exploring:.0%} left the "
            "baseline. Runs with exactly these settings are calibrated."
        )


def calibrate(
    problem: str | FiniteMDP | Siblings,
    agent: CharyUCBVI,
    *,
    episodes: int,
    warmup: int = 500,
    check: bool = False,
    runs: int | None = None,
    seed: int = 0,
    precision: float = 1.1,
    minutes: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ScaleCalibration:
    """Find the smallest bonus scale whose charges cover the true deficit: booked >= z* in every episode.

    Each run plays the agent on another sibling of the problem. A scale passes if the upper 95 % limit on the
    share of failing runs (Clopper and Pearson) is at most the agent's delta. The search starts with the
    agent's own scale, goes up or down in factors of 4, and then halves the factor until it is within
    `precision`; what it found must pass once more, on siblings that the search has not seen. The result
    holds for this agent, this budget and this number of episodes, and for nothing else.

    Args:
        problem: Name of a problem with siblings, a finite MDP, around which they are drawn, or
            `LogSiblings`, resampled from a log.
        agent: What plays, with all its options; bonus hoeffding or bernstein. The other families are solved
            exactly and have no scale.
        episodes: Number of online episodes per run, >= 1: as many as will be played.
        warmup: Number of uniformly random episodes before them, >= 0; with `LogSiblings` a log comes before
            them instead.
        check: Whether to test the agent's own bonus scale and search for no other.
        runs: Number of sibling problems played at each scale, by default the fewest that can pass (29 with
            delta 0.1).
        seed: Random seed for siblings and runs.
        precision: Factor, > 1, within which the scale is found.
        minutes: Time limit, > 0, by default none. The search ends after two thirds of it, and its smallest
            scale that passed is confirmed in the rest.
        workers: Number of processes, by default one per core.
        executor: Processes to use in place of new ones.
        progress: Called with the number of finished runs and of expected runs.
        **options: Options of the problem.

    Raises:
        CharyError: if an option is out of range, or so few runs are allowed that no scale could ever pass.

    Example:
        >>> agent = CharyUCBVI(eta=0.3, bonus="hoeffding")
        >>> found = calibrate("riverswim", agent, episodes=2, warmup=1, check=True, workers=1)
        >>> found.scale, found.record.runs
        (1.0, 29)
    """
    check_type("agent", agent, CharyUCBVI, "a CharyUCBVI")
    check_choice("bonus", agent.bonus, CALIBRATED_FAMILIES)
    check_real("precision", precision, low=1.0, open_low=True, open_high=True)
    planned = least_runs(agent.delta) if runs is None else runs
    effort = Effort(episodes, warmup, check, planned, seed, minutes, workers, executor, progress)
    check_effort(agent, effort, least_runs=1)
    if largest_failures(planned, agent.delta) < 0:
        raise InvalidSetting(
            f"'runs' must be at least {least_runs(agent.delta)} with delta {agent.delta:g}, because with "
            f"fewer no scale could pass, got {planned}."
        )
    with arena(problem, options, agent, effort, foreseen=7 + _halvings(precision)) as place:
        search = _Search(place)
        scale = agent.bonus_scale if check else search.smallest(agent.bonus_scale, precision)
        place.confirm()
        passed = search.confirmed(scale)
    record = None if passed is None else _record(place, passed)
    return ScaleCalibration(
        record=record,
        agent=agent if record is None else replace(agent, bonus_scale=record.bonus_scale, calibration=record),
        configuration=place.configuration,
        seed=seed,
        trials=tuple(search.trials),
    )


def _halvings(precision: float) -> int:
    return max(0, math.ceil(math.log(math.log(4.0) / math.log(precision), 2)))


def _record(place: Arena, trial: Trial) -> CalibrationRecord:
    """Return the record of a trial that passed; runs that it could do without count as failures."""
    return CalibrationRecord(
        **{**place.configuration, "bonus_scale": trial.scale},
        runs=trial.planned,
        failures=trial.failures + trial.planned - trial.runs,
        exploring=trial.exploring,
        seed=place.effort.seed,
        siblings=place.family.about,
    )


@final
@dataclass(slots=True)
class _Search:
    """The trials of one calibration."""

    place: Arena
    trials: list[Trial] = field(default_factory=list)

    def smallest(self, start: float, precision: float) -> float | None:
        """Return the smallest scale that passes on the siblings of the search, None if none does."""
        high = start
        while not self._passes(high):
            if high >= LARGEST_SCALE or self.place.late:
                return None
            high = min(4 * high, LARGEST_SCALE)
        # Above the start a smaller one has just failed.
        low = max(trial.scale for trial in self.trials if trial.scale < high) if high > start else high / 4
        while high <= start and low >= SMALLEST_SCALE and self._passes(low):
            high, low = low, low / 4
        while low >= SMALLEST_SCALE and high / low > precision and not self.place.late:
            middle = math.sqrt(high * low)
            if self._passes(middle):
                high = middle
            else:
                low = middle
        return high

    def confirmed(self, scale: float | None) -> Trial | None:
        """Return the trial on fresh siblings that a scale passes, or else the next one that passed before."""
        found = sorted({trial.scale for trial in self.trials if trial.verdict == "passed"})
        again = [each for each in found if scale is not None and each > scale]
        for each in [] if scale is None else [scale, *again]:
            trial = self._attempt(each, FRESH)
            if trial.verdict == "passed":
                return trial
        return None

    def _passes(self, scale: float) -> bool:
        return self._attempt(scale, SEARCHED).verdict == "passed"

    def _attempt(self, scale: float, siblings: str) -> Trial:
        """Play the runs of one scale until the verdict is certain.

        The runs that count are the first ones up to that point, in their order and not in that of their end:
        the same trial gives the same result on any number of cores.
        """
        place, runs = self.place, self.place.effort.runs
        most = largest_failures(runs, place.agent.delta)
        ended: dict[int, Outcome | None] = {}
        with TemporaryDirectory() as folder:
            stop = Path(folder, "stop")
            orders = place.orders(siblings, {"bonus_scale": scale}, stop=str(stop))
            counted, verdict, last = 0, "unfinished" if place.late else "", runs
            futures: dict[Future[Outcome | None], int] = {
                place.pool.submit(_play, order): i for i, order in enumerate(orders) if not verdict
            }
            while not verdict:
                open_ones = [each for each, i in futures.items() if i < last and i not in ended]
                ready, _ = wait(open_ones, place.left, FIRST_COMPLETED)
                ended |= {futures[each]: each.result() for each in ready}
                counted, verdict = _verdict(ended, runs, most)
                if not verdict and place.late:
                    verdict = "unfinished"
                # Runs after the one that decides need not be played to their end.
                needed = counted if verdict else _needed(ended, runs, most)
                if needed < last:
                    last = needed
                    _write(stop, last)
                    for each, i in futures.items():
                        if i >= last:
                            each.cancel()
                place.report(len(ended))
            wait([each for each in futures if not each.cancelled()])
        place.done += counted
        outcomes = [outcome for i in range(counted) if (outcome := ended[i]) is not None]
        failed = sorted(each.failed_at for each in outcomes if each.failed_at is not None)
        trial = Trial(
            scale=scale,
            siblings=siblings,
            planned=runs,
            runs=counted,
            failures=len(failed),
            failed_at=tuple(failed),
            value_failures=sum(each.value_failed for each in outcomes),
            bonus_failures=sum(each.bonus_failed for each in outcomes),
            exploring=sum(each.explored for each in outcomes) / max(1, counted),
            verdict=verdict,
        )
        self.trials.append(trial)
        return trial


def _verdict(ended: Mapping[int, Outcome | None], runs: int, most: int) -> tuple[int, str]:
    """Return how many of the first runs count, and the verdict, which is empty while it is open."""
    failures = 0
    for i in range(runs):
        outcome = ended.get(i)
        if outcome is None:
            return i, ""
        failures += outcome.failed_at is not None
        if failures > most:
            return i + 1, "failed"
        if i + 1 - failures >= runs - most:
            return i + 1, "passed"
    raise AssertionError("all runs were played, and one of the two is certain")


def _needed(ended: Mapping[int, Outcome | None], runs: int, most: int) -> int:
    """Return how many of the first runs can still matter: those up to one failure too many."""
    failed = sorted(i for i, each in ended.items() if each is not None and each.failed_at is not None)
    return failed[most] + 1 if len(failed) > most else runs


def _write(stop: Path, last: int) -> None:
    """Tell workers that runs from `last` on need not go on; a file, which all of them can read."""
    beside = stop.with_suffix(".new")
    beside.write_text(str(last), encoding="utf-8")
    beside.replace(stop)


def _play(work: str) -> Outcome | None:
    """Play one sibling up to its first failure; None if it was stopped because it no longer mattered."""
    given = json.loads(work)
    label = f"{given['siblings']} {given['run']}"
    stop = Path(given["stop"])
    simulation = simulation_of(given, label)
    simulation.start()
    short = np.zeros(0, dtype=np.int64)
    while simulation.done < given["episodes"] and not len(short):
        if stop.exists() and given["run"] >= int(stop.read_text(encoding="utf-8")):
            return None
        simulation.advance()
        columns = simulation.so_far()
        short = np.flatnonzero(columns["deficit"] < columns["true_deficit"] - DEFICIT_TOLERANCE)
    columns = simulation.so_far()
    return Outcome(
        failed_at=int(short[0]) if len(short) else None,
        value_failed=bool(columns["value_failed"].any()),
        bonus_failed=bool(columns["bonus_failed"].any()),
        explored=bool(columns["deviating_steps"].any()),
    )
