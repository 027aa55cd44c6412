"""What the simulated worlds draw, against the probabilities they were built from: chi-square at 1e-4."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from chary import envs
from chary.agents import Random
from chary.arrays import Floats
from chary.envs import TabularEnv
from chary.mdp import FiniteMDP
from chary.simulation import simulate

ALPHA = 1e-4
FEWEST = 5.0

PROBLEMS = {
    "inventory": envs.inventory(),
    "corridor": envs.corridor(),
    "riverswim": envs.riverswim(),
    "random": envs.random(n_states=8, horizon=12, seed=3),
    "sepsis": envs.sepsis(),
}


def counts_of_compiled(mdp: FiniteMDP, episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Return counts of the first states, (S,), and of the transitions of every pair, (P, S)."""
    # Its bounds are not used, but judged: the cheapest will do.
    run = simulate(mdp, Random(bonus="hoeffding"), episodes=episodes, seed=seed, record_steps=True)
    assert run.steps is not None
    start = np.bincount(run.steps.state[:, 0], minlength=mdp.n_states).astype(float)
    moves = np.zeros((mdp.setting.n_pairs, mdp.n_states))
    k, t = np.nonzero(run.steps.action >= 0)
    s, a, x = run.steps.state[k, t], run.steps.action[k, t], run.steps.state[k, t + 1]
    np.add.at(moves, (mdp.setting.pair_index[s, a], x), 1.0)
    return start, moves


def counts_of_environment(mdp: FiniteMDP, episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Return the same, played through Gymnasium."""
    env = TabularEnv(mdp)
    env.action_space.seed(seed)
    start, moves = np.zeros(mdp.n_states), np.zeros((mdp.setting.n_pairs, mdp.n_states))
    for k in range(episodes):
        s, _ = env.reset(seed=seed if k == 0 else None)
        start[s] += 1
        over = False
        while not over:
            a = env.action_space.sample()
            x, _, terminated, truncated, _ = env.step(a)
            moves[mdp.setting.pair_index[s, a], x] += 1
            s, over = x, terminated or truncated
    return start, moves


def probabilities(mdp: FiniteMDP) -> Floats:
    rows = np.zeros((mdp.setting.n_pairs, mdp.n_states))
    for p in range(mdp.setting.n_pairs):
        span = slice(mdp.row_start[p], mdp.row_start[p + 1])
        rows[p, mdp.successor[span]] = mdp.probability[span]
    return rows


def p_value(found: Floats, rows: Floats) -> float:
    """Return the p-value of the summed chi-squares of all rows, rare cells of a row taken together.

    Given how often each row was drawn from, rows are independent multinomials.
    """
    total, freedom = 0.0, 0
    for counts, row in zip(found, rows, strict=True):
        assert not counts[row == 0].any()
        expected = counts.sum() * row
        rare = expected < FEWEST
        seen, due = (np.append(a[~rare], a[rare].sum()) for a in (counts, expected))
        kept = due >= FEWEST
        if kept.sum() < 2:
            continue
        # What is left of a row keeps its probabilities relative to each other.
        seen, due = seen[kept], due[kept] * seen[kept].sum() / due[kept].sum()
        total += float(((seen - due) ** 2 / due).sum())
        freedom += int(kept.sum()) - 1
    assert freedom > 0
    return float(stats.chi2.sf(total, freedom))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_compiled_world_draws_from_the_rows_of_its_mdp(problem: str, first_seed: int) -> None:
    mdp = PROBLEMS[problem]
    start, moves = counts_of_compiled(mdp, 1000, first_seed)
    assert p_value(moves, probabilities(mdp)) > ALPHA
    if (mdp.start > 0).sum() > 1:
        assert p_value(start[None], mdp.start[None]) > ALPHA


@pytest.mark.parametrize("problem", ["inventory", "random"])
def test_the_environment_draws_from_the_rows_of_its_mdp(problem: str, first_seed: int) -> None:
    mdp = PROBLEMS[problem]
    start, moves = counts_of_environment(mdp, 400, first_seed)
    assert p_value(moves, probabilities(mdp)) > ALPHA
    if (mdp.start > 0).sum() > 1:
        assert p_value(start[None], mdp.start[None]) > ALPHA


def test_the_test_rejects_rows_that_are_off_by_a_tenth(first_seed: int) -> None:
    mdp = PROBLEMS["random"]
    _, moves = counts_of_compiled(mdp, 1000, first_seed)
    rows = probabilities(mdp)
    other = 0.9 * rows + 0.1 * np.roll(rows, 1, axis=1)
    assert p_value(moves, other) < ALPHA


def test_random_actions_are_uniform_over_the_allowed_ones(first_seed: int) -> None:
    mdp = PROBLEMS["inventory"]
    _, moves = counts_of_compiled(mdp, 1000, first_seed)
    setting = mdp.setting
    played, due = np.zeros((2, mdp.n_states, mdp.n_actions))
    played[setting.allowed] = moves.sum(axis=1)
    due[setting.allowed] = 1.0
    assert p_value(played, due / due.sum(axis=1, keepdims=True)) > ALPHA
