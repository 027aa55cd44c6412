"""Certified bounds hold in at least 1 - delta of runs: a binomial test at 1e-4 over independent runs."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from chary.agents import CharyUCBVI
from chary.envs import inventory
from chary.simulation import simulate

ALPHA = 1e-4
DELTA = 0.1


def runs_that_fail(runs: int, first_seed: int, **options: object) -> int:
    """Count the runs in which a value, a bonus or a charge failed anywhere at any time."""
    spec = CharyUCBVI(eta=0.5, delta=DELTA, **options)  # type: ignore[arg-type]
    failures = 0
    for seed in range(first_seed, first_seed + runs):
        run = simulate(inventory(horizon=8), spec, episodes=40, warmup=40, seed=seed, coverage="everywhere")
        failures += bool((run.value_failed | run.bonus_failed | run.charge_failed).any())
    return failures


def promised(failures: int, runs: int) -> bool:
    """Return whether so many failures are compatible with a probability of at most delta."""
    return bool(binom.sf(failures - 1, runs, DELTA) > ALPHA)


@pytest.mark.parametrize("reward", ["known", "estimated"])
@pytest.mark.parametrize("bonus", ["l1", "kl"])
def test_certified_bounds_fail_in_no_more_runs_than_promised(
    bonus: str, reward: str, first_seed: int
) -> None:
    assert promised(runs_that_fail(30, first_seed, bonus=bonus, reward=reward), 30)


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["coupled", "difference"])
@pytest.mark.parametrize("reward", ["known", "estimated"])
@pytest.mark.parametrize("bonus", ["l1", "kl"])
def test_certified_bounds_hold_over_many_runs(bonus: str, reward: str, charge: str, first_seed: int) -> None:
    assert promised(runs_that_fail(100, first_seed, bonus=bonus, reward=reward, charge=charge), 100)


def test_the_test_rejects_bounds_that_are_too_narrow(first_seed: int) -> None:
    failures = runs_that_fail(30, first_seed, bonus="hoeffding", bonus_scale=0.001)
    assert not promised(failures, 30)
