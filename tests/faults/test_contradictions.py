"""Declarations that the data contradict are refused with the pair and the row; nothing is decided by them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary import CharyUCBVI, Setting, TabularAgent, Transition
from chary.data import Log
from chary.errors import InvalidData
from chary.evaluation import evaluate_policy
from chary.mdp import FiniteMDP
from chary.preview import preview


def declared(**options: Any) -> Setting:
    given: dict[str, Any] = {"n_states": 4, "n_actions": 2, "horizon": 3}
    return Setting.declare(**{**given, **options})


def step(s: int, a: int, x: int, reward: float = 0.5) -> Transition:
    return Transition(s, a, reward, x, terminated=False)


def agent_of(setting: Setting, **options: Any) -> TabularAgent:
    return TabularAgent(CharyUCBVI(eta=10.0, **options), setting)


def play(agent: TabularAgent, name: str, states: list[int], reward: float = 0.5) -> None:
    """Play action 0 from state to state."""
    agent.begin(name, states[0])
    for t, (s, x) in enumerate(pairwise(states)):
        agent.act(name, t, s, proposal=0)
        agent.observe(name, step(s, 0, x, reward))
    agent.finish(name)


def facts(agent: TabularAgent, name: str) -> tuple[Any, ...]:
    """Return all that a refused outcome must leave as it is."""
    rows = agent.plan.knowledge.rows
    return (
        agent.ledger(name),
        agent.outstanding,
        rows.total.tolist(),
        rows.reward_total.tolist(),
        agent._facts.left.tolist(),
        agent._visits.pending(),
    )


def refuse(agent: TabularAgent, wrong: Transition, match: str, right: Transition) -> None:
    agent.begin("bed 2", wrong.state)
    agent.act("bed 2", 0, wrong.state, proposal=wrong.action)
    before = facts(agent, "bed 2")
    with pytest.raises(InvalidData, match=match):
        agent.observe("bed 2", wrong)
    assert facts(agent, "bed 2") == before
    agent.observe("bed 2", right)
    assert agent.outstanding == {}


SUPPORT = r"'support' must cover the successors of state 0, action 0, declared as 2, got 3 after 1, 2 in "


def test_a_successor_beyond_the_declared_number_is_refused_when_it_is_observed() -> None:
    agent = agent_of(declared(support=2))
    play(agent, "bed 1", [0, 1])
    # An open episode has seen the second successor: it is a fact before it counts.
    agent.begin("open", 0)
    agent.act("open", 0, 0, proposal=0)
    agent.observe("open", step(0, 0, 2))
    refuse(agent, step(0, 0, 3), SUPPORT + r"episode 'bed 2', step 0\. Declare", step(0, 0, 1))


def test_a_saved_agent_remembers_the_successors_that_it_saw(tmp_path: Path) -> None:
    agent = agent_of(declared(support=2))
    play(agent, "bed 1", [0, 1])
    agent.begin("open", 0)
    agent.act("open", 0, 0, proposal=0)
    agent.observe("open", step(0, 0, 2))
    agent.save(tmp_path / "agent.npz")
    again = TabularAgent.load(tmp_path / "agent.npz")
    refuse(again, step(0, 0, 3), SUPPORT + "episode 'bed 2', step 0", step(0, 0, 2))


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_warm_start_names_the_episode_and_the_step_of_a_contradiction(wrong: int) -> None:
    right = [step(0, 0, 1), step(1, 0, 0), step(0, 0, 2)]
    bad, match = [
        ([step(3, 0, 0), step(0, 0, 3)], SUPPORT + r"episode 1, step 1"),
        (
            [step(3, 0, 0), step(0, 0, 1, 1.5)],
            r"'reward' must lie in \[0, 1\], got 1.5 at state 0, action 0 in episode 1, step 1",
        ),
    ][wrong]
    agent = agent_of(declared(support=2))
    with pytest.raises(InvalidData, match=match):
        agent.warm_start([right, bad])
    assert agent.plan.knowledge.rows.total.sum() == 0
    # Nothing was noted either.
    agent.warm_start([[step(0, 0, 3), step(3, 0, 0), step(0, 0, 2)]])


def test_a_log_names_the_row_of_one_successor_too_many() -> None:
    episodes = [[step(0, 0, 1)], [step(0, 0, 2), step(2, 0, 0), step(0, 0, 1)], [step(0, 0, 3)]]
    log = Log.from_transitions(episodes)
    match = (
        r"'support' must cover the successors of every pair, got 3 as one more than 2 of state 0, action 0, "
        r"in transition 4"
    )
    with pytest.raises(InvalidData, match=match):
        log.checked(setting=declared(support=2))
    with pytest.raises(InvalidData, match=match):
        log.to_counts(declared(support=2))
    with pytest.raises(InvalidData, match=match):
        evaluate_policy(log, [0, 0, 0, 0], declared(support=2))
    with pytest.raises(InvalidData, match=match):
        preview(log, etas=[1.0], support=2)
    assert log.checked(setting=declared(support=3)) is log


def test_rewards_outside_the_declared_range_are_refused_with_pair_episode_and_step() -> None:
    refuse(
        agent_of(declared()),
        step(0, 1, 1, reward=2.0),
        r"'reward' must lie in \[0, 1\], got 2.0 at state 0, action 1 in episode 'bed 2', step 0",
        step(0, 1, 1),
    )


def test_rewards_other_than_the_known_ones_are_refused_with_pair_episode_and_step() -> None:
    P = np.full((2, 2, 2), 0.5)
    mdp = FiniteMDP.from_arrays(P, np.array([[0.25, 0.5], [0.75, 1.0]]), horizon=2)
    agent = agent_of(mdp.told("known"), reward="known")
    refuse(
        agent,
        step(1, 0, 0, reward=0.5),
        r"'reward' must be the declared one, 0.75 to 0.75 once scaled, got 0.5 at state 1, action 0 in "
        r"episode 'bed 2', step 0",
        step(1, 0, 0, reward=0.75),
    )


CAP = r"'value_cap' must bound the value of every policy, declared as 1, got at least 1\.\d+ at state \d"


def test_values_above_the_declared_cap_are_refused_before_anything_is_decided() -> None:
    """Every step earns 1, so the value is 3 and a cap of 1 is wrong."""
    agent = agent_of(declared(value_cap=1.0, support=1))

    def live() -> None:
        for n in range(200):
            play(agent, f"bed {n}", [0, 1, 2, 3], reward=1.0)

    with pytest.raises(InvalidData, match=CAP):
        live()
    assert agent.open_episodes == ()
    with pytest.raises(InvalidData, match=CAP):
        agent.begin("one more", 0)
    assert agent.open_episodes == ()


def test_a_log_with_values_above_the_cap_is_refused() -> None:
    log = Log.from_transitions([[step(0, 0, 1, 1.0), step(1, 0, 2, 1.0), step(2, 0, 3, 1.0)]] * 200)
    agent = agent_of(declared(value_cap=1.0, support=1))
    agent.warm_start(log.episodes())
    with pytest.raises(InvalidData, match=CAP):
        agent.begin("bed 1", 0)
    with pytest.raises(InvalidData, match=CAP):
        evaluate_policy(log, [0, 0, 0, 0], declared(value_cap=1.0, support=1))
    with pytest.raises(InvalidData, match=CAP):
        preview(log, etas=[1.0], support=1, value_cap=1.0, reward_low=0.0, reward_high=1.0)


def test_a_true_cap_is_never_contradicted_by_uncertified_bounds() -> None:
    """Bounds made narrower by a scale may fail: what exceeds the cap then is their error."""
    setting = declared(value_cap=1.0, support=1)
    agent = TabularAgent(CharyUCBVI(eta=10.0, bonus="hoeffding", bonus_scale=1e-6), setting, max_episodes=100)
    for n in range(20):
        play(agent, f"bed {n}", [0, 1, 2, 3], reward=1.0)
    assert agent.plan.arrays.v_lower.max() == 1.0
