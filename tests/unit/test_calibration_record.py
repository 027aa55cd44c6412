"""Records of calibrations: exact limits, plain values, and what they do not speak for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chary.errors import CharyError
from chary.model.calibration import (
    CONDITIONS,
    CalibrationRecord,
    largest_failures,
    least_runs,
    upper_limit,
)
from chary.statistics import clopper_pearson

RECORD = CalibrationRecord(
    problem="sepsis",
    bonus="hoeffding",
    bonus_scale=0.0005,
    delta=0.1,
    reward="estimated",
    eta=0.1,
    rule="strict",
    after_refusal="pause",
    charge="coupled",
    pool=1000,
    clock="episode",
    data="all",
    chains=True,
    episodes=1000,
    warmup=500,
    runs=29,
    failures=0,
    exploring=1.0,
)
USED = {name: getattr(RECORD, name) for name in CONDITIONS}


@pytest.mark.parametrize(("failures", "runs"), [(0, 1), (0, 29), (1, 20), (2, 61), (3, 3), (7, 300)])
def test_the_upper_limit_is_clopper_and_pearsons(failures: int, runs: int) -> None:
    # A one-sided limit of 95 % is the upper end of a two-sided interval of 90 %.
    assert upper_limit(failures, runs) == pytest.approx(clopper_pearson(failures, runs, 0.9).high, abs=1e-9)


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.1, 0.3, 0.97])
def test_a_record_passes_exactly_where_its_limit_is_at_most_delta(delta: float) -> None:
    least = least_runs(delta)
    assert upper_limit(0, least) <= delta
    assert least == 1 or upper_limit(0, least - 1) > delta
    for runs in (least, 2 * least):
        most = largest_failures(runs, delta)
        assert upper_limit(most, runs) <= delta < upper_limit(most + 1, runs)


def test_what_passed_a_point_estimate_does_not_pass_the_upper_limit() -> None:
    # 1 of 20 runs failed: a share of .05, but up to .216 are compatible with it.
    weak = replace(RECORD, runs=20, failures=1)
    assert not weak.passed
    assert weak.upper == pytest.approx(0.2161, abs=1e-4)
    assert RECORD.passed


def test_plain_values_give_the_record_back() -> None:
    plain = RECORD.to_plain()
    assert plain["upper"] == RECORD.upper
    assert CalibrationRecord.from_plain(plain) == RECORD


def test_an_exact_fit_has_no_mismatch_and_every_difference_is_named() -> None:
    assert RECORD.mismatches(USED) == ()
    for name in CONDITIONS:
        (phrase,) = RECORD.mismatches({**USED, name: 7 if name in ("episodes", "warmup") else "another"})
        assert phrase.startswith("calibrated ")
    assert RECORD.mismatches({**USED, "episodes": 50000, "eta": 0.119}) == (
        "calibrated with eta 0.1, played with 0.119",
        "calibrated for 1,000 episodes, played 50,000",
    )


@pytest.mark.parametrize(
    "changes", [{"failures": 30}, {"runs": 0}, {"delta": 1.0}, {"episodes": 0}, {"scale": 1.0}]
)
def test_wrong_values_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(CharyError):
        CalibrationRecord.from_plain({**RECORD.to_plain(), **changes})


def test_a_missing_key_is_refused() -> None:
    plain = RECORD.to_plain()
    del plain["rule"]
    with pytest.raises(CharyError, match="rule"):
        CalibrationRecord.from_plain(plain)
