"""The HIV simulator against SciPy's integrators, closed forms, and numbers recorded beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import odeint

from chary.arrays import Floats
from chary.bench.hiv import bench_hiv, integrate_by_scipy
from chary.envs.hiv import EFFICACIES, HORIZON, NAMES, PATIENTS, START, patient, step, step_many
from chary.envs.hiv._kernels import slope_into

RECORDED = json.loads((Path(__file__).parent / "hiv_trajectories.json").read_text())["trajectories"]


def equations(p: dict[str, float], e1: float, e2: float, y: Floats) -> Floats:
    """The equations once more, as they are printed in docs/algorithm.md."""
    T1, T2, T1s, T2s, V, E = y
    infected = T1s + T2s
    k1, k2, f, delta = p["k1"], p["k2"], p["f"], p["delta"]
    return np.array(
        [
            p["lambda1"] - p["d1"] * T1 - (1 - e1) * k1 * V * T1,
            p["lambda2"] - p["d2"] * T2 - (1 - f * e1) * k2 * V * T2,
            (1 - e1) * k1 * V * T1 - delta * T1s - p["m1"] * E * T1s,
            (1 - f * e1) * k2 * V * T2 - delta * T2s - p["m2"] * E * T2s,
            (1 - e2) * p["NT"] * delta * infected
            - p["c"] * V
            - ((1 - e1) * p["rho1"] * k1 * T1 + (1 - f * e1) * p["rho2"] * k2 * T2) * V,
            p["lambdaE"]
            + p["bE"] * infected / (infected + p["Kb"]) * E
            - p["d_E"] * infected / (infected + p["Kd"]) * E
            - p["deltaE"] * E,
        ]
    )


@pytest.mark.parametrize("name", PATIENTS)
def test_the_compiled_slope_is_that_of_the_equations(name: str | int) -> None:
    rng = np.random.default_rng(3)
    vector = patient(name).vector
    parameters = dict(zip(NAMES, vector.tolist(), strict=True))
    for _ in range(20):
        y = START * rng.lognormal(0.0, 1.0, 6)
        e1, e2 = rng.random(2)
        out = np.empty(6)
        slope_into(out, vector, e1, e2, y)
        np.testing.assert_allclose(out, equations(parameters, e1, e2, y), rtol=1e-9)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each["name"])
def test_recorded_trajectories_are_met(recorded: dict[str, Any]) -> None:
    state = np.array(recorded["states"][0])
    assert len(recorded["actions"]) == 20
    for t, action in enumerate(recorded["actions"]):
        state, reward = step(state, action)
        np.testing.assert_allclose(state, recorded["states"][t + 1], rtol=1e-6)
        assert reward == pytest.approx(recorded["rewards"][t], rel=1e-6)


def played(name: str | int, seed: int) -> tuple[list[int], Floats]:
    """The states of an episode under random actions, played without a pause: (HORIZON + 1, 6)."""
    actions = np.random.default_rng(seed).integers(0, 4, HORIZON).tolist()
    states = [START]
    for action in actions:
        states.append(step(states[-1], action, patient=name)[0])
    return actions, np.array(states)


@pytest.mark.parametrize("name", PATIENTS)
def test_200_random_steps_of_every_patient_stay_within_a_millionth_of_lsoda(name: str | int) -> None:
    actions, states = played(name, 11)
    vector = patient(name).vector

    def slope(y: Floats, t: float, e1: float, e2: float) -> Floats:
        out = np.empty(6)
        slope_into(out, vector, e1, e2, y)
        return out

    truth = START
    for t, action in enumerate(actions):
        e1, e2 = EFFICACIES[action]
        truth = odeint(slope, truth, (0.0, 5.0), args=(e1, e2), rtol=1e-10, atol=1e-10, mxstep=5000)[-1]
        np.testing.assert_allclose(states[t + 1], truth, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("seed", range(3))
def test_200_random_steps_of_every_patient_stay_within_a_millionth_of_dop853(
    name: str | int, seed: int
) -> None:
    actions, states = played(name, seed)
    truth = START
    for t, action in enumerate(actions):
        truth = integrate_by_scipy("truth", [name], truth[None], [action])[0]
        np.testing.assert_allclose(states[t + 1], truth, rtol=1e-6)


def test_the_healthy_equilibrium_stays_and_earns_its_reward() -> None:
    # Ernst et al. (2006): the stable state in which the immune system controls the virus.
    healthy = np.array([967838.67, 620.52, 76.01, 6.092, 415.38, 353108.03])
    state = healthy
    for _ in range(HORIZON):
        state, reward = step(state, 0)
    np.testing.assert_allclose(state, healthy, rtol=2e-4)
    assert reward == pytest.approx(3.531e8, rel=1e-3)


@pytest.mark.parametrize(("action", "expected"), [(0, 8.443e5), (1, 9.841e5), (2, 1.007e6), (3, 2.004e6)])
def test_constant_actions_return_what_was_measured_beforehand(action: int, expected: float) -> None:
    state, total = START, 0.0
    for t in range(HORIZON):
        state, reward = step(state, action)
        total += 0.98**t * reward
    assert total == pytest.approx(expected, rel=6e-4)


@pytest.mark.parametrize("begin", [[0.0] * 6, [5e5, 40.0, 0.0, 0.0, 0.0, 30.0]])
def test_without_a_virus_cells_follow_the_closed_form(begin: list[float]) -> None:
    # T' = l - d T and E' = lE - deltaE E: each goes to its equilibrium exponentially.
    p = dict(zip(NAMES, patient(5).vector.tolist(), strict=True))
    after, _ = step(begin, 3, patient=5)
    for i, rate, loss in ((0, "lambda1", "d1"), (1, "lambda2", "d2"), (5, "lambdaE", "deltaE")):
        end = p[rate] / p[loss]
        assert after[i] == pytest.approx(end + (begin[i] - end) * np.exp(-5.0 * p[loss]), rel=1e-6)
    assert after[2:5].tolist() == [0.0, 0.0, 0.0]


def test_a_batch_is_the_same_as_its_patients_one_by_one() -> None:
    rng = np.random.default_rng(5)
    states = START * rng.lognormal(0.0, 0.5, (14, 6))
    actions = rng.integers(0, 4, 14)
    who = [*PATIENTS, *PATIENTS]
    after, rewards = step_many(states, actions, patient=who)
    for i in range(14):
        one, reward = step(states[i], actions[i], patient=who[i])
        assert one.tobytes() == after[i].tobytes()
        assert reward == rewards[i]
    assert step_many(np.empty((0, 6)), [])[0].shape == (0, 6)


def test_the_benchmark_says_how_far_every_method_is_from_the_truth() -> None:
    result = bench_hiv(turns=1)
    assert result.methods["chary"].error < 1e-6
    assert result.methods["lsoda"].error < 1e-5
    # SciPy's own tolerances, which the original left as they are.
    assert 1e-7 < result.methods["vode"].error < 1e-2
    assert result.methods["lsoda"].ratio > 5.0
    assert len(result.rows()) == len(result.methods)
