"""CartPole against Gymnasium's own, and the glucose model against SciPy's integrators."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from chary.envs.continuous import CartPole, ContinuousEnv, Glucose
from chary.envs.continuous import glucose as model


def test_cartpole_moves_as_gymnasiums_cartpole_does() -> None:
    ours, theirs = ContinuousEnv(CartPole()), gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(8)
    compared = 0
    for episode in range(40):
        state = rng.uniform(-0.05, 0.05, 4)
        theirs.reset(seed=episode)
        theirs.state = state.copy()  # type: ignore[attr-defined]
        ours.reset(options={"state": state})
        over = False
        while not over:
            action = rng.integers(0, 2)
            _, _, ended, over, info = ours.step(action)
            _, _, terminated, _, _ = theirs.step(action)
            np.testing.assert_allclose(info["state"], theirs.state, rtol=1e-6, atol=1e-12)  # type: ignore[attr-defined]
            assert ended == terminated
            over = over or ended
            compared += 1
    assert compared > 500


def by_scipy(state: Any, doses: list[float]) -> list[Any]:
    """Integrate the printed equations over steps of 15 minutes, at a tolerance of 1e-11."""
    tau1, tau2, taum, CI, VG = 49.0, 47.0, 47.0, 20.1, 253.0
    p2, SI, GEZI, EGP = 0.0106, 0.0081, 0.0022, 1.33

    def equations(_: float, y: Any, u: float) -> Any:
        G, Isc, Ip, Ieff, D1, D2 = y
        RA = 1000.0 * D2 / (VG * taum)
        return [
            -(GEZI + Ieff) * G + EGP + RA,
            (u / CI - Isc) / tau1,
            (Isc - Ip) / tau2,
            p2 * (SI * Ip - Ieff),
            -D1 / taum,
            (D1 - D2) / taum,
        ]

    body, found = np.array(state[:6]), []
    for t, dose in enumerate(doses):
        if t in model.MEAL_STEPS:
            body[4] += state[6] * model.MEAL_GRAMS[model.MEAL_STEPS.index(t)]
        solved = solve_ivp(
            equations, (0.0, 15.0), body, "DOP853", args=(dose * model.BASAL,), rtol=1e-11, atol=1e-12
        )
        body = solved.y[:, -1]
        found.append(body.copy())
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_a_day_of_random_doses_is_scipys_day(seed: int) -> None:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 5, 96)
    env = ContinuousEnv(Glucose(spread=0.3))
    _, info = env.reset(seed=seed)
    expected = by_scipy(info["state"], [model.DOSES[action] for action in actions])
    for action, body in zip(actions, expected, strict=True):
        _, reward, _, _, info = env.step(action)
        # Steps of 2.5 minutes are short against 47: this is the error over the whole day.
        np.testing.assert_allclose(info["state"][:6], body, rtol=1e-6, atol=1e-9)
        assert reward == pytest.approx(1.0 - min(_risk(info["state"][0]), 100.0) / 100.0, abs=1e-12)


def _risk(glucose: float) -> float:
    clipped = min(max(glucose, 20.0), 600.0)
    return float(10.0 * (1.509 * (np.log(clipped) ** 1.084 - 5.381)) ** 2)


def test_the_equilibrium_is_that_of_the_equations() -> None:
    insulin = model.BASAL / model.CI
    assert model.EGP / (model.GEZI + model.SI * insulin) == pytest.approx(110.0, rel=1e-12)
    # Units per hour and without insulin: what the published parameters imply.
    assert 60.0 * model.BASAL / 1000.0 == pytest.approx(1.472, abs=1e-3)
    assert model.EGP / model.GEZI == pytest.approx(604.5, abs=0.1)
