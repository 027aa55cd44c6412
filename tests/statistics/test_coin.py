"""The promise of a canary over many runs, against whatever might break it: p (V_inc - V_cand) <= eta.

The cases, and the long versions of these tests, are in `benchmarks/canary.py`: policies are coins, candidates
are named by an adversary, and returns arrive late or never depending on what they are.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import chary
from chary.arrays import Floats
from chary.audit import Truth
from chary.mdp import FiniteMDP
from chary.statistics import clopper_pearson

RUNS, EPISODES, DELTA = 60, 300, 0.2
NAMES = (
    *("terrible candidates", "as good as the incumbent", "slightly worse", "better, then terrible"),
    *("fifty candidates", "failures arrive late", "successes arrive late"),
    *("failures get lost", "successes get lost", "returns between 0 and 1"),
)
CONTROL = "failures arrive late, as they arrive"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "canary.py"
    found = importlib.util.spec_from_file_location("canary_benchmark", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Named tuples are looked up by the name of their module.
    sys.modules["canary_benchmark"] = module
    found.loader.exec_module(module)
    return module


def test_every_case_of_the_benchmark_is_tested(benchmark: ModuleType) -> None:
    assert set(benchmark.CASES) == {*NAMES, CONTROL}


@pytest.mark.parametrize("name", NAMES)
def test_no_more_runs_break_the_promise_than_delta(benchmark: ModuleType, name: str, first_seed: int) -> None:
    chance = np.random.default_rng(first_seed)
    case = benchmark.CASES[name]
    runs = [benchmark.coins(case, chance, episodes=EPISODES, delta=DELTA) for _ in range(RUNS)]
    broken = sum(worst > benchmark.ETA + 1e-12 for _, worst in runs)
    assert clopper_pearson(broken, RUNS, 0.999).low <= DELTA
    # It is not kept by doing nothing.
    assert all(release.candidate is not None or len(release.changes) > 0 for release, _ in runs)
    assert np.mean([release.probability for release, _ in runs if release.candidate is not None] or [1]) > 0.1


def test_counting_returns_as_they_arrive_would_break_it(benchmark: ModuleType, first_seed: int) -> None:
    chance = np.random.default_rng(first_seed)
    runs = [benchmark.coins(benchmark.CASES[CONTROL], chance, episodes=800) for _ in range(10)]
    assert all(worst > benchmark.ETA for _, worst in runs)


def test_better_candidates_are_promoted_and_terrible_ones_dropped(benchmark: ModuleType) -> None:
    case = benchmark.CASES["better, then terrible"]
    release, worst = benchmark.coins(case, np.random.default_rng(3), episodes=1500)
    assert [change.kind for change in release.changes] == ["promoted", "dropped", "dropped"]
    assert release.incumbent.number == 2
    for change in release.changes:
        above, below = change.candidate, change.incumbent
        if change.kind == "dropped":
            above, below = below, above
        assert above.lower > below.upper
        assert 0 < change.probability <= 1
    assert worst <= benchmark.ETA


def two_arms(good: float) -> FiniteMDP:
    """Return one decision between an action worth .5 and another, then the end."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = (0.0, 0.5, 0.5), (0.0, 1 - good, good)
    P[1:, :, 1] = 1.0
    R = np.zeros((3, 2, 3))
    R[0, :, 2] = 1.0
    return FiniteMDP.from_arrays(P, R, horizon=2, start=[1.0, 0.0, 0.0], terminal=[1, 2], value_cap=1.0)


@pytest.mark.parametrize("candidates", ["posterior", "lower"])
def test_a_better_policy_is_found_and_promoted(candidates: str) -> None:
    spec = chary.Canary(eta=0.1, prior=[0, 0, 0], candidates=candidates, bonus="hoeffding", bonus_scale=0.02)
    promoted = 0
    for seed in range(3):
        run = chary.simulate(two_arms(0.9), spec, episodes=1500, warmup=50, seed=seed)
        assert run.canary is not None
        found = run.canary.summary(0.1, 1.0)
        promoted += found["promoted"]
        assert found["breaches"] == 0
        assert run.regret[-100:].sum() < run.regret[:100].sum()
    assert promoted == 3


def test_an_optimal_incumbent_is_never_replaced() -> None:
    mdp = two_arms(0.35)
    spec = chary.Canary(eta=0.1, prior=Truth(mdp).optimal_policy[0])
    for seed in range(20):
        run = chary.simulate(mdp, spec, episodes=300, warmup=6, seed=seed)
        assert run.canary is not None
        assert [change.kind for change in run.canary.changes if change.kind == "promoted"] == []
        assert run.canary.loss.max() <= 0.1


def test_the_loss_before_the_coin_is_the_truth() -> None:
    mdp = two_arms(0.35)
    spec = chary.Canary(eta=0.05, prior=[0, 0, 0])
    # Little data: by some seeds the worse action looks better.
    tried = (chary.simulate(mdp, spec, episodes=200, warmup=4, seed=seed) for seed in range(30))
    run = next(run for run in tried if run.canary is not None and (run.canary.policy > 1).any())
    assert run.canary is not None
    candidates = run.canary.policy > 1
    # The only candidate there is plays the other action: it loses .15.
    assert candidates.any()
    np.testing.assert_allclose(run.canary.loss[candidates], 0.15 * run.canary.probability[candidates])
    values: Floats = np.where(candidates, 0.35, 0.5)
    np.testing.assert_allclose(run.regret, 0.5 - values)
    assert (run.true_deficit[candidates] > 0.05).all()
    assert run.standing.label == "certified per run (0.9), before the coin"
