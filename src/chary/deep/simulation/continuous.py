"""Problems with continuous states as environments inside JAX."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.environment import Environment
from chary.envs.continuous import CartPole, Equations, Glucose, Plane
from chary.envs.continuous.arithmetic import Arithmetic
from chary.errors import check_type

TRACED = Arithmetic(
    sin=jnp.sin,
    cos=jnp.cos,
    log=jnp.log,
    where=jnp.where,
    minimum=jnp.minimum,
    maximum=jnp.maximum,
    repeat=lambda number, function, state: lax.fori_loop(0, number, lambda _, now: function(now), state),
)


def environment_of(equations: Equations) -> Environment:
    """Return a problem of `chary.envs.continuous` as an environment inside JAX.

    Equal problems give the same value, so that runs share what was compiled.

    Args:
        equations: The problem, such as `CartPole()`, or one of your own with the same methods.

    Raises:
        InvalidSetting: if it is not such a problem.

    Example:
        >>> environment_of(Glucose(spread=0.2)).labels
        (('problem', 'glucose'), ('spread', 0.2))
    """
    check_type("equations", equations, Equations, "a problem of chary.envs.continuous")
    return _environment(equations)


@lru_cache(maxsize=16)
def _environment(equations: Equations) -> Environment:
    def reset(key: jax.Array) -> jax.Array:
        return _vector(equations.start(jax.random.uniform(key, (equations.draws,), jnp.float64)))

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        numbers = tuple(state[i] for i in range(len(equations.quantities)))
        after, reward, ended = equations.step(TRACED, numbers, action)
        return _vector(after), jnp.asarray(reward, jnp.float64), jnp.asarray(ended, bool)

    def observe(state: jax.Array) -> jax.Array:
        numbers = tuple(state[i] for i in range(len(equations.quantities)))
        return _vector(equations.observe(TRACED, numbers))

    return Environment(
        reset=reset,
        observe=observe,
        step=step,
        n_actions=len(equations.actions),
        horizon=equations.horizon,
        labels=(("problem", equations.name), ("spread", equations.spread)),
    )


def _vector(numbers: tuple[Any, ...]) -> jax.Array:
    return jnp.stack([jnp.asarray(each, jnp.float64) for each in numbers])


def cartpole(*, spread: float = 0.05) -> Environment:
    """Return `CartPole` as an environment inside JAX.

    Args:
        spread: The size of the region in which episodes start, in [0, 0.2].

    Raises:
        InvalidSetting: if it lies outside its range.

    Example:
        >>> cartpole().horizon
        200
    """
    return environment_of(CartPole(spread=spread))


def glucose(*, spread: float = 0.0) -> Environment:
    """Return `Glucose` as an environment inside JAX.

    Args:
        spread: How far the glucose at 6 o'clock and the appetite of a day vary, in [0, 0.5].

    Raises:
        InvalidSetting: if it lies outside its range.

    Example:
        >>> glucose().n_actions
        5
    """
    return environment_of(Glucose(spread=spread))


def plane(*, spread: float = 0.1) -> Environment:
    """Return `Plane` as an environment inside JAX.

    Args:
        spread: The size of the region in which episodes start, in [0, 0.5].

    Raises:
        InvalidSetting: if it lies outside its range.

    Example:
        >>> plane().n_actions
        6
    """
    return environment_of(Plane(spread=spread))
