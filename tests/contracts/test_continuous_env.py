"""Problems with continuous states: Gymnasium's own checks, their starts and facts, and bad calls."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from chary.envs import CONTINUOUS_IDS
from chary.envs.continuous import CONTINUOUS, CartPole, ContinuousEnv, Glucose, Plane, equations_of
from chary.envs.continuous.cartpole import FORCES
from chary.envs.continuous.plane import CLIMB, CURRENT, DRIFT, HURRY, LENGTH, TOP
from chary.envs.hiv import START, HIVEnv
from chary.errors import InvalidAction, InvalidData, InvalidSetting, OutOfOrder, UnknownName

BASAL, BOLUS, NONE = 2, 4, 0


def played(env: ContinuousEnv, actions: list[int], **options: Any) -> tuple[list[float], list[Any]]:
    """Play actions until the episode ends, and return rewards and states."""
    _, info = env.reset(seed=3, options=options or None)
    rewards, states = [], [info["state"]]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(np.int64(action))
        assert observation in env.observation_space
        rewards.append(reward)
        states.append(info["state"])
        if terminated or truncated:
            break
    return rewards, states


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_id_passes_gymnasiums_own_check(name: str) -> None:
    env = gymnasium.make(CONTINUOUS_IDS[name])
    assert isinstance(env.unwrapped, ContinuousEnv)
    assert env.unwrapped.equations == CONTINUOUS[name]()
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_rewards_lie_in_the_unit_interval_and_seeds_give_episodes(name: str) -> None:
    env = ContinuousEnv(equations_of(name, spread=0.1))
    actions = np.random.default_rng(5).integers(0, len(env.equations.actions), 200).tolist()
    rewards, states = played(env, actions)
    assert 0.0 <= min(rewards) <= max(rewards) <= 1.0
    assert len(rewards) == env.equations.horizon or name == "cartpole"
    again = played(env, actions)[1]
    np.testing.assert_array_equal(states, again)
    assert len(states[0]) == len(env.equations.quantities)
    # Other seeds start elsewhere.
    assert not np.array_equal(states[0], env.reset(seed=4)[1]["state"])


def test_a_falling_pole_earns_nothing_and_ends_the_episode() -> None:
    env = ContinuousEnv(CartPole(spread=0.0))
    rewards, states = played(env, [0] * 200)
    assert len(rewards) < 20
    assert rewards[-1] == 0.0
    assert abs(states[-1][2]) > 0.2094
    # One push at the centre costs a tenth, and none costs nothing.
    assert rewards[0] == pytest.approx(0.9)
    assert played(env, [2])[0] == [1.0]
    played(env, [0] * 200)
    with pytest.raises(OutOfOrder):
        env.step(np.int64(0))


def test_basal_insulin_holds_the_glucose_an_overdose_lowers_and_none_raises_it() -> None:
    env = ContinuousEnv(Glucose())
    # Until breakfast nothing disturbs the equilibrium.
    _, states = played(env, [BASAL] * 4)
    np.testing.assert_allclose(states[-1][:6], states[0][:6], rtol=1e-12)
    # Over the day it returns to it, after rises that are neither harmless nor extreme.
    rewards, states = played(env, [BASAL] * 96)
    glucose = np.array(states)[:, 0]
    assert 180.0 < glucose.max() < 300.0
    assert 88.0 < sum(rewards) < 96.0
    rewards, states = played(env, [BOLUS] * 96)
    assert np.array(states)[:, 0].min() < 40.0
    rewards, states = played(env, [NONE] * 96)
    assert np.array(states)[-1, 0] > 400.0
    assert sum(rewards) < 30.0


def test_more_insulin_never_means_more_glucose() -> None:
    env = ContinuousEnv(Glucose())
    paths = [np.array(played(env, [action] * 96)[1])[:, 0] for action in range(5)]
    for less, more in pairwise(paths):
        assert (more <= less + 1e-9).all()
        assert (more[1:] < less[1:]).all()


def test_drifting_reaches_the_foot_and_only_an_unbroken_climb_the_top() -> None:
    env = ContinuousEnv(Plane(spread=0.0))
    to_foot = round(LENGTH / CURRENT)
    rewards, states = played(env, [DRIFT] * 30)
    assert states[to_foot][0] == LENGTH > states[to_foot - 1][0]
    rewards, states = played(env, [DRIFT] * to_foot + [CLIMB] * 12)
    heights = [float(state[1]) for state in states]
    assert max(heights) == TOP == heights[-1]
    top = heights.index(TOP)
    assert set(rewards[top - 1 :]) == {1.0}
    # One pause loses all height.
    broken = [DRIFT] * to_foot + [CLIMB] * 4 + [DRIFT]
    assert played(env, broken[:-1])[1][-1][1] > 1.0
    assert played(env, broken)[1][-1][1] < 1.0
    # Hurrying arrives in half the steps.
    assert played(env, [HURRY] * (to_foot // 2))[1][-1][0] == LENGTH


def test_random_starts_of_hiv_are_factors_around_the_untreated_state() -> None:
    env = HIVEnv(5, spread=0.3)
    starts = np.array([env.reset(seed=seed)[1]["state"] for seed in range(50)])
    factors = np.log10(starts / START)
    assert (abs(factors) <= 0.3).all()
    assert factors.std(axis=0).min() > 0.1
    np.testing.assert_array_equal(env.reset(seed=7)[1]["state"], starts[7])
    # A state that is given is taken as it is.
    assert env.reset(options={"state": START})[1]["state"].tolist() == START.tolist()
    with pytest.raises(InvalidSetting, match=r"'spread' must lie in \[0, 1\], got 2"):
        HIVEnv(5, spread=2.0)


def test_what_makes_no_sense_is_refused_in_a_sentence() -> None:
    for kind, largest in ((CartPole, "0.2"), (Glucose, "0.5"), (Plane, "0.5")):
        for wrong in (-0.1, 0.9, np.nan):
            with pytest.raises(InvalidSetting, match=rf"'spread' must lie in \[0, {largest}\]"):
                kind(spread=wrong)
    with pytest.raises(UnknownName, match="Did you mean 'glucose'"):
        equations_of("glucos")
    with pytest.raises(UnknownName, match=r"an option of 'plane'.*got 'patient'"):
        equations_of("plane", patient=3)
    with pytest.raises(InvalidSetting, match="'equations' must be"):
        ContinuousEnv("plane")  # type: ignore[arg-type]
    env = ContinuousEnv(Plane())
    with pytest.raises(OutOfOrder):
        env.step(np.int64(0))
    env.reset()
    for action in (-1, 6, 1.5, "0", None, True):
        with pytest.raises(InvalidAction, match=r"in 0\.\.5"):
            env.step(action)  # type: ignore[arg-type]
    for state in ([1.0], [np.nan, 0.0], "here", None, [[0.0, 0.0]]):
        with pytest.raises(InvalidData, match="'state' must contain 2"):
            env.reset(options={"state": state})
    with pytest.raises(InvalidSetting, match="'options' must contain nothing but 'state'"):
        env.reset(options={"place": 1})
    assert len(FORCES) == len(CartPole.actions)


def deficit_and_return(actions: list[int], discount: float = 0.95) -> tuple[float, float]:
    """Return z* of eq. (1) against drifting for ever, and the discounted return, of a plan in the plane."""
    env = ContinuousEnv(Plane(spread=0.0))
    rewards, states = played(env, actions)
    drifting = [worth(env, state, len(actions) - t, discount) for t, state in enumerate(states)]
    gaps = [drifting[t] - rewards[t] - discount * drifting[t + 1] for t in range(len(actions))]
    earned = np.dot(rewards, discount ** np.arange(len(actions)))
    return float(np.maximum(gaps, 0.0).sum()), float(earned)


def worth(env: ContinuousEnv, state: Any, steps: int, discount: float) -> float:
    """Return the discounted return of drifting from a state for so many steps."""
    rewards = played(env, [DRIFT] * steps, state=state)[0] if steps else []
    return float(np.dot(rewards, discount ** np.arange(steps)))


def test_the_climb_is_worth_a_third_of_the_budget_and_hurrying_twice_as_much() -> None:
    drift = deficit_and_return([DRIFT] * 30)
    climb = deficit_and_return([DRIFT] * 12 + [CLIMB] * 6 + [DRIFT] * 12)
    both = deficit_and_return([HURRY] * 6 + [CLIMB] * 6 + [DRIFT] * 18)
    assert list(drift) == pytest.approx([0.0, 7.42], abs=0.01)
    assert list(climb) == pytest.approx([1.0, 8.97], abs=0.01)
    assert list(both) == pytest.approx([2.86, 8.65], abs=0.01)
    assert drift[1] < both[1] < climb[1]
