"""The targets of networks, and the losses towards them.

A transition ends an episode at a terminal state or at the horizon. Nothing is earned after that, so the
targets are those of a problem of finite horizon. All arrays have the batch's axis first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from chary.deep.options import DeepOptions
from chary.deep.replay import Batch


def at_actions(values: jax.Array, actions: jax.Array) -> jax.Array:
    """Return values[b, actions[b]], shape (..., B), for values (..., B, A)."""
    # By selection: the gradient of picking by index is a scatter, which is slow.
    chosen = actions[:, None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)


def double_q_targets(
    rewards: jax.Array,
    bonuses: jax.Array,
    ended: jax.Array,
    next_online: jax.Array,
    next_target: jax.Array,
    discount: float,
) -> jax.Array:
    """Return r + bonus + gamma Q'(s', argmax Q(s', .)), 0 after the end: the optimistic explorer's.

    `next_online` and `next_target` have shape (B, A): one chooses, the other values (van Hasselt 2016).
    """
    best = jnp.argmax(next_online, axis=-1)
    return evaluation_targets(rewards, bonuses, ended, next_target, best, discount)


def evaluation_targets(
    rewards: jax.Array,
    bonuses: jax.Array,
    ended: jax.Array,
    next_target: jax.Array,
    next_actions: jax.Array,
    discount: float,
) -> jax.Array:
    """Return r + bonus + gamma Q'(s', a'), 0 after the end, for the actions a' of the policy evaluated.

    The bonus is added for V_hi, and subtracted (pass it negative) for `lcb`.
    """
    return rewards + bonuses + discount * (1.0 - ended) * at_actions(next_target, next_actions)


def explorer_targets(
    options: DeepOptions, batch: Batch, choosing: jax.Array, after: jax.Array, boost: jax.Array | float = 0.0
) -> jax.Array:
    """Return the targets (B,) of the network that proposes: CQL's evaluates itself, others are double Q.

    `choosing` and `after` (B, A) are its values, and those of its target network, where a step led.
    """
    r, ended = batch.rewards, batch.ended
    if options.agent == "cql":
        own = jnp.argmax(after, axis=-1)
        return evaluation_targets(r, jnp.zeros_like(r), ended, after, own, options.discount)
    return double_q_targets(r, boost * jnp.ones_like(r), ended, choosing, after, options.discount)


def huber(errors: jax.Array, threshold: float) -> jax.Array:
    """Return e^2 / 2 up to the threshold, and from there on the tangent."""
    size = jnp.abs(errors)
    if threshold == float("inf"):
        return 0.5 * errors * errors
    inner = jnp.minimum(size, threshold)
    return inner * (size - 0.5 * inner)


def cql_penalty(values: jax.Array, actions: jax.Array) -> jax.Array:
    """Return the mean of log sum_a exp Q(s, a) - Q(s, a played): CQL(H) (Kumar et al. 2020, eq. 4)."""
    return jnp.mean(jax.nn.logsumexp(values, axis=-1) - at_actions(values, actions))
