"""What plans are asked for beside the full pass: the charges of many steps, and of a policy of one's own."""

from __future__ import annotations

import numpy as np

from chary._compile import jit
from chary.arrays import Floats, Ints
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._full import PlanArrays, charge_kernel, differences_into

__all__ = ["price_differences_into", "prices_into"]


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


@jit
def price_differences_into(plan: PlanArrays, rows: Rows, radii: Radii, scratch: Scratch) -> None:
    """Fill the table of value differences of a plan whose baseline and values are there already."""
    differences_into(plan.difference, rows, radii, plan, scratch)
