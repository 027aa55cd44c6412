"""Three small networks side by side in one pytree: the explorer's Q, and Q_hi and Q_lo of the baseline."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["EXPLORER", "LOWER", "UPPER", "Networks", "first_networks", "forward", "one", "with_time"]

EXPLORER, UPPER, LOWER = 0, 1, 2
NUMBER = 3


class Networks(NamedTuple):
    """Weights of n multilayer perceptrons with two hidden layers, float32.

    Shapes: `w1` (n, D, W), `b1` (n, 1, W), `w2` (n, W, W), `b2` (n, 1, W), `w3` (n, A, W), `b3` (n, 1, A).
    The networks share no weight; side by side, an update of all is one product a layer. `w3` lies the other
    way round because its gradient is quicker so.
    """

    w1: jax.Array
    b1: jax.Array
    w2: jax.Array
    b2: jax.Array
    w3: jax.Array
    b3: jax.Array


def first_networks(key: jax.Array, inputs: int, width: int, outputs: int) -> Networks:
    """Return three networks at random: He's uniform weights, biases 0, small last layers."""
    keys = jax.random.split(key, 3)

    def uniform(key: jax.Array, fan_in: int, fan_out: int, gain: float) -> jax.Array:
        bound = gain * (6.0 / fan_in) ** 0.5
        return jax.random.uniform(key, (NUMBER, fan_in, fan_out), jnp.float32, -bound, bound)

    def zeros(size: int) -> jax.Array:
        return jnp.zeros((NUMBER, 1, size), jnp.float32)

    return Networks(
        uniform(keys[0], inputs, width, 1.0),
        zeros(width),
        uniform(keys[1], width, width, 1.0),
        zeros(width),
        uniform(keys[2], width, outputs, 0.1).swapaxes(1, 2),
        zeros(outputs),
    )


def forward(networks: Networks, inputs: jax.Array) -> jax.Array:
    """Return the values of every action, shape (n, B, A), at `inputs` (n, B, D) or (B, D) for all."""
    if inputs.ndim == 2:
        inputs = jnp.broadcast_to(inputs, (networks.w1.shape[0], *inputs.shape))
    hidden = jax.nn.relu(jnp.matmul(inputs, networks.w1) + networks.b1)
    hidden = jax.nn.relu(jnp.matmul(hidden, networks.w2) + networks.b2)
    return jnp.matmul(hidden, networks.w3.swapaxes(1, 2)) + networks.b3


def one(networks: Networks, which: int) -> Networks:
    """Return one of the networks, still with its leading axis."""
    return Networks(*(leaf[which : which + 1] for leaf in networks))


def with_time(observation: jax.Array, t: jax.Array, horizon: int) -> jax.Array:
    """Return a network's input: the observation and the share of the horizon that is left."""
    left = (horizon - t) / jnp.float32(horizon)
    return jnp.concatenate([observation.astype(jnp.float32), left.astype(jnp.float32)[None]])
