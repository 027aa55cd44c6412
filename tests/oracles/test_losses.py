"""Lost outcomes, section 10: the compiled planner against the reference, and against every completion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.test_kernels import ROUNDING, Log, draw_mdp, observe, tolerance_of

from chary.arrays import Bools
from chary.mdp import FiniteMDP, Setting
from chary.model.bounds import FAMILIES, Bounds
from chary.model.knowledge import Knowledge
from chary.planner._backup import UPPER
from chary.planner.plan import TabularPlan, policy_values
from chary.reference import charges as reference_charges
from chary.reference import planner as reference
from chary.reference.planner import Confidence, Tally

seeds = st.integers(0, 2**32 - 1)
LOST = -1


def with_lost_states(setting: Setting, lossy: Bools) -> Setting:
    """Return the problem with one more state per pair, in which its lost outcomes end."""
    S, A, P = setting.n_states, setting.n_actions, setting.n_pairs
    allowed = np.zeros((S + P, A), dtype=bool)
    allowed[:S] = setting.allowed
    support = np.ones((S + P, A), dtype=np.int64)
    states, actions = np.nonzero(setting.pair_index >= 0)
    support[states, actions] = (setting.support + lossy)[setting.pair_index[states, actions]]
    return Setting.declare(
        n_states=S + P,
        n_actions=A,
        horizon=setting.horizon,
        allowed=allowed,
        terminal=[*np.flatnonzero(setting.terminal), *range(S, S + P)],
        discount=setting.discount,
        support=support,
    )


def lose_some(log: Log, rng: np.random.Generator) -> Log:
    gone = rng.random(len(log.pair)) < rng.choice([0.02, 0.2, 0.6])
    return log._replace(successor=np.where(gone, LOST, log.successor), reward=np.where(gone, 0.0, log.reward))


def learnt(mdp: FiniteMDP, log: Log, bounds: Bounds, *, losses: bool) -> Knowledge:
    knowledge = Knowledge.empty(mdp.setting, bounds, episodes=50, total_episodes=60)
    if losses:
        knowledge.expect_losses()
    for piece in np.array_split(np.arange(len(log.pair)), 3):
        knowledge.learn(log.state[piece], log.pair[piece], log.successor[piece], log.reward[piece])
    return knowledge


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@given(seed=seeds)
def test_lost_outcomes_enter_bounds_and_charges_as_the_reference_has_them(
    family: str, losses: bool, seed: int
) -> None:
    rng, tolerance = np.random.default_rng(seed), tolerance_of(family, "estimated")
    mdp = draw_mdp(rng)
    S, P = mdp.n_states, mdp.setting.n_pairs
    # Wide bonuses are clipped, and would agree whatever they are.
    bounds = Bounds(family=family, delta=0.1, scale=1.0 if family in ("l1", "kl") else 0.01)
    log = lose_some(observe(mdp, rng, "estimated"), rng)
    # By pair: the states that stand for lost outcomes then have the same order in both, which settles ties.
    order = np.argsort(log.pair, kind="stable")
    log = Log(log.state[order], log.pair[order], log.successor[order], log.reward[order])
    knowledge = learnt(mdp, log, bounds, losses=losses)
    plan = TabularPlan(mdp.setting, knowledge, np.full(S, -1), charge="difference")

    lossy = np.zeros(P, dtype=bool)
    lossy[log.pair[log.successor == LOST]] = True
    setting = with_lost_states(mdp.setting, lossy | losses)
    reached = np.where(log.successor == LOST, S + log.pair, log.successor)
    counts, earned, squares = np.zeros((P, S + P)), np.zeros((P, S + P)), np.zeros(P)
    np.add.at(counts, (log.pair, reached), 1.0)
    np.add.at(earned, (log.pair, reached), log.reward)
    np.add.at(squares, log.pair, log.reward**2)
    tally = Tally(counts, earned, squares)
    confidence = Confidence(
        setting=setting, bounds=bounds, episodes=50, total_episodes=60, lost_from=S, losses=losses
    )
    lower = reference.backward(tally, confidence, sign=-1)
    upper = reference.backward(tally, confidence, sign=+1, policy=lower.policy)
    np.testing.assert_allclose(plan.arrays.v_lower[:, :S], lower.V[:, :S], atol=tolerance)
    if not np.array_equal(plan.arrays.baseline[:, :S], lower.policy[:, :S]):
        # Equal values to rounding, another action: charges have another baseline.
        return
    np.testing.assert_allclose(plan.arrays.v_upper[:, :S], upper.V[:, :S], atol=tolerance)
    D = reference_charges.differences(tally, confidence, lower.policy, lower.V, upper.V)
    coupled = TabularPlan(mdp.setting, knowledge, np.full(S, -1), charge="coupled")
    for t in range(setting.horizon):
        for s in np.flatnonzero(~mdp.setting.terminal).tolist():
            for a in np.flatnonzero(mdp.setting.allowed[s]).tolist():
                expected = reference_charges.charge_coupled(tally, confidence, lower, upper, t, s, a)
                assert coupled.charge(t, s, a) == pytest.approx(expected, abs=tolerance)
                expected = reference_charges.charge_difference(tally, confidence, lower, upper, D, t, s, a)
                assert plan.charge(t, s, a) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("losses", [False, True])
@given(seed=seeds)
def test_bounds_with_losses_contain_the_values_of_every_completion(losses: bool, seed: int) -> None:
    """With exact radii, so that nothing but the lost outcomes separates the two bounds."""
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    S = mdp.n_states
    bounds = Bounds(family="hoeffding", scale=1e-12, delta=0.1)
    whole = observe(mdp, rng, "estimated")
    lost = lose_some(whole, rng)
    between = learnt(mdp, lost, bounds, losses=losses)
    exact = learnt(mdp, whole, bounds, losses=False)
    policy = TabularPlan(mdp.setting, exact, np.full(S, -1)).arrays.baseline
    played = mdp.setting.pair_index[np.arange(S), policy] if S else policy
    seen = {int(p) for p in whole.pair}
    if any(int(p) not in seen for p in played[:, ~mdp.setting.terminal].ravel()):
        return
    value = policy_values(exact, policy, UPPER)[0, :S]
    assert (policy_values(between, policy, -UPPER)[0, :S] <= value + ROUNDING).all()
    assert (policy_values(between, policy, UPPER)[0, :S] >= value - ROUNDING).all()


@given(seed=seeds)
def test_knowledge_with_losses_comes_back_from_its_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    bounds = Bounds(family="kl", delta=0.1)
    knowledge = learnt(mdp, lose_some(observe(mdp, rng, "estimated"), rng), bounds, losses=False)
    again = Knowledge.empty(mdp.setting, bounds, episodes=50, total_episodes=60)
    again.restore(knowledge.to_arrays())
    one, other = (TabularPlan(mdp.setting, each, np.full(mdp.n_states, -1)) for each in (knowledge, again))
    assert np.array_equal(one.arrays.v_upper, other.arrays.v_upper)
    assert np.array_equal(one.arrays.v_lower, other.arrays.v_lower)
