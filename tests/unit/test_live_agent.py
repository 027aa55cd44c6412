"""Several episodes at once through the step API, one law at a time; any order of calls is a property test."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from chary.agents import Baseline, CharyUCBVI, Transition
from chary.agents._learner import Learner
from chary.agents.tabular import TabularAgent
from chary.data import Bins, load_discretiser
from chary.envs import make
from chary.envs.tabular_env import TabularEnv
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder
from chary.mdp import Setting
from chary.policies import ROLES, OwnBaseline

SETTING = Setting.declare(n_states=4, n_actions=2, horizon=3)


def agent(setting: Setting = SETTING, *, overrides: str = "ignored", **options: object) -> TabularAgent:
    given = {"eta": 0.5, "bonus": "hoeffding", "bonus_scale": 0.01} | options
    spec = CharyUCBVI(**given)  # type: ignore[arg-type]
    mine = TabularAgent(spec, setting, max_episodes=100_000, overrides=overrides)
    mine.warm_start([[Transition(s, a, 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)] * 5)
    return mine


def outcome(mine: TabularAgent, episode: int | str, s: int, x: int, t: int, end: bool = False) -> None:
    mine.observe(episode, Transition(s, mine.act(episode, t, s).action, 0.5, x, end), t=t)


def counted(mine: TabularAgent) -> int:
    return int(mine.plan.knowledge.rows.total.sum())


def test_outcomes_may_come_late_and_out_of_order() -> None:
    mine = agent()
    before = counted(mine)
    mine.begin("ward 3, bed 2", 0)
    mine.act("ward 3, bed 2", 0, 0)
    mine.act("ward 3, bed 2", 1, 1)
    mine.act("ward 3, bed 2", 2, 2)
    assert mine.outstanding == {"ward 3, bed 2": (0, 1, 2)}
    outcome(mine, "ward 3, bed 2", 2, 0, t=2)
    mine.finish("ward 3, bed 2")
    outcome(mine, "ward 3, bed 2", 0, 1, t=0)
    assert (counted(mine), mine.outstanding) == (before, {"ward 3, bed 2": (1,)})
    outcome(mine, "ward 3, bed 2", 1, 2, t=1)
    assert (counted(mine), mine.open_episodes) == (before + 3, ())


def test_a_late_outcome_must_agree_with_the_states_decided_in() -> None:
    mine = agent()
    mine.begin(0, 0)
    mine.act(0, 0, 0)
    a = mine.act(0, 0, 0).action
    mine.act(0, 1, 1)
    with pytest.raises(InvalidData, match="'next_state' must be the state decided in at step 1, 1, got 2"):
        mine.observe(0, Transition(0, a, 0.5, 2, False), t=0)
    with pytest.raises(InvalidData, match="'terminated' must be false where a state was left"):
        mine.observe(0, Transition(0, a, 0.5, 1, True), t=0)
    with pytest.raises(OutOfOrder, match="'t' must be given where several outcomes are outstanding"):
        mine.observe(0, Transition(0, a, 0.5, 1, False))
    outcome(mine, 0, 0, 1, t=0)
    with pytest.raises(InvalidData, match="must be what was observed at step 0 before"):
        mine.observe(0, Transition(0, a, 0.25, 1, False), t=0)
    outcome(mine, 0, 0, 1, t=0)


def test_an_episode_is_decided_by_the_plan_it_began_with() -> None:
    mine = agent()
    mine.begin("early", 0)
    early = mine.plan_of("early")
    baseline = np.array(early.arrays.baseline)
    for k in range(30):
        mine.begin(k, 0)
        for t, (s, x) in enumerate([(0, 1), (1, 2), (2, 0)]):
            outcome(mine, k, s, x, t)
        mine.finish(k)
    assert mine.plan_of("early") is early
    assert np.array_equal(early.arrays.baseline, baseline)
    assert early.knowledge.rows.total.sum() == counted(mine) - 90
    mine.begin("late", 0)
    assert mine.act("early", 0, 0).plan < mine.act("late", 0, 0).plan


def test_old_plans_live_only_while_an_episode_is_pinned_to_them() -> None:
    mine = agent()
    mine.begin("early", 0)
    plan = weakref.ref(mine.plan_of("early").knowledge.rows.total)
    for k in range(3):
        mine.begin(k, 0)
        outcome(mine, k, 0, 1, t=0)
        mine.finish(k)
    gc.collect()
    assert plan() is not None
    mine.abandon("early")
    gc.collect()
    assert plan() is None
    assert len(mine._learner._journal) == 0


def test_what_is_known_of_an_abandoned_episode_counts_and_the_rest_counts_as_lost() -> None:
    mine = agent()
    before = counted(mine)
    mine.begin("gone", 0)
    outcome(mine, "gone", 0, 1, t=0)
    decision = mine.act("gone", 1, 1)
    mine.abandon("gone")
    assert counted(mine) == before + 2
    assert list(mine.plan.knowledge.lost) == [SETTING.pair_index[1, decision.action]]
    with pytest.raises(OutOfOrder, match="'observe' must name an open episode, got 'gone'"):
        mine.observe("gone", Transition(1, 0, 0.5, 2, False), t=1)


def test_a_finished_episode_that_waits_takes_no_more_decisions() -> None:
    mine = agent()
    mine.begin(0, 0)
    mine.act(0, 0, 0)
    mine.finish(0)
    with pytest.raises(OutOfOrder, match=r"It is over\."):
        mine.act(0, 1, 1)
    with pytest.raises(OutOfOrder, match=r"which waits for the outcomes of steps \[0\]"):
        mine.finish(0)
    outcome(mine, 0, 0, 1, t=0)
    assert mine.open_episodes == ()


def test_contradictory_endings_of_open_episodes_are_refused_when_they_are_observed() -> None:
    mine = agent(Setting.declare(n_states=5, n_actions=2, horizon=3))
    mine.begin("a", 0)
    mine.begin("b", 0)
    outcome(mine, "a", 0, 4, t=0, end=True)
    mine.act("b", 0, 0)
    with pytest.raises(InvalidData, match="got 4, which is terminal"):
        mine.act("b", 1, 4)
    with pytest.raises(InvalidData, match="'terminated' must be true whenever a terminal state is reached"):
        outcome(mine, "b", 0, 4, t=0)


def test_warm_up_data_that_contradicts_itself_is_refused_as_a_whole() -> None:
    mine = agent(Setting.declare(n_states=5, n_actions=2, horizon=3))
    before = counted(mine)
    with pytest.raises(InvalidData, match="'terminated' must be true whenever a terminal state is reached"):
        mine.warm_start([[Transition(0, 0, 0.5, 4, True)], [Transition(0, 0, 0.5, 4, False)]])
    assert counted(mine) == before


@pytest.mark.parametrize("data", ["all", "meta"])
def test_many_at_once_decide_as_one_after_the_other(data: str) -> None:
    mdp = make("inventory")
    one, many = (agent(mdp.told("estimated"), eta=2.0, data=data) for _ in range(2))
    envs = [TabularEnv(mdp) for _ in range(12)]
    for round_ in range(4):
        states = [int(env.reset(seed=100 * round_ + i)[0]) for i, env in enumerate(envs)]
        names = [f"{round_}/{i}" for i in range(12)]
        for mine in (one, many):
            for name, state in zip(names, states, strict=True):
                mine.begin(name, state)
        for t in range(mdp.horizon):
            answers = many.act_many(names, np.full(12, t), np.array(states))
            assert answers == [one.act(name, t, s) for name, s in zip(names, states, strict=True)]
            assert many.act_many(names, [t] * 12, states) == answers
            for i, (env, decision) in enumerate(zip(envs, answers, strict=True)):
                x, reward, terminated, _, _ = env.step(np.int64(decision.action))
                step = Transition(states[i], decision.action, reward, int(x), terminated)
                one.observe(names[i], step)
                many.observe(names[i], step)
                states[i] = int(x)
        for mine in (one, many):
            for name in names:
                mine.finish(name)
    assert one.shield is not None
    assert one.shield.finished > 0
    assert one.plan.knowledge.rows.total.tolist() == many.plan.knowledge.rows.total.tolist()


@pytest.mark.parametrize(
    ("episodes", "steps", "states", "error"),
    [
        (["a", "a"], [0, 0], [0, 0], OutOfOrder),
        (["a", "b"], [0], [0, 0], InvalidData),
        (["a", "b"], [0, 1], [0, 0], OutOfOrder),
        (["a", "c"], [0, 0], [0, 0], OutOfOrder),
        (["a", ["b"]], [0, 0], [0, 0], OutOfOrder),
        (["a", "b"], [0, 0], [0, 7], InvalidData),
        ("ab", [0, 0], [0, 0], InvalidData),
        (["a", "b"], np.zeros((2, 1)), [0, 0], InvalidData),
    ],
)
def test_a_batch_with_a_mistake_in_it_decides_nothing(
    episodes: list[str], steps: list[int], states: list[int], error: type[CharyError]
) -> None:
    mine = agent()
    mine.begin("a", 0)
    mine.begin("b", 0)
    with pytest.raises(error):
        mine.act_many(episodes, steps, states)
    assert mine.outstanding == {}
    assert mine.shield is not None
    assert mine.shield.started == 0


def test_proposals_are_for_agents_with_a_budget_and_for_allowed_actions() -> None:
    mine = agent()
    mine.begin(0, 0)
    for wrong in (2, -1, 0.5, "1", True):
        with pytest.raises(InvalidAction, match="'proposal' must be"):
            mine.act(0, 0, 0, proposal=wrong)  # type: ignore[arg-type]
    decision = mine.act(0, 0, 0, proposal=1)
    assert decision.chain == -1
    plain = TabularAgent(Baseline(), SETTING)
    plain.begin(0, 0)
    with pytest.raises(InvalidSetting, match="'proposal' must be None for agent 'baseline', without"):
        plain.act(0, 0, 0, proposal=1)
    assert plain.outstanding == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_of_ones_own_is_what_an_agent_without_data_plays(role: str) -> None:
    own = OwnBaseline.declare([1, 0, 1, 0], SETTING, role=role)
    mine = TabularAgent(CharyUCBVI(eta=0.0, rule="closed"), SETTING, own=own)
    mine.begin(0, 0)
    assert [mine.act(0, t, s).action for t, s in enumerate([0, 1, 2])] == [1, 0, 1]


def test_a_policy_of_ones_own_is_given_alone_and_for_this_problem() -> None:
    own = OwnBaseline.declare([0, 0, 0], Setting.declare(n_states=3, n_actions=2, horizon=3), role="only")
    with pytest.raises(InvalidSetting, match="'own' must be declared for this problem"):
        TabularAgent(CharyUCBVI(eta=1.0), SETTING, own=own)
    mine = OwnBaseline.declare([0, 0, 0, 0], SETTING, role="only")
    with pytest.raises(InvalidSetting, match="'own' must come without a prior"):
        TabularAgent(CharyUCBVI(eta=1.0, prior=[0, 0, 0, 0]), SETTING, own=mine)
    with pytest.raises(InvalidSetting, match="'own' must be an OwnBaseline, got list"):
        TabularAgent(CharyUCBVI(eta=1.0), SETTING, own=[0, 0, 0, 0])  # type: ignore[arg-type]


def test_a_meta_rollout_is_learnt_from_when_its_last_outcome_is_known() -> None:
    mine = agent(data="meta", eta=10.0)
    assert isinstance(mine._learner, Learner)
    learnt = mine._learner._separate
    assert learnt is not None
    before = learnt.rows.total.sum()
    mine.begin(0, 0)
    for t, s in enumerate([0, 1, 2]):
        mine.act(0, t, s)
    outcome(mine, 0, 2, 0, t=2)
    mine.finish(0)
    assert mine.shield is not None
    assert (mine.shield.finished, learnt.rows.total.sum()) == (1, before)
    outcome(mine, 0, 0, 1, t=0)
    outcome(mine, 0, 1, 2, t=1)
    assert learnt.rows.total.sum() == before + 3


def test_a_discretiser_is_saved_with_the_agent_and_stays_with_it(tmp_path: Path) -> None:
    grid = Bins([[0.0, 1.0, 2.0], [0.0, 5.0, 9.0]])
    mine = agent()
    mine.save(tmp_path / "one.npz", discretiser=grid)
    TabularAgent.load(tmp_path / "one.npz").save(tmp_path / "two.npz")
    again = load_discretiser(tmp_path / "two.npz")
    assert again([[1.5, 3.0], [0.5, 7.0]]).tolist() == grid([[1.5, 3.0], [0.5, 7.0]]).tolist()
    mine.save(tmp_path / "without.npz", overwrite=True)
    assert load_discretiser(tmp_path / "without.npz").n_states == 4


def test_a_discretiser_of_too_many_states_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    mine = agent()
    with pytest.raises(InvalidSetting, match="'discretiser' must give the agent's 4 states at most"):
        mine.save(tmp_path / "agent.npz", discretiser=Bins([[0, 1, 2, 3], [0, 1, 2, 3]]))
    with pytest.raises(InvalidSetting, match="'discretiser' must be Bins or a Codebook"):
        mine.save(tmp_path / "agent.npz", discretiser=[0, 1])  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    mine.save(tmp_path / "agent.npz")
    with pytest.raises(InvalidData, match="an agent that was saved without one"):
        load_discretiser(tmp_path / "agent.npz")


def test_a_save_that_fails_leaves_the_agent_without_the_discretiser(tmp_path: Path) -> None:
    mine = agent()
    before = mine.standing
    with pytest.raises(CharyError, match="must be a file that can be written"):
        mine.save(tmp_path / "missing" / "agent.npz", discretiser=Bins([[0.0, 1.0, 2.0], [0.0, 5.0, 9.0]]))
    assert mine.standing == before


@pytest.mark.parametrize(("overrides", "data"), [("ignored", 0), ("counted", 1)])
def test_an_override_keeps_the_charge_and_counts_for_the_action_played_on_request(
    overrides: str, data: int
) -> None:
    mine = agent(overrides=overrides)
    mine.begin(0, 0)
    decision = mine.act(0, 0, 0)
    other = 1 - decision.action
    with pytest.raises(
        InvalidAction, match=rf"got {other}. If it was played all the same, pass taken={other}"
    ):
        mine.observe(0, Transition(0, other, 0.5, 1, False))
    with pytest.raises(InvalidAction, match=r"'taken' must be the action of the transition"):
        mine.observe(0, Transition(0, decision.action, 0.5, 1, False), taken=other)
    assert mine.outstanding == {0: (0,)}
    before = np.array(mine.plan.knowledge.rows.total)
    mine.observe(0, Transition(0, other, 0.5, 1, False), taken=other)
    mine.observe(0, Transition(0, other, 0.5, 1, False), t=0, taken=other)
    assert mine.act(0, 1, 1).deficit >= decision.deficit
    outcome(mine, 0, 1, 2, t=1)
    mine.finish(0)
    more = np.array(mine.plan.knowledge.rows.total) - before
    assert more[SETTING.pair_index[0, other]] == data
    assert more[SETTING.pair_index[0, decision.action]] == 0


def test_a_chain_waits_where_its_step_was_overruled() -> None:
    mine = agent(eta=10.0)
    mine.begin("overruled", 0)
    decision = mine.act("overruled", 0, 0)
    assert decision.chain == 0
    other = 1 - decision.action
    mine.observe("overruled", Transition(0, other, 0.5, 1, False), taken=other)
    assert mine.act("overruled", 1, 1).chain == -1
    mine.begin("next", 0)
    assert mine.act("next", 0, 0).chain == 0


def test_a_late_override_is_refused_once_its_chain_has_gone_on() -> None:
    mine = agent(eta=10.0)
    mine.begin(0, 0)
    decision = mine.act(0, 0, 0)
    mine.act(0, 1, 1)
    other = 1 - decision.action
    with pytest.raises(
        OutOfOrder, match="'taken' must be given before the next decision where a chain explored"
    ):
        mine.observe(0, Transition(0, other, 0.5, 1, False), t=0, taken=other)
    plain = TabularAgent(Baseline(), SETTING)
    plain.begin(0, 0)
    plain.act(0, 0, 0)
    plain.act(0, 1, 1)
    plain.observe(0, Transition(0, 1, 0.5, 1, False), t=0, taken=1)
    plain.act(0, 1, 1)
    assert plain.outstanding == {0: (1,)}


def test_an_overruled_step_is_saved_with_the_agent(tmp_path: Path) -> None:
    mine = agent()
    mine.begin(0, 0)
    other = 1 - mine.act(0, 0, 0).action
    mine.observe(0, Transition(0, other, 0.5, 1, False), taken=other)
    mine.save(tmp_path / "agent.npz")
    copy = TabularAgent.load(tmp_path / "agent.npz")
    for each in (mine, copy):
        outcome(each, 0, 1, 2, t=1)
        each.finish(0)
    assert counted(copy) == counted(mine)
    assert copy.plan.knowledge.rows.total.tolist() == mine.plan.knowledge.rows.total.tolist()
