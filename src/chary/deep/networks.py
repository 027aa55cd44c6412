"""Small networks side by side in one pytree, such as the explorer's Q, and Q_hi and Q_lo of the baseline."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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


def first_networks(key: jax.Array, inputs: int, width: int, outputs: int, number: int = NUMBER) -> Networks:
    """Return that many networks at random: He's uniform weights, biases 0, small last layers."""
    keys = jax.random.split(key, 3)

    def uniform(key: jax.Array, fan_in: int, fan_out: int, gain: float) -> jax.Array:
        bound = gain * (6.0 / fan_in) ** 0.5
        return jax.random.uniform(key, (number, fan_in, fan_out), jnp.float32, -bound, bound)

    def zeros(size: int) -> jax.Array:
        return jnp.zeros((number, 1, size), jnp.float32)

    return Networks(
        uniform(keys[0], inputs, width, 1.0),
        zeros(width),
        uniform(keys[1], width, width, 1.0),
        zeros(width),
        uniform(keys[2], width, outputs, 0.1).swapaxes(1, 2),
        zeros(outputs),
    )


@jax.custom_vjp
def forward(networks: Networks, inputs: jax.Array) -> jax.Array:
    """Return the values of every action, shape (n, B, A), at `inputs` (n, B, D) or (B, D) for all."""
    return _layers(networks, inputs)[-1]


def _layers(networks: Networks, inputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return both hidden layers and the values."""
    if inputs.ndim == 2:
        inputs = jnp.broadcast_to(inputs, (networks.w1.shape[0], *inputs.shape))
    first = jax.nn.relu(jnp.matmul(inputs, networks.w1) + networks.b1)
    second = jax.nn.relu(jnp.matmul(first, networks.w2) + networks.b2)
    return first, second, jnp.matmul(second, networks.w3.swapaxes(1, 2)) + networks.b3


def _forward(networks: Networks, inputs: jax.Array) -> tuple[jax.Array, Any]:
    first, second, values = _layers(networks, inputs)
    return values, (networks, inputs, first, second)


def _backward(kept: Any, by_values: jax.Array) -> tuple[Networks, jax.Array]:
    """Return the gradients, by networks and inputs, of what has the gradient `by_values` (n, B, A).

    It is what `jax.grad` would do but for the order of two products: see `_turned`.
    """
    networks, inputs, first, second = kept
    by_second = jnp.where(second > 0.0, jnp.matmul(by_values, networks.w3), 0.0)
    by_first = jnp.where(first > 0.0, jnp.matmul(by_second, networks.w2.swapaxes(1, 2)), 0.0)
    turned = jnp.broadcast_to(_turned(inputs), (len(first), *inputs.shape[-2:][::-1]))
    by_networks = Networks(
        jnp.matmul(turned, by_first),
        jnp.sum(by_first, axis=1, keepdims=True),
        jnp.matmul(first.swapaxes(1, 2), by_second),
        jnp.sum(by_second, axis=1, keepdims=True),
        jnp.matmul(_turned(by_values), second),
        jnp.sum(by_values, axis=1, keepdims=True),
    )
    by_inputs = jnp.matmul(by_first, networks.w1.swapaxes(1, 2))
    return by_networks, by_inputs if inputs.ndim == 3 else jnp.sum(by_inputs, axis=0)


def _turned(x: jax.Array) -> jax.Array:
    """Return `x` with its last two axes, of which the last is short, in each other's place.

    As a stack: XLA would make a transpose part of the product after it, which is slower by far (jaxlib 0.10).
    """
    return jnp.stack([x[..., i] for i in range(x.shape[-1])], axis=-2)


forward.defvjp(_forward, _backward)


def one(networks: Networks, which: int) -> Networks:
    """Return one of the networks, still with its leading axis."""
    return Networks(*(leaf[which : which + 1] for leaf in networks))


def with_time(observation: jax.Array, t: jax.Array, horizon: int) -> jax.Array:
    """Return a network's input: the observation and the share of the horizon that is left."""
    left = (horizon - t) / jnp.float32(horizon)
    return jnp.concatenate([observation.astype(jnp.float32), left.astype(jnp.float32)[None]])
