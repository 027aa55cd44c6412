"""Rollback: keep the best networks so far, and play them again where the present ones return less.

The slow twin is `chary.reference.ensemble.Rollback`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.ensemble.options import EnsembleOptions
from chary.deep.networks import Networks

# Standard errors of an interval about a mean return.
WIDE = 2.0


class Rollback(NamedTuple):
    """The best networks so far, and what is known of the present ones.

    Args:
        best: The members that played the best window, (E, ...).
        mean: Their mean return; minus infinity before there was any.
        error: Its standard error; 0 where windows are single episodes.
        left: Episodes that the best networks still play.
        length: Episodes of the next retreat.
        retreats: Retreats so far.
        probation: Whether the present networks have to show their return first: nothing deviates until they
            have, at the beginning and after each retreat, since what followed them was not seen lately.
        number: Episodes of the present window, and
        sums: the sums of their returns, squared returns and booked deficits, (3,).
    """

    best: Networks
    mean: jax.Array
    error: jax.Array
    left: jax.Array
    length: jax.Array
    retreats: jax.Array
    probation: jax.Array
    number: jax.Array
    sums: jax.Array


def first_rollback(options: EnsembleOptions, members: Networks) -> Rollback:
    """Return the state before any episode."""
    none = jnp.int32(0)
    return Rollback(
        best=members,
        mean=jnp.float64(-jnp.inf),
        error=jnp.float64(0.0),
        left=none,
        length=jnp.int32(options.retreat),
        retreats=none,
        probation=jnp.bool_(True),
        number=none,
        sums=jnp.zeros(3, jnp.float64),
    )


def judged(
    options: EnsembleOptions,
    now: Rollback,
    members: Networks,
    retreated: jax.Array,
    complete: jax.Array,
    returned: jax.Array,
    booked: jax.Array,
) -> Rollback:
    """Return the state after an episode.

    Args:
        options: The options of the ensemble.
        now: The state before.
        members: The networks that it was played by.
        retreated: Whether these were the best ones, in a retreat.
        complete: Whether its return is known; where not, nothing changes but the retreat's length.
        returned: Its discounted return.
        booked: The deficit that it booked.
    """
    counts = complete & ~retreated
    number = now.number + counts
    seen = jnp.stack([returned, returned * returned, booked])
    sums = now.sums + jnp.where(counts, seen, 0.0)
    full = counts & (number == options.window)
    mean, squares, paid = sums / jnp.maximum(number, 1)
    error = jnp.float64(0.0)
    if options.window > 1:
        error = jnp.sqrt(jnp.maximum(squares - mean * mean, 0.0) / (options.window - 1))
    better = full & (mean - WIDE * error > now.mean - WIDE * now.error)
    unsure = WIDE * jnp.sqrt(error * error + now.error * now.error)
    worse = full & ~better & (mean + unsure < now.mean - paid - options.margin)
    left = jnp.where(worse, now.length, now.left - (retreated & (now.left > 0)))
    doubled = jnp.minimum(2 * now.length, options.longest_retreat)
    return Rollback(
        best=Networks(*(jnp.where(better, new, old) for new, old in zip(members, now.best, strict=True))),
        mean=jnp.where(better, mean, now.mean),
        error=jnp.where(better, error, now.error),
        left=left.astype(jnp.int32),
        length=jnp.where(better, options.retreat, jnp.where(worse, doubled, now.length)).astype(jnp.int32),
        retreats=now.retreats + worse,
        probation=worse | (now.probation & ~full),
        number=jnp.where(full, 0, number).astype(jnp.int32),
        sums=jnp.where(full, 0.0, sums),
    )
