"""The charges of docs/algorithm.md section 3, compiled: the deficit an action adds; `paper` is eq. (4)."""

from __future__ import annotations

import numpy as np

from chary._compile import folded, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model.radii import Radii, additive
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup, deviation, mean_reward, sorted_states
from chary.planner._differences import row_difference
from chary.planner._full import COUPLED, DIFFERENCE, PAPER, PlanArrays


@inner
def lower_q(rows: Rows, radii: Radii, plan: PlanArrays, t: int, p: int, scratch: Scratch) -> float:
    """Return the lower Q_t of pair p under the plan's baseline."""
    v_next = plan.v_lower[t + 1]
    return backup(rows, radii, p, t, LOWER, v_next, sorted_states(radii, v_next), scratch)


@jit
def charge_of(
    kind: int, rows: Rows, radii: Radii, plan: PlanArrays, t: int, s: int, a: int, scratch: Scratch
) -> float:
    """Return the charge of playing `a` at (t, s): eq. (4) of the paper, or a tighter one."""
    a1 = plan.baseline[t, s]
    p = rows.pair_index[s, a]
    if a == a1 and kind != PAPER:
        return 0.0
    p1 = rows.pair_index[s, a1]
    v_lower, v_upper = plan.v_lower[t + 1], plan.v_upper[t + 1]
    column = (len(v_lower), 1)
    lower, upper = v_lower.reshape(column), v_upper.reshape(column)
    if kind != DIFFERENCE and additive(radii.family):
        return count_charge(kind, rows, radii, t, p, p1, plan.v_upper[t, s], lower, 0, upper, 0)
    whole = max(plan.v_upper[t, s] - lower_q(rows, radii, plan, t, p, scratch), 0.0)
    if kind == PAPER or rows.total[p] == 0.0 or rows.total[p1] == 0.0:
        return whole
    means = mean_reward(rows, radii, p1, UPPER) - mean_reward(rows, radii, p, LOWER)
    gap = means + radii.discount * _shared_mass_gap(rows, p1, p, lower, 0, upper, 0)
    above = deviation(rows, radii, p1, UPPER, v_lower, v_upper, scratch)
    below = deviation(rows, radii, p, LOWER, v_lower, v_upper, scratch)
    coupled = max(0.0, min(whole, gap + above + below))
    if kind == COUPLED:
        return coupled
    moved, slack = row_difference(rows, radii, p1, p, plan.difference[t + 1], v_lower, v_upper, scratch)
    return max(0.0, min(coupled, means + radii.discount * moved + slack))


charge_kernel = kernel_of(charge_of)


@folded
def count_charge(
    kind: int,
    rows: Rows,
    radii: Radii,
    t: int,
    p: int,
    p1: int,
    worth: float,
    v_lower: Floats,
    lower_lane: int,
    v_upper: Floats,
    upper_lane: int,
) -> float:
    """Return the charge of pair p where the baseline plays p1, for bonuses that depend on the counts alone.

    `worth` is the upper value at stage t; `v_lower` and `v_upper` are (S, lanes) of the next stage, one lane
    of each being read.
    """
    begin, successor, weight, total = rows.begin, rows.successor, rows.weight, rows.total
    q = 0.0
    if total[p] > 0.0:
        future = 0.0
        for i in range(begin[p], begin[p] + rows.length[p]):
            future += weight[i] * v_lower[successor[i], lower_lane]
        q = (rows.reward_total[p] + radii.discount * future) / total[p]
        q = min(max(q - radii.width[p], 0.0), radii.vmax[t])
    whole = max(worth - q, 0.0)
    if kind == PAPER or total[p] == 0.0 or total[p1] == 0.0:
        return whole
    means = rows.reward_total[p1] / total[p1] - rows.reward_total[p] / total[p]
    gap = means + radii.discount * _shared_mass_gap(rows, p1, p, v_lower, lower_lane, v_upper, upper_lane)
    return max(0.0, min(whole, gap + radii.width[p1] + radii.width[p]))


@folded
def _shared_mass_gap(
    rows: Rows, p: int, o: int, v_lower: Floats, lower_lane: int, v_upper: Floats, upper_lane: int
) -> float:
    """Return the sum of w+ V_hi - w- V_lo, w being row p less row o, by merging the ascending rows."""
    successor, weight, n_i, n_j = rows.successor, rows.weight, rows.total[p], rows.total[o]
    i, j = rows.begin[p], rows.begin[o]
    end_i, end_j = i + rows.length[p], j + rows.length[o]
    total = 0.0
    while i < end_i or j < end_j:
        x_i = successor[i] if i < end_i else len(v_lower)
        x_j = successor[j] if j < end_j else len(v_lower)
        x = min(x_i, x_j)
        w = 0.0
        if x_i == x:
            w += weight[i] / n_i
            i += 1
        if x_j == x:
            w -= weight[j] / n_j
            j += 1
        total += w * (v_upper[x, upper_lane] if w > 0.0 else v_lower[x, lower_lane])
    return total


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
