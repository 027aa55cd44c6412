"""Declaring in one's own units: the range of rewards, known rewards, decisions, and files of both."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chary
from chary.data import read_policy, read_rewards
from chary.errors import CharyError, InvalidData, InvalidMDP
from chary.mdp.setting import RewardScale, Setting
from chary.policies import scaled_value

SIZE: dict[str, Any] = {"n_states": 3, "n_actions": 2, "horizon": 4}


def test_a_reward_range_is_a_scale() -> None:
    one, other = (
        Setting.declare(**SIZE, **each)
        for each in ({"reward_range": (-20, 80)}, {"scale": RewardScale(-20.0, 80.0)})
    )
    assert one.digest == other.digest
    assert Setting.declare(**SIZE).scale == (0.0, 1.0)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_cap_in_the_users_units_is_that_of_the_value(discount: float) -> None:
    setting = Setting.declare(**SIZE, reward_range=(-20, 80), value_cap=120.0, discount=discount)
    assert setting.value_cap == pytest.approx(scaled_value(120.0, setting))
    # No return exceeds H times the most, whatever was declared.
    assert Setting.declare(**SIZE, reward_range=(0, 10), value_cap=1e9).value_cap == 4.0


def test_a_function_and_a_table_declare_what_the_problem_tells() -> None:
    shop = chary.envs.inventory(capacity=3)
    scale, S, A = shop.scale, shop.n_states, shop.n_actions
    shape: dict[str, Any] = {
        "n_states": S,
        "n_actions": A,
        "horizon": shop.horizon,
        "allowed": shop.setting.allowed,
    }
    table = np.full((S, A, S), math.nan)
    for s, a in np.argwhere(shop.setting.allowed).tolist():
        x, _, r = shop.row(s, a)
        table[s, a, x] = scale.low + scale.span * r

    def earned(state: int, action: int, after: int) -> float | None:
        value = float(table[state, action, after])
        return None if math.isnan(value) else value

    shape["reward_range"] = (scale.low, scale.high)
    by_table = Setting.declare(**shape, reward=table).known
    by_function = Setting.declare(**shape, reward=earned).known
    assert by_table is not None
    assert by_function is not None
    for one, other in zip(by_table, by_function, strict=True):
        np.testing.assert_array_equal(one, other)
    # On what can happen it is the problem's own reward.
    for p in range(shop.setting.n_pairs):
        mine = slice(by_table.start[p], by_table.start[p + 1])
        theirs = slice(shop.row_start[p], shop.row_start[p + 1])
        np.testing.assert_array_equal(by_table.successor[mine], shop.successor[theirs])
        np.testing.assert_allclose(by_table.reward[mine], shop.reward[theirs], atol=1e-12)


def test_rewards_by_state_and_action_need_no_range() -> None:
    setting = Setting.declare(**SIZE, reward=lambda state, action: 30.0 * state - 10.0 * action)
    assert setting.scale == (-10.0, 60.0)
    assert setting.known is not None
    np.testing.assert_allclose(setting.known.other_low * 70 - 10, [0, -10, 30, 20, 60, 50])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reward": [[1, 2]]}, "'reward' must be a function, or a table of shape (3, 2) or (3, 2, 3)"),
        ({"reward": "free"}, "'reward' must be a table of numbers or a function"),
        ({"reward": lambda state: 1.0}, "of state and action, or of state, action and next state"),
        ({"reward": lambda s, a: "much"}, "'reward' must return numbers, got 'much' in state 0 for action 0"),
        ({"reward": [[1, math.nan]] * 3}, "must be known for every allowed action, got none in state 0"),
        ({"reward": [[1, 2]] * 3, "reward_range": (0, 1)}, "'reward' must lie in [0, 1], got 2 in state 0"),
        ({"reward": [[math.inf, 1]] * 3}, "'reward' must lie in [0, 1], got inf"),
        ({"reward_range": (3, 1)}, "'reward_range' must be finite with low < high"),
        ({"reward_range": 7}, "'reward_range' must be two numbers"),
        ({"reward_range": (0, 1), "scale": RewardScale()}, "'reward_range' must be given without a scale"),
        ({"reward_range": (-1, 1), "terminal": [0]}, "'reward_range' must start at 0 where episodes can end"),
        ({"reward_range": (-1, 1), "value_cap": -4}, "'value_cap' must lie in (-4, inf)"),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_rule(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidMDP) as refused:
        Setting.declare(**SIZE, **options)
    assert said in str(refused.value)


def decided(factor: float, bonus: str) -> list[Any]:
    """The decisions of one agent, with all rewards and the budget in units of which `factor` make one."""
    setting = Setting.declare(**SIZE, reward_range=(-2.0 * factor, 6.0 * factor))
    agent = chary.TabularAgent(chary.CharyUCBVI(eta=30.0 * factor, bonus=bonus, risk=0.2), setting)
    made = []
    for k in range(6):
        agent.begin(k, state=0)
        state = 0
        for t in range(4):
            decision = agent.act(k, t, state, proposal=(k + t) % 2)
            after = (state + decision.action + t) % 3
            earned = factor * (after - 1.0)
            agent.observe(k, chary.Transition(state, decision.action, earned, after, terminated=False))
            assert agent.ledger(k).deficit == decision.deficit
            made.append(decision)
            state = after
        agent.finish(k)
    return made


@pytest.mark.parametrize("bonus", ["kl", "posterior"])
def test_decisions_are_in_the_units_of_the_rewards(bonus: str) -> None:
    one, fifty = decided(1.0, bonus), decided(50.0, bonus)
    assert any(decision.charge > 0 for decision in one)
    for small, large in zip(one, fifty, strict=True):
        assert small.action == large.action
        for name in ("charge", "deficit", "remaining"):
            assert getattr(large, name) == pytest.approx(50.0 * getattr(small, name), abs=1e-9)
            assert getattr(large, f"{name}_scaled") == pytest.approx(getattr(large, name) / 400.0)
        assert 0 <= large.deficit <= 1500.0 * (1 + 1e-12)
        if bonus == "posterior" and large.vote is not None:
            assert f"worst world {large.vote.worst * 400.0:.3g}." in large.describe()


def test_a_saved_agent_decides_in_the_same_units(tmp_path: Path) -> None:
    setting = Setting.declare(**SIZE, reward_range=(0, 500))
    agent = chary.TabularAgent(chary.CharyUCBVI(eta=2000.0), setting)
    agent.begin("a", 0)
    first = agent.act("a", 0, 0, proposal=1)
    agent.save(tmp_path / "agent.npz")
    again = chary.TabularAgent.load(tmp_path / "agent.npz", setting=setting)
    assert again.act("a", 0, 0) == first
    assert first.span == 500.0
    assert first.deficit + first.remaining == pytest.approx(2000.0)


def test_a_policy_and_rewards_are_read_from_files(tmp_path: Path) -> None:
    policy, timed, rewards, by_next = (tmp_path / f"{name}.csv" for name in "abcd")
    policy.write_text("action,state\ntreat,low\nwait,high\n")
    timed.write_text("t,state,action\n0,0,1\n1,0,0\n")
    rewards.write_text("state,action,reward\n0,0,-1.5\n1,1,20\n")
    by_next.write_text("state,action,next_state,reward\n0,1,1,7\n")
    labels = {"state": ["low", "high"], "action": ["wait", "treat"]}
    assert read_policy(policy, n_states=3, labels=labels).tolist() == [1, 0, -1]
    assert read_policy(timed, n_states=1, horizon=2).tolist() == [[1], [0]]
    found = read_rewards(rewards, n_states=2, n_actions=2)
    assert (found[0, 0], found[1, 1], int(np.isnan(found).sum())) == (-1.5, 20.0, 2)
    assert read_rewards(by_next, n_states=2, n_actions=2)[0, 1, 1] == 7.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state,deed\n0,1\n", "must have the columns state, action or t, state, action, got 'state', 'deed'"),
        ("state,action\n0,\n", "'action' must be a whole number >= 0, got an empty cell in row 2"),
        ("state,action\n0,1\n0,1\n", "'action' must be declared once per state, got 1 as another in row 3"),
        ("state,action\n9,1\n", "'state' must lie in 0..1, got 9 in row 2"),
        ("t,state,action\n5,0,1\n", "'t' must lie in 0..1, got 5 in row 2"),
        ("", "must contain at least one row, got an empty file"),
        ("state,action\n", "must contain at least one row below its header"),
        ("state;action\n0;1,5\n", "'action' must be a whole number >= 0, got '1,5' in row 2"),
    ],
)
def test_a_faulty_policy_is_refused_with_its_row(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rule.csv"
    path.write_text(text)
    with pytest.raises(InvalidData) as refused:
        read_policy(path, n_states=2, horizon=2)
    assert said in str(refused.value)


@pytest.mark.parametrize("path", ["rule.txt", "nowhere.csv", "", 7, None])
def test_a_file_that_is_none_is_refused(path: Any) -> None:
    for call in (
        lambda: read_policy(path, n_states=2),
        lambda: read_rewards(path, n_states=2, n_actions=2),
    ):
        with pytest.raises(CharyError):
            call()
