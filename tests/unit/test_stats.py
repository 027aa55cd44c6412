"""What an agent at work tells about itself, and the one warning when exploration has stalled."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from chary import Setting, TabularAgent, Transition, envs, rollout
from chary.agents import UCBVI, Canary, CharyUCBVI, Stats
from chary.agents.canary_agent import CanaryAgent
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.rollouts import Episode
from chary.shield import Rule, Shield
from chary.shield.watch import STALLED_AFTER, Watch


class Costly:
    """Exploring means action 1, whose charge is `cost`."""

    def __init__(self, cost: float) -> None:
        self.cost = cost

    def explore(self, chain: int, clock: int, s: str) -> int:
        return 1

    def baseline(self, t: int, s: str) -> int:
        return 0

    def charge(self, t: int, s: str, a: int) -> float:
        return self.cost * a


def played(shield: Shield[str], cost: float, states: str, name: int = 0) -> None:
    """Play one episode through states that are named by letters."""
    shield.begin(name, Costly(cost))
    for t, s in enumerate(states[:-1]):
        shield.decide(name, t, s)
        shield.observe(name, states[t + 1], terminated=False)
    shield.finish(name)


def test_every_step_explored_or_has_one_reason() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.5), horizon=2, pool=1)
    # 0.3 is afforded once; the second step is refused in b, where the chain waits from now on.
    played(shield, 0.3, "abc")
    # The chain's target is b: in a the pool has no place for another, in c nobody waits.
    played(shield, 0.3, "acd")
    assert (shield.watch.steps, shield.watch.explored) == (4, 1)
    assert shield.watch.reasons == {"budget": 1, "closed": 0, "pool": 1, "target": 1}
    assert (shield.open_chains, shield.waiting_chains, shield.free_places) == (1, 1, 0)


def test_a_closed_ledger_is_a_reason_of_its_own() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1, after_refusal="close"), horizon=3)
    played(shield, 0.3, "abcd")
    assert shield.watch.reasons == {"budget": 1, "closed": 2, "pool": 0, "target": 0}


def test_a_decision_that_is_repeated_counts_once() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=1)
    shield.begin(0, Costly(0.3))
    assert shield.decide(0, 0, "a") == shield.decide(0, 0, "a")
    assert shield.watch.steps == 1


def test_a_stall_is_reported_once_with_its_reason_and_a_way_out(caplog: pytest.LogCaptureFixture) -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=1)
    with caplog.at_level(logging.WARNING, "chary"):
        for episode in range(STALLED_AFTER - 1):
            played(shield, 0.3, "ab", episode)
        assert not caplog.messages
        for episode in range(2 * STALLED_AFTER):
            played(shield, 0.3, "ab", episode)
    (message,) = caplog.messages
    assert f"the last {STALLED_AFTER} episodes explored nothing" in message
    assert "In 100% of their steps the budget did not afford what was proposed. Raise eta" in message


@pytest.mark.parametrize("rule", [Rule.closed(), Rule.strict(0.0)])
def test_without_a_budget_to_spend_nothing_has_stalled(rule: Rule, caplog: pytest.LogCaptureFixture) -> None:
    shield: Shield[str] = Shield(rule, horizon=1)
    for episode in range(STALLED_AFTER + 1):
        played(shield, 0.3, "ab", episode)
    assert not caplog.messages


def test_exploration_ends_the_silence_and_the_reasons_before_it() -> None:
    watch = Watch()
    for _ in range(STALLED_AFTER - 1):
        watch.decided(explored=False, reason="budget")
        watch.ended(0, Rule.strict(1.0))
    watch.decided(explored=True, reason="target")
    watch.ended(1, Rule.strict(1.0))
    watch.decided(explored=False, reason="pool")
    watch.ended(0, Rule.strict(1.0))
    assert (watch.quiet, watch.warned) == (1, False)
    assert "the pool had no place" in watch.verdict()


def shares(stats: Stats) -> float:
    assert stats.refused is not None
    return stats.explored + sum(stats.refused.values())


def test_the_stats_of_a_tabular_agent_agree_with_its_shield_and_add_up() -> None:
    env, mdp = envs.TabularEnv(envs.make("riverswim")), envs.make("riverswim")
    agent = TabularAgent(CharyUCBVI(eta=0.3, pool=2, patience=3), mdp.setting)
    deviated: list[bool] = []

    def compare(episode: Episode) -> None:
        plan = agent.plan_of(episode.number)
        pairs = enumerate(zip(episode.transitions, episode.decisions, strict=True))
        deviated.extend(each.action != plan.baseline(t, step.state) for t, (step, each) in pairs)

    for _ in rollout(env, agent, episodes=8, seed=1, before_finish=compare):
        pass
    assert agent.stats().deviating == np.mean(deviated) > 0
    assert f"{np.mean(deviated):.1%} deviated from the baseline" in agent.stats().describe()
    agent.begin("open", 0)
    decision = agent.act("open", 0, 0)
    stats, shield = agent.stats(), agent.shield
    assert shield is not None
    assert (stats.episodes, stats.open_episodes, stats.outstanding) == (9, 1, 1)
    assert stats.steps == 8 * mdp.horizon + 1
    assert shares(stats) == pytest.approx(1.0)
    assert (stats.chains_open, stats.chains_started) == (shield.open_chains, shield.started)
    assert stats.free_places == 2 - shield.open_chains
    assert stats.chains_started == shield.open_chains + shield.finished + shield.abandoned
    assert (stats.chains_blocked, stats.standing) == (shield.blocked, agent.standing)
    assert "9 episodes begun, 1 open, 1 outcomes outstanding" in stats.describe()
    agent.observe("open", Transition(0, decision.action, 0.0, 0, terminated=False))
    assert agent.stats().outstanding == 0


def test_agents_without_a_shield_have_no_chains_to_tell_of() -> None:
    setting = Setting.declare(n_states=2, n_actions=2, horizon=2)
    agent = TabularAgent(UCBVI(), setting)
    agent.begin(0, 0)
    agent.act(0, 0, 0)
    stats = agent.stats()
    assert (stats.steps, stats.refused, stats.chains_open, stats.free_places) == (1, None, None, None)
    canary = CanaryAgent(Canary(eta=0.1), setting, generator=np.random.default_rng(0), incumbent=[0, 1])
    canary.begin(0, 0)
    assert canary.stats().episodes == 1
    assert (canary.stats().steps, canary.stats().deviating) == (0, None)


def test_a_guard_tells_what_share_of_the_proposals_it_refused() -> None:
    q = FunctionCritic(lambda x: x * np.array([0.0, 1.0]), n_actions=2)
    bounds = CriticBounds.from_point(q, accept="uncertified")
    guard = CriticShield(bounds, Rule.strict(0.7), n_actions=2, horizon=2)
    guard.begin(0, np.array([0.5]))
    for t, proposal in enumerate([0, 0]):
        decision = guard.act(0, t, np.array([0.5]), proposal=proposal)
        guard.observe(0, Transition(np.array([0.5]), decision.action, 0.0, np.array([0.5]), terminated=False))
    stats = guard.stats()
    # Proposal 0 was played once instead of the baseline's action 1, and refused once.
    assert (stats.steps, stats.explored, stats.deviating) == (2, 0.5, 0.5)
    assert stats.refused == {"budget": 0.5, "closed": 0.0, "pool": 0.0, "target": 0.0}
