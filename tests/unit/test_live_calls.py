"""What a service asks besides the protocol: baseline on request, reports, and budgets of single episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.agents import UCBVI, Baseline, CharyUCBVI, StepMix, Transition
from chary.agents.tabular import TabularAgent
from chary.errors import InvalidAction, InvalidBudget, InvalidData, InvalidSetting, OutOfOrder
from chary.mdp import Setting
from chary.model.calibration import CalibrationRecord
from chary.shield import Ledger

Make = Callable[..., TabularAgent]
SETTING = Setting.declare(n_states=4, n_actions=2, horizon=3)
EUROS = Setting.declare(n_states=4, n_actions=2, horizon=3, reward_range=(-500.0, 0.0))


def agent(setting: Setting = SETTING, *, overrides: str = "ignored", **options: Any) -> TabularAgent:
    given: dict[str, Any] = {"eta": 0.5, "bonus": "hoeffding", "bonus_scale": 0.01} | options
    spec = CharyUCBVI(**given)
    mine = TabularAgent(spec, setting, max_episodes=100_000, overrides=overrides)
    low, span = setting.scale.low, setting.scale.span
    logged = [
        [Transition(s, a, low + span * 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)
    ]
    mine.warm_start(logged * 5)
    return mine


def worlds(**options: Any) -> TabularAgent:
    given: dict[str, Any] = {"eta": 0.5, "bonus": "posterior", "worlds": 8, "risk": 0.2} | options
    mine = TabularAgent(
        CharyUCBVI(**given),
        SETTING,
        generator=np.random.default_rng(5),
    )
    mine.warm_start([[Transition(s, a, 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)] * 5)
    return mine


def counted(mine: TabularAgent) -> int:
    return int(mine.plan.knowledge.rows.total.sum())


def content(mine: TabularAgent, folder: Path) -> bytes:
    mine.save(folder / "now", overwrite=True)
    return (folder / "now").read_bytes()


@pytest.mark.parametrize("make", [agent, worlds])
def test_without_exploring_the_baseline_is_played_and_the_chain_waits(
    make: Make,
) -> None:
    mine = make(eta=10.0)
    mine.begin(0, 0)
    first = mine.act(0, 0, 0)
    assert first.chain == 0
    mine.observe(0, Transition(0, first.action, 0.5, 1, False))
    held = mine.act(0, 1, 1, explore=False)
    assert (held.explored, held.charge, held.chain, held.vote) == (False, 0.0, -1, None)
    assert held.action == mine.plan_of(0).baseline(1, 1)
    assert held.deficit == first.deficit == mine.ledger(0).deficit
    assert mine.act(0, 1, 1) is held
    # The chain waits in state 1: another episode takes it up there.
    assert mine.stats().chains_waiting == 1
    mine.begin(1, 1)
    assert mine.act(1, 0, 1).chain == 0
    mine.observe(0, Transition(1, held.action, 0.5, 2, False))
    assert not mine.act(0, 2, 2).explored


def test_without_exploring_no_chain_begins_and_nothing_stalls(caplog: pytest.LogCaptureFixture) -> None:
    mine = agent(eta=10.0)
    for k in range(250):
        mine.begin(k, 0)
        a = mine.act(k, 0, 0, explore=False).action
        mine.observe(k, Transition(0, a, 0.5, 1, False))
        mine.finish(k)
    assert mine.shield is not None
    assert (mine.shield.started, mine.stats().explored) == (0, 0.0)
    assert sum((mine.stats().refused or {}).values()) == 0.0
    assert not caplog.records
    mine.begin("now", 0)
    assert mine.act("now", 0, 0).chain == 0


def test_many_decide_as_one_after_the_other_with_one_truth_for_all_or_one_each() -> None:
    each, both = agent(eta=10.0, pool=5), agent(eta=10.0, pool=5)
    for mine in (each, both):
        for k in range(4):
            mine.begin(k, 0)
    explore = [True, False, True, False]
    alone = [each.act(k, 0, 0, explore=explore[k]) for k in range(4)]
    assert both.act_many(range(4), [0] * 4, [0] * 4, explore=np.array(explore)) == alone
    assert [decision.explored for decision in alone] == explore
    again = agent()
    again.begin(0, 0)
    assert not again.act_many([0], [0], [0], explore=False)[0].explored
    with pytest.raises(InvalidData, match="'explore' must be as long as 'episodes', 1, got 2"):
        again.act_many([0], [0], [0], explore=[True, False])
    for wrong in (None, "no", 3):
        with pytest.raises(InvalidSetting, match="'explore' must be"):
            again.act(0, 0, 0, explore=wrong)  # type: ignore[arg-type]
        with pytest.raises((InvalidSetting, InvalidData), match="'explore' must be"):
            again.act_many([0], [0], [0], explore=[wrong])  # type: ignore[list-item]


def test_a_proposal_is_refused_where_nothing_is_to_be_explored(tmp_path: Path) -> None:
    mine = agent()
    mine.begin(0, 0)
    before = content(mine, tmp_path)
    with pytest.raises(InvalidSetting, match="'proposal' must be None with explore=False"):
        mine.act(0, 0, 0, proposal=1, explore=False)
    assert content(mine, tmp_path) == before


@pytest.mark.parametrize("spec", [Baseline(), UCBVI(), StepMix(eta=0.5)])
def test_agents_without_a_budget_play_their_baseline_too(spec: object) -> None:
    mine = TabularAgent(spec, SETTING, generator=np.random.default_rng(0))  # type: ignore[arg-type]
    mine.begin(0, 0)
    decision = mine.act(0, 0, 0, explore=False)
    assert (decision.explored, decision.action) == (False, mine.plan_of(0).baseline(0, 0))


@pytest.mark.parametrize("overrides", ["ignored", "counted"])
def test_a_reported_override_counts_as_one_observed(overrides: str) -> None:
    told, late = agent(overrides=overrides), agent(overrides=overrides)
    for mine in (told, late):
        before = counted(mine)
        mine.begin(0, 0)
        decision = mine.act(0, 0, 0)
        other = 1 - decision.action
        if mine is told:
            mine.taken(0, 0, other)
        mine.observe(0, Transition(0, other, 0.5, 1, False), taken=other)
        mine.finish(0)
        assert counted(mine) == before + (overrides == "counted")
    assert np.array_equal(told.plan.knowledge.rows.total, late.plan.knowledge.rows.total)


def test_a_reported_override_holds_back_nothing_of_the_pair_decided() -> None:
    mine = agent(eta=0.0)
    for k in range(2):
        mine.begin(k, 0)
        mine.act(k, 0, 0, explore=False)
    a = mine.act(1, 0, 0).action
    before = counted(mine)
    mine.taken(0, 0, 1 - a)
    mine.observe(1, Transition(0, a, 0.5, 1, False))
    mine.finish(1)
    assert counted(mine) == before + 1


def test_a_reported_override_that_is_lost_counts_for_the_action_played() -> None:
    mine = agent(overrides="counted")
    mine.begin(0, 0)
    decision = mine.act(0, 0, 0)
    mine.taken(0, 0, 1 - decision.action)
    mine.abandon(0)
    pair = int(SETTING.pair_index[0, 1 - decision.action])
    assert mine.plan.knowledge.lost.keys() == {pair}


def test_a_chain_waits_where_a_step_was_not_taken() -> None:
    mine = agent(eta=10.0)
    mine.begin(0, 0)
    assert mine.act(0, 0, 0).chain == 0
    mine.taken(0, 0, None)
    assert mine.shield is not None
    assert mine.shield.waiting_chains == 1
    mine.begin(1, 0)
    assert mine.act(1, 0, 0).chain == 0
    assert not mine.act(0, 1, 2).explored


def test_a_step_not_taken_never_counts_and_is_told_by_the_standing(tmp_path: Path) -> None:
    mine = agent()
    before = counted(mine)
    told = mine.standing.given
    mine.begin(0, 0)
    mine.act(0, 0, 0)
    mine.taken(0, 0, None)
    mine.act(0, 1, 1)
    mine.abandon(0)
    # The second step is lost, the first is nothing.
    assert counted(mine) == before + 1
    assert len(mine.plan.knowledge.lost) == 1
    assert set(mine.standing.given) - set(told) == {
        "actions that were not taken were left out by what the state shows and by chance"
    }
    mine.save(tmp_path / "agent")
    assert TabularAgent.load(tmp_path / "agent").standing == mine.standing


def test_leaving_out_bad_outcomes_as_not_taken_is_refused() -> None:
    """Whoever reports None once the outcome is known could make an action look better than it is."""
    mine = agent(eta=10.0)
    random = np.random.default_rng(0)
    refused = lost = 0
    for k in range(60):
        mine.begin(k, 0)
        a = mine.act(k, 0, 0).action
        if random.random() < 0.5:
            # A bad outcome: it is known where the step led before anybody says that it was not taken.
            mine.act(k, 1, 3)
            with pytest.raises(OutOfOrder, match="Whether a step counts must not depend on where it led"):
                mine.taken(k, 0, None)
            refused += 1
            # What remains is to say nothing: then the step counts as lost, and the bounds widen.
            mine.abandon(k)
            lost += 1
        else:
            mine.observe(k, Transition(0, a, 1.0, 1, False))
            with pytest.raises(InvalidAction, match="must be what was reported or observed"):
                mine.taken(k, 0, None)
            mine.finish(k)
    assert refused > 10
    rows = mine.plan.knowledge.rows
    lost_mass = sum(int(rows.weight[rows.begin[p] + rows.length[p] - 1]) for p in mine.plan.knowledge.lost)
    # The first and the second step of each.
    assert lost_mass == 2 * lost


def test_an_episode_may_have_a_budget_of_its_own(tmp_path: Path) -> None:
    mine = agent(EUROS, eta=250.0)
    for name, eta in (("own", 20.0), ("more", 400.0), ("spec", None)):
        mine.begin(name, 0, eta=eta)
    assert [mine.eta_of(name) for name in ("own", "more", "spec")] == [20.0, 400.0, 250.0]
    assert [mine.act(name, 0, 0, explore=False).remaining for name in mine.open_episodes] == [
        20.0,
        400.0,
        250.0,
    ]
    mine.save(tmp_path / "agent")
    copy = TabularAgent.load(tmp_path / "agent")
    assert content(copy, tmp_path) == (tmp_path / "agent").read_bytes()
    for each in (mine, copy):
        assert [each.eta_of(name) for name in each.open_episodes] == [20.0, 400.0, 250.0]
        assert each.act("own", 1, 1, proposal=0).deficit <= 20.0
    assert content(copy, tmp_path) == content(mine, tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"rule": "paper"}, InvalidSetting, "'eta' of one episode can be given with rules strict and capped"),
        ({"rule": "unlimited", "eta": None}, InvalidSetting, "with rule 'unlimited'"),
        ({}, InvalidBudget, "'eta' must lie in"),
    ],
)
def test_a_budget_of_its_own_that_no_promise_holds_for_is_refused(
    options: dict[str, Any], error: type[Exception], match: str, tmp_path: Path
) -> None:
    mine = agent(**options)
    before = content(mine, tmp_path)
    for wrong in (-1.0, float("inf"), float("nan"), "0.2"):
        with pytest.raises(error, match=match):
            mine.begin(0, 0, eta=wrong)  # type: ignore[arg-type]
    assert content(mine, tmp_path) == before


def test_a_budget_is_lowered_and_never_raised(tmp_path: Path) -> None:
    mine = agent(eta=0.5)
    mine.begin(0, 0)
    mine.tighten(0, 0.5)
    unchanged = content(mine, tmp_path)
    for wrong in (0.6, -0.1, float("nan"), float("inf"), "0.1"):
        with pytest.raises(InvalidBudget):
            mine.tighten(0, wrong)  # type: ignore[arg-type]
        assert content(mine, tmp_path) == unchanged
    mine.tighten(0, 0.3)
    with pytest.raises(InvalidBudget, match=r"at most the budget of the episode, 0.3, got 0.5"):
        mine.tighten(0, 0.5)
    assert (mine.eta_of(0), mine.act(0, 0, 0, explore=False).remaining) == (0.3, 0.3)
    with pytest.raises(OutOfOrder, match="'tighten' must name an open episode"):
        mine.tighten(1, 0.1)


@pytest.mark.parametrize("make", [agent, worlds])
@pytest.mark.parametrize("below", [0.0, 0.5, 0.999])
def test_nothing_is_afforded_below_what_was_spent(make: Make, below: float, tmp_path: Path) -> None:
    """Tightened after spending: no step that costs nothing, and no vote whose panel thinks better of it."""
    mine = make(eta=10.0)
    random = np.random.default_rng(2)
    met = 0
    for k in range(40):
        mine.begin(k, 0)
        s = 0
        for t in range(3):
            proposal = int(random.integers(2)) if random.random() < 0.5 else None
            spent = mine.ledger(k).deficit
            decision = mine.act(k, t, s, proposal=proposal)
            if mine.ledger(k).closed:
                assert (decision.explored, decision.charge, decision.deficit) == (False, 0.0, spent)
                assert decision.remaining == 0.0
                assert mine.eta_of(k) == pytest.approx(spent * below)
                met += 1
            elif decision.deficit > 0:
                mine.tighten(k, decision.deficit * below)
                assert mine.ledger(k) == Ledger(True, decision.deficit)
                mine = TabularAgent.load(_saved(mine, tmp_path))
                assert mine.ledger(k) == Ledger(True, decision.deficit)
            x = int(random.integers(3))
            mine.observe(k, Transition(s, decision.action, 0.5 * decision.action, x, False), t=t)
            s = x
        mine.finish(k)
    assert met > 5


def _saved(mine: TabularAgent, folder: Path) -> Path:
    mine.save(folder / "agent", overwrite=True)
    return folder / "agent"


def test_a_calibrated_budget_is_the_most_that_an_episode_may_have() -> None:
    spec = CharyUCBVI(eta=0.5, bonus="hoeffding", bonus_scale=0.01)
    record = CalibrationRecord(
        problem="clinic",
        bonus="hoeffding",
        bonus_scale=0.01,
        delta=0.1,
        reward="estimated",
        eta=0.5,
        rule="strict",
        after_refusal="pause",
        charge="coupled",
        pool=1000,
        clock="episode",
        data="all",
        chains=True,
        episodes=10,
        warmup=0,
        runs=29,
        failures=0,
        exploring=1.0,
    )
    mine = TabularAgent(replace(spec, calibration=record), SETTING, max_episodes=10)
    mine.begin(0, 0, eta=0.4)
    with pytest.raises(InvalidBudget, match=r"at most 0\.5, which was calibrated, got 0\.6"):
        mine.begin(1, 0, eta=0.6)
