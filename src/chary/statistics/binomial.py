"""Failed runs with Clopper-Pearson intervals, and violations per episode with intervals over runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chary.errors import InvalidData, InvalidSetting, check_integer, check_real
from chary.statistics._arrays import vector_of
from chary.statistics.bootstrap import bootstrap_of


class Interval(NamedTuple):
    """A closed interval of probabilities."""

    low: float
    high: float


class BinomialReport(NamedTuple):
    """Failures among independent runs, their exact interval, and the promised `delta`."""

    failures: int
    runs: int
    interval: Interval
    confidence: float
    delta: float

    @property
    def rate(self) -> float:
        """The share of runs that failed."""
        return self.failures / self.runs

    @property
    def verdict(self) -> str:
        """`below` if the whole interval is at most delta, `above` if all is larger, else `compatible`."""
        if self.interval.high <= self.delta:
            return "below"
        return "above" if self.interval.low > self.delta else "compatible"

    def describe(self) -> str:
        """Return the evidence as one sentence."""
        verdicts = {
            "below": "below the promised",
            "above": "above the promised",
            "compatible": "not distinguishable from the promised",
        }
        return (
            f"{self.failures} of {self.runs} runs failed ({self.confidence:.0%} Clopper-Pearson interval "
            f"{self.interval.low:.4g} to {self.interval.high:.4g}): {verdicts[self.verdict]} {self.delta:g}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        counted = {name: getattr(self, name) for name in ("failures", "runs", "rate")}
        promised = {name: getattr(self, name) for name in ("confidence", "delta", "verdict")}
        return {**counted, **self.interval._asdict(), **promised}


class ViolationRate(NamedTuple):
    """The rate of violations: per episode, with an interval over runs, and the share of runs with any.

    `interval` is NaN for a single run, and has no width if all runs have the same rate, such as 0. Without
    any run whose violations are known, everything is NaN.
    """

    violations: int
    episodes: int
    interval: Interval
    broken_runs: int
    runs: int
    run_interval: Interval
    confidence: float

    @property
    def rate(self) -> float:
        """Violations per episode."""
        return self.violations / self.episodes if self.episodes else math.nan

    @property
    def most_broke(self) -> bool:
        """Whether more than half of the runs have a violation."""
        return 2 * self.broken_runs > self.runs

    def compared_with(self, delta: float) -> BinomialReport:
        """Return the runs with any violation as a binomial, compared with the promised `delta`."""
        return binomial_report(self.broken_runs, self.runs, delta, self.confidence)


def clopper_pearson(failures: int, runs: int, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval for the probability of failure (Clopper and Pearson, 1934).

    It contains the true probability with at least `confidence`, for every such probability: at `low`, this
    many failures or more have probability (1 - confidence) / 2; at `high`, this many or fewer do.

    Raises:
        InvalidSetting: if there are no runs, more failures than runs, or `confidence` is not in (0, 1).

    Example:
        >>> low, high = clopper_pearson(0, 1000)
        >>> low, round(high, 6)
        (0.0, 0.003682)
    """
    # Imported here: scipy.stats takes longer to import than all of chary.
    from scipy.stats import binomtest

    n = check_integer("runs", runs, minimum=1)
    k = check_integer("failures", failures, minimum=0)
    if k > n:
        raise InvalidSetting(f"'failures' must be at most the number of runs, {n}, got {k}.")
    sure = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    found = binomtest(k, n).proportion_ci(sure, method="exact")
    return Interval(float(found.low), float(found.high))


def binomial_report(failures: int, runs: int, delta: float, confidence: float = 0.95) -> BinomialReport:
    """Return failures per run with their interval, compared with `delta` (docs/algorithm.md section 7).

    Raises:
        InvalidSetting: if a count, `delta` or `confidence` is out of range.

    Example:
        >>> binomial_report(0, 1000, delta=0.1).describe()
        '0 of 1000 runs failed (95% Clopper-Pearson interval 0 to 0.003682): below the promised 0.1.'
    """
    promised = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    interval = clopper_pearson(failures, runs, confidence)
    return BinomialReport(int(failures), int(runs), interval, float(confidence), promised)


def violation_rate(violations: ArrayLike, episodes: ArrayLike, *, confidence: float = 0.95) -> ViolationRate:
    """Return the rate of violations of a budget, per episode and per run.

    Episodes of one run share data and a baseline, and violations come in bursts: an interval that treats
    them as independent is too narrow. The interval of the rate comes from resampling whole runs (a cluster
    bootstrap, see `bootstrap_of`). The share of runs with any violation, which `delta` bounds, has the
    Clopper-Pearson interval of a binomial over runs.

    Args:
        violations: Number of episodes per run that broke the budget, (runs,).
        episodes: Number of episodes per run, (runs,).
        confidence: Of both intervals, in (0, 1).

    Raises:
        InvalidData: if the arrays differ in length or are not counts.

    Example:
        >>> rate = violation_rate([0, 2, 1], [500, 500, 500])
        >>> rate.rate, rate.broken_runs, round(rate.interval.high, 4)
        (0.002, 2, 0.0074)
    """
    broken, played = vector_of("violations", violations), vector_of("episodes", episodes)
    if len(broken) != len(played):
        raise InvalidData(
            f"'violations' and 'episodes' must have one entry per run, got {len(broken)} and {len(played)}."
        )
    if not (np.all(broken >= 0) and np.all(broken <= played) and np.all(played >= 1)):
        raise InvalidData("'violations' must be counts of at most 'episodes' each, got other numbers.")
    total, among = int(broken.sum()), int(played.sum())
    runs = int(np.count_nonzero(broken))
    band = bootstrap_of(
        np.column_stack([broken, played]), lambda means: means[:, :1] / means[:, 1:], confidence=confidence
    )
    low, high = np.clip([band.low[0], band.high[0]], 0.0, 1.0).tolist()
    run_interval = clopper_pearson(runs, len(broken), confidence)
    return ViolationRate(total, among, Interval(low, high), runs, len(broken), run_interval, confidence)
