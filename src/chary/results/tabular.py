"""Columns of the tidy tables for tabular problems: `runs` per run and budget, `curves` per point in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, Ints
from chary.audit import BASELINE_OVER_TIME, baseline_over_time, violates
from chary.extensions import is_reference
from chary.results.columns import STANDING, Columns, Judged, Schema, points_of
from chary.standing import Standing
from chary.sweeps.tabular import problem_and_agent


class TabularRun(Judged):
    """A stored run of a tabular problem, judged at one budget."""

    @cached_property
    def regret(self) -> Floats:
        """Regret per episode."""
        return self.floats("regret")

    @cached_property
    def standing(self) -> Standing:
        """The standing of the promise; version 0.1 stored one word, in place of which it is derived."""
        stored = self.summary["standing"]
        if isinstance(stored, str) and not is_reference(self.spec.problem):
            mdp, agent = problem_and_agent(self.spec)
            return agent.grounds(mdp.told(agent.reward)).standing
        return Standing.from_json(stored)

    @property
    def half(self) -> int:
        """Episodes of the first half."""
        return len(self.regret) // 2

    @property
    def span(self) -> float:
        """The user's units per scaled unit."""
        return float(self.summary["reward_span"])

    def broken(self, name: str = "true_deficit") -> NDArray[np.bool_]:
        """Return whether each episode broke the budget, in scaled units as `Run.violations` judges."""
        return np.asarray(violates(self.floats(name) / self.span, self.budget / self.span))

    @property
    def incumbent_deficit(self) -> str:
        """The name of z* against the incumbent; version 0.1 judged by the warm-up's baseline alone."""
        return "incumbent_deficit" if "incumbent_deficit" in self.arrays else "frozen_deficit"

    # The baseline over time; runs of version 0.1 have no true value of it.

    @cached_property
    def baseline_value(self) -> Floats:
        """The baseline's true value per episode, NaN where it is unknown."""
        if "baseline_value" in self.arrays:
            return self.floats("baseline_value")
        return np.full(len(self.regret), np.nan)

    @cached_property
    def baseline(self) -> dict[str, float | int | None]:
        """The course of that value, see `baseline_over_time`."""
        return baseline_over_time(
            self.baseline_value, self.summary.get("incumbent_value", math.nan), self.span
        )

    # Chains, one entry each. N_m is 0 while a chain is unfinished: of such a chain only its birth is stored.

    @cached_property
    def born(self) -> Ints:
        """The episode in which each chain began."""
        return self.ints("chain_born")

    @cached_property
    def finished(self) -> NDArray[np.bool_]:
        """Whether each chain was finished."""
        return self.ints("chain_episodes") > 0

    @cached_property
    def length(self) -> Ints:
        """N_m of the finished chains."""
        return self.ints("chain_episodes")[self.finished]

    @cached_property
    def exhausted(self) -> Ints:
        """The first part of N_m of the finished chains."""
        return self.ints("chain_exhausted")[self.finished]

    @cached_property
    def long(self) -> Ints:
        """The second part."""
        return self.ints("chain_long")[self.finished]

    @cached_property
    def missed(self) -> Ints:
        """The third part."""
        return self.length - self.exhausted - self.long

    @cached_property
    def ages(self) -> Ints:
        """The number of episodes that each unfinished chain has lasted, at least."""
        return len(self.regret) - self.born[~self.finished]

    def within_missed_bound(self) -> int:
        """Return how many finished chains keep the bound on N_m^3 of Lemma 4.7."""
        most = (self.exhausted + self.long) * max(6.0 * self._log - 1.0, 0.0)
        return int((self.missed <= most).sum())

    def within_length_bound(self) -> int:
        """Return how many finished chains keep the bound on N_m of Lemma 4.8."""
        return int((self.length <= np.maximum(30.0 * self.exhausted * self._log, 1.0)).sum())

    @property
    def _log(self) -> float:
        return float(np.log(1.0 / float(self.summary["delta"])))

    # Curves: one value per window of episodes.

    @cached_property
    def at(self) -> Ints:
        """The last episode of each window, counted from 1."""
        return points_of(len(self.regret))

    @cached_property
    def window(self) -> Ints:
        """The window in which each chain began."""
        return np.searchsorted(self.at, self.born, side="right")

    def cumulated(self, marked: NDArray[np.bool_]) -> Ints:
        """Return the number of marked episodes up to the end of each window."""
        return np.cumsum(self.summed(marked.astype(np.int64)))

    def chains(self) -> Ints:
        """Return the number of finished chains that began in each window."""
        return np.bincount(self.window[self.finished], minlength=len(self.at))

    def by_chain(self, values: Ints) -> Floats:
        """Return means over the finished chains born in each window; late windows favour short chains."""
        total = np.bincount(self.window[self.finished], weights=values, minlength=len(self.at))
        return self.over(total, self.chains())


def _most(values: Ints) -> int | None:
    return int(values.max()) if len(values) else None


def _of_canary(name: str) -> Callable[[TabularRun], float | None]:
    """Return the function that looks up one fact about a canary, None for other agents."""
    return lambda run: run.summary.get("canary", {}).get(name)


def _over_time(name: str) -> Callable[[TabularRun], float | None]:
    """Return the function that looks up one fact about the baseline over time."""
    return lambda run: run.baseline[name]


RUNS: Columns[TabularRun] = {
    "problem": ("String", lambda run: run.spec.problem),
    "episodes": ("Int64", lambda run: run.spec.episodes),
    "warmup": ("Int64", lambda run: run.spec.warmup),
    "bonus": ("String", lambda run: run.spec.options.get("bonus")),
    "bonus_scale": ("Float64", lambda run: run.spec.options.get("bonus_scale")),
    "delta": ("Float64", lambda run: run.summary["delta"]),
    "ties": ("String", lambda run: run.spec.options.get("ties", "index")),
    "reward_span": ("Float64", lambda run: run.summary["reward_span"]),
    **STANDING,
    "regret": ("Float64", lambda run: float(run.regret.sum())),
    "regret_first_half": ("Float64", lambda run: float(run.regret[: run.half].sum())),
    "regret_second_half": ("Float64", lambda run: float(run.regret[run.half :].sum())),
    "regret_early_slope": ("Float64", lambda run: float(run.regret[: run.tenth].mean())),
    "regret_late_slope": ("Float64", lambda run: float(run.regret[-run.tenth :].mean())),
    "mean_return": ("Float64", lambda run: run.summary["mean_return"]),
    "violations": ("Int64", lambda run: int(run.broken().sum())),
    "violations_incumbent": ("Int64", lambda run: int(run.broken(run.incumbent_deficit).sum())),
    "violation_rate": ("Float64", lambda run: int(run.broken().sum()) / len(run.regret)),
    "deficit_mean": ("Float64", lambda run: float(run.arrays["deficit"].mean())),
    "deficit_max": ("Float64", lambda run: float(run.arrays["deficit"].max())),
    "true_deficit_mean": ("Float64", lambda run: float(run.arrays["true_deficit"].mean())),
    "true_deficit_max": ("Float64", lambda run: float(run.arrays["true_deficit"].max())),
    "signed_deficit_mean": ("Float64", lambda run: float(run.arrays["signed_deficit"].mean())),
    "largest_gap": ("Float64", lambda run: run.summary["largest_gap"]),
    "exploring_steps": ("Int64", lambda run: int(run.arrays["exploring_steps"].sum())),
    "deviating_steps": ("Int64", lambda run: int(run.arrays["deviating_steps"].sum())),
    "steps": ("Int64", lambda run: int(run.arrays["length"].sum())),
    **{
        name: ("Int64" if name == "baseline_falls" else "Float64", _over_time(name))
        for name in BASELINE_OVER_TIME
    },
    "chains_started": ("Int64", lambda run: run.summary["chains_started"]),
    "chains_finished": ("Int64", lambda run: run.summary["chains_finished"]),
    "chains_abandoned": ("Int64", lambda run: run.summary["chains_abandoned"]),
    "chains_blocked": ("Int64", lambda run: run.summary["chains_blocked"]),
    "chains_unfinished": ("Int64", lambda run: len(run.ages)),
    "chains_unfinished_episodes": ("Int64", lambda run: int(run.ages.sum())),
    "chains_unfinished_oldest": ("Int64", lambda run: _most(run.ages)),
    "chain_episodes_mean": ("Float64", lambda run: float(run.length.mean()) if len(run.length) else None),
    "chain_episodes_max": ("Int64", lambda run: _most(run.length)),
    "chain_exhausted": ("Int64", lambda run: int(run.exhausted.sum())),
    "chain_long": ("Int64", lambda run: int(run.long.sum())),
    "chain_missed": ("Int64", lambda run: int(run.missed.sum())),
    "chain_long_max": ("Int64", lambda run: _most(run.long)),
    "chains_within_missed_bound": ("Int64", lambda run: run.within_missed_bound()),
    "chains_within_length_bound": ("Int64", lambda run: run.within_length_bound()),
    "value_failures": ("Int64", lambda run: run.summary["value_coverage_failures"]),
    "bonus_failures": ("Int64", lambda run: run.summary["bonus_coverage_failures"]),
    "charge_failures": ("Int64", lambda run: run.summary["charge_coverage_failures"]),
    "canary_breaches": ("Int64", _of_canary("breaches")),
    "canary_max_loss": ("Float64", _of_canary("max_loss")),
    "canary_probability": ("Float64", _of_canary("mean_probability")),
    "canary_promoted": ("Int64", _of_canary("promoted")),
    "canary_dropped": ("Int64", _of_canary("dropped")),
}
CURVES: Columns[TabularRun] = {
    "episode": ("Int64", lambda run: run.at),
    "regret": ("Float64", lambda run: np.cumsum(run.summed(run.regret))),
    "violations": ("Int64", lambda run: run.cumulated(run.broken())),
    "violations_incumbent": ("Int64", lambda run: run.cumulated(run.broken(run.incumbent_deficit))),
    "deficit_mean": ("Float64", lambda run: run.mean("deficit")),
    "true_deficit_mean": ("Float64", lambda run: run.mean("true_deficit")),
    "true_deficit_max": ("Float64", lambda run: np.maximum.reduceat(run.floats("true_deficit"), run.starts)),
    "exploring_steps": ("Float64", lambda run: run.mean("exploring_steps")),
    "deviating_steps": ("Float64", lambda run: run.mean("deviating_steps")),
    "baseline_value": ("Float64", lambda run: run.per_episode(run.baseline_value)),
    "chains_born": ("Int64", lambda run: np.bincount(run.window, minlength=len(run.at))),
    "chains_finished": ("Int64", lambda run: run.chains()),
    "chain_episodes": ("Float64", lambda run: run.by_chain(run.length)),
    "chain_exhausted": ("Float64", lambda run: run.by_chain(run.exhausted)),
    "chain_long": ("Float64", lambda run: run.by_chain(run.long)),
    "chain_missed": ("Float64", lambda run: run.by_chain(run.missed)),
}

SCHEMA: Schema[Any] = Schema(TabularRun, RUNS, CURVES)
