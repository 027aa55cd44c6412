"""Prices of the paired ensemble: gaps member by member, and the pooled ledger; docs/algorithm.md section 13.

All members evaluate the same baseline, so that what they get wrong about the state cancels in the difference
of two actions. The slow twins are in `chary.reference.ensemble`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.ensemble.options import EnsembleOptions


class Gaps(NamedTuple):
    """The ensemble at one observation: values (E, A) and the baseline's action.

    Of every action's gap (A,): mean and standard deviation over the members, and half-width.
    """

    values: jax.Array
    baseline: jax.Array
    mean: jax.Array
    deviation: jax.Array
    width: jax.Array


def horizon_weight(left: jax.Array, discount: float, horizon: int) -> jax.Array:
    """Return G = 1 + gamma + ... of the steps that are left, from their share of the horizon; float32."""
    steps = left * horizon
    if discount == 1.0:
        return steps
    return (1.0 - jnp.power(jnp.float32(discount), steps)) / (1.0 - discount)


def best_action(means: jax.Array) -> jax.Array:
    """Return the action (...,) with the largest mean (..., A); what is not finite is never the best."""
    return jnp.argmax(jnp.where(jnp.isfinite(means), means, -jnp.inf), axis=-1).astype(jnp.int32)


def paired_gaps(options: EnsembleOptions, values: jax.Array) -> Gaps:
    """Return the gaps of every action from the members' values (E, A) at one observation.

    gap_e(a) = Q_e(pi) - Q_e(a), with mean m and standard deviation sd over e; the half-width is
    u = (spread sd + d) / 1.645, and 0 for the baseline's own action.
    """
    values = values.astype(jnp.float64)
    baseline = best_action(jnp.mean(values, axis=0))
    gaps = values[:, baseline][:, None] - values
    own = jnp.arange(values.shape[1]) == baseline
    spread = jnp.std(gaps, axis=0, ddof=1)
    width = (options.spread * spread + options.floor) / options.half_width
    # A number that is not finite stays one, so that its charge is refused.
    found = (jnp.where(own, 0.0, each) for each in (jnp.mean(gaps, axis=0), spread, width))
    return Gaps(values, baseline, *found)


def pooled_terms(options: EnsembleOptions, gaps: Gaps, weight: jax.Array) -> jax.Array:
    """Return what each action adds to the pool, (A, 2): max(m + offset, 0) and u^2, both 0 for the baseline.

    Gaps count times `weight`: 1, or gamma^t where charges are discounted from the start.
    """
    own = jnp.arange(gaps.mean.shape[0]) == gaps.baseline
    means = jnp.where(own, 0.0, jnp.maximum(gaps.mean + options.offset, 0.0))
    return jnp.stack([weight * means, jnp.square(weight * gaps.width)], axis=-1)


def pooled(options: EnsembleOptions, pool: jax.Array) -> jax.Array:
    """Return U, the sum of means plus z roots of the sum of squares, of pools (..., 2)."""
    return pool[..., 0] + options.z * jnp.sqrt(pool[..., 1])


def pooled_charges(options: EnsembleOptions, pool: jax.Array, terms: jax.Array) -> jax.Array:
    """Return what each action costs after the deviations in `pool`: U after minus U before, (A,)."""
    costs = pooled(options, pool + terms) - pooled(options, pool)
    # Exactly 0 where nothing is added; rounding never makes a step pay back.
    free = jnp.all(terms == 0.0, axis=-1)
    return jnp.where(free, 0.0, jnp.where(jnp.isfinite(costs), jnp.maximum(costs, 0.0), jnp.nan))


def step_bounds(options: EnsembleOptions, gaps: Gaps) -> jax.Array:
    """Return m plus the half-width of 95 %, (A,): what coverage of steps is measured by."""
    return jnp.maximum(gaps.mean + options.half_width * gaps.width, 0.0)
