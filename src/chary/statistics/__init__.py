"""Numbers with their intervals: bootstrap over few runs, Clopper-Pearson for runs that failed."""

from chary.statistics.binomial import (
    BinomialReport,
    Interval,
    ViolationRate,
    binomial_report,
    clopper_pearson,
    violation_rate,
)
from chary.statistics.bootstrap import (
    Band,
    Estimate,
    bootstrap_band,
    bootstrap_mean,
    bootstrap_of,
    fitted_exponent,
    interquartile_mean,
    paired_difference,
    ratio_band,
    resampled_means,
    small_sample_factor,
)

__all__ = [
    "Band",
    "BinomialReport",
    "Estimate",
    "Interval",
    "ViolationRate",
    "binomial_report",
    "bootstrap_band",
    "bootstrap_mean",
    "bootstrap_of",
    "clopper_pearson",
    "fitted_exponent",
    "interquartile_mean",
    "paired_difference",
    "ratio_band",
    "resampled_means",
    "small_sample_factor",
    "violation_rate",
]
