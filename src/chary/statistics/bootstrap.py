"""Means over few seeds and functions of them, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats
from chary.errors import InvalidData, check_integer, check_real
from chary.randomness import generator_for
from chary.statistics._arrays import matrix_of, vector_of

RESAMPLES = 2000


class Drawing(TypedDict, total=False):
    """The options of an interval, as `bootstrap_of` describes them."""

    confidence: float
    resamples: int
    seed: int


class Band(NamedTuple):
    """A mean and its interval at each point, each (points,); the interval is NaN for a single seed."""

    mean: Floats
    low: Floats
    high: Floats

    @property
    def only(self) -> Estimate:
        """The number and interval of a band of one point."""
        return Estimate(float(self.mean[0]), float(self.low[0]), float(self.high[0]))

    def at_least(self, floor: float) -> Band:
        """Return the band cut at `floor`, the smallest value that the quantity can have."""
        return Band(self.mean, np.maximum(self.low, floor), np.maximum(self.high, floor))


class Estimate(NamedTuple):
    """A number and its interval; the interval is NaN for a single seed."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether number and interval are known; an end may be infinite."""
        return math.isfinite(self.value) and not (math.isnan(self.low) or math.isnan(self.high))

    def at_most(self, threshold: float) -> bool | None:
        """Whether it is at most a threshold: None if it is unknown or the interval contains the threshold.

        Example:
            >>> between = Estimate(1.0, 0.5, 1.5)
            >>> between.at_most(2.0), between.at_most(1.2), between.at_most(0.1)
            (True, None, False)
        """
        if not self.known:
            return None
        return True if self.high <= threshold else False if self.low > threshold else None

    def above(self, threshold: float) -> bool | None:
        """Whether it is above a threshold: None if it is unknown or the interval contains the threshold."""
        at_most = self.at_most(threshold)
        return None if at_most is None else not at_most

    def below(self, threshold: float) -> bool | None:
        """Whether it is below a threshold: None if it is unknown or the interval contains the threshold."""
        if not self.known:
            return None
        return True if self.high < threshold else False if self.low >= threshold else None

    def times(self, factor: float) -> Estimate:
        """Return number and interval in another unit: multiplied by a positive factor."""
        return Estimate(*(factor * each for each in self))


def small_sample_factor(seeds: int, confidence: float = 0.95) -> float:
    """Return the factor by which the percentile bootstrap interval of a mean is too short for few seeds.

    sqrt(n / (n - 1)) * t / z: resampling divides the spread by n instead of n - 1, and treats it as known,
    while Student's t accounts for its being estimated. Hesterberg (2015, "What teachers should know about
    the bootstrap", The American Statistician 69, section 4.1) widens the levels of the percentiles by this
    factor. Such an interval never goes beyond the smallest and the largest value, and with three seeds these
    miss the mean in a quarter of all cases; we therefore move the ends. For normal data both methods give
    Student's interval.

    Raises:
        InvalidSetting: if there are fewer than two seeds, or `confidence` is not in (0, 1).

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

    If a quarter of their number is not whole, the values at the edges count in part.

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


def bootstrap_of(
    values: ArrayLike,
    statistic: Callable[[Floats], Floats],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Band:
    """Return a function of the means over seeds with its bootstrap interval, widened for few seeds.

    The plain percentile interval is too short: for the mean of five normal numbers it covers 84 %, not 95 %.
    Its ends are therefore moved away from the estimate by `small_sample_factor` (Hesterberg 2015). It then
    covers like Student's interval, and is still asymmetric if the data are. NaN for one seed, and if the
    function has no value in some resample.

    Args:
        values: One row per seed, (seeds, points); whole rows are drawn, so that their columns stay paired.
        statistic: From means, one row per resample, (resamples, points), to (resamples, outcomes).
        confidence: Of the interval, in (0, 1).
        resamples: Number of resamples of the seeds, >= 1.
        seed: Random seed; the same values and seed give the same interval.

    Raises:
        InvalidData: if `values` does not have this shape or is not finite.

    Example:
        >>> share = bootstrap_of([[1.0, 2.0], [3.0, 6.0]], lambda means: means[:, :1] / means[:, 1:])
        >>> share.mean.tolist(), share.low.tolist(), share.high.tolist()
        ([0.5], [0.5], [0.5])
    """
    sample = matrix_of("values", values)
    value = statistic(sample.mean(axis=0)[None, :])[0]
    if len(sample) == 1:
        unknown = np.full(value.shape, np.nan)
        return Band(value, unknown, unknown.copy())
    factor = small_sample_factor(len(sample), confidence)
    tails = ((1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0)
    drawn = statistic(resampled_means(sample, resamples=resamples, seed=seed))
    # No number is between an infinite draw and a finite one: take the nearest.
    method: Literal["linear", "nearest"] = "linear" if np.all(np.isfinite(drawn)) else "nearest"
    low, high = np.quantile(drawn, tails, axis=0, method=method)
    # The maximum, because rounding must not move an end to the other side of the estimate.
    return Band(
        value,
        np.asarray(value - factor * np.maximum(value - low, 0.0)),
        np.asarray(value + factor * np.maximum(high - value, 0.0)),
    )


def bootstrap_band(values: ArrayLike, **drawing: Unpack[Drawing]) -> Band:
    """Return the mean over seeds and its bootstrap interval at each point, see `bootstrap_of`.

    Args:
        values: One row per seed, (seeds, points).
        **drawing: `confidence` at each point, `resamples` and `seed`.

    Raises:
        InvalidData: if `values` does not have this shape or is not finite.

    Example:
        >>> bootstrap_band([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]]).high.round(2).tolist()
        [11.07, 5.0]
    """
    return bootstrap_of(values, lambda means: means, **drawing)


def bootstrap_mean(values: ArrayLike, **drawing: Unpack[Drawing]) -> Estimate:
    """Return the mean of one number per seed, (seeds,), with its bootstrap interval, see `bootstrap_of`.

    Raises:
        InvalidData: if `values` does not have this shape or is not finite.

    Example:
        >>> bootstrap_mean([2.0, 2.0, 2.0])
        Estimate(value=2.0, low=2.0, high=2.0)
    """
    return bootstrap_band(vector_of("values", values)[:, None], **drawing).only


def resampled_means(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return the means of resampled seeds, (resamples, points), from values of shape (seeds, points).

    Columns are resampled together: a ratio of two of them is one at equal seeds.

    Raises:
        InvalidData: if `values` does not have this shape or is not finite.

    Example:
        >>> means = resampled_means([[1.0, 2.0], [3.0, 6.0]])
        >>> means.shape, bool(np.all(means[:, 1] == 2 * means[:, 0]))
        ((2000, 2), True)
    """
    sample = matrix_of("values", values)
    check_integer("resamples", resamples, minimum=1)
    seeds = len(sample)
    drawn = generator_for(seed, "bootstrap").multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples)
    # The share of each seed in each resample, (resamples, seeds): rows sum to 1.
    return np.asarray((drawn / float(seeds)) @ sample)


def ratio_band(ours: ArrayLike, theirs: ArrayLike, **drawing: Unpack[Drawing]) -> Band:
    """Return the ratio of the means over equal seeds and its bootstrap interval at each point.

    It is not the mean of the ratios: a single seed with a tiny denominator would dominate that. The interval
    is widened for few seeds in logarithms, which treat a ratio and its inverse alike.

    Args:
        ours: Numerators, one row per seed, (seeds, points), nothing below 0.
        theirs: Denominators for the same seeds and points, with means above 0.
        **drawing: `confidence` at each point, `resamples` and `seed`.

    Raises:
        InvalidData: if the shapes differ, a number is not finite, or a mean of `theirs` is not above 0.

    Example:
        >>> ratio_band([[2.0], [6.0]], [[1.0], [3.0]]).mean.round(6).tolist()
        [2.0]
    """
    a, b = matrix_of("ours", ours), matrix_of("theirs", theirs)
    if a.shape != b.shape:
        raise InvalidData(f"'ours' and 'theirs' must have the same shape, got {a.shape} and {b.shape}.")
    below = b.mean(axis=0)
    if not np.all(below > 0):
        raise InvalidData(f"'theirs' must have means above 0, got {below.min():g}.")
    points = a.shape[1]

    def log_ratio(means: Floats) -> Floats:
        # A resample whose denominator is 0 has an infinite ratio.
        top, bottom = means[:, :points], means[:, points:]
        ratio = np.divide(top, bottom, out=np.full(top.shape, np.inf), where=bottom > 0)
        return np.asarray(np.log(np.maximum(ratio, np.finfo(float).tiny)))

    band = bootstrap_of(np.hstack([a, b]), log_ratio, **drawing)
    return Band(a.mean(axis=0) / below, np.exp(band.low), np.exp(band.high))


def paired_difference(ours: ArrayLike, theirs: ArrayLike, **drawing: Unpack[Drawing]) -> Estimate:
    """Return the mean of ours - theirs over equal seeds with its bootstrap interval.

    Entry i of both belongs to the same seed, with the same world and warm-up: differences between seeds
    cancel.

    Raises:
        InvalidData: if the arrays differ in length, are empty or not finite.

    Example:
        >>> paired_difference([3.0, 13.0], [1.0, 11.0])
        Estimate(value=2.0, low=2.0, high=2.0)
    """
    a, b = vector_of("ours", ours), vector_of("theirs", theirs)
    if len(a) != len(b):
        raise InvalidData(f"'ours' and 'theirs' must have one entry per seed, got {len(a)} and {len(b)}.")
    return bootstrap_mean(a - b, **drawing)


def fitted_exponent(
    episodes: ArrayLike,
    regret: ArrayLike,
    *,
    start: float = 0.5,
    stop: float = 1.0,
    less: ArrayLike | None = None,
    **drawing: Unpack[Drawing],
) -> Estimate:
    """Return x such that the mean cumulative regret grows like N^x over the second half of the run.

    It is the slope of log regret on log N by least squares: 1 is linear, 1/2 is UCBVI's guarantee, 0 is flat.
    NaN if the mean regret is not positive. The interval comes from `bootstrap_of`.

    Args:
        episodes: The points, (points,), increasing.
        regret: Cumulative regret at these points, one row per seed, (seeds, points).
        start: Start of the fit, as a share of the last episode.
        stop: End of the fit, as a share of the last episode.
        less: Regret of another algorithm at the same seeds and points. If given, the *difference* of the two
            exponents is returned with its own interval, since equal seeds have much in common.
        **drawing: `confidence` of the interval, `resamples` and `seed`.

    Raises:
        InvalidData: if the shapes do not match, or fewer than two points are between `start` and `stop`.

    Example:
        >>> n = np.arange(1, 101)
        >>> round(fitted_exponent(n, [5 * np.sqrt(n), 7 * np.sqrt(n)]).value, 6)
        0.5
        >>> round(fitted_exponent(n, [n, 2 * n], less=[np.sqrt(n), np.sqrt(n)]).value, 6)
        0.5
    """
    at, curves = vector_of("episodes", episodes), [matrix_of("regret", regret)]
    if less is not None:
        curves.append(matrix_of("less", less))
    for each in curves:
        if each.shape != (shape := (len(curves[0]), len(at))):
            raise InvalidData(f"'regret' must have shape (seeds, points), {shape}, got shape {each.shape}.")
    inside = (at >= start * at[-1]) & (at <= stop * at[-1])
    if np.count_nonzero(inside) < 2 or at[0] <= 0:
        raise InvalidData(
            f"'episodes' must have two points or more from {start:g} to {stop:g} of the last, all > 0, "
            f"got {np.count_nonzero(inside)}."
        )
    x = np.log(at[inside])
    centred = x - x.mean()

    def slope(means: Floats) -> Floats:
        positive = np.all(means > 0, axis=1)
        logs = np.log(np.where(positive[:, None], means, 1.0))
        return np.where(positive, logs @ centred / (centred @ centred), np.nan)

    def exponent(means: Floats) -> Floats:
        first, *second = np.split(means, len(curves), axis=1)
        return (slope(first) - sum(map(slope, second)))[:, None]

    held = np.hstack([each[:, inside] for each in curves])
    return bootstrap_of(held, exponent, **drawing).only
