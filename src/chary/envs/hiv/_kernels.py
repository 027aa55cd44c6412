"""The simulator's compiled loop: an adaptive integration of the equations over the days of one action."""

from __future__ import annotations

import math
from typing import Any

from chary._compile import jit
from chary.arrays import Floats
from chary.envs.hiv._arithmetic import (
    DAYS,
    GROWTH,
    MAX_ATTEMPTS,
    NO_ERROR,
    SAFETY,
    SHORTEST,
    SHORTEST_FIRST,
    SHRINKAGE,
    attempt,
    first_step,
    reward_of,
    slope,
    under_treatment,
)


@jit
def step_into(after: Floats, rewards: Floats, p: Floats, e: Floats, before: Floats, actions: Any) -> int:
    """Advance B lanes by one action each, and return the first that could not be integrated, or -1.

    `after`, `before` have shape (B, 6), `p` (B, 20), `e` (4, 2), `rewards` and `actions` (B,).
    """
    for i in range(before.shape[0]):
        e1, e2 = e[actions[i], 0], e[actions[i], 1]
        q = under_treatment(p[i], e1, e2)
        y = (before[i, 0], before[i, 1], before[i, 2], before[i, 3], before[i, 4], before[i, 5])
        k1 = slope(q, y)
        h = math.sqrt(first_step(y, k1))
        # Also true for NaN.
        if not h >= SHORTEST_FIRST:
            h = SHORTEST_FIRST
        t = 0.0
        n = 0
        rejected = False
        while t < DAYS:
            n += 1
            last = t + h >= DAYS
            if last:
                h = DAYS - t
            z, k7, error = attempt(q, y, k1, h)
            factor = GROWTH if error <= NO_ERROR else SAFETY * error**-0.1
            # Also true if the error is NaN.
            if not factor >= SHRINKAGE:
                factor = SHRINKAGE
            factor = min(factor, 1.0 if rejected else GROWTH)
            rejected = not error <= 1.0
            if not rejected:
                y, k1 = z, k7
                t = DAYS if last else t + h
            h *= factor
            if n >= MAX_ATTEMPTS or (rejected and h < SHORTEST):
                return i
        for j in range(6):
            after[i, j] = max(y[j], 0.0)
        rewards[i] = reward_of(after[i, 4], after[i, 5], e1, e2)
        if not math.isfinite(rewards[i]):
            return i
    return -1


@jit
def slope_into(out: Floats, p: Floats, e1: float, e2: float, y: Floats) -> None:
    """Write the six derivatives per day at concentrations `y`: the equations for other integrators."""
    k = slope(under_treatment(p, e1, e2), (y[0], y[1], y[2], y[3], y[4], y[5]))
    for j in range(6):
        out[j] = k[j]


@jit
def first_wrong(values: Floats) -> int:
    """Return the place of the first value that is negative or not finite, or -1."""
    for i in range(values.shape[0]):
        if not (values[i] >= 0.0 and math.isfinite(values[i])):
            return i
    return -1
