"""The elliptical bonus: large where an action was seldom played near an observation.

b(s, a) = sqrt(phi(s)' M_a^-1 phi(s)), where M_a = ridge * I + the sum of phi phi' over all steps with action
`a`, and phi are fixed random Fourier features (Rahimi and Recht 2007) of the observation. Time is not part of
it: what a step leads to does not depend on its time. The tests have NumPy twins.
"""

from __future__ import annotations

from math import factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# sin x = x (1 - x^2 / 3! + x^4 / 5! - ...).
SINE = tuple((-1.0) ** i / factorial(2 * i + 1) for i in range(6))


class Features(NamedTuple):
    """phi(s) = sqrt(2 / F) cos(s `directions` + `phases`): shapes (d, F) and (F,)."""

    directions: jax.Array
    phases: jax.Array


def first_features(key: jax.Array, inputs: int, number: int, length_scale: float) -> Features:
    """Draw the features of a Gaussian kernel of that length scale."""
    directions_key, phases_key = jax.random.split(key)
    directions = jax.random.normal(directions_key, (inputs, number), jnp.float32) / length_scale
    return Features(directions, jax.random.uniform(phases_key, (number,), jnp.float32, 0.0, 2.0 * np.pi))


def first_inverse(n_actions: int, number: int, ridge: float) -> jax.Array:
    """Return M_a^-1 before any data for every action, side by side: shape (F, A F)."""
    return jnp.tile(jnp.eye(number, dtype=jnp.float32) / ridge, (1, n_actions))


def featurise(features: Features, observations: jax.Array) -> jax.Array:
    """Return phi, shape (..., F), of observations (..., d)."""
    waves = _cosine(observations @ features.directions + features.phases)
    return waves * float((2.0 / features.phases.shape[0]) ** 0.5)


def _cosine(x: jax.Array) -> jax.Array:
    """Return cos x in float32, to about 1e-7 and the rounding of x.

    `jnp.cos` is exact for arguments of any size, and takes ten times as long (jaxlib 0.10, on a CPU).
    """
    turns = x * float(0.5 / np.pi)
    # cos x = sin(pi / 2 - |x|) for x within half a turn, by Taylor's series up to the power 11.
    angle = float(2.0 * np.pi) * (0.25 - jnp.abs(turns - jnp.round(turns)))
    square = angle * angle
    series = jnp.full_like(square, SINE[-1])
    for coefficient in reversed(SINE[:-1]):
        series = series * square + coefficient
    return angle * series


def learn(
    inverse: jax.Array, phi: jax.Array, action: jax.Array, count: jax.Array | float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Return the inverses after a step with `action` at features `phi` (F,), and the step's bonus then.

    Sherman and Morrison: M + phi phi' has the inverse M^-1 - u u' / (1 + c), u = M^-1 phi and c = phi' u.
    `count` is 1, or 0 for a step that does not count.
    """
    number = phi.shape[0]
    # Slices, not `.at`: a scatter is slower here.
    corner = (0 * action, action * number)
    before = jax.lax.dynamic_slice(inverse, corner, (number, number))
    u = before @ phi
    c = jnp.maximum(phi @ u, 0.0)
    after = before - jnp.outer(u, u * (count / (1.0 + c)))
    learnt = jax.lax.dynamic_update_slice(inverse, after, corner)
    return learnt, jnp.sqrt(c / (1.0 + count * c))


def bonuses(inverse: jax.Array, phi: jax.Array, actions: jax.Array) -> jax.Array:
    """Return b(s, a), shape (B,), for features (B, F) and actions (B,)."""
    number = phi.shape[1]
    n_actions = inverse.shape[1] // number
    # One product for all actions, then a choice: a matrix picked for every row is far slower.
    products = (phi @ inverse).reshape(-1, n_actions, number)
    chosen = actions[:, None, None] == jnp.arange(n_actions)[:, None]
    squares = jnp.sum(jnp.where(chosen, products * phi[:, None], 0.0), axis=(1, 2))
    # Rounding may take a square below 0.
    return jnp.sqrt(jnp.maximum(squares, 0.0))
