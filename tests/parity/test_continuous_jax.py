"""Problems with continuous states inside JAX against the same in Gymnasium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from chary.envs.continuous import CartPole, ContinuousEnv, Equations, Glucose, Plane
from chary.envs.hiv.parameters import START, start_of
from chary.errors import InvalidSetting

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from chary.deep import environment_of, hiv  # noqa: E402
from chary.deep.environment import check_static, observation_size  # noqa: E402

PROBLEMS = (CartPole(spread=0.2), Glucose(spread=0.3), Plane(spread=0.2))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("equations", PROBLEMS, ids=lambda each: each.name)
def test_random_episodes_agree_in_one_scan(equations: Equations) -> None:
    environment = environment_of(equations)
    check_static(environment)
    assert observation_size(environment, jax.random.key(0)) == len(equations.low)
    rng = np.random.default_rng(4)
    actions = rng.integers(0, environment.n_actions, (equations.horizon, 8))
    starts = jax.vmap(environment.reset)(jax.random.split(jax.random.key(1), 8))

    def play(states: Any, actions: Any) -> Any:
        def body(state: Any, action: Any) -> Any:
            after, reward, ended = jax.vmap(environment.step)(state, action)
            return after, (after, reward, ended, jax.vmap(environment.observe)(after))

        return jax.lax.scan(body, states, actions)[1]

    states, rewards, ended, seen = (np.asarray(each) for each in jax.jit(play)(starts, actions))
    env = ContinuousEnv(equations)
    for lane in range(8):
        env.reset(options={"state": starts[lane]})
        for t in range(equations.horizon):
            observation, reward, terminated, truncated, info = env.step(actions[t, lane])
            np.testing.assert_allclose(states[t, lane], info["state"], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(seen[t, lane], observation, rtol=1e-5, atol=1e-6)
            assert rewards[t, lane] == pytest.approx(reward, abs=1e-9)
            assert ended[t, lane] == terminated
            if terminated or truncated:
                break


def test_equal_problems_share_what_is_compiled_and_starts_are_those_of_gymnasium() -> None:
    assert environment_of(Plane(spread=0.2)) is environment_of(PROBLEMS[2])
    uniforms = np.random.default_rng(2).random(6)
    np.testing.assert_array_equal(start_of(uniforms, 0.0), START)
    key = jax.random.key(3)
    np.testing.assert_array_equal(hiv(5).reset(key), START)
    drawn = np.asarray(jax.random.uniform(key, (6,), jnp.float64))
    np.testing.assert_allclose(hiv(5, spread=0.3).reset(key), start_of(drawn, 0.3), rtol=1e-12)
    assert hiv(5).labels == (("problem", "hiv"), ("patient", 5))
    assert hiv(5, spread=0.3).labels[-1] == ("spread", 0.3)
    with pytest.raises(InvalidSetting, match="'equations' must be a problem of"):
        environment_of("plane")  # type: ignore[arg-type]
