"""Role `floor`: with probability 1 - delta its baseline is nowhere worse than the user's policy."""

from __future__ import annotations

import numpy as np

from chary import Baseline, FiniteMDP, OwnBaseline, TabularAgent, Transition, envs
from chary.arrays import Floats, Ints
from chary.reference.planner import exact

DELTA = 0.1
TRIALS = 30


def logged(mdp: FiniteMDP, policy: Ints, share: float, episodes: int, seed: int) -> list[list[Transition]]:
    """Return episodes that follow `policy` at a share of the steps, and play anything else at the others."""
    rng, played = np.random.default_rng([seed, 1]), []
    for _ in range(episodes):
        s, steps = int(rng.choice(mdp.n_states, p=mdp.start)), []
        for t in range(mdp.horizon):
            others = np.flatnonzero(np.arange(mdp.n_actions) != policy[t, s])
            a = int(policy[t, s] if rng.random() < share else rng.choice(others))
            successors, chances, rewards = mdp.row(s, a)
            i = int(rng.choice(len(successors), p=chances))
            steps.append(Transition(s, a, float(rewards[i]), int(successors[i]), terminated=False))
            s = int(successors[i])
        played.append(steps)
    return played


def lost_by_the_floor(mdp: FiniteMDP, policy: Ints, episodes: list[list[Transition]]) -> Floats:
    """Return by how much the true value of the floor's baseline is below the policy's, (H + 1, S)."""
    own = OwnBaseline.declare(policy, mdp.setting, role="floor")
    agent = TabularAgent(Baseline(bonus="kl", delta=DELTA), mdp.setting, own=own)
    agent.warm_start(episodes)
    lost: Floats = exact(mdp, policy).V - exact(mdp, agent.plan.arrays.baseline).V
    return lost


def test_an_optimal_policy_is_not_replaced_by_a_worse_one() -> None:
    """Lower bound against lower bound replaced it in 30 of 30 trials, by 1.2 of 6 in the median."""
    worse = 0
    for seed in range(TRIALS):
        mdp = envs.random(n_states=6, n_actions=3, horizon=6, seed=seed)
        policy = exact(mdp).policy
        lost = lost_by_the_floor(mdp, policy, logged(mdp, policy, 0.05, 150, seed))
        worse += bool(lost.max() > 1e-9)
    assert worse == 0


def test_a_bad_policy_is_replaced_where_the_data_show_a_better_one_and_nowhere_gets_worse() -> None:
    better = 0
    for seed in range(TRIALS):
        mdp = envs.random(n_states=3, n_actions=2, horizon=4, successors=2, seed=seed)
        policy = 1 - exact(mdp).policy
        lost = lost_by_the_floor(mdp, policy, logged(mdp, policy, 0.5, 1500, seed))
        assert lost.max() <= 1e-9
        better += bool(mdp.start @ lost[0] < -0.01)
    assert better >= 0.9 * TRIALS
