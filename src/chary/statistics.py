"""Binomial evidence: how often a promise broke over independent runs, and how sure that number is."""

from __future__ import annotations

from typing import Any, NamedTuple

from chary.errors import InvalidSetting, check_integer, check_real

__all__ = ["BinomialReport", "Interval", "binomial_report", "clopper_pearson"]


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
