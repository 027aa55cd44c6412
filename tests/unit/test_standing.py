"""Standing as a value: its three parts, in words and in JSON, and the one place that derives it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from chary.agents import UCBVI, Baseline, CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.data import Bins
from chary.envs import inventory, riverswim
from chary.errors import InvalidData, InvalidSetting, UnknownName
from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.policies import OwnBaseline
from chary.simulation import simulate
from chary.standing import (
    LEVELS,
    LOSSES,
    MARKOV,
    MARKOV_CELLS,
    NETWORKS,
    OVERRIDES,
    OWN,
    STATIONARY,
    UNCONFOUNDED,
    Grounds,
    Standing,
)

SCALED = Bounds(family="hoeffding", scale=0.01)


def small(**declared: Any) -> Setting:
    return Setting.declare(**{"n_states": 3, "n_actions": 2, "horizon": 4, **declared})


def test_a_standing_survives_json() -> None:
    standing = Standing(level="calibrated", per="run", probability=0.9, given=("this", "that"))
    told = json.loads(json.dumps(standing.to_json()))
    assert Standing.from_json(told) == standing
    assert told["in_words"] == standing.describe()
    assert told["in_words"].endswith("It leans on this: this; that.")


@pytest.mark.parametrize(
    "broken", [{}, {"level": "sure", "per": "run", "probability": 1, "given": []}, "certified"]
)
def test_what_is_no_standing_is_refused(broken: Any) -> None:
    with pytest.raises(InvalidData, match="'standing' must have level, per, probability and given"):
        Standing.from_json(broken)


def test_levels_and_units_are_checked() -> None:
    with pytest.raises(UnknownName, match="'level' must be one of certified, credible, calibrated"):
        Standing(level="conditional", per="run", probability=0.9, given=())
    with pytest.raises(UnknownName, match="'per' must be one of run, episode"):
        Standing(level="certified", per="step", probability=0.9, given=())
    with pytest.raises(InvalidSetting, match="'probability' must lie in"):
        Standing(level="certified", per="run", probability=1.5, given=())


def test_every_weakness_is_in_given_whatever_the_others_are() -> None:
    """All combinations of weaknesses: none hides another, neither in the list nor in words."""
    weaknesses: dict[str, tuple[dict[str, Any], str]] = {
        "cells": ({"discretised": True}, MARKOV_CELLS),
        "logs": ({"logs": True}, UNCONFOUNDED),
        "inferred": ({"inferred": ("the states, read off the log",)}, "the states, read off the log"),
        "gaps": ({"rule": "capped", "step_bound": 0.05}, "no true gap of a baseline exceeds 0.05"),
        "scale": ({"bounds": SCALED}, "scale 0.01 of bonus hoeffding, which has no calibration"),
        "networks": ({"networks": True}, NETWORKS),
        "overrides": ({"overrides": "counted"}, OVERRIDES),
        "losses": ({"losses_expected": False}, LOSSES),
    }
    for some in itertools.chain.from_iterable(itertools.combinations(weaknesses, n) for n in range(9)):
        if {"scale", "networks"} <= set(some):
            continue
        options: dict[str, Any] = {"rule": "strict", "delta": 0.1, "eta": 0.1, "setting": small()}
        for name in some:
            options |= weaknesses[name][0]
        found = Grounds(**options).standing
        for name, (_, text) in weaknesses.items():
            assert any(text in each for each in found.given) == (name in some), (name, some)
            assert (text in found.describe()) == (name in some)
        assert any(each in (MARKOV, MARKOV_CELLS) for each in found.given)
        assert "cells" not in some or found.given[0] == MARKOV_CELLS
        weak = {"scale", "networks", "inferred"} & set(some)
        assert found.level == ("uncertified" if weak else "certified")
        assert found.probability == (None if weak else 0.9)


def test_a_calibration_counts_only_where_nothing_is_outside_it() -> None:
    grounds: dict[str, Any] = {"rule": "strict", "delta": 0.1, "eta": 0.1, "bounds": SCALED}
    fits = Grounds(**grounds, outside=(), calibrated_on="0 of 29 sibling runs failed").standing
    assert (fits.label, fits.given[0]) == ("calibrated per run (0.9)", "0 of 29 sibling runs failed")
    longer = Grounds(**grounds, outside=("calibrated for 1,000 episodes, played 50,000",)).standing
    assert longer.label == "uncertified per run"
    assert "outside its calibration: calibrated for 1,000 episodes, played 50,000" in longer.describe()
    certified = Grounds(**grounds | {"bounds": Bounds()}).standing
    assert certified.label == "certified per run (0.9)"


def test_a_prior_makes_a_promise_credible_per_episode() -> None:
    found = Grounds(rule="strict", delta=0.01, prior="rows of all actions are alike").standing
    assert found.label == "credible per episode (0.99)"
    assert found.given[0] == "the prior: rows of all actions are alike"
    assert found.describe().startswith("Credible per episode: under the prior and given the data, with")


@pytest.mark.parametrize(
    "grounds", [Grounds(), Grounds(rule="unlimited"), Grounds(rule="strict", eta=np.inf)]
)
def test_without_a_budget_nothing_is_promised(grounds: Grounds) -> None:
    found = grounds.standing
    assert (found.level, found.per, found.probability) == ("uncertified", None, None)
    assert (found.label, found.describe()) == ("no promise", "No budget is promised.")


def test_the_baseline_loses_nothing_compared_with_itself() -> None:
    assert Baseline().grounds().standing.label == "certified per run (1)"
    assert CharyUCBVI(rule="closed", bonus="bernstein").grounds().standing.label == "certified per run (1)"


def test_declarations_are_named_where_they_are_used() -> None:
    bare = CharyUCBVI(eta=0.1).grounds(small()).standing.given
    assert bare == (MARKOV, STATIONARY, "rewards lie in [0, 1], as declared")
    told = CharyUCBVI(eta=0.1).grounds(small(value_cap=1.0, support=2)).standing.given
    assert told[3:] == (
        "no policy is worth more than 1 per episode, the declared value cap",
        "at most 2 states can follow a state and an action, as declared",
    )
    # Bonus hoeffding has no use for the number of successors.
    plain = CharyUCBVI(eta=0.1, bonus="hoeffding").grounds(small(support=2)).standing.given
    assert plain == bare


def test_posterior_worlds_lean_on_the_declared_support() -> None:
    declared = Setting.declare(n_states=200, n_actions=2, horizon=2, support=3)
    worlds = CharyUCBVI(eta=0.1, bonus="posterior", world_prior="flat")
    said = "at most 3 states can follow a state and an action, as declared"
    assert said in worlds.grounds(declared).standing.given
    assert said in TabularAgent(worlds, declared).standing.given


def test_known_rewards_are_named_in_a_run_that_used_them() -> None:
    for reward in ("known", "estimated"):
        run = simulate(inventory(), CharyUCBVI(eta=0.4, reward=reward), episodes=1)
        assert ("rewards are known, as declared" in run.standing.given) == (reward == "known")
        assert run.summary()["standing"] == run.standing.to_json()
    assert simulate(riverswim(), UCBVI(), episodes=1).standing.per is None


def test_a_live_agent_names_what_was_really_used() -> None:
    setting = small()
    agent = TabularAgent(CharyUCBVI(eta=0.1), setting)
    assert {LOSSES, MARKOV} < set(agent.standing.given)
    assert not {UNCONFOUNDED, OVERRIDES, MARKOV_CELLS, *OWN.values()} & set(agent.standing.given)
    cells = Bins([[0.0, 1.0, 2.0, 3.0]])
    own = OwnBaseline.declare([0, 1, 1], setting, role="only")
    agent = TabularAgent(
        CharyUCBVI(eta=0.1), setting, own=own, losses=True, overrides="counted", discretiser=cells
    )
    agent.warm_start([[Transition(0, 0, 0.0, 0, False)]])
    assert agent.standing.given[0] == MARKOV_CELLS
    assert {UNCONFOUNDED, OVERRIDES, OWN["only"]} < set(agent.standing.given)
    assert not {LOSSES, MARKOV} & set(agent.standing.given)


def test_levels_are_ordered_from_the_strongest() -> None:
    assert LEVELS == ("certified", "credible", "calibrated", "uncertified")
