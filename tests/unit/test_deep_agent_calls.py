"""The deep learner's step API: what follows what, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.deep_walk import HORIZON, START, go_on, logged, move, new_agent, small, the_open, walk_env

from chary import Transition
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder
from chary.standing import NETWORKS
from chary.storage.sealed import pack

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")
calls: Any = pytest.importorskip("chary.deep.calls")


def content(agent: Any) -> bytes:
    """Return all of an agent as the bytes of its file."""
    return pack("deep agent", *agent._record(), container="safetensors")


def step(agent: Any, **changes: Any) -> Any:
    """Return a right answer to the outstanding action, with changes."""
    state, action = the_open(agent).state.astype(np.float64), the_open(agent).steps[-1].decision.action
    after, reward = move(state, action)
    told = Transition._make((state, action, reward, after, False))
    return told._replace(**changes)


def idle() -> Any:
    return new_agent()


def opened() -> Any:
    agent = idle()
    go_on(agent, HORIZON)
    agent.finish(0)
    agent.begin("now", START)
    return agent


def decided() -> Any:
    agent = opened()
    agent.act("now", 0, START)
    return agent


def observed() -> Any:
    agent = decided()
    agent.observe("now", step(agent))
    return agent


def waiting() -> Any:
    agent = decided()
    agent.finish("now")
    return agent


def terminal() -> Any:
    agent = decided()
    agent.observe("now", step(agent, terminated=True))
    return agent


def over() -> Any:
    agent = idle()
    go_on(agent, HORIZON)
    return agent


def begin_at(place: Any, agent: Any) -> None:
    agent.begin(0, place)


def act_at(place: Any, agent: Any) -> None:
    agent.act("now", 0, place)


def reach(place: Any, agent: Any) -> None:
    agent.observe("now", step(agent, next_state=place))


BAD: dict[str, Any] = {
    "nan": np.full(6, np.nan),
    "inf": np.full(6, np.inf),
    "too large for float32": np.full(6, 1e300),
    "short": np.zeros(5),
    "a batch": np.zeros((1, 6)),
    "a number": 1.0,
    "text": ["a"] * 6,
    "complex": np.zeros(6, complex),
    "nothing": None,
    "ragged": [[1.0], [1.0, 2.0]],
    "a dictionary": {"x": 1.0},
}
CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], type[CharyError]]] = {
    "act before begin": (idle, lambda a: a.act(0, 0, START), OutOfOrder),
    "observe before begin": (idle, lambda a: a.observe(0, None), OutOfOrder),
    "finish before begin": (idle, lambda a: a.finish(0), OutOfOrder),
    "abandon before begin": (idle, lambda a: a.abandon(0), OutOfOrder),
    "ledger before begin": (idle, lambda a: a.ledger(0), OutOfOrder),
    "begin without a name": (idle, lambda a: a.begin(None, START), InvalidData),
    "begin the same": (opened, lambda a: a.begin("now", START), OutOfOrder),
    "play while open": (opened, lambda a: a.play(walk_env(), episodes=1), OutOfOrder),
    "warm start while open": (opened, lambda a: a.warm_start(logged()), OutOfOrder),
    "act elsewhere": (opened, lambda a: a.act("other", 0, START), OutOfOrder),
    "act for a list": (opened, lambda a: a.act(["now"], 0, START), OutOfOrder),
    "act too late": (opened, lambda a: a.act("now", 1, START), OutOfOrder),
    "act at no time": (opened, lambda a: a.act("now", "0", START), OutOfOrder),
    "act before time": (opened, lambda a: a.act("now", -1, START), OutOfOrder),
    "act at another place": (opened, lambda a: a.act("now", 0, START + 1), InvalidData),
    "observe before act": (opened, lambda a: a.observe("now", logged()[0][0]), OutOfOrder),
    "act again elsewhere": (decided, lambda a: a.act("now", 0, START + 1), InvalidData),
    "act beyond the next": (decided, lambda a: a.act("now", 2, START), OutOfOrder),
    "observe nothing": (decided, lambda a: a.observe("now", None), InvalidData),
    "observe a tuple": (decided, lambda a: a.observe("now", tuple(step(a))), InvalidData),
    "another action": (
        decided,
        lambda a: a.observe("now", step(a, action=(step(a).action + 1) % 4)),
        InvalidAction,
    ),
    "no action": (decided, lambda a: a.observe("now", step(a, action=4)), InvalidAction),
    "half an action": (decided, lambda a: a.observe("now", step(a, action=0.5)), InvalidAction),
    "another start": (decided, lambda a: a.observe("now", step(a, state=START + 1)), InvalidData),
    "reward nan": (decided, lambda a: a.observe("now", step(a, reward=np.nan)), InvalidData),
    "reward inf": (decided, lambda a: a.observe("now", step(a, reward=-np.inf)), InvalidData),
    "reward too large": (decided, lambda a: a.observe("now", step(a, reward=1e39)), InvalidData),
    "reward text": (decided, lambda a: a.observe("now", step(a, reward="1")), InvalidData),
    "terminated 1": (decided, lambda a: a.observe("now", step(a, terminated=1)), InvalidData),
    "observe twice": (observed, lambda a: a.observe("now", logged()[0][0]), OutOfOrder),
    "observe otherwise": (
        observed,
        lambda a: a.observe("now", the_open(a).steps[0].outcome._replace(reward=7.0), t=0),
        InvalidData,
    ),
    "taken is another": (decided, lambda a: a.observe("now", step(a), taken=9), InvalidAction),
    "finish again": (waiting, lambda a: a.finish("now"), OutOfOrder),
    "act while closing": (waiting, lambda a: a.act("now", 1, START), OutOfOrder),
    "act on what was left": (observed, lambda a: a.act("now", 1, START), InvalidData),
    "act after a terminal state": (
        terminal,
        lambda a: a.act("now", 1, the_open(a).state),
        OutOfOrder,
    ),
    "act after the horizon": (over, lambda a: a.act(0, HORIZON, the_open(a).state), OutOfOrder),
    **{f"begin with {k}": (idle, partial(begin_at, x), InvalidData) for k, x in BAD.items()},
    **{f"act with {k}": (opened, partial(act_at, x), InvalidData) for k, x in BAD.items()},
    **{f"reach {k}": (decided, partial(reach, x), InvalidData) for k, x in BAD.items()},
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_is_refused_leaves_the_agent_as_it_was(case: str) -> None:
    made, call, error = CALLS[case]
    agent = made()
    before = content(agent)
    with pytest.raises(error) as refusal:
        call(agent)
    assert str(refusal.value).endswith(".")
    assert content(agent) == before


def sound(**changes: Any) -> Any:
    return logged()[0][0]._replace(**changes)


LOGS: dict[str, Any] = {
    "none": None,
    "numbers": [1, 2],
    "tuples": [[(START, 0, 0.0, START, False)]],
    "an action too many": [[sound(action=4)]],
    "nan": [[sound()], [sound(state=np.full(6, np.nan))]],
    "reward": [[sound(reward=np.inf)]],
    "after the end": [[sound(terminated=True), sound()]],
    "too long": [[sound()] * (HORIZON + 1)],
}


@pytest.mark.parametrize("case", LOGS)
def test_logs_that_are_not_sound_are_refused_and_nothing_is_learnt(case: str) -> None:
    agent = idle()
    before = content(agent)
    with pytest.raises(InvalidData, match="episode"):
        agent.warm_start(LOGS[case])
    assert content(agent) == before


def test_a_warm_start_remembers_all_then_makes_its_updates_once_before_the_first_episode() -> None:
    agent = idle()
    agent.warm_start([])
    assert agent.updates == 0
    agent.warm_start(iter(logged(3)))
    assert agent.updates == small().pretraining
    assert int(agent._turns.state.replay.written) == 3 * HORIZON
    before = content(agent)
    with pytest.raises(OutOfOrder, match="a second call"):
        agent.warm_start(logged())
    assert content(agent) == before
    go_on(agent, 1)
    with pytest.raises(OutOfOrder, match="1 begun"):
        agent.warm_start(logged())


def test_more_logs_than_one_compiled_call_takes_are_all_remembered_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, parts = idle(), idle()
    whole.warm_start(logged(4))
    # 24 transitions in two calls of 12, in place of one that is filled up to its size.
    monkeypatch.setattr(calls, "CHUNK", 12)
    parts.warm_start(logged(4))
    np.testing.assert_allclose(
        whole._turns.state.replay.rows, parts._turns.state.replay.rows, rtol=1e-5, atol=1e-6
    )
    assert int(parts._turns.state.replay.written) == 24


def test_every_step_is_one_compiled_call_and_every_episode_two_more() -> None:
    agent = idle()
    made: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            made.append(name)
            return function(*args)

        return call

    agent._turns._calls = type(agent._calls)(*(counted(*pair) for pair in agent._calls._asdict().items()))
    env = walk_env()
    observation, _ = env.reset()
    agent.begin(0, observation)
    assert made == ["open"]
    for t in range(HORIZON):
        made.clear()
        here = np.array(observation)
        decision = agent.act(0, t, here)
        assert agent.act(0, t, here) is decision
        observation, reward, _, _, _ = env.step(decision.action)
        agent.observe(0, Transition._make((here, decision.action, reward, observation, False)))
        assert made == ["learn_and_choose" if t else "choose"]
    made.clear()
    agent.finish(0)
    assert made == ["learn_and_close"]
    assert agent.updates == HORIZON


def test_a_decision_says_what_was_booked_and_what_is_left() -> None:
    agent = idle()
    agent.warm_start(logged())
    explored = 0
    for k in range(8):
        decisions = go_on(agent, HORIZON)
        spent = 0.0
        for decision in decisions:
            spent += decision.charge
            assert decision.plan == k
            assert decision.deficit == spent <= agent.options.eta
            assert decision.remaining == agent.options.eta - spent
            assert (decision.chain >= 0) == decision.explored
            assert decision.chain < agent.chains["started"]
            assert decision.explored or decision.charge == 0
        assert agent.ledger(k).deficit == spent
        agent.finish(k)
        explored += sum(decision.explored for decision in decisions)
    assert agent.episodes_begun == 8
    assert 0 < explored < 8 * HORIZON
    assert agent.standing.label == "uncertified per run"
    assert NETWORKS in agent.standing.given


def test_agents_without_a_budget_book_nothing() -> None:
    agent = new_agent("dqn")
    decisions = go_on(agent, HORIZON)
    assert any(decision.explored for decision in decisions)
    assert {decision[2:5] for decision in decisions} == {(0.0, 0.0, np.inf)}
    assert {decision.chain for decision in decisions} == {-1}


def test_the_constant_agent_plays_its_action() -> None:
    agent = new_agent("constant", action=2)
    agent.begin(0, START)
    assert agent.act(0, 0, START)[:3] == (2, False, 0.0)


def test_the_budget_is_no_part_of_what_is_compiled_and_yet_counts() -> None:
    poor, rich = new_agent(eta=0.0), new_agent(eta=50.0)
    assert poor._calls is rich._calls
    bought = [sum(decision.charge for decision in go_on(agent, 4 * HORIZON)) for agent in (poor, rich)]
    assert bought[0] == 0 < bought[1]


def test_the_same_seed_gives_the_same_agent_and_another_seed_another() -> None:
    one, same, other = new_agent(seed=1), new_agent(seed=1), new_agent(seed=2)
    for agent in (one, same, other):
        go_on(agent, HORIZON)
    assert content(one) == content(same) != content(other)


def test_an_abandoned_episode_stays_learnt_and_the_next_may_begin() -> None:
    abandoned, finished = observed(), observed()
    abandoned.abandon("now")
    finished.finish("now")
    assert content(abandoned) == content(finished)
    broken = decided()
    updates = broken.updates
    broken.abandon("now")
    assert broken.open_episode is None
    assert broken.updates == updates
    assert int(broken._turns.state.episodes) == 2
    assert np.isfinite([decision.deficit for decision in go_on(broken, HORIZON)]).all()


def test_a_chain_whose_first_step_is_never_heard_of_waits_where_it_was_to_be_taken() -> None:
    agent = new_agent(eta=50.0)
    agent.begin(0, START)
    decision = agent.act(0, 0, START)
    assert (decision.explored, decision.chain) == (True, 0)
    agent.abandon(0)
    assert np.asarray(agent._turns.state.chain.target).tolist() == START.tolist()
    agent.begin(1, START)
    again = agent.act(1, 0, START)
    assert (again.explored, again.chain) == (True, 0)
    assert agent.chains["started"] == 1


def test_what_the_environment_overwrites_is_not_what_the_agent_remembers() -> None:
    agent = idle()
    seen = START.copy()
    agent.begin(0, seen)
    decision = agent.act(0, 0, seen)
    after, reward = move(START, decision.action)
    reached = after.copy()
    agent.observe(0, Transition._make((seen, decision.action, reward, reached, False)))
    seen[:], reached[:] = 9.0, 9.0
    agent.act(0, 1, after)
    row = np.asarray(agent._turns.state.replay.rows)[0]
    assert row[:6].tolist() == START.tolist()
    assert row[7:13].tolist() == after.tolist()


SETTINGS: dict[str, dict[str, Any]] = {
    "no options": {"options": {}},
    "no observation": {"observation_size": 0},
    "no action": {"n_actions": 0},
    "no horizon": {"horizon": 0},
    "half a horizon": {"horizon": 1.5},
    "more draws than there can be": {"horizon": 2**40},
    "seed -1": {"seed": -1},
    "a huge seed": {"seed": 2**70},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_an_agent_that_cannot_be_is_refused(case: str) -> None:
    given = {"options": small(), "observation_size": 6, "n_actions": 4, "horizon": HORIZON, **SETTINGS[case]}
    with pytest.raises(InvalidSetting):
        deep.DeepAgent(given.pop("options"), **given)


def test_a_constant_action_must_be_one() -> None:
    with pytest.raises(InvalidAction, match=r"0\.\.3, got 4"):
        new_agent("constant", action=4)


def spaced(observations: Any = None, actions: Any = None) -> Any:
    env = walk_env()
    env.observation_space = env.observation_space if observations is None else observations
    env.action_space = env.action_space if actions is None else actions
    return env


def test_environments_of_other_spaces_are_refused_by_name() -> None:
    from gymnasium.spaces import Box, Dict, Discrete

    def refused(env: Any, said: str, **options: Any) -> None:
        with pytest.raises(InvalidSetting, match=said):
            deep.DeepAgent.for_env(env, small(), **{"horizon": HORIZON, **options})

    refused("CartPole-v1", "'env' must be a gymnasium.Env")
    refused(spaced(Discrete(3)), "'observation_space' must be a Box")
    refused(spaced(Dict({"x": Box(0, 1)})), "FlattenObservation")
    refused(spaced(Box(0, 1, (0,))), "one number at least")
    refused(spaced(actions=Box(0, 1)), "'action_space' must be Discrete")
    refused(spaced(actions=Discrete(4, start=1)), "start at 0")
    refused(spaced(), "'horizon' must be given", horizon=None)
    agent = idle()
    before = content(agent)
    for env, said in ((spaced(actions=Discrete(3)), "6 and 3"), (spaced(Box(0, 1, (7,))), "7 and 4")):
        with pytest.raises(InvalidSetting, match=said):
            agent.play(env, episodes=1)
    for given in ({"episodes": 0}, {"episodes": 1, "seed": -1}):
        with pytest.raises(InvalidSetting):
            agent.play(walk_env(), **given)
    assert content(agent) == before


def test_sizes_and_horizon_are_taken_from_the_environment_and_tables_are_flattened() -> None:
    import gymnasium

    env = gymnasium.wrappers.TimeLimit(walk_env(shape=(2, 3)), HORIZON)
    env.unwrapped.spec = gymnasium.envs.registration.EnvSpec("Walk-v0", max_episode_steps=HORIZON)
    agent = deep.DeepAgent.for_env(env, small(), seed=3)
    assert (agent.observation_size, agent.n_actions, agent.horizon) == (6, 4, HORIZON)
    flat = idle()
    played, wanted = (list(who.play(on, episodes=2)) for who, on in ((agent, env), (flat, walk_env())))
    assert played == wanted
    with pytest.raises(InvalidData, match=r"shape \(2, 3\), got \(3, 2\)"):
        agent.begin(9, np.zeros((3, 2)))


def test_play_drives_an_environment_and_says_what_came_of_it() -> None:
    by_hand, agent, env = idle(), idle(), walk_env()
    summaries = list(agent.play(env, episodes=3, seed=7))
    assert env.seeds == [7, None, None]
    for k, summary in enumerate(summaries):
        decisions, state, rewards = go_on(by_hand, HORIZON), START, []
        by_hand.finish(k)
        for decision in decisions:
            state, reward = move(state, decision.action)
            rewards.append(reward)
        assert summary.number == k
        assert summary.returns == pytest.approx(sum(0.9**t * r for t, r in enumerate(rewards)))
        assert summary.rewards == pytest.approx(sum(rewards))
        assert summary.deficit == decisions[-1].deficit
        assert summary.explored == sum(decision.explored for decision in decisions)
        assert (summary.steps, summary.terminated) == (HORIZON, False)
    assert content(agent) == content(by_hand)


@pytest.mark.parametrize(("world", "ends"), [({"ends_at": 3}, 1.0), ({"cut_at": 3}, 0.0)])
def test_only_a_terminal_state_or_the_horizon_is_an_end_to_the_values(
    world: dict[str, Any], ends: float
) -> None:
    agent = idle()
    (summary,) = agent.play(walk_env(**world), episodes=1)
    assert (summary.steps, summary.terminated) == (3, bool(ends))
    assert agent.updates == 3
    # Two inputs of 7 numbers, then action, reward and end.
    rows = np.asarray(agent._turns.state.replay.rows)
    assert rows[:3, 16].tolist() == [0.0, 0.0, ends]
    whole = idle()
    list(whole.play(walk_env(), episodes=1))
    assert np.asarray(whole._turns.state.replay.rows)[:HORIZON, 16].tolist() == [0.0] * (HORIZON - 1) + [1.0]


def test_an_episode_that_the_world_breaks_off_is_abandoned() -> None:
    agent = idle()
    played = agent.play(walk_env(fails_at=3), episodes=2)
    with pytest.raises(RuntimeError, match="the world broke"):
        next(played)
    assert agent.open_episode is None
    assert agent.updates == 2
    assert len(list(agent.play(walk_env(), episodes=1))) == 1
