"""The promise of linear worlds on linear MDPs, and the residual test where features are right and wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from chary.agents.protocol import Transition
from chary.envs.linear_mdp import LinearMDP, linear_mdp
from chary.linear import LinearAgent, LinearModel, LinearOptions, Misfit, one_hot, own
from chary.statistics.binomial import clopper_pearson

H, ETA, RISK, ACTIONS = 8, 0.3, 0.05, 3


class Played(NamedTuple):
    """True deficits by episode, the steps that deviated, and the agent."""

    deficits: list[float]
    deviations: int
    agent: LinearAgent


def started(mdp: LinearMDP, seed: int, *, episodes: int, columns: int | None = None) -> LinearAgent:
    """Return an agent that has learnt random episodes, with all features or the first `columns`."""
    model = LinearModel(low=0, high=1, worlds=40, explorers=8, risk=RISK, prior=1.0, held_out=0.25)
    features = own(lambda x: mdp.features(x)[:, :columns], 1)
    agent = LinearAgent(
        LinearOptions(model=model, eta=ETA, radius=0.0), observation_size=1, n_actions=ACTIONS, horizon=H,
        features=features, ahead=one_hot(len(mdp.phi)), seed=seed,
    )  # fmt: skip
    rng, log = np.random.default_rng(1000 + seed), []
    for _ in range(episodes):
        s, steps = int(rng.integers(len(mdp.phi))), []
        for _ in range(H):
            a = int(rng.integers(ACTIONS))
            x = int(rng.choice(len(mdp.phi), p=mdp.p[s, a]))
            steps.append(Transition([s], a, mdp.r[s, a], [x], False))
            s = x
        log.append(steps)
    agent.warm_start(log)
    return agent


def played(mdp: LinearMDP, agent: LinearAgent, seed: int, episodes: int) -> Played:
    rng, S = np.random.default_rng(2000 + seed), len(mdp.phi)
    deficits, deviations = [], 0
    last, v, q, policy = None, np.zeros(0), np.zeros(0), np.zeros((H, S), dtype=np.int64)
    for k in range(episodes):
        s = int(rng.integers(S))
        agent.begin(k, [s])
        plan = agent.plan_of(k)
        if plan is not last:
            last = plan
            policy = np.array([[plan.baseline(t, np.array([float(x)])) for x in range(S)] for t in range(H)])
            v, q = mdp.value(policy, 1.0)
        lost = 0.0
        for t in range(H):
            a = agent.act(k, t, [s]).action
            lost += max(v[t, s] - q[t, s, a], 0.0)
            deviations += a != policy[t, s]
            x = int(rng.choice(S, p=mdp.p[s, a]))
            agent.observe(k, Transition([s], a, mdp.r[s, a], [x], False))
            s = x
        agent.finish(k)
        deficits.append(lost)
    return Played(deficits, deviations, agent)


def test_the_risk_is_kept_where_the_model_is_true() -> None:
    # Episodes of one run are dependent: seven runs of 25 episodes, and a bound as for so many alone.
    broken = total = deviations = 0
    for seed in range(7):
        mdp = linear_mdp(seed=seed)
        run = played(mdp, started(mdp, seed, episodes=15), seed, 25)
        broken += sum(lost > ETA + 1e-9 for lost in run.deficits)
        total += len(run.deficits)
        deviations += run.deviations
        assert run.agent.standing.level == "credible"
    assert deviations > 20
    low, _ = clopper_pearson(broken, total, confidence=1 - 1e-4)
    assert low <= RISK


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_residual_test_is_silent_where_features_are_right(seed: int) -> None:
    agent = started(linear_mdp(seed=seed), seed, episodes=300)
    found = agent.misfit
    assert found.tested
    assert found.transitions > 500
    assert not found.found
    assert agent.standing.level == "credible"
    assert "does not contradict" in agent.standing.describe()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_residual_test_fires_where_features_are_missing(seed: int) -> None:
    agent = started(linear_mdp(seed=seed), seed, episodes=600, columns=1)
    found: Misfit = agent.misfit
    assert found.found
    assert 0.0 < found.systematic < found.residual
    # A promise that leans on a model that was contradicted is none.
    standing = agent.standing
    assert (standing.level, standing.probability) == ("uncertified", None)
    assert standing.given[0] == found.describe()


def test_p_values_are_uniform_enough_where_the_model_is_true() -> None:
    found = [started(linear_mdp(seed=20 + i), 20 + i, episodes=150).misfit.p for i in range(12)]
    # Of twelve uniform draws one is above .43 but for 4e-5, and none is below 1e-5 but for 1.2e-4.
    assert max(found) > 0.43
    assert min(found) > 1e-5
