"""The plan in use: one lane of a batch or a separate plan, brought up to date as far as it is needed."""

from __future__ import annotations

import numpy as np

from chary._compile import bare, folded, inner
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import UPPER, Scratch
from chary.planner._batch_arrays import Actions, Batch, Now, Side
from chary.planner._full import DIFFERENCE, START, PlanArrays, plan_differences_kernel, policy_value_into


@folded
def open_lane(batch: Batch, lane: int, guessing: bool, upper: bool) -> None:
    """Make the plan of a lane the one in use; `upper` is whether the lanes have upper values."""
    now = batch.now
    if not guessing:
        now[Now.VALID] = lane
    now[Now.LANE] = lane
    now[Now.GUESSING] = guessing
    now[Now.UPPER_LANES] = upper
    now[Now.UPPER_FROM] = len(batch.lower.v)
    now[Now.BASELINE_FROM] = len(batch.lower.v)
    now[Now.DIFFERENCES] = 0
    now[Now.ASKED] = 0


@bare
def open_whole(batch: Batch) -> None:
    """Make a plan that the full pass has filled the one in use: nothing is left to be brought up to date."""
    open_lane(batch, 0, False, False)
    batch.now[Now.UPPER_FROM] = 0
    batch.now[Now.DIFFERENCES] = 1


@folded
def lane_action(side: Side, t: int, s: int, lane: int) -> int:
    """Return what the policy of a lane plays at (t, s)."""
    place = side.split[t, s]
    # Policies are kept in 16 bits; an action has one type wherever it comes from.
    return np.int64(side.policy[t, s]) if place < 0 else np.int64(side.action[place, lane])  # type: ignore[return-value]


@bare
def guess_action(
    batch: Batch, side: Side, rows: Rows, radii: Radii, sign: int, favourite: int, t: int, s: int
) -> int:
    """Return what the policy may play at (t, s) after the episodes guessed so far.

    That is the best action by the values of the lane in use and the counts of the guess, where the guess has
    changed any in s.
    """
    now, versions = batch.now, batch.versions
    lane, version = now[Now.LANE], now[Now.VERSION]
    first, last = rows.pair_start[s], rows.pair_start[s + 1]
    changed = False
    for p in range(first, last):
        changed |= versions.place[p] >= 0
    if not changed:
        return lane_action(side, t, s, lane)
    v, direction, top = side.v[t + 1], 1.0 if sign > 0 else -1.0, radii.vmax[t]
    best, chosen, place = -1.0, 0, 0
    for p in range(first, last):
        o = versions.place[p]
        future = 0.0
        if o >= 0:
            n, r, width = (
                versions.total[o, version],
                versions.reward_total[o, version],
                versions.width[o, version],
            )
            for i in range(versions.begin[o], versions.begin[o] + versions.length[o]):
                future += versions.weight[i, version] * v[versions.successor[i], lane]
        else:
            n, r, width = rows.total[p], rows.reward_total[p], radii.width[p]
            for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
                future += rows.weight[i] * v[rows.successor[i], lane]
        value = top if sign > 0 else 0.0
        if n > 0.0:
            value = min(max((r + radii.discount * future) / n + direction * width, 0.0), top)
        action = rows.pair_action[p]
        if value > best or (
            value == best and (action == favourite or (rows.rank[p] < place and chosen != favourite))
        ):
            best, chosen, place = value, action, rows.rank[p]
    return chosen


@bare
def baseline_from_into(plan: PlanArrays, batch: Batch, t: int) -> None:
    """Copy the baseline of the lane in use into the plan, from stage t on."""
    if not batch.on:
        return
    lane, side = batch.now[Now.LANE], batch.lower
    until = min(batch.now[Now.BASELINE_FROM], len(plan.baseline))
    for i in range(t, until):
        for s in range(plan.baseline.shape[1]):
            plan.baseline[i, s] = side.policy[i, s]
    for i in range(side.used[0]):
        if t <= side.stage[i] < until:
            plan.baseline[side.stage[i], side.state[i]] = side.action[i, lane]
    batch.now[Now.BASELINE_FROM] = min(t, until)


@bare
def explorer_into(kept: Actions, batch: Batch, lane: int) -> None:
    """Copy the explorer of a lane, (H, S)."""
    side = batch.optimistic
    for t in range(len(kept)):
        for s in range(kept.shape[1]):
            kept[t, s] = side.policy[t, s]
    for i in range(side.used[0]):
        kept[side.stage[i], side.state[i]] = side.action[i, lane]


@bare
def values_behind_into(plan: PlanArrays, batch: Batch, rows: Rows, t: int, s: int, p: int) -> None:
    """Copy the values of (t, s) and of the successors seen of its pair p into the plan."""
    lane, known = batch.now[Now.LANE], batch.now[Now.UPPER_LANES] == 1
    lower, upper, v, u, successor = plan.v_lower, plan.v_upper, batch.lower.v, batch.upper, rows.successor
    lower[t, s] = v[t, s, lane]
    if known:
        upper[t, s] = u[t, s, lane]
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        x = successor[i]
        lower[t + 1, x] = v[t + 1, x, lane]
        if known:
            upper[t + 1, x] = u[t + 1, x, lane]


@bare
def all_values_into(plan: PlanArrays, batch: Batch) -> None:
    """Copy every value into the plan."""
    lane, known = batch.now[Now.LANE], batch.now[Now.UPPER_LANES] == 1
    lower, upper, v, u = plan.v_lower, plan.v_upper, batch.lower.v, batch.upper
    for t in range(len(lower)):
        for s in range(lower.shape[1]):
            lower[t, s] = v[t, s, lane]
            if known:
                upper[t, s] = u[t, s, lane]


@inner
def upper_from_into(
    plan: PlanArrays, batch: Batch, rows: Rows, radii: Radii, kind: int, t: int, scratch: Scratch
) -> None:
    """Bring the upper value of the plan's baseline up to date from stage t on, and what depends on it."""
    now = batch.now
    if kind == DIFFERENCE:
        # Differences are made of all values: small problems only.
        t = 0
    if now[Now.UPPER_LANES] == 0 and t < now[Now.UPPER_FROM]:
        baseline_from_into(plan, batch, t)
        stages = (t, min(now[Now.UPPER_FROM], radii.horizon) - 1)
        policy_value_into(plan.v_upper, plan.baseline, rows, radii, UPPER, stages, scratch)
        now[Now.UPPER_FROM] = t
    if kind == DIFFERENCE and now[Now.DIFFERENCES] == 0:
        if batch.on:
            baseline_from_into(plan, batch, START)
            all_values_into(plan, batch)
        plan_differences_kernel(plan, rows, radii, scratch)
        now[Now.DIFFERENCES] = 1
