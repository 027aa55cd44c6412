"""The plan in use: one lane of a batch or a plan of its own, brought up to date as far as it is asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, folded, inner
from chary.arrays import Floats, Ints
from chary.model.radii import HOEFFDING, Radii
from chary.model.rows import Rows
from chary.planner._backup import UPPER, Scratch
from chary.planner._batch import Lanes, Now, Side
from chary.planner._full import (
    DIFFERENCE,
    EVALUATE,
    START,
    PlanArrays,
    backward_into,
    differences_into,
)

__all__ = [
    "all_values_into",
    "baseline_from_into",
    "evaluate_into",
    "explorer_into",
    "guess_action",
    "lane_action",
    "open_lane",
    "open_whole",
    "upper_from_into",
    "values_behind_into",
]

Actions = NDArray[np.int16]


@folded
def open_lane(lanes: Lanes, lane: int, guessing: bool, upper: bool) -> None:
    """Make the plan of a lane the one in use; `upper` says whether the lanes hold upper values."""
    now = lanes.now
    if not guessing:
        now[Now.VALID] = lane
    now[Now.LANE] = lane
    now[Now.GUESSING] = guessing
    now[Now.UPPER_LANES] = upper
    now[Now.UPPER_FROM] = len(lanes.lower.v)
    now[Now.BASELINE_FROM] = len(lanes.lower.v)
    now[Now.DIFFERENCES] = 0
    now[Now.ASKED] = 0


@bare
def open_whole(lanes: Lanes) -> None:
    """Make a plan that the full pass has filled the one in use: nothing is left to be brought up to date."""
    open_lane(lanes, 0, False, False)
    lanes.now[Now.UPPER_FROM] = 0
    lanes.now[Now.DIFFERENCES] = 1


@folded
def lane_action(side: Side, t: int, s: int, lane: int) -> int:
    """Return what the policy of a lane plays at (t, s)."""
    place = side.split[t, s]
    # Policies are kept in 16 bits; an action is one type wherever it comes from.
    return np.int64(side.policy[t, s]) if place < 0 else np.int64(side.action[place, lane])  # type: ignore[return-value]


@bare
def guess_action(
    lanes: Lanes, side: Side, rows: Rows, radii: Radii, sign: int, favourite: int, t: int, s: int
) -> int:
    """Return what the policy may play at (t, s) after the episodes guessed so far.

    The best action by the values at hand and the counts of the guess, where that has changed any in s.
    """
    now, versions = lanes.now, lanes.versions
    lane, version = now[Now.LANE], now[Now.VERSION]
    first, last = rows.pair_start[s], rows.pair_start[s + 1]
    changed = False
    for p in range(first, last):
        changed |= versions.place[p] >= 0
    if not changed:
        return lane_action(side, t, s, lane)
    v, direction, top = side.v[t + 1], 1.0 if sign > 0 else -1.0, radii.vmax[t]
    best, chosen = -1.0, 0
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
        if value > best or (value == best and action == favourite):
            best, chosen = value, action
    return chosen


@bare
def baseline_from_into(plan: PlanArrays, lanes: Lanes, t: int) -> None:
    """Take the baseline of the lane in use over into the plan, from stage t on."""
    if not lanes.on:
        return
    lane, side = lanes.now[Now.LANE], lanes.lower
    until = min(lanes.now[Now.BASELINE_FROM], len(plan.baseline))
    for i in range(t, until):
        for s in range(plan.baseline.shape[1]):
            plan.baseline[i, s] = side.policy[i, s]
    for i in range(side.used[0]):
        if t <= side.stage[i] < until:
            plan.baseline[side.stage[i], side.state[i]] = side.action[i, lane]
    lanes.now[Now.BASELINE_FROM] = min(t, until)


@bare
def explorer_into(kept: Actions, lanes: Lanes, lane: int) -> None:
    """Copy the explorer of a lane, (H, S)."""
    side = lanes.optimistic
    for t in range(len(kept)):
        for s in range(kept.shape[1]):
            kept[t, s] = side.policy[t, s]
    for i in range(side.used[0]):
        kept[side.stage[i], side.state[i]] = side.action[i, lane]


@bare
def values_behind_into(plan: PlanArrays, lanes: Lanes, rows: Rows, t: int, s: int, p: int) -> None:
    """Take the values of (t, s) and of what was seen behind its pair p over into the plan."""
    lane, known = lanes.now[Now.LANE], lanes.now[Now.UPPER_LANES] == 1
    lower, upper, v, u, successor = plan.v_lower, plan.v_upper, lanes.lower.v, lanes.upper, rows.successor
    lower[t, s] = v[t, s, lane]
    if known:
        upper[t, s] = u[t, s, lane]
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        x = successor[i]
        lower[t + 1, x] = v[t + 1, x, lane]
        if known:
            upper[t + 1, x] = u[t + 1, x, lane]


@bare
def all_values_into(plan: PlanArrays, lanes: Lanes) -> None:
    """Take every value over into the plan."""
    lane, known = lanes.now[Now.LANE], lanes.now[Now.UPPER_LANES] == 1
    lower, upper, v, u = plan.v_lower, plan.v_upper, lanes.lower.v, lanes.upper
    for t in range(len(lower)):
        for s in range(lower.shape[1]):
            lower[t, s] = v[t, s, lane]
            if known:
                upper[t, s] = u[t, s, lane]


@bare
def evaluate_into(
    v: Floats, policy: Ints, rows: Rows, radii: Radii, sign: int, stages: tuple[int, int]
) -> None:
    """Fill the upper or lower value of a policy at some stages, from rows whose backup is a sum.

    What `backward_into` does in mode EVALUATE for `hoeffding` and for exact rows, in less time.
    """
    first, last = stages
    for s in range(v.shape[1]):
        v[radii.horizon, s] = 0.0
    for t in range(last, first - 1, -1):
        _evaluate_stage_into(
            v[t],
            v[t + 1],
            policy[t],
            1.0 if sign > 0 else -1.0,
            radii.vmax[t],
            radii.terminal,
            radii.discount,
            rows.pair_index,
            rows.begin,
            rows.length,
            rows.successor,
            rows.weight,
            rows.total,
            rows.reward_total,
            radii.width,
        )


@bare
def _evaluate_stage_into(
    v: Floats,
    v_next: Floats,
    policy: Ints,
    sign: float,
    top: float,
    terminal: NDArray[np.bool_],
    discount: float,
    pair_index: Ints,
    begin: Ints,
    length: Ints,
    successor: Ints,
    weight: Floats,
    total: Floats,
    reward_total: Floats,
    width: Floats,
) -> None:
    # Places are unsigned: numba then leaves out the question whether to count them from the end.
    for s in range(len(v)):
        v[s] = 0.0
        if terminal[s] or pair_index[s, policy[s]] < 0:
            continue
        p = np.uint64(pair_index[s, policy[s]])
        v[s] = top if sign > 0.0 else 0.0
        if total[p] > 0.0:
            future = 0.0
            for i in range(begin[p], begin[p] + length[p]):
                future += weight[np.uint64(i)] * v_next[np.uint64(successor[np.uint64(i)])]
            value = (reward_total[p] + discount * future) / total[p]
            v[s] = min(max(value + sign * width[p], 0.0), top)


@inner
def upper_from_into(
    plan: PlanArrays, lanes: Lanes, rows: Rows, radii: Radii, kind: int, t: int, scratch: Scratch
) -> None:
    """Bring the upper value of the plan's baseline up to date from stage t on, and what depends on it."""
    now = lanes.now
    if kind == DIFFERENCE:
        # Differences are made of all values: small problems only.
        t = 0
    if now[Now.UPPER_LANES] == 0 and t < now[Now.UPPER_FROM]:
        baseline_from_into(plan, lanes, t)
        stages = (t, min(now[Now.UPPER_FROM], radii.horizon) - 1)
        if radii.family == HOEFFDING:
            evaluate_into(plan.v_upper, plan.baseline, rows, radii, UPPER, stages)
        else:
            nobody, none = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
            backward_into(
                plan.v_upper, none, plan.baseline, rows, radii, UPPER, EVALUATE, nobody, none, stages, scratch
            )
        now[Now.UPPER_FROM] = t
    if kind == DIFFERENCE and now[Now.DIFFERENCES] == 0:
        if lanes.on:
            baseline_from_into(plan, lanes, START)
            all_values_into(plan, lanes)
        differences_into(plan.difference, rows, radii, plan, scratch)
        now[Now.DIFFERENCES] = 1
