"""Early endings: a setting that has them makes of logs and reports what padding by hand does, to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from chary import CharyUCBVI, OwnBaseline, Setting, TabularAgent, Transition, evaluate_policy, rollout
from chary.agents import Canary
from chary.agents.canary_agent import CanaryAgent
from chary.calibrate import LogSiblings
from chary.data import Log
from chary.errors import InvalidData, InvalidMDP, InvalidSetting, OutOfOrder
from chary.policies import as_policy_table

S, A, H = 4, 3, 5
RANGES = {"costs": (-1.0, 0.0), "gains": (0.0, 1.0)}


def episodes(n: int, kind: str, seed: int) -> list[list[Transition]]:
    """Episodes of which most end early, and in states that others pass through."""
    rng, low = np.random.default_rng(seed), RANGES[kind][0]
    found = []
    for _ in range(n):
        state, episode = int(rng.integers(S)), []
        for _ in range(H):
            action, after, over = int(rng.integers(A)), int(rng.integers(S)), bool(rng.random() < 0.25)
            episode.append(Transition(state, action, float(low + rng.random()), after, over))
            state = after
            if over:
                break
        found.append(episode)
    return found


def declared(kind: str, **others: Any) -> Setting:
    return Setting.declare(
        n_states=S, n_actions=A, horizon=H, reward_range=RANGES[kind], early_endings=True, **others
    )


def by_hand(kind: str) -> Setting:
    """The same problem with the separate state written out."""
    allowed, support = np.ones((S + 1, A), dtype=bool), np.full((S + 1, A), S + 1)
    if kind == "gains":
        return Setting.declare(
            n_states=S + 1, n_actions=A, horizon=H, reward_range=RANGES[kind], terminal=[S]
        )
    allowed[S], support[S] = np.arange(A) == 0, 1
    return Setting.declare(
        n_states=S + 1, n_actions=A, horizon=H, reward_range=RANGES[kind], allowed=allowed, support=support
    )


def agent_for(setting: Setting, bonus: str) -> TabularAgent:
    return TabularAgent(
        CharyUCBVI(eta=0.8, bonus=bonus, worlds=8), setting, generator=np.random.default_rng(3)
    )


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("bonus", ["posterior", "kl"])
def test_endings_are_what_padding_by_hand_makes_of_them_to_the_bit(kind: str, bonus: str) -> None:
    log = Log.from_transitions(episodes(30, kind, seed=0))
    ours, theirs = agent_for(declared(kind), bonus), agent_for(by_hand(kind), bonus)
    ours.warm_start(log.episodes())
    theirs.warm_start((log.padded(H, S) if kind == "costs" else log.with_own_ending(S)).episodes())
    for k, episode in enumerate(episodes(25, kind, seed=1)):
        ours.begin(k, episode[0].state)
        theirs.begin(k, episode[0].state)
        for t, step in enumerate(episode):
            decision = ours.act(k, t, step.state)
            assert decision == theirs.act(k, t, step.state)
            step = step._replace(action=decision.action)
            ours.observe(k, step)
            if step.terminated:
                step = step._replace(next_state=S, terminated=kind == "gains")
            theirs.observe(k, step)
        if kind == "costs" and episode[-1].terminated:
            for t in range(len(episode), H):
                theirs.act(k, t, S)
                theirs.observe(k, Transition(S, 0, 0.0, S, terminated=False))
        ours.finish(k)
        theirs.finish(k)
    # The state by hand is something that the standing has to name.
    mine, hand = ours.stats(), theirs.stats()
    shares: dict[str, Any] = {}
    if kind == "costs":
        # Steps that fill an episode up are steps of whoever pads, and not of the agent that does so itself.
        assert mine.steps == sum(map(len, episodes(25, kind, seed=1))) < hand.steps
        shares = {each: getattr(hand, each) for each in ("steps", "explored", "deviating", "refused")}
    assert replace(mine, standing=theirs.standing, **shares) == hand
    assert not any("can follow" in each for each in ours.standing.given)
    assert ours.open_episodes == ()


@pytest.mark.parametrize("kind", RANGES)
def test_the_setting_is_the_one_written_by_hand_and_is_saved(kind: str, tmp_path: Path) -> None:
    ours, theirs = declared(kind), by_hand(kind)
    assert (ours.n_states, ours.ending) == (S + 1, S)
    assert replace(ours, ending=None).digest == theirs.digest != ours.digest
    again = Setting.from_arrays(ours.to_arrays())
    assert (again.digest, again.ending) == (ours.digest, S)
    agent_for(ours, "kl").save(tmp_path / "agent.npz")
    agent = TabularAgent.load(tmp_path / "agent.npz", setting=ours)
    agent.begin(0, 1)
    decision = agent.act(0, 0, 1)
    agent.observe(0, Transition(1, decision.action, 0.0, 2, terminated=True))
    agent.finish(0)
    assert agent.open_episodes == ()


@pytest.mark.parametrize("wrong", [[7], [0]])
def test_a_file_with_an_impossible_ending_is_refused(wrong: list[int]) -> None:
    with pytest.raises(InvalidMDP, match="must describe a setting"):
        Setting.from_arrays(declared("costs").to_arrays() | {"ending": np.array(wrong)})


@pytest.mark.parametrize("kind", RANGES)
def test_an_ending_that_is_reported_late_or_twice_counts_once(kind: str) -> None:
    agent = agent_for(declared(kind), "kl")
    agent.begin("a", 0)
    first = agent.act("a", 0, 0)
    second = agent.act("a", 1, 1)
    agent.finish("a")
    ending = Transition(1, second.action, 0.0, 3, terminated=True)
    agent.observe("a", ending, t=1)
    agent.observe("a", ending, t=1)
    assert agent.outstanding == {"a": (0,)}
    agent.observe("a", Transition(0, first.action, 0.0, 1, terminated=False), t=0)
    assert agent.open_episodes == ()
    agent.begin("b", 0)
    agent.observe("b", Transition(0, agent.act("b", 0, 0).action, 0.0, 1, terminated=True))
    with pytest.raises(OutOfOrder, match="It ended at step"):
        agent.act("b", 1 if kind == "gains" else H, 1)
    with pytest.raises(OutOfOrder, match=r"got 1\. It ended at step 0: call finish, and begin another one"):
        agent.act("b", 1, 1)


def test_after_the_next_decision_an_episode_cannot_have_ended_before() -> None:
    agent = agent_for(declared("costs"), "kl")
    agent.begin(0, 0)
    first = agent.act(0, 0, 0)
    agent.act(0, 1, 1)
    with pytest.raises(InvalidData, match="'next_state' must be the state decided in at step 1"):
        agent.observe(0, Transition(0, first.action, 0.0, 1, terminated=True), t=0)


@pytest.mark.parametrize("reached", ["gone", 9, -1, True, None, 1.5])
def test_what_is_no_state_is_refused_though_the_episode_has_ended(reached: Any) -> None:
    agent = agent_for(declared("costs"), "kl")
    agent.begin(0, 0)
    action = agent.act(0, 0, 0).action
    with pytest.raises(InvalidData, match="'next_state' must"):
        agent.observe(0, Transition(0, action, 0.0, reached, terminated=True))
    with pytest.raises(InvalidData, match="'next_state' must"):
        agent_for(declared("costs"), "kl").warm_start([[Transition(0, 0, 0.0, reached, terminated=True)]])


def test_a_declared_terminal_state_stays_one() -> None:
    agent = agent_for(declared("gains", terminal=[3]), "kl")
    agent.warm_start([[Transition(0, 0, 0.5, 3, terminated=True)], [Transition(0, 0, 0.5, 1, True)]])
    rows = agent._learner.knowledge.rows  # type: ignore[union-attr]
    assert sorted(rows.successor[rows.begin[0] : rows.begin[0] + rows.length[0]].tolist()) == [3, S]


@pytest.mark.parametrize("kind", RANGES)
def test_logs_are_compared_evaluated_and_resampled_as_they_are(kind: str) -> None:
    log, setting = Log.from_transitions(episodes(200, kind, seed=2)), declared(kind)
    filled = log.padded(H, S) if kind == "costs" else log.with_own_ending(S)
    assert log.checked(setting=setting) is log
    ours = evaluate_policy(log, [0] * S, setting)
    theirs = evaluate_policy(filled, [0] * (S + 1), by_hand(kind))
    assert (ours.lower, ours.estimate, ours.upper) == (theirs.lower, theirs.estimate, theirs.upper)
    assert ours.transitions == log.n_transitions
    assert (
        LogSiblings(log, setting).draw(3).row_start == LogSiblings(filled, by_hand(kind)).draw(3).row_start
    ).all()
    wide = Log.from_transitions([[Transition(0, 0, 2.0, 1, True)]])
    with pytest.raises(InvalidData, match="'reward' must lie in"):
        wide.checked(setting=setting)
    with pytest.raises(InvalidData, match="'state' must lie in"):
        Log.from_transitions([[Transition(9, 0, 0.0, 1, True)]]).checked(setting=setting)


def test_a_policy_need_not_say_what_it_does_after_the_end() -> None:
    setting, asked = declared("costs"), []
    wanted = [[1, 2, 0, 1, 0]] * H

    def rule(state: int) -> int:
        asked.append(state)
        return [1, 2, 0, 1][state]

    for policy in (rule, [1, 2, 0, 1], np.eye(A)[[1, 2, 0, 1]], [[1, 2, 0, 1]] * H, wanted):
        assert as_policy_table(policy, setting).tolist() == wanted
    assert asked == [0, 1, 2, 3]
    assert OwnBaseline.declare(np.eye(A)[[1, 2, 0, 1]], setting, role="only").table[0].tolist() == wanted[0]
    agent = TabularAgent(CharyUCBVI(eta=0.8), setting, prior=[1, 2, 0, 1])
    assert agent.plan.arrays.baseline[0].tolist() == wanted[0]


def test_known_rewards_need_no_row_for_it_and_the_range_contains_0() -> None:
    table = np.full((S, A), 2.0)
    setting = Setting.declare(n_states=S, n_actions=A, horizon=H, reward=table, early_endings=True)
    assert (setting.scale.low, setting.scale.high, setting.terminal[S]) == (0.0, 2.0, True)
    above = Setting.declare(n_states=S, n_actions=A, horizon=H, reward_range=(1, 3), early_endings=True)
    assert above.scale.low == 0.0
    costs = Setting.declare(n_states=S, n_actions=A, horizon=H, reward=-table, early_endings=True)
    assert costs.known is not None
    assert costs.known.other_low[costs.pair_index[S, 0]] == 1.0
    with pytest.raises(InvalidMDP, match="by state and action where episodes may end early"):
        Setting.declare(n_states=S, n_actions=A, horizon=H, reward=np.zeros((S, A, S)), early_endings=True)
    with pytest.raises(InvalidMDP, match="leave terminal states out"):
        declared("costs", terminal=[1])
    with pytest.raises(InvalidMDP, match="'early_endings' must be True or False"):
        Setting.declare(n_states=S, n_actions=A, horizon=H, early_endings="yes")  # type: ignore[arg-type]


class Short(gymnasium.Env[Any, Any]):
    """It ends in the first step in which action 0 is played."""

    observation_space, action_space = gymnasium.spaces.Discrete(S), gymnasium.spaces.Discrete(A)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, -0.5, bool(action == 0), False, {}


def test_a_rollout_of_an_environment_that_ends_needs_nothing_else() -> None:
    agent = agent_for(declared("costs"), "posterior")
    played = list(rollout(Short(), agent, episodes=20, seed=0, horizon=H))
    assert min(len(episode.transitions) for episode in played) < H
    assert agent.open_episodes == ()


def test_a_canary_says_that_it_has_no_early_endings() -> None:
    with pytest.raises(InvalidSetting, match="early_endings"):
        CanaryAgent(Canary(eta=0.1), declared("costs"), generator=np.random.default_rng(0), incumbent=[0] * S)
