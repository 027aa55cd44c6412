"""The step API of every agent: begin, act, observe, finish, in that order or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from chary.agents import AGENTS, CharyUCBVI, Transition, make_agent
from chary.agents.tabular import TabularAgent
from chary.envs import TabularEnv, riverswim
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder
from chary.mdp import FiniteMDP, Setting
from chary.model.bounds import FAMILIES
from chary.rollouts import rollout
from chary.shield import Decision

EPISODES, LIMIT = 6, 20
# A canary has a step API of its own, see test_step_apis; for worlds see tests/unit/test_world_agent.py.
TABULAR = [name for name in AGENTS if name not in ("canary", "psrl")]


def maze() -> FiniteMDP:
    """Three rooms and an exit: terminal state 3, one action only in room 1, units of the user's own."""
    P = np.zeros((4, 3, 4))
    P[0] = [[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.9, 0.0, 0.0, 0.1]]
    P[1, 0] = [0.3, 0.3, 0.4, 0.0]
    P[2] = [[0.2, 0.8, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0]]
    R = np.array([[0.5, 1.0, 0.0], [2.0, 0, 0], [0.0, 4.0, 1.0], [0, 0, 0]])
    allowed = np.ones((4, 3), dtype=bool)
    allowed[1, 1:] = False
    return FiniteMDP.from_arrays(
        P, R, allowed=allowed, horizon=5, terminal=[3], start=[0.6, 0.4, 0, 0], reward_range=(0.0, 4.0)
    )


def new_agent(name: str, mdp: FiniteMDP, **options: Any) -> TabularAgent:
    spec = make_agent(name, **{"eta": 2.0, "bonus": "hoeffding", "bonus_scale": 0.01, **options})
    return TabularAgent(
        spec, mdp.told(spec.reward), max_episodes=LIMIT, generator=np.random.Generator(np.random.PCG64(5))
    )


# Called with the agent, the episode, the step, the state, and the action outstanding (-1: none).
Mischief = Callable[[TabularAgent, int, int, int, int], None]


def nothing(agent: TabularAgent, k: int, t: int, state: int, a: int) -> None:
    """Do no mischief."""


def play(
    agent: TabularAgent, mdp: FiniteMDP, *, outside: Mischief, undecided: Mischief, decided: Mischief
) -> Any:
    """Play some episodes, with mischief before each of them, before each action and after it."""
    env, kept = TabularEnv(mdp), []
    for k in range(EPISODES):
        state = int(env.reset(seed=9 if k == 0 else None)[0])
        outside(agent, k, 0, state, -1)
        agent.begin(k, state)
        over, t = False, 0
        while not over:
            undecided(agent, k, t, state, -1)
            decision = agent.act(k, t, state)
            decided(agent, k, t, state, decision.action)
            x, reward, terminated, truncated, _ = env.step(np.int64(decision.action))
            agent.observe(k, Transition(state, decision.action, reward, int(x), terminated))
            kept.append((k, t, state, decision, int(x)))
            state, t, over = int(x), t + 1, terminated or truncated
        with pytest.raises(OutOfOrder):
            agent.act(k, t, state)
        agent.finish(k)
    rows, radii = agent.plan.knowledge.rows, agent.plan.knowledge.radii
    arrays = [rows.total, rows.reward_total, rows.visits, radii.width, agent.plan.arrays.v_lower]
    return kept, [array.tobytes() for array in arrays]


def refused(error: type[CharyError], call: Callable[..., object], *arguments: object) -> None:
    # One sentence that names the parameter, the rule and the value.
    with pytest.raises(error, match=r"^'\w+' must .+, got .+\."):
        call(*arguments)


def outside(agent: TabularAgent, k: int, t: int, state: int, a: int) -> None:
    refused(OutOfOrder, agent.act, k, 0, state)
    refused(OutOfOrder, agent.observe, k, Transition(state, 0, 0.0, state, False))
    refused(OutOfOrder, agent.finish, k)
    refused(OutOfOrder, agent.plan_of, k)
    for wrong in (-1, 4, 1.5, "0", None, True):
        refused(InvalidData, agent.begin, k, wrong)
    refused(InvalidData, agent.begin, k, 3)
    if k > 0:
        refused(OutOfOrder, agent.warm_start, [])


def undecided(agent: TabularAgent, k: int, t: int, state: int, a: int) -> None:
    refused(OutOfOrder, agent.begin, k, state)
    refused(OutOfOrder, agent.observe, k, Transition(state, 0, 0.0, state, False))
    for wrong in (t + 1, -1, 0.5, None, "0"):
        refused(OutOfOrder, agent.act, k, wrong, state)
    nobody: Any
    for nobody in ([k], None, 0.5, {}):
        refused(InvalidData, agent.begin, nobody, state)
        refused(OutOfOrder, agent.act, nobody, t, state)
    refused(InvalidData, agent.act, k, t, (state + 1) % 4)
    for outside_of_space in (-1, 4, 0.5, None):
        refused(InvalidData, agent.act, k, t, outside_of_space)
    refused(OutOfOrder, agent.act, k + 1, t, state)


def decided(agent: TabularAgent, k: int, t: int, state: int, a: int) -> None:
    # Asked again, the answer is the same.
    assert agent.act(k, t, state).action == a
    refused(InvalidData, agent.act, k, t, (state + 1) % 4)
    refused(OutOfOrder, agent.act, k, t + 2, state)
    refused(OutOfOrder, agent.begin, k, state)
    good = Transition(state, a, 0.0, 0, False)
    for wrong in (a + 1, a - 1, 7, None, 0.5):
        refused(InvalidAction, agent.observe, k, good._replace(action=wrong))  # type: ignore[arg-type]
    for beyond in (-1, 4, None, 0.5):
        refused(InvalidData, agent.observe, k, good._replace(next_state=beyond))
    for reward in (-0.1, 4.1, math.nan, math.inf, "much"):
        refused(InvalidData, agent.observe, k, good._replace(reward=reward))  # type: ignore[arg-type]
    refused(InvalidData, agent.observe, k, good._replace(next_state=3))
    refused(OutOfOrder, agent.observe, k + 1, good)


@pytest.mark.parametrize("name", TABULAR)
def test_calls_out_of_order_and_bad_values_are_refused_and_change_nothing(name: str) -> None:
    mdp = maze()
    good = play(new_agent(name, mdp), mdp, outside=nothing, undecided=nothing, decided=nothing)
    vexed = play(new_agent(name, mdp), mdp, outside=outside, undecided=undecided, decided=decided)
    assert vexed == good


@pytest.mark.parametrize("name", TABULAR)
def test_only_allowed_actions_are_decided(name: str) -> None:
    mdp = maze()
    kept, _ = play(new_agent(name, mdp), mdp, outside=nothing, undecided=nothing, decided=nothing)
    assert all(mdp.setting.allowed[state, decision.action] for _, _, state, decision, _ in kept)
    for _, _, _, decision, _ in kept:
        assert isinstance(decision, Decision)
        assert decision.charge >= 0
        assert 0 <= decision.deficit <= 2.0
        assert decision.charge == decision.charge_scaled * mdp.scale.span
        assert decision.remaining >= 0


@pytest.mark.parametrize("name", TABULAR)
def test_several_open_episodes_are_each_pinned_to_their_plan(name: str) -> None:
    mdp = maze()
    agent = new_agent(name, mdp)
    agent.warm_start([[Transition(0, 0, 0.5, 1, False), Transition(1, 0, 2.0, 0, False)]] * 5)

    def step(k: int, t: int, state: int, x: int) -> Decision:
        decision = agent.act(k, t, state)
        agent.observe(k, Transition(state, decision.action, 1.0, x, False))
        return decision

    agent.begin(0, 0)
    agent.begin(1, 0)
    first = step(1, 0, 0, 1)
    pinned = agent.plan_of(1)
    before = [
        array.tobytes() for array in (*pinned.arrays, *pinned.knowledge.rows, pinned.knowledge.radii.width)
    ]
    charges = [pinned.charge(t, s, a) for t in range(5) for s, a in np.argwhere(mdp.setting.allowed).tolist()]
    for t, (state, x) in enumerate([(0, 2), (2, 2), (2, 0), (0, 2), (2, 1)]):
        step(0, t, state, x)
    agent.finish(0)
    agent.begin(2, 1)
    assert agent.plan_of(1) is pinned
    assert agent.plan_of(2) is not pinned
    after = [
        array.tobytes() for array in (*pinned.arrays, *pinned.knowledge.rows, pinned.knowledge.radii.width)
    ]
    assert after == before
    again = [pinned.charge(t, s, a) for t in range(5) for s, a in np.argwhere(mdp.setting.allowed).tolist()]
    assert again == charges
    later, other = step(1, 1, 1, 1), step(2, 0, 1, 2)
    assert first.plan == later.plan
    assert other.plan > later.plan
    # The warm-up, the complete episode, and the first outcome of the open one.
    assert agent.plan.knowledge.rows.total.sum() == 10 + 5 + 1
    agent.finish(1)
    agent.finish(2)
    assert agent.plan.knowledge.rows.total.sum() == 10 + 5 + 2 + 1


def test_episodes_played_at_once_count_as_if_played_one_by_one() -> None:
    mdp = maze()
    walks = {0: [(0, 1), (1, 2), (2, 2)], 1: [(1, 1), (1, 0), (0, 0)]}

    def walk(agent: TabularAgent, order: list[int]) -> bytes:
        places = dict.fromkeys(walks, 0)
        for k in order:
            t = places[k]
            if t == 0:
                agent.begin(k, walks[k][0][0])
            state, x = walks[k][t]
            decision = agent.act(k, t, state)
            agent.observe(k, Transition(state, decision.action, 1.0, x, False))
            places[k] += 1
            if places[k] == 3:
                agent.finish(k)
        rows = agent.plan.knowledge.rows
        return bytes(rows.total.tobytes() + rows.visits.tobytes())

    # The baseline agent with a prior and no bounds of worth plays the same whatever it learns.
    agents = [new_agent("baseline", mdp, bonus_scale=100.0, prior=[1, 0, 1, 0]) for _ in range(2)]
    assert walk(agents[0], [0, 0, 0, 1, 1, 1]) == walk(agents[1], [0, 1, 1, 0, 0, 1])


@pytest.mark.parametrize("bonus", FAMILIES)
def test_bounds_that_need_a_number_of_episodes_refuse_to_go_beyond_it(bonus: str) -> None:
    setting = maze().setting
    spec = CharyUCBVI(eta=1.0, bonus=bonus)
    if bonus != "kl":
        with pytest.raises(InvalidSetting, match=r"'max_episodes' must be declared"):
            TabularAgent(spec, setting)
    agent = TabularAgent(spec, setting, max_episodes=2)
    for k in range(2):
        agent.begin(k, 0)
        agent.finish(k)
    if bonus == "kl":
        agent.begin(2, 0)
    else:
        with pytest.raises(InvalidSetting, match=r"'max_episodes' must cover every episode, got 2"):
            agent.begin(2, 0)
        assert agent.episodes_begun == 2


def test_a_warm_up_with_a_mistake_in_it_counts_nothing() -> None:
    agent = new_agent("chary", maze())
    good = Transition(0, 0, 0.5, 1, False)
    with pytest.raises(InvalidAction):
        agent.warm_start([[good], [good, good._replace(state=1, action=2)]])
    assert agent.plan.knowledge.rows.total.sum() == 0
    agent.warm_start([[good], [good]])
    assert agent.plan.knowledge.rows.total.sum() == 2


def test_a_known_reward_must_be_the_one_observed() -> None:
    mdp = maze()
    agent = new_agent("baseline", mdp, reward="known")
    agent.begin(0, 1)
    assert agent.act(0, 0, 1).action == 0
    with pytest.raises(InvalidData, match="'reward' must be the declared one"):
        agent.observe(0, Transition(1, 0, 1.0, 2, False))
    agent.observe(0, Transition(1, 0, 2.0, 2, False))


@pytest.mark.parametrize("name", TABULAR)
def test_every_agent_plays_an_environment_that_is_not_ours(name: str) -> None:
    # FrozenLake tells nobody which states end it; its reward is 1 at the goal alone.
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    setting = Setting.declare(n_states=16, n_actions=4, horizon=15)
    spec = make_agent(name, eta=0.5, bonus="hoeffding", bonus_scale=0.001)
    agent = TabularAgent(
        spec, setting, max_episodes=EPISODES, generator=np.random.Generator(np.random.PCG64(0))
    )
    episodes = list(rollout(env, agent, episodes=EPISODES, seed=1, horizon=15))
    assert len(episodes) == EPISODES
    steps = sum(len(episode.transitions) for episode in episodes)
    knowledge = agent.plan.knowledge
    assert knowledge.rows.total.sum() == steps
    ends = {step.next_state for episode in episodes for step in episode.transitions if step.terminated}
    assert set(np.flatnonzero(knowledge.radii.terminal)) == ends
    assert all(agent.plan.arrays.v_lower[0, s] == 0 for s in ends)


def test_only_discrete_spaces_from_zero_can_be_played() -> None:
    class Odd(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(3, start=1)
        action_space = gymnasium.spaces.Discrete(2)

    agent = new_agent("random", riverswim())
    with pytest.raises(InvalidSetting, match=r"'observation_space' must start at 0"):
        next(rollout(Odd(), agent, episodes=1))
    Odd.observation_space = gymnasium.spaces.Box(0, 1)  # type: ignore[assignment]
    with pytest.raises(InvalidSetting, match=r"'observation_space' must be Discrete"):
        next(rollout(Odd(), agent, episodes=1))
    assert agent.episodes_begun == 0
