"""The law of a chain is its explorer's, docs/algorithm.md section 4: chi-square tests over independent runs.

The problem has two states, of which the better one is worth going to early (action 1) but not at the
last step (action 0), so that an explorer depends on its clock. Lower bounds are clipped at 0 throughout,
so that the baseline is the prior, action 0: nearly every exploring step differs from it, costs more than
half the budget, and ends exploration for the episode under rule `paper`. A chain of three steps is stitched
together from up to three episodes. All tests have significance 1e-4.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from chary.agents import UCBVI, CharyUCBVI
from chary.arrays import Floats, Ints
from chary.audit import Truth
from chary.mdp import FiniteMDP
from chary.simulation import simulate
from chary.simulation.run import Run

ALPHA = 1e-4
H = 3
P = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.3, 0.7]]])
R = np.array([[0.08, 0.0], [0.0, 0.25]])
START = np.array([0.7, 0.3])
MDP = FiniteMDP.from_arrays(P, R, horizon=H, start=START)
CELLS = 2 ** (H + 1)

LAWFUL: dict[str, Any] = {"clock": "meta", "data": "meta", "pool": 1, "patience": None}


def spec(bonus_scale: float, **options: Any) -> CharyUCBVI:
    return CharyUCBVI(
        rule="paper",
        eta=0.2,
        bonus="hoeffding",
        bonus_scale=bonus_scale,
        prior=[0, 0],
        **{**LAWFUL, **options},
    )


def in_order_of_completion(run: Run) -> Ints:
    finished = np.flatnonzero(run.chains.episodes)
    return finished[np.argsort((run.chains.born + run.chains.episodes)[finished], kind="stable")]


def path(run: Run, m: int) -> int:
    """Return the number of the states s_0, ..., s_H that chain m went through."""
    steps = run.steps
    assert steps is not None
    k, t = (index[:H] for index in np.nonzero(steps.chain == m))
    states = [*steps.state[k, t], steps.state[k[-1], t[-1] + 1]]
    return int(np.ravel_multi_index(tuple(states), (2,) * (H + 1)))


# One sample: the explorer is known


EPISODES, WARMUP, SCALE = 100, 1000, 0.2


def rollout_law(policy: Ints) -> Floats:
    """Return the probability of every path under `policy`, (H, 2), from the MDP's own numbers."""
    law = np.zeros((2,) * (H + 1))
    for states in np.ndindex(law.shape):
        law[states] = START[states[0]]
        for t in range(H):
            law[states] *= P[states[t], policy[t, states[t]], states[t + 1]]
    return law.reshape(-1)


def chain_paths(runs: int, chains: int, first_seed: int, **options: Any) -> Ints:
    """Return the paths of the first `chains` chains that finish in each of `runs` runs."""
    paths = []
    for seed in range(first_seed, first_seed + runs):
        run = simulate(
            MDP, spec(SCALE, **options), episodes=EPISODES, warmup=WARMUP, seed=seed, record_steps=True
        )
        finished = in_order_of_completion(run)
        # Nothing may be left out: the chains that a run does not finish are not like those it does.
        assert len(finished) >= chains
        paths += [path(run, int(m)) for m in finished[:chains]]
    return np.array(paths)


def p_value(paths: Ints, law: Floats) -> float:
    """Return the p-value of the chi-square test, cells with an expectation below 5 taken together."""
    found, expected = np.bincount(paths, minlength=CELLS), law * len(paths)
    rare = expected < 5
    found, expected = (np.append(a[~rare], a[rare].sum()) for a in (found, expected))
    keep = expected > 0
    return float(stats.chisquare(found[keep], expected[keep]).pvalue)


def test_the_explorer_depends_on_its_clock_and_differs_from_the_baseline() -> None:
    best = Truth(MDP).optimal_policy
    assert best.tolist() == [[1, 1], [1, 1], [0, 1]]
    run = simulate(MDP, spec(SCALE), episodes=EPISODES, warmup=WARMUP, seed=0, record_steps=True)
    # Every one of these chains took three episodes: what is tested is stitching.
    assert (run.chains.fed[in_order_of_completion(run)] == H).all()
    assert run.deviating_steps.sum() >= EPISODES // 2


def test_finished_chains_are_distributed_like_the_explorers_own_rollouts(first_seed: int) -> None:
    law = rollout_law(Truth(MDP).optimal_policy)
    assert p_value(chain_paths(300, 5, first_seed), law) > ALPHA


@pytest.mark.slow
def test_ten_times_as_many_chains_are_distributed_like_rollouts_too(first_seed: int) -> None:
    law = rollout_law(Truth(MDP).optimal_policy)
    assert p_value(chain_paths(3000, 5, first_seed), law) > ALPHA


@pytest.mark.parametrize("broken", [{"clock": "episode"}, {"pool": 1000}], ids=str)
def test_the_test_rejects_what_has_another_law(broken: dict[str, Any], first_seed: int) -> None:
    # By the wrong clock; or of many chains at once the first to finish, which are those of frequent states.
    law = rollout_law(Truth(MDP).optimal_policy)
    assert p_value(chain_paths(150, 5, first_seed, **broken), law) < ALPHA


# Two samples: the explorer learns


NUMBER, LEARNING_SCALE = 4, 0.02
LEARNING: dict[str, Any] = {"episodes": 60, "warmup": 5, "record_steps": True}


def numbered_paths(runs: int, first_seed: int, **options: Any) -> Ints:
    """Return the path of the chain that is the fifth to finish in each run."""
    paths = []
    for seed in range(first_seed, first_seed + runs):
        run = simulate(MDP, spec(LEARNING_SCALE, **options), seed=seed, **LEARNING)
        finished = in_order_of_completion(run)
        assert len(finished) > NUMBER
        paths.append(path(run, int(finished[NUMBER])))
    return np.array(paths)


@cache
def episode_paths(runs: int, first_seed: int) -> Ints:
    """Return the path of UCBVI's fifth episode in each run."""
    paths = []
    for seed in range(first_seed, first_seed + runs):
        agent = UCBVI(bonus="hoeffding", bonus_scale=LEARNING_SCALE)
        run = simulate(MDP, agent, seed=seed, **LEARNING)
        assert run.steps is not None
        paths.append(int(np.ravel_multi_index(tuple(run.steps.state[NUMBER]), (2,) * (H + 1))))
    return np.array(paths)


def same_law(one: Ints, other: Ints) -> float:
    """Return the p-value of the chi-square test of homogeneity, rare paths taken together."""
    table = np.array([np.bincount(paths, minlength=CELLS) for paths in (one, other)])
    rare = table.sum(axis=0) < 10
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    return float(stats.chi2_contingency(table[:, table.any(axis=0)], correction=False).pvalue)


def check_mimicry(runs: int, first_seed: int) -> None:
    ours, theirs = numbered_paths(runs, first_seed), episode_paths(runs, first_seed + 50_000)
    assert same_law(ours, theirs) > ALPHA


def test_with_meta_data_the_run_mimics_ucbvi(first_seed: int) -> None:
    check_mimicry(400, first_seed)


@pytest.mark.slow
def test_ten_times_as_many_runs_mimic_ucbvi_too(first_seed: int) -> None:
    check_mimicry(4000, first_seed)


@pytest.mark.parametrize(
    ("runs", "broken"),
    [
        pytest.param(1000, {"clock": "episode"}, marks=pytest.mark.slow),
        (400, {"data": "all"}),
        (400, {"pool": 1000}),
    ],
    ids=str,
)
def test_the_test_rejects_what_does_not_mimic_ucbvi(
    runs: int, broken: dict[str, Any], first_seed: int
) -> None:
    theirs = episode_paths(runs, first_seed + 50_000)
    assert same_law(numbered_paths(runs, first_seed, **broken), theirs) < ALPHA
