"""What the step API refuses, and what it must not forget."""

from __future__ import annotations

import re

import numpy as np
import pytest

import chary
from chary.agents import AgentSpec
from chary.errors import InvalidData, InvalidMDP, InvalidSetting
from chary.mdp import RewardScale

SHAPE = {"n_states": 3, "n_actions": 2, "horizon": 4}


def told(**more: object) -> chary.Setting:
    return chary.Setting.declare(**{**SHAPE, **more})  # type: ignore[arg-type]


def agent(spec: AgentSpec | None = None, **more: object) -> chary.TabularAgent:
    return chary.TabularAgent(spec or chary.CharyUCBVI(eta=0.5), told(), **more)  # type: ignore[arg-type]


def step(s: int, a: int, r: float, x: int, ended: bool = False) -> chary.Transition:
    return chary.Transition(s, a, r, x, ended)


def test_the_frozen_baseline_is_that_of_the_warm_up_however_early_it_was_asked_for() -> None:
    early, late = agent(chary.Frozen()), agent(chary.Frozen())
    good = [[step(0, 1, 1.0, 0)] * 4] * 200
    assert early.frozen_baseline[0, 0] == 0
    early.warm_start(good)
    late.warm_start(good)
    assert late.frozen_baseline[0, 0] == 1
    np.testing.assert_array_equal(early.frozen_baseline, late.frozen_baseline)


@pytest.mark.parametrize("spec", [chary.Random(), chary.StepMix(eta=0.1), chary.EpsMix(eta=0.1)])
def test_agents_that_toss_coins_need_a_generator(spec: AgentSpec) -> None:
    with pytest.raises(InvalidSetting, match="'generator' must be given"):
        agent(spec)


def test_l1_refuses_more_data_than_it_was_told_of() -> None:
    mine = agent(chary.CharyUCBVI(eta=0.5, bonus="l1"), max_episodes=10, warmup=1)
    with pytest.raises(InvalidSetting, match="'warmup' must cover"):
        mine.warm_start([[step(0, 0, 0.0, 0)] * 4] * 2)
    mine.warm_start([[step(0, 0, 0.0, 0)] * 4])


def test_bounds_refuse_to_go_beyond_the_declared_episodes() -> None:
    mine = agent(chary.CharyUCBVI(eta=0.5, bonus="hoeffding"), max_episodes=1)
    mine.begin(0, 0)
    with pytest.raises(InvalidSetting, match="'max_episodes' must cover every episode, got 1"):
        mine.begin(1, 0)
    with pytest.raises(InvalidSetting, match="'max_episodes' must be declared with bonus 'hoeffding'"):
        agent(chary.CharyUCBVI(eta=0.5, bonus="hoeffding"))


def test_a_state_ends_episodes_or_it_does_not() -> None:
    mine = agent()
    mine.warm_start([[step(0, 0, 1.0, 2, True)]])
    for later in (step(2, 0, 1.0, 0), step(0, 0, 1.0, 2)):
        with pytest.raises(InvalidData, match="'terminated' must be true whenever"):
            mine.warm_start([[later]])
    other = agent()
    other.warm_start([[step(1, 0, 0.5, 0)]])
    with pytest.raises(InvalidData, match="'terminated' must be false where a state was left before"):
        other.warm_start([[step(0, 0, 0.5, 1, True)]])


def test_an_offset_is_refused_where_episodes_can_end_early() -> None:
    with pytest.raises(InvalidMDP, match="'scale' must start at 0"):
        told(terminal=[2], scale=RewardScale(-1.0, 1.0))
    mine = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), told(scale=RewardScale(-1.0, 1.0)))
    with pytest.raises(InvalidData, match="'terminated' must be false where rewards have an offset"):
        mine.warm_start([[step(0, 0, 0.0, 2, True)]])


def test_a_reward_function_is_known_only_where_it_was_declared() -> None:
    with pytest.raises(InvalidSetting, match="'reward' can be 'known' only where"):
        agent(chary.CharyUCBVI(eta=0.5, reward="known"))
    shop = chary.envs.inventory()
    mine = chary.TabularAgent(chary.CharyUCBVI(eta=0.5, reward="known"), shop.told("known"))
    mine.begin(0, 0)
    action = mine.act(0, 0, 0).action
    with pytest.raises(InvalidData, match="'reward' must be the declared one"):
        mine.observe(0, step(0, action, 0.99, 0))
    blind = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), shop.told("known"))
    assert blind.setting.known is None


@pytest.mark.parametrize("prior", [[9, 9, 9], [0, 0], [[0.0, 0.0]] * 3])
def test_a_prior_handed_in_is_checked(prior: object) -> None:
    with pytest.raises(InvalidSetting, match="'prior' must"):
        agent(prior=prior)


def test_only_agents_of_chary_are_simulated() -> None:
    with pytest.raises(InvalidSetting, match=re.escape("'agent' must be one of CharyUCBVI, UCBVI")):
        chary.simulate(chary.envs.riverswim(), AgentSpec(), episodes=1)


def test_chains_is_a_yes_or_no() -> None:
    with pytest.raises(InvalidSetting, match="'chains' must be True or False, got 'off'"):
        chary.CharyUCBVI(eta=0.5, chains="off")  # type: ignore[arg-type]


def test_hoeffding_covers_rewards_where_values_are_capped_below_them() -> None:
    # Reward 1 with probability .001, one step, values capped at .002: a mean reward still moves by 1 / N.
    S, A = 60, 10
    P, R = np.zeros((S, A, S)), np.zeros((S, A, S))
    P[:, :, 0], P[:, :, 1] = 0.999, 0.001
    R[:, :, 1] = 1.0
    rare = chary.FiniteMDP.from_arrays(P, R, horizon=1, value_cap=0.002, start=np.full(S, 1 / S))
    spec = chary.CharyUCBVI(eta=0.1, bonus="hoeffding")
    failed = [
        chary.simulate(rare, spec, episodes=10, warmup=1500, seed=i, coverage="everywhere").value_failed.any()
        for i in range(20)
    ]
    assert not any(failed)


def test_what_was_measured_stays_what_it_was() -> None:
    run = chary.simulate(chary.envs.riverswim(), chary.CharyUCBVI(eta=0.3), episodes=3, record_steps=True)
    assert run.steps is not None
    for array in (run.regret, run.chains.episodes, run.steps.action):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_what_was_not_looked_at_is_not_reported_as_zero() -> None:
    bare = chary.simulate(chary.envs.riverswim(), chary.UCBVI(), episodes=3).summary()
    assert bare["value_coverage_failures"] is None
    assert (
        chary.simulate(chary.envs.riverswim(), chary.UCBVI(), episodes=3, coverage="everywhere").summary()[
            "value_coverage_failures"
        ]
        == 0
    )
