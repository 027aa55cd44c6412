"""The HIV environment: Gymnasium's own checks, units and starts; bad calls of it and of the simulator."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from chary.envs.hiv import HORIZON, PATIENTS, START, HIVEnv, observe, patient, step, step_many
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder, UnknownName

# So much virus that cells die faster than any step could follow.
IMPOSSIBLE: list[float] = [1e5, 5.0, 1e4, 40.0, 1e300, 24.0]


@pytest.mark.parametrize("options", [{}, {"patient": 5}, {"patient": 2, "standardise": False}])
def test_the_id_passes_gymnasiums_own_check(options: dict[str, Any]) -> None:
    import chary.envs  # noqa: F401

    env = gymnasium.make("chary/HIV-v0", **options)
    assert isinstance(env.unwrapped, HIVEnv)
    assert env.unwrapped.patient.name == options.get("patient", "base")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("name", PATIENTS)
def test_an_episode_is_200_steps_and_always_the_same(name: str | int) -> None:
    episodes = []
    for seed in (1, 2):
        env = HIVEnv(name)
        observation, info = env.reset(seed=seed)
        assert info["state"].tolist() == START.tolist()
        steps: list[object] = [observation.tobytes()]
        for t in range(HORIZON):
            observation, reward, terminated, truncated, info = env.step(np.int64(t % 4))
            assert observation in env.observation_space
            assert not terminated
            assert truncated == (t == HORIZON - 1)
            steps.append((observation.tobytes(), reward, info["raw_reward"], info["state"].tobytes()))
        episodes.append(steps)
    assert episodes[0] == episodes[1]


@pytest.mark.parametrize("name", PATIENTS)
def test_standardised_units_are_raw_ones_less_their_mean_over_their_deviation(name: str | int) -> None:
    standard, raw = HIVEnv(name), HIVEnv(name, standardise=False)
    standard.reset()
    raw.reset()
    who = patient(name)
    for action in (0, 3, 1, 2):
        seen, reward, _, _, info = standard.step(np.int64(action))
        logs, raw_reward, _, _, raw_info = raw.step(np.int64(action))
        assert info["raw_reward"] == raw_info["raw_reward"] == raw_reward
        assert reward == pytest.approx((raw_reward - who.reward_mean) / who.reward_std)
        np.testing.assert_allclose(logs, np.log10(info["state"]), rtol=1e-6)
        np.testing.assert_allclose(seen, observe(info["state"]), rtol=1e-5)


def test_an_episode_starts_wherever_it_is_told() -> None:
    env = HIVEnv(3)
    begin = [1e6, 600.0, 0.0, 6.0, 400.0, 3e5]
    observation, info = env.reset(options={"state": begin})
    assert info["state"].tolist() == begin
    assert observation in env.observation_space
    after, reward = step(begin, 2, patient=3)
    _, _, _, _, info = env.step(np.int64(2))
    assert info["state"].tobytes() == after.tobytes()
    assert info["raw_reward"] == reward
    # What is handed out is a copy.
    info["state"][:] = -1.0
    assert env.step(np.int64(0))[4]["state"].min() > 0.0


@pytest.mark.parametrize("action", [-1, 4, 1.0, "0", None, True, [1], np.array([1])])
def test_an_action_that_is_none_is_refused_and_nothing_happens(action: Any) -> None:
    env = HIVEnv()
    env.reset()
    with pytest.raises(InvalidAction, match=r"in 0\.\.3, got"):
        env.step(action)
    with pytest.raises(InvalidAction):
        step_many([START], [action])
    assert env.step(np.int64(0))[4]["state"].tobytes() == step(START, 0)[0].tobytes()


BAD_STATES = [
    [1.0, 1.0, 1.0, 1.0, -1e-9, 1.0],
    [1.0, 1.0, np.nan, 1.0, 1.0, 1.0],
    [np.inf, 1.0, 1.0, 1.0, 1.0, 1.0],
    [1.0] * 5,
    [[1.0] * 6],
    3.0,
    None,
    "healthy",
    ["a"] * 6,
    [1.0, [2.0]],
    [1j] * 6,
]


@pytest.mark.parametrize("state", BAD_STATES)
def test_a_state_that_is_none_is_refused_and_the_episode_goes_on(state: Any) -> None:
    env = HIVEnv()
    env.reset()
    with pytest.raises(InvalidData, match="'state' must"):
        env.reset(options={"state": state})
    with pytest.raises(InvalidData, match="'state' must"):
        step(state, 0)
    with pytest.raises(InvalidData, match="'state' must"):
        step_many([state, state], [0, 0])
    assert env.step(np.int64(0))[4]["state"].tobytes() == step(START, 0)[0].tobytes()


def test_the_message_names_the_concentration_that_is_wrong() -> None:
    with pytest.raises(InvalidData, match=r"got V = -1\.0"):
        step([1.0, 1.0, 1.0, 1.0, -1.0, 1.0], 0)


@pytest.mark.parametrize("name", ["Base", "5", 6, -1, 1.0, None, True, [], {}, np.array([1])])
def test_an_unknown_patient_is_refused(name: Any) -> None:
    for call in (lambda: HIVEnv(name), lambda: patient(name), lambda: step(START, 0, patient=name)):
        with pytest.raises(UnknownName, match=r"'patient' must be 'base' or a whole number in 0\.\.5"):
            call()


def test_patients_of_a_batch_are_as_many_as_states() -> None:
    with pytest.raises(InvalidData, match="'patient' must be one or 2"):
        step_many([START, START], [0, 0], patient=[1, 2, 3])
    with pytest.raises(UnknownName):
        step_many([START, START], [0, 0], patient=[1, 9])
    with pytest.raises(InvalidAction):
        step_many([START, START], [0])


def test_what_cannot_be_integrated_is_an_error_that_names_state_and_action() -> None:
    with pytest.raises(InvalidData, match=r"V = 1e\+300, E = 24 under action 2"):
        step(IMPOSSIBLE, 2)
    with pytest.raises(InvalidData, match=r"V = 1e\+300, E = 24 under action 1"):
        step_many([START.tolist(), IMPOSSIBLE], [0, 1])
    env = HIVEnv()
    env.reset(options={"state": IMPOSSIBLE})
    for _ in range(2):
        with pytest.raises(InvalidData, match="under action 3"):
            env.step(np.int64(3))


@pytest.mark.parametrize("huge", [1e9, 1e12, 1e20, 1e100, 1e306, 1e308])
@pytest.mark.parametrize("place", range(6))
def test_no_state_however_large_gives_a_nan(huge: float, place: int) -> None:
    state = START.copy()
    state[place] = huge
    try:
        after, reward = step(state, 0)
    except InvalidData:
        return
    assert np.isfinite(after).all()
    assert after.min() >= 0.0
    assert np.isfinite(reward)


def test_steps_outside_an_episode_are_refused() -> None:
    env = HIVEnv()
    with pytest.raises(OutOfOrder):
        env.step(np.int64(0))
    env.reset()
    for _ in range(HORIZON):
        env.step(np.int64(0))
    with pytest.raises(OutOfOrder):
        env.step(np.int64(0))


def test_options_that_do_not_exist_are_refused() -> None:
    env = HIVEnv()
    with pytest.raises(InvalidSetting, match="'states'"):
        env.reset(options={"states": START})
    with pytest.raises(CharyError):
        HIVEnv(standardise="yes")  # type: ignore[arg-type]


def test_observations_of_no_virus_are_at_the_bound() -> None:
    env = HIVEnv(standardise=False)
    observation, _ = env.reset(options={"state": [1e20, 5.0, 0.0, 0.0, 0.0, 24.0]})
    assert observation[[0, 2, 3, 4]].tolist() == [8.0, -5.0, -5.0, -5.0]
    with pytest.raises(InvalidData):
        observe([1.0] * 5)
