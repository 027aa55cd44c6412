"""Clopper-Pearson intervals by their definition and against closed forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from chary.errors import InvalidSetting
from chary.statistics import binomial_report, clopper_pearson


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
