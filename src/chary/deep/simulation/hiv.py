"""The HIV simulator as an environment inside JAX, with the labels and units of its reports."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp

from chary.deep.environment import Environment
from chary.envs.hiv import CONCENTRATIONS, EFFICACIES, HORIZON, START, Patient, jax_step, patient
from chary.envs.hiv.parameters import check_spread, start_of


def hiv(name: str | int = 5, *, spread: float = 0.0) -> Environment:
    """Return the treatment of a patient; observations and rewards are standardised as in `chary/HIV-v0`.

    The same patient gives the same value, so that runs share what was compiled. A state that cannot be
    integrated gives NaN, as `jax_step.step` does.

    Args:
        name: "base" or a number in 0..5.
        spread: An episode starts from the untreated state with each concentration times its own factor; log10
            of the factors is uniform within -spread..spread, in [0, 1].

    Raises:
        UnknownName: if there is no such patient.
        InvalidSetting: if `spread` lies outside its range.

    Example:
        >>> hiv(5).horizon
        200
    """
    return _treatment(patient(name), name, check_spread(spread))


@lru_cache(maxsize=16)
def _treatment(treated: Patient, name: str | int, spread: float) -> Environment:
    def reset(key: jax.Array) -> jax.Array:
        if not spread:
            return jnp.asarray(START)
        drawn = jax.random.uniform(key, (len(CONCENTRATIONS),), jnp.float64)
        return jnp.asarray(start_of(drawn, spread))

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, reward, _ = jax_step.step(jnp.asarray(treated.vector), state, action)
        return after, (reward - treated.reward_mean) / treated.reward_std, jnp.bool_(False)

    return Environment(
        reset=reset,
        observe=jax_step.observe,
        step=step,
        n_actions=len(EFFICACIES),
        horizon=HORIZON,
        labels=(("problem", "hiv"), ("patient", name), *((("spread", spread),) if spread else ())),
        reward_mean=treated.reward_mean,
        reward_std=treated.reward_std,
    )
