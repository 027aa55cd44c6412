"""The charges of many steps in one call: what a batch of open episodes asks of a plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chary._compile import jit
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._kernels import PlanArrays, charge_kernel

__all__ = ["prices_into"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@jit
def prices_into(
    prices: Floats,
    kind: int,
    rows: Rows,
    radii: Radii,
    plan: PlanArrays,
    stages: Ints,
    states: Ints,
    scratch: Scratch,
) -> None:
    """Fill prices (B, A) with the charges of all actions at each of B steps; inf where one is not allowed."""
    for i in range(len(stages)):
        t, s = stages[i], states[i]
        prices[i, :] = np.inf
        for p in range(rows.pair_start[s], rows.pair_start[s + 1]):
            a = rows.pair_action[p]
            prices[i, a] = charge_kernel(kind, rows, radii, plan, t, s, a, scratch)
