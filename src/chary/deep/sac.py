"""Discrete soft actor-critic (Christodoulou 2019): a policy, two critics and a temperature.

The actor is the network that proposes, in the explorer's place; its values are logits. All arrays have the
batch's axis first, and actions last.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from chary.deep.options import DeepOptions


def soft_values(logits: jax.Array, first: jax.Array, second: jax.Array, temperature: jax.Array) -> jax.Array:
    """Return sum_a pi(a) (min(Q1, Q2)(a) - alpha log pi(a)), shape (B,): what a state is worth."""
    log_policy = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(log_policy) * (jnp.minimum(first, second) - temperature * log_policy), axis=-1)


def soft_targets(
    rewards: jax.Array,
    ended: jax.Array,
    next_logits: jax.Array,
    next_first: jax.Array,
    next_second: jax.Array,
    temperature: jax.Array,
    discount: float,
) -> jax.Array:
    """Return r + gamma (soft value of s'), 0 after the end, shape (B,): both critics learn towards it."""
    after = soft_values(next_logits, next_first, next_second, temperature)
    return rewards + discount * (1.0 - ended) * after


def actor_loss(logits: jax.Array, first: jax.Array, second: jax.Array, temperature: jax.Array) -> jax.Array:
    """Return the mean of sum_a pi(a) (alpha log pi(a) - min(Q1, Q2)(a)); critics are given, not moved."""
    first, second, temperature = jax.lax.stop_gradient((first, second, temperature))
    return -jnp.mean(soft_values(logits, first, second, temperature))


def entropy(logits: jax.Array) -> jax.Array:
    """Return the entropy of each policy, shape (B,)."""
    log_policy = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)


def cooled(options: DeepOptions, log_temperature: jax.Array, logits: jax.Array) -> jax.Array:
    """Return the logarithm of the temperature after a step towards the entropy wanted."""
    wanted = options.entropy * jnp.log(jnp.float32(logits.shape[-1]))
    surplus = jnp.mean(entropy(logits)) - wanted
    return log_temperature - options.learning_rate * surplus


def drawn_action(logits: jax.Array, uniform: jax.Array) -> jax.Array:
    """Return an action of the policy with logits (A,), from a uniform in [0, 1)."""
    reached = jnp.cumsum(jax.nn.softmax(logits))
    # The last sum may round to less than 1.
    return jnp.minimum(jnp.sum(uniform >= reached), logits.shape[0] - 1).astype(jnp.int32)
