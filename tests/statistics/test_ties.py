"""No result depends on the order of the actions' labels, as it did with ties to the lowest index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from chary import FiniteMDP, make_agent, simulate
from chary.arrays import Floats, Ints

ALPHA = 1e-4
S, A, H = 6, 5, 6
EPISODES, RUNS = 60, 40
# Bounds so wide that they are clipped: ties are the rule, as they are for long on real problems.
AGENTS: dict[str, dict[str, Any]] = {
    "baseline": {"bonus": "kl"},
    "chary": {"bonus": "hoeffding", "eta": 0.5, "rule": "unlimited"},
    "ucbvi": {"bonus": "hoeffding"},
    "stepmix": {"bonus": "kl", "eta": 0.5},
}


def ordered(seed: int) -> FiniteMDP:
    """Return a random problem whose actions are numbered from the best to the worst."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.5), size=(S, A))
    return FiniteMDP.from_arrays(P, -np.sort(-rng.random((S, A)), axis=1), horizon=H, start=np.full(S, 1 / S))


def regrets(mdp: FiniteMDP, agent: str, ties: str, first_seed: int) -> Floats:
    spec = make_agent(agent, ties=ties, **AGENTS[agent])
    runs = (simulate(mdp, spec, episodes=EPISODES, seed=first_seed + i) for i in range(RUNS))
    return np.array([run.regret.sum() for run in runs])


def difference(agent: str, ties: str, first_seed: int) -> float:
    """Return the p-value of the hypothesis that regret is the same with the labels in reverse order."""
    mdp = ordered(first_seed)
    backwards: Ints = np.tile(np.arange(A)[::-1], (S, 1))
    # Other seeds for the other labelling: the runs are independent.
    found = (
        regrets(mdp, agent, ties, first_seed),
        regrets(mdp.relabelled(backwards), agent, ties, first_seed + RUNS),
    )
    return float(ttest_ind(*found, equal_var=False).pvalue)


@pytest.mark.parametrize("agent", AGENTS)
def test_regret_does_not_depend_on_the_order_of_labels(agent: str, first_seed: int) -> None:
    assert difference(agent, "shuffled", first_seed) > ALPHA


@pytest.mark.parametrize("agent", AGENTS)
def test_with_ties_to_the_lowest_index_it_does(agent: str, first_seed: int) -> None:
    assert difference(agent, "index", first_seed) < ALPHA
