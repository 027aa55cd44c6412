"""Environments of the package inside JAX, ready for the compiled loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from chary.deep.environment import Environment
from chary.envs.hiv import EFFICACIES, HORIZON, START, jax_step, patient

__all__ = ["hiv"]


def hiv(name: str | int = 5) -> Environment:
    """Return the treatment of a patient, observation and reward standardised as in `chary/HIV-v0`.

    A state that cannot be integrated gives NaN, as `jax_step.step` says.

    Args:
        name: "base" or a number in 0..5.

    Raises:
        UnknownName: if there is no such patient.

    Example:
        >>> hiv(5).horizon
        200
    """
    treated = patient(name)

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, reward, _ = jax_step.step(jnp.asarray(treated.vector), state, action)
        return after, (reward - treated.reward_mean) / treated.reward_std, jnp.bool_(False)

    return Environment(lambda key: jnp.asarray(START), jax_step.observe, step, len(EFFICACIES), HORIZON)
