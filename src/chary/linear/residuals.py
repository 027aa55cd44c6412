"""The residual test: do Bellman residuals of transitions held out depend on what the features leave out?

Under the linear model the residual r + gamma V(s') - Q(s, a) of the worlds' mean has mean 0 given (s, a), up
to what the worlds still doubt. It is multiplied by other functions of (s, a), finer waves with a random sign
per action, and summed. The sums' variance is that of the residuals plus, over the worlds, that of their own
sums; the quadratic form is compared with chi-square.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from chary.arrays import Floats
from chary.linear.algebra import best, values_at, waves
from chary.linear.features import Features
from chary.linear.options import LinearModel
from chary.linear.worlds import Coefficients, Steps
from chary.randomness import generator_for

# The functions that residuals are multiplied by.
DIRECTIONS = 16
# They vary over this share of the features' length scale.
FINER = 0.5
# Fewer transitions are not tested.
FEWEST = 10 * DIRECTIONS
# The test contradicts the model where its p-value is below this.
LEVEL = 1e-3


class Misfit(NamedTuple):
    """The result of the residual test.

    Args:
        transitions: Those held out that were tested.
        statistic: Compared with chi-square of `DIRECTIONS` degrees of freedom; NaN where there were too few.
        p: The p-value; NaN where there were too few.
        residual: The root of the mean square of the residuals, in units of reward.
        systematic: The part of it that depends on state and action in a way that the features leave out.
    """

    transitions: int
    statistic: float
    p: float
    residual: float
    systematic: float

    @property
    def tested(self) -> bool:
        """Whether there were enough transitions."""
        return not math.isnan(self.p)

    @property
    def found(self) -> bool:
        """Whether the test contradicts the linear model."""
        return self.tested and self.p < LEVEL

    def describe(self) -> str:
        """Return the result in words, for the standing.

        Example:
            >>> Misfit(500, 90.0, 1e-12, 2.0, 0.5).describe()
            'the residual test contradicts the features: p = 1e-12 on 500 transitions held out, systematic \
error 0.5 of residuals of 2 per step'
        """
        if not self.tested:
            return (
                f"the linear model is untested: the residual test needs {FEWEST} transitions held out, and "
                f"there are {self.transitions}"
            )
        found = "contradicts the features" if self.found else "does not contradict the features"
        return (
            f"the residual test {found}: p = {self.p:.2g} on {self.transitions} transitions held out, "
            f"systematic error {self.systematic:.2g} of residuals of {self.residual:.2g} per step"
        )


def residuals(
    steps: Steps, values: Coefficients, features: Features, model: LinearModel, discount: float
) -> Floats:
    """Return r + gamma V(s') - Q(s, a) of transitions (n,) in every judging world, (n, K)."""
    theta, K = values.theta[:, :, : model.worlds], model.worlds
    found = np.zeros((len(steps.action), K))
    for t in np.unique(steps.time):
        rows = np.flatnonzero(steps.time == t)
        q = values_at(np, theta[t], features(steps.observation[rows]), values.low[t], values.high[t])
        found[rows] = steps.reward[rows, None] - q[steps.action[rows], :, np.arange(len(rows))]
        on = rows[~steps.ended[rows]]
        if t + 1 < len(theta) and len(on):
            bounds = values.low[t + 1], values.high[t + 1]
            ahead = values_at(np, theta[t + 1], features(steps.after[on]), *bounds)
            baseline = best(np, ahead, -model.pessimism)
            found[on] += discount * ahead[baseline, :, np.arange(len(on))]
    return found


def misfit(
    steps: Steps,
    values: Coefficients,
    features: Features,
    model: LinearModel,
    discount: float,
    *,
    seed: int = 0,
) -> Misfit:
    """Test the linear model on transitions that were held out; `seed` draws the directions."""
    number = len(steps.action)
    each = residuals(steps, values, features, model, discount)
    mean = each.mean(axis=1)
    size = math.sqrt(float(np.mean(mean**2))) if number else 0.0
    if number < FEWEST or size == 0.0:
        return Misfit(number, math.nan, math.nan, size, math.nan)
    psi = _directions(steps, features, values.theta.shape[1], seed)
    sums = psi.T @ each
    total = sums.mean(axis=1)
    spread = (psi * mean[:, None] ** 2).T @ psi + np.cov(sums)
    statistic = float(total @ np.linalg.pinv(spread, hermitian=True) @ total)
    # Imported here: it takes long.
    from scipy.special import chdtrc

    fitted = psi @ np.linalg.lstsq(psi, mean, rcond=None)[0]
    left = float(np.mean((mean - fitted) ** 2))
    by_chance = left * DIRECTIONS / max(number - DIRECTIONS, 1)
    systematic = math.sqrt(max(float(np.mean(fitted**2)) - by_chance, 0.0))
    return Misfit(number, statistic, float(chdtrc(DIRECTIONS, statistic)), size, systematic)


def _directions(steps: Steps, features: Features, actions: int, seed: int) -> Floats:
    """Return the functions of every transition, (n, DIRECTIONS)."""
    generator = generator_for(seed, "residuals")
    signs = generator.choice([-1.0, 1.0], (actions, DIRECTIONS))
    if features.kind == "one_hot":
        here = generator.choice([-1.0, 1.0], (features.number, DIRECTIONS))
        return np.asarray(here[steps.observation[:, 0].astype(np.int64)] * signs[steps.action])
    scale = features.length_scale or _spread(steps.observation)
    frequency = generator.standard_normal((features.size, DIRECTIONS)) / (FINER * scale)
    phase = generator.uniform(0.0, 2.0 * np.pi, DIRECTIONS)
    found = waves(np, frequency, phase, steps.observation)[:, 1:]
    return np.asarray(found * math.sqrt(DIRECTIONS) * signs[steps.action])


def _spread(observations: Floats) -> float:
    from chary.linear.features import median_distance

    return float(median_distance(np, observations))
