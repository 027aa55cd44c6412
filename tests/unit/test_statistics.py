"""Clopper-Pearson intervals by their definition and against closed forms; intervals against thresholds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from chary.errors import InvalidSetting
from chary.statistics import Band, Estimate, binomial_report, clopper_pearson, small_sample_factor


def test_no_failure_has_the_closed_form_upper_end() -> None:
    # With k = 0 the upper end solves (1 - p)^n = alpha / 2.
    low, high = clopper_pearson(0, 50)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 50), rel=1e-12)


def test_only_failures_have_the_closed_form_lower_end() -> None:
    # With k = n the lower end solves p^n = alpha / 2.
    low, high = clopper_pearson(20, 20, confidence=0.9)
    assert low == pytest.approx(0.05 ** (1 / 20), rel=1e-12)
    assert high == 1.0


def test_published_interval() -> None:
    # 10 of 100 at 95 %: 0.0490 to 0.1762 (R's binom.test(10, 100)).
    low, high = clopper_pearson(10, 100)
    assert (round(low, 4), round(high, 4)) == (0.0490, 0.1762)


@pytest.mark.parametrize(("failures", "runs"), [(1, 1_000_000), (3, 50_000), (516, 2000), (1, 20), (7, 8)])
def test_ends_are_quantiles_of_the_beta_distribution(failures: int, runs: int) -> None:
    low, high = clopper_pearson(failures, runs)
    assert low == pytest.approx(beta.ppf(0.025, failures, runs - failures + 1), rel=1e-6)
    assert high == pytest.approx(beta.isf(0.025, failures + 1, runs - failures), rel=1e-9)


@given(runs=st.integers(1, 2000), share=st.floats(0, 1), confidence=st.floats(0.5, 0.999))
def test_ends_leave_half_of_alpha_in_each_tail(runs: int, share: float, confidence: float) -> None:
    failures = round(share * runs)
    low, high = clopper_pearson(failures, runs, confidence)
    tail = (1 - confidence) / 2
    assert low <= failures / runs <= high
    if failures > 0:
        assert binom.sf(failures - 1, runs, low) == pytest.approx(tail, rel=1e-6)
    if failures < runs:
        assert binom.cdf(failures, runs, high) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize(
    ("failures", "runs", "confidence", "name"),
    [
        (1, 0, 0.95, "runs"),
        (-1, 5, 0.95, "failures"),
        (6, 5, 0.95, "failures"),
        (1.5, 5, 0.95, "failures"),
        (True, 5, 0.95, "failures"),
        (1, 5, 1.0, "confidence"),
        (1, 5, 0.0, "confidence"),
        (1, 5, float("nan"), "confidence"),
    ],
)
def test_bad_counts_are_named(failures: int, runs: int, confidence: float, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"'{name}'"):
        clopper_pearson(failures, runs, confidence)


@pytest.mark.parametrize(
    ("failures", "delta", "verdict"), [(0, 0.1, "below"), (100, 0.1, "compatible"), (300, 0.1, "above")]
)
def test_verdict_compares_the_whole_interval(failures: int, delta: float, verdict: str) -> None:
    report = binomial_report(failures, 1000, delta)
    assert report.verdict == verdict
    assert report.rate == failures / 1000
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["verdict"] == verdict


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, float("nan")])
def test_delta_must_be_a_proper_probability(delta: float) -> None:
    with pytest.raises(InvalidSetting, match="'delta'"):
        binomial_report(0, 10, delta)


def test_the_factor_for_few_seeds_is_that_of_students_interval() -> None:
    # t tables: 4.302653 for 2 degrees of freedom, 2.093024 for 19; z = 1.959964.
    assert small_sample_factor(3) == pytest.approx(math.sqrt(3 / 2) * 4.302653 / 1.959964, rel=1e-6)
    assert small_sample_factor(20) == pytest.approx(math.sqrt(20 / 19) * 2.093024 / 1.959964, rel=1e-6)
    assert small_sample_factor(100_000) == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(InvalidSetting, match="'seeds'"):
        small_sample_factor(1)


@pytest.mark.parametrize(
    ("ends", "at_most", "above", "below"),
    [
        ((0.0, 1.0), None, None, None),
        ((-2.0, 0.4), True, False, True),
        ((0.6, 3.0), False, True, False),
        # An interval that ends at the threshold is at most it, and not below it.
        ((0.2, 0.5), True, False, None),
        ((0.5, 0.9), None, None, False),
        ((0.5, 0.5), True, False, False),
        ((math.nan, math.nan), None, None, None),
        ((0.6, math.inf), False, True, False),
    ],
)
def test_an_interval_that_holds_the_threshold_cannot_tell(
    ends: tuple[float, float], at_most: bool | None, above: bool | None, below: bool | None
) -> None:
    estimate = Estimate(0.5, *ends)
    assert (estimate.at_most(0.5), estimate.above(0.5), estimate.below(0.5)) == (at_most, above, below)
    assert Estimate(math.nan, 0.0, 0.1).at_most(0.5) is None


def test_a_band_may_be_cut_where_nothing_can_be() -> None:
    band = Band(np.array([1.0, 2.0]), np.array([-1.0, np.nan]), np.array([3.0, np.nan])).at_least(0.0)
    assert (band.low[0], band.high[0], band.mean.tolist()) == (0.0, 3.0, [1.0, 2.0])
    assert np.isnan(band.low[1])
