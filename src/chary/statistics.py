"""Numbers with their intervals: means over few seeds, and how often a promise broke over runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats
from chary.errors import InvalidData, InvalidSetting, check_integer, check_real

__all__ = [
    "Band",
    "BinomialReport",
    "Estimate",
    "Interval",
    "ViolationRate",
    "binomial_report",
    "clopper_pearson",
    "interquartile_mean",
    "matrix_of",
    "small_sample_factor",
    "vector_of",
    "violation_rate",
]


class Interval(NamedTuple):
    """A closed interval of probabilities."""

    low: float
    high: float


class BinomialReport(NamedTuple):
    """Failures among independent runs, their exact interval, and the `delta` that was promised."""

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
        """`below` if the whole interval is at most delta, `above` if it is beyond, else `compatible`."""
        if self.interval.high <= self.delta:
            return "below"
        return "above" if self.interval.low > self.delta else "compatible"

    def describe(self) -> str:
        """Return the evidence as one sentence."""
        verdicts = {
            "below": "below the promised",
            "above": "above the promised",
            "compatible": "not told apart from the promised",
        }
        return (
            f"{self.failures} of {self.runs} runs failed ({self.confidence:.0%} Clopper-Pearson interval "
            f"{self.interval.low:.4g} to {self.interval.high:.4g}): {verdicts[self.verdict]} {self.delta:g}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers and words."""
        return {
            "failures": self.failures,
            "runs": self.runs,
            "rate": self.rate,
            "low": self.interval.low,
            "high": self.interval.high,
            "confidence": self.confidence,
            "delta": self.delta,
            "verdict": self.verdict,
        }


class Band(NamedTuple):
    """A mean and its interval, point by point, each (points,); NaN for the interval of a single seed."""

    mean: Floats
    low: Floats
    high: Floats

    @property
    def only(self) -> Estimate:
        """The number and interval of a band of one point."""
        return Estimate(float(self.mean[0]), float(self.low[0]), float(self.high[0]))

    def at_least(self, floor: float) -> Band:
        """Return the band without what lies below a number that the quantity cannot be below."""
        return Band(self.mean, np.maximum(self.low, floor), np.maximum(self.high, floor))


class Estimate(NamedTuple):
    """A number and its interval; NaN for the interval where one seed cannot tell."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether number and interval are known; an end may still be infinite."""
        return math.isfinite(self.value) and not (math.isnan(self.low) or math.isnan(self.high))

    def at_most(self, threshold: float) -> bool | None:
        """Whether it is at most a threshold: None where it is not known or the interval holds it.

        Example:
            >>> between = Estimate(1.0, 0.5, 1.5)
            >>> between.at_most(2.0), between.at_most(1.2), between.at_most(0.1)
            (True, None, False)
        """
        if not self.known:
            return None
        return True if self.high <= threshold else False if self.low > threshold else None

    def above(self, threshold: float) -> bool | None:
        """Whether it is above a threshold: None where it is not known or the interval holds it."""
        at_most = self.at_most(threshold)
        return None if at_most is None else not at_most

    def below(self, threshold: float) -> bool | None:
        """Whether it is below a threshold: None where it is not known or the interval holds it."""
        if not self.known:
            return None
        return True if self.high < threshold else False if self.low >= threshold else None

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0.0

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0.0


class ViolationRate(NamedTuple):
    """How often a budget was broken: by episode and, since those of one run are dependent, by run."""

    violations: int
    episodes: int
    interval: Interval
    broken_runs: int
    runs: int
    run_interval: Interval

    @property
    def rate(self) -> float:
        """The share of episodes that broke the budget."""
        return self.violations / self.episodes


def clopper_pearson(failures: int, runs: int, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval for the probability of failure (Clopper and Pearson, 1934).

    It covers the true probability with at least `confidence`, whatever that probability is: `low` is
    where seeing this many failures or more has probability (1 - confidence) / 2, `high` where seeing
    this many or fewer has.

    Raises:
        InvalidSetting: if there are no runs, more failures than runs, or no proper confidence.

    Example:
        >>> low, high = clopper_pearson(0, 1000)
        >>> low, round(high, 6)
        (0.0, 0.003682)
    """
    # Here and not above: scipy.stats takes longer to import than all of chary.
    from scipy.stats import beta

    n = check_integer("runs", runs, minimum=1)
    k = check_integer("failures", failures, minimum=0)
    if k > n:
        raise InvalidSetting(f"'failures' must be at most the number of runs, {n}, got {k}.")
    sure = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    tail = (1.0 - sure) / 2.0
    low = 0.0 if k == 0 else float(beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(beta.isf(tail, k + 1, n - k))
    return Interval(low, high)


def binomial_report(failures: int, runs: int, delta: float, confidence: float = 0.95) -> BinomialReport:
    """Return failures over runs with their interval, set against `delta` (docs/algorithm.md section 7).

    Raises:
        InvalidSetting: if a count, `delta` or `confidence` is out of range.

    Example:
        >>> binomial_report(0, 1000, delta=0.1).describe()
        '0 of 1000 runs failed (95% Clopper-Pearson interval 0 to 0.003682): below the promised 0.1.'
    """
    promised = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    interval = clopper_pearson(failures, runs, confidence)
    return BinomialReport(int(failures), int(runs), interval, float(confidence), promised)


def small_sample_factor(seeds: int, confidence: float = 0.95) -> float:
    """Return by how much a percentile bootstrap interval of a mean is too short for so few seeds.

    sqrt(n / (n - 1)) * t / z: resampling estimates the spread with divisor n where n - 1 is meant, and takes
    it for known where Student's t allows for its being estimated. Hesterberg (2015, "What teachers should
    know about the bootstrap", The American Statistician 69, section 4.1) expands the percentiles' levels by
    it, which can never reach beyond the smallest and the largest value, and those of three seeds miss the
    mean in a quarter of all cases. We move the ends instead. For normal data both come to Student's interval.

    Raises:
        InvalidSetting: if there are fewer than two seeds, or no proper confidence.

    Example:
        >>> [round(small_sample_factor(seeds), 2) for seeds in (3, 5, 10, 20)]
        [2.69, 1.58, 1.22, 1.1]
    """
    from scipy.special import ndtri, stdtrit

    n = check_integer("seeds", seeds, minimum=2)
    sure = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    tail = (1.0 + sure) / 2.0
    return float(math.sqrt(n / (n - 1)) * stdtrit(n - 1, tail) / ndtri(tail))


def interquartile_mean(values: ArrayLike) -> float:
    """Return the mean of the middle half of the values, (seeds,).

    Where a quarter of them is no whole number, those at the edges count in part.

    Raises:
        InvalidData: if `values` is empty or not finite.

    Example:
        >>> interquartile_mean([0.0, 1.0, 3.0, 100.0]), interquartile_mean([7.0])
        (2.0, 7.0)
    """
    ordered = np.sort(vector_of("values", values))
    edges = np.arange(len(ordered) + 1) / len(ordered)
    weights = np.diff(np.clip(edges, 0.25, 0.75))
    return float(weights @ ordered / weights.sum())


def violation_rate(violations: ArrayLike, episodes: ArrayLike, *, confidence: float = 0.95) -> ViolationRate:
    """Return how often a budget was broken, with Clopper-Pearson intervals.

    The interval over episodes takes them for independent. Episodes of one run are not: they share data and a
    baseline, so that violations come in bursts, and the interval is too narrow. Runs are independent; so the
    share of runs with any violation is given beside it, and is what `delta` promises.

    Args:
        violations: How many episodes of each run broke the budget, (runs,).
        episodes: How many each played, (runs,).
        confidence: Of both intervals, in (0, 1).

    Raises:
        InvalidData: if the arrays are not of one length, or no counts.

    Example:
        >>> rate = violation_rate([0, 2], [500, 500])
        >>> rate.rate, rate.broken_runs, round(rate.interval.high, 4)
        (0.002, 1, 0.0072)
    """
    broken, played = vector_of("violations", violations), vector_of("episodes", episodes)
    if len(broken) != len(played):
        raise InvalidData(
            f"'violations' and 'episodes' must be of the same runs, got {len(broken)} and {len(played)}."
        )
    if not (np.all(broken >= 0) and np.all(broken <= played) and np.all(played >= 1)):
        raise InvalidData("'violations' must be counts of at most 'episodes' each, got others.")
    total, among = int(broken.sum()), int(played.sum())
    runs = int(np.count_nonzero(broken))
    return ViolationRate(
        total,
        among,
        clopper_pearson(total, among, confidence),
        runs,
        len(broken),
        clopper_pearson(runs, len(broken), confidence),
    )


def matrix_of(name: str, values: ArrayLike) -> Floats:
    """Return numbers as an array of shape (seeds, points), or raise InvalidData with their name."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or 0 in array.shape or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite and of shape (seeds, points), got shape {array.shape}.")
    return array


def vector_of(name: str, values: ArrayLike) -> Floats:
    """Return numbers as an array of one dimension, or raise InvalidData with their name."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite numbers, one each, got shape {array.shape}.")
    return array
