"""Explanations and recommendations: what they tell is what `act` does, and nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_live_calls import EUROS, SETTING, agent, content, worlds

from chary.agents import UCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.errors import InvalidAction, InvalidData, OutOfOrder
from chary.planner._backup import LOWER, UPPER
from chary.planner.plan import policy_values

MAKES = {
    "bounds": lambda: agent(eta=0.8, pool=3),
    "kl": lambda: agent(eta=0.8, bonus="kl", bonus_scale=1.0),
    "euros": lambda: agent(EUROS, eta=400.0),
    "meta clock": lambda: agent(eta=10.0, clock="meta", data="meta"),
    "capped": lambda: agent(eta=0.8, rule="capped", step_bound=0.1),
    "paper": lambda: agent(eta=0.8, rule="paper", charge="paper"),
    "worlds": lambda: worlds(eta=0.8),
    "quantile": lambda: worlds(eta=0.8, charge="quantile"),
    "no budget": lambda: TabularAgent(UCBVI(), SETTING, generator=np.random.default_rng(0)),
}


def reward(mine: TabularAgent, a: int) -> float:
    return mine.setting.scale.low + mine.setting.scale.span * 0.5 * a


@pytest.mark.parametrize("make", MAKES.values(), ids=list(MAKES))
def test_a_recommendation_is_what_act_returns_and_changes_nothing(make: Any, tmp_path: Path) -> None:
    """Along random walks with late outcomes, reports, tightened budgets and several episodes."""
    mine, random = make(), np.random.default_rng(4)
    explored = 0
    for k in range(25):
        mine.begin(k, int(random.integers(3)))
        s = mine._episodes.named("begin", k).state
        for t in range(3):
            before = content(mine, tmp_path)
            explanation = mine.explain(k, t, s)
            told = mine.recommend(k, t, s)
            assert content(mine, tmp_path) == before
            hold = random.random() < 0.2
            decision = mine.act(k, t, s, explore=not hold)
            if not hold:
                assert decision == told
                if decision.explored:
                    explored += 1
                    assert explanation.proposals[-1] == decision.action
                    view = next(view for view in explanation.actions if view.action == decision.action)
                    if mine.shield is not None:
                        assert (view.affordable, view.vote) == (True, decision.vote)
                        assert view.charge == pytest.approx(decision.charge, abs=1e-9)
                else:
                    views = {view.action: view for view in explanation.actions}
                    assert not any(views[a].affordable for a in explanation.proposals)
            assert decision.deficit == pytest.approx(explanation.deficit + decision.charge)
            assert explanation.baseline == mine.plan_of(k).baseline(t, s)
            x = int(random.integers(3))
            if random.random() < 0.6:
                step = Transition(s, decision.action, reward(mine, decision.action), x, False)
                mine.observe(k, step, t=t)
            s = x
        if random.random() < 0.5:
            mine.finish(k)
        elif random.random() < 0.5:
            mine.abandon(k)
    assert explored > 5


@pytest.mark.parametrize("make", [MAKES["bounds"], MAKES["worlds"], MAKES["paper"]])
def test_a_step_decided_before_is_explained_as_it_was(make: Any) -> None:
    mine, random = make(), np.random.default_rng(1)
    for k in range(30):
        mine.begin(k, 0)
        made, s = [], 0
        for t in range(3):
            made.append((t, s, mine.explain(k, t, s), mine.act(k, t, s)))
            if k % 3 == 0 and t == 1 and mine.ledger(k).deficit:
                if mine.spec.rule == "strict":
                    mine.tighten(k, mine.ledger(k).deficit / 2)
            if t == 0 and k % 2:
                # Other episodes change the counts and the plan of those that follow.
                mine.begin("other", 1)
                mine.observe("other", Transition(1, mine.act("other", 0, 1).action, 0.5, 2, False))
                mine.finish("other")
            s = int(random.integers(3))
        if k % 2:
            # Its outcomes are outstanding, but its account is closed.
            mine.finish(k)
            t, state, _, decision = made[-1]
            mine.observe(k, Transition(state, decision.action, 0.5, 1, False), t=t)
        for t, state, before, decision in made:
            again = mine.explain(k, t, state)
            assert again.decision == decision
            assert (again.actions, again.deficit, again.plan) == (before.actions, before.deficit, before.plan)
            assert again.remaining == before.remaining
            assert again.proposals == ((decision.action,) if decision.explored else ())
        mine.abandon(k)


def test_values_are_those_of_the_plan() -> None:
    mine = agent(EUROS, eta=400.0)
    mine.begin(0, 0)
    plan, low, span = mine.plan_of(0), -500.0, 500.0
    for t, s in ((0, 0), (0, 1), (2, 2)):
        for sign, name in ((LOWER, "lower"), (UPPER, "upper")):
            for a in range(2):
                # The policy that plays `a` here and the baseline elsewhere.
                policy = np.array(plan.arrays.baseline)
                policy[t, s] = a
                worth = policy_values(plan.knowledge, policy, sign)[t, s] * span + low * (3 - t)
                lower, upper = (each[a] * span + low * (3 - t) for each in plan.values(t, s))
                assert (lower if name == "lower" else upper) == pytest.approx(worth, abs=1e-9)
    views = mine.explain(0, 0, 0).actions
    assert [view.action for view in views] == [0, 1]
    assert all(-1500.0 <= view.lower <= view.upper <= 0.0 for view in views)  # type: ignore[operator]


def test_values_of_worlds_are_their_gaps_from_the_baseline() -> None:
    mine = worlds()
    mine.begin(0, 0)
    plan = mine.plan_of(0)
    for t, s in ((0, 0), (1, 2)):
        value = plan.arrays.value[t, s, : plan.arrays.judges]
        for a in range(2):
            gaps = np.maximum(value - plan.values(t, s, a), 0.0)
            assert gaps == pytest.approx(plan.charges(t, s, a), abs=1e-12)
    view = mine.explain(0, 0, 0).actions[0]
    assert (view.lower, view.upper) == (None, None)
    assert view.sd is not None
    assert view.sd > 0


def test_an_explanation_says_it_in_words() -> None:
    mine = agent(EUROS, eta=0.0)
    mine.begin("patient 17", 0)
    other = 1 - mine.plan_of("patient 17").baseline(0, 0)
    said = mine.explain("patient 17", 0, 0).describe()
    assert said.startswith("Step 0 of episode 'patient 17' in state 0: deficit 0, remaining 0, plan 1.")
    assert f"Action {other}: worth" in said
    assert "not affordable." in said
    mine.act("patient 17", 0, 0)
    assert "Decided: Action" in mine.explain("patient 17", 0, 0).describe()


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    mine = agent()
    mine.begin(0, 0)
    before = content(mine, tmp_path)
    for call in (mine.explain, mine.recommend):
        with pytest.raises(OutOfOrder):
            call(1, 0, 0)
        with pytest.raises(OutOfOrder):
            call(0, 1, 0)
        with pytest.raises(InvalidData):
            call(0, 0, 1)
    with pytest.raises(InvalidAction):
        mine.recommend(0, 0, 0, proposal=5)
    assert content(mine, tmp_path) == before
