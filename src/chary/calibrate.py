"""Calibration, docs/algorithm.md section 6: the smallest bonus scale whose charges cover the true deficit.

It uses sibling MDPs, never the problem that is evaluated afterwards, and never regret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

from chary._workers import usable_cores, worker_pool
from chary.agents import CharyUCBVI
from chary.envs import make, sibling
from chary.errors import InvalidSetting, check_choice, check_integer, check_real, check_seed
from chary.mdp import REWARD_KNOWLEDGE
from chary.planner._full import CHARGES
from chary.randomness import seed_for
from chary.shield import RULES
from chary.simulation import simulate
from chary.statistics import clopper_pearson

__all__ = ["CALIBRATED_FAMILIES", "ScaleCalibration", "Trial", "calibrate"]

CALIBRATED_FAMILIES = ("hoeffding", "bernstein")

# A ledger falls short of the true deficit only by more than rounding.
DEFICIT_TOLERANCE = 1e-12

# Scales tried are 1, 1/4, 1/16, ... or, if 1 fails, 4, 16, ... up to these limits.
SMALLEST_SCALE = 4.0**-12
LARGEST_SCALE = 4.0**4


class Trial(NamedTuple):
    """The result of a scale: the number of runs in which some episode's ledger was below z*, and causes.

    `value_failures` and `bonus_failures` are runs in which some bound failed at an explored step;
    `exploring` is the share of runs that left the baseline.
    """

    scale: float
    runs: int
    failures: int
    value_failures: int
    bonus_failures: int
    exploring: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCalibration:
    """A calibrated scale and how it was found; `trials` are all scales tried, the largest first."""

    problem: str
    bonus: str
    scale: float
    delta: float
    eta: float
    rule: str
    charge: str
    reward: str
    runs: int
    episodes: int
    warmup: int
    seed: int
    options: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> Trial:
        """The trial at the chosen scale."""
        return next(trial for trial in self.trials if trial.scale == self.scale)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "trials": [trial._asdict() for trial in self.trials]}

    def describe(self) -> str:
        """Return the result in words."""
        trial = self.chosen
        interval = clopper_pearson(trial.failures, trial.runs)
        return (
            f"{self.bonus} needs a scale of {self.scale:.4g} on siblings of {self.problem}: the booked "
            f"deficit was below the true one in {trial.failures} of {trial.runs} runs (95 % interval "
            f"{interval.low:.3f} to {interval.high:.3f}, delta {self.delta:g}); a value bound failed in "
            f"{trial.value_failures} runs and a bonus in {trial.bonus_failures}; {trial.exploring:.0%} left "
            "the baseline."
        )


def calibrate(
    problem: str,
    *,
    eta: float,
    bonus: Annotated[str, CALIBRATED_FAMILIES] = "hoeffding",
    delta: float = 0.1,
    runs: int = 20,
    episodes: int = 1000,
    warmup: int = 500,
    seed: int = 0,
    rule: Annotated[str, RULES] = "strict",
    charge: Annotated[str, CHARGES] = "coupled",
    reward: Annotated[str, REWARD_KNOWLEDGE] = "estimated",
    step_bound: float | None = None,
    precision: float = 1.1,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ScaleCalibration:
    """Return the smallest scale whose charges cover the true deficit: booked deficit >= z* in every episode.

    They must do so in at least 1 - delta of the runs. Each run plays chary on another sibling of the problem.
    Scales go down in quarters until one fails, then the limit is found to a factor `precision`.

    Args:
        problem: Name of a problem with siblings.
        eta: Exploration budget per episode, in the problem's reward units.
        bonus: Family of the confidence bounds. The other families are solved exactly and have no scale.
        delta: Share of runs, in (0, 1), that may fail.
        runs: Number of sibling problems played at each scale, >= 1.
        episodes: Number of online episodes per run, >= 1.
        warmup: Number of uniformly random episodes before them, >= 0.
        seed: Random seed for siblings and runs.
        rule: Rule that decides which exploring steps the budget allows.
        charge: Formula for the charge of an exploring step.
        reward: Whether the reward function is known to the agent or estimated from data.
        step_bound: Largest true gap assumed by rule capped, in the problem's reward units.
        precision: Factor, > 1, within which the scale is found.
        workers: Number of processes, by default one per core.
        progress: Called with the number of finished runs and of expected runs.
        **options: Options of the problem.

    Raises:
        CharyError: if an option is out of range, or no scale down to 4^-12 ever fails.
    """
    check_choice("bonus", bonus, CALIBRATED_FAMILIES)
    check_integer("runs", runs, minimum=1)
    check_integer("episodes", episodes, minimum=1)
    check_integer("warmup", warmup, minimum=0)
    check_seed(seed)
    check_real("precision", precision, low=1.0, open_low=True, open_high=True)
    described: dict[str, Any] = {
        "bonus": bonus,
        "delta": delta,
        "eta": eta,
        "rule": rule,
        "charge": charge,
        "reward": reward,
    }
    played: dict[str, Any] = {"episodes": episodes, "warmup": warmup, "seed": seed}
    agent: dict[str, Any] = {**described, "step_bound": step_bound}
    CharyUCBVI(**agent).check_problem(make(problem, **options).setting)
    if workers is not None:
        check_integer("workers", workers, minimum=1)
    count = min(runs, workers or usable_cores())
    steps = math.ceil(math.log(math.log(4.0) / math.log(precision), 2))
    foreseen = runs * (6 + steps)
    trials: dict[float, Trial] = {}
    done = 0

    def attempt(scale: float, pool: ProcessPoolExecutor) -> bool:
        nonlocal done
        scaled = {"problem": problem, "options": options, "agent": {**agent, "bonus_scale": scale}, **played}
        outcomes = []
        for outcome in pool.map(_play, [json.dumps({**scaled, "run": i}) for i in range(runs)]):
            outcomes.append(outcome)
            done += 1
            if progress is not None:
                progress(done, max(foreseen, done))
        short, value, bonus_failed, explored = (sum(column) for column in zip(*outcomes, strict=True))
        trials[scale] = Trial(scale, runs, short, value, bonus_failed, explored / runs)
        return bool(short <= delta * runs)

    with worker_pool(count) as pool:
        high = 1.0
        while not attempt(high, pool):
            high *= 4
            if high > LARGEST_SCALE:
                raise InvalidSetting(
                    f"'bonus' {bonus!r} fails on siblings of {problem!r} at every scale, got scales up to "
                    f"{high / 4:g}. Use more warm-up episodes or another family."
                )
        low = high / 4
        # Above 1 the quarter is the scale that has just failed.
        while high <= 1.0 and attempt(low, pool):
            high, low = low, low / 4
            if low < SMALLEST_SCALE:
                raise InvalidSetting(
                    f"'bonus' {bonus!r} never failed on siblings of {problem!r}, got scales down to "
                    f"{low * 4:.2g}. Use more episodes, fewer warm-up episodes or a larger eta."
                )
        while high / low > precision:
            middle = math.sqrt(high * low)
            if attempt(middle, pool):
                high = middle
            else:
                low = middle
    return ScaleCalibration(
        problem=problem,
        scale=high,
        runs=runs,
        options=dict(options),
        trials=tuple(trials[scale] for scale in sorted(trials, reverse=True)),
        **described,
        **played,
    )


def _play(work: str) -> tuple[bool, bool, bool, bool]:
    """Play one sibling; return whether a ledger, a value bound or a bonus failed, and whether it explored."""
    given = json.loads(work)
    mdp = sibling(given["problem"], seed_for(given["seed"], f"sibling {given['run']}"), **given["options"])
    run = simulate(
        mdp,
        CharyUCBVI(**given["agent"]),
        episodes=given["episodes"],
        warmup=given["warmup"],
        seed=seed_for(given["seed"], f"calibration run {given['run']}"),
    )
    short = (run.deficit < run.true_deficit - DEFICIT_TOLERANCE).any()
    left = run.deviating_steps.sum() > 0
    return bool(short), bool(run.value_failed.any()), bool(run.bonus_failed.any()), bool(left)
