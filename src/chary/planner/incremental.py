"""Exact plans for several episodes at once: what the full pass computes, bit for bit, several times faster.

A plan needs the counts of every episode before it, so plans seem to come one at a time. But episodes can be
guessed: played ahead by the plan at hand, the next few almost always come out as they will for real. Their
counts differ in a few rows only; lane j of the arrays here takes the counts after the first j of the guessed
episodes, and one backward induction over all lanes makes all their plans while each row is read once. The
episodes are then played for real, each by its own plan. The first that comes out otherwise than guessed ends
the batch: the plans behind it were made from counts that never came to be, and are thrown away. Nothing is
approximate, and a wrong guess costs time only.

Three shortcuts are exact as well. A pair that fell short of the best at a later stage is left alone as long
as values have not risen enough since for it to catch up. The upper value of the baseline is left out until a
charge asks for it, which is not the case where the lower value alone shows that the budget refuses. And rows
are read for lower and upper value together where both are wanted.

Vectors need a backup that is a sum and a bonus that N(s, a) gives alone: `hoeffding`. With the other families
episodes are planned one by one, the upper value on demand.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, folded, inner
from chary.mdp import Setting
from chary.model.radii import HOEFFDING, Radii, hoeffding_width
from chary.model.rows import Rows, find_place
from chary.planner._backup import UPPER, Scratch
from chary.planner._kernels import (
    DIFFERENCE,
    EVALUATE,
    PlanArrays,
    backward_into,
    differences_into,
)
from chary.planner._lanes import (
    LANES,
    both_sides_into,
    copy_into,
    exceeds,
    floor_into,
    largest,
    one_row_into,
    reaches,
    versions_into,
)

__all__ = [
    "LANES",
    "Lanes",
    "Now",
    "Side",
    "Versions",
    "all_values_into",
    "baseline_from_into",
    "evaluate_into",
    "explorer_into",
    "forget_versions",
    "guess_action",
    "lane_action",
    "new_lanes",
    "open_lane",
    "open_whole",
    "plan_lanes_into",
    "upper_from_into",
    "values_behind_into",
    "vectors",
    "version_into",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Actions = NDArray[np.int16]

# Bounds that skip an action widen by this much at every stage: more than rounding could ever make of them.
ROUNDING = 1e-9
# Rows of `Lanes.room`: the best so far, the one at hand, and the upper value. NumPy scalars, as types go.
BEST: int = np.int64(0)  # type: ignore[assignment]
VALUE: int = np.int64(1)  # type: ignore[assignment]
ABOVE: int = np.int64(2)  # type: ignore[assignment]
# numpy asks for huge pages from 4 MiB on (as of 2.4).
HUGE = 2**19
# Entries of rows with versions, for all lanes of one batch: 16 MiB.
VERSION_ENTRIES = 131_072


class Versions(NamedTuple):
    """Rows that differ from lane to lane: those that the guessed episodes count in.

    `place[p]` (P,) is the number of pair p here, -1 for rows that are the same in every lane. Row i has
    `length[i]` entries from `begin[i]` on; `weight` is (entries, LANES), `total`, `reward_total` and `width`
    (rows, LANES). `pair[i]` is whose row it is, and `used` the number of rows and of entries.
    """

    place: Ints
    pair: Ints
    begin: Ints
    length: Ints
    successor: Ints
    weight: Floats
    total: Floats
    reward_total: Floats
    width: Floats
    used: Ints


class Side(NamedTuple):
    """One optimum over all lanes: the lower one with the baseline, or the upper one with the explorer.

    `v` is (H + 1, S, LANES) and `guess` (H, S) the pair that was best last time. Lanes seldom differ in what
    they play: `policy` (H, S) is the last lane's, and at the `used[0]` places in which another lane plays
    otherwise `split` (H, S), else -1, is a row of `action` (places, LANES); `stage` and `state` say where.
    """

    v: Floats
    guess: Ints
    policy: Actions
    split: NDArray[np.int32]
    action: Actions
    stage: Ints
    state: Ints
    used: Ints


class Now(IntEnum):
    """Places in `Lanes.now`, the plan in use."""

    LANE = 0
    GUESSING = 1
    UPPER_FROM = 2
    UPPER_LANES = 3
    DIFFERENCES = 4
    ASKED = 5
    ROWS = 6
    BASELINE_FROM = 7
    BATCHES = 8
    VERSION = 9
    VALID = 10


class Lanes(NamedTuple):
    """The plans of one batch; `on` says whether there are any, `now` which of them is in use.

    `upper` (H + 1, S, LANES) is the upper value of the lanes' baselines. The rest is room: what each pair
    (P,) can reach, what all pairs of a state (S,) but the one held can reach, and vectors.
    """

    on: bool
    lower: Side
    optimistic: Side
    upper: Floats
    versions: Versions
    now: Ints
    bound: Floats
    rest: Floats
    held: Ints
    earlier: NDArray[np.bool_]
    room: Floats
    pick: Ints


def vectors(*shape: int) -> Floats:
    """Return zeros of shape (..., LANES) in which no vector lies across two lines of the cache."""
    room = np.zeros(max(math.prod(shape) * LANES + LANES, HUGE))
    start = -(room.ctypes.data // room.itemsize) % LANES
    return room[start : start + math.prod(shape) * LANES].reshape(*shape, LANES)


def new_lanes(setting: Setting, family: int) -> Lanes:
    """Return room for batches of plans, or for none where the family of bounds does not allow them."""
    on = family == HOEFFDING
    H, S, P = (setting.horizon, setting.n_states, setting.n_pairs) if on else (setting.horizon, 0, 0)
    entries = VERSION_ENTRIES if on else 0
    rows = LANES * H if on else 0

    def ints(*shape: int, value: int = 0) -> Ints:
        return np.full(shape, value, dtype=np.int64)

    def side() -> Side:
        first = np.zeros(S, dtype=np.int64) if not on else np.array(setting.pair_start[:-1])
        return Side(
            v=vectors(H + 1, S),
            guess=np.tile(first, (H, 1)),
            policy=np.zeros((H, S), dtype=np.int16),
            split=np.full((H, S), -1, dtype=np.int32),
            action=np.zeros((H * S, LANES), dtype=np.int16),
            stage=ints(H * S),
            state=ints(H * S),
            used=ints(1),
        )

    versions = Versions(
        place=ints(P, value=-1),
        pair=ints(rows),
        begin=ints(rows),
        length=ints(rows),
        successor=ints(entries),
        weight=vectors(entries),
        total=vectors(rows),
        reward_total=vectors(rows),
        width=vectors(rows),
        used=ints(2),
    )
    return Lanes(
        on=on,
        lower=side(),
        optimistic=side(),
        upper=vectors(H + 1, S),
        versions=versions,
        now=ints(len(Now)),
        bound=np.zeros(P),
        rest=np.zeros(S),
        held=ints(S),
        earlier=np.zeros(S, dtype=bool),
        room=vectors(3),
        pick=ints(LANES),
    )


@bare
def version_into(
    versions: Versions,
    rows: Rows,
    radii: Radii,
    lane: int,
    pairs: Ints,
    nexts: Ints,
    rewards: Floats,
    steps: int,
) -> bool:
    """Count an episode in the lanes from `lane` on; False, and nothing counted, where there is no room."""
    place, used = versions.place, versions.used
    most = LANES * radii.horizon
    fresh, entries = 0, 0
    for i in range(steps):
        if place[pairs[i]] < 0:
            fresh += 1
            entries += min(rows.length[pairs[i]] + most, len(rows.visits))
    if used[0] + fresh > len(versions.pair) or used[1] + entries > len(versions.successor):
        return False
    for i in range(steps):
        if place[pairs[i]] < 0:
            _copy_row_into(
                versions, rows, radii, pairs[i], min(rows.length[pairs[i]] + most, len(rows.visits))
            )
        _count_version_into(versions, place[pairs[i]], lane, nexts[i], rewards[i])
    scale, log_term, vmax, n_states = radii.scale, radii.log_term, radii.vmax[0], len(rows.visits)
    for i in range(steps):
        o = place[pairs[i]]
        for j in range(lane, LANES):
            versions.width[o, j] = hoeffding_width(scale, log_term, vmax, n_states, versions.total[o, j])
    return True


@bare
def _copy_row_into(versions: Versions, rows: Rows, radii: Radii, p: int, capacity: int) -> None:
    """Start the versions of pair p with what was counted for real."""
    o, fresh = versions.used[0], versions.used[1]
    versions.place[p] = o
    versions.pair[o] = p
    versions.begin[o] = fresh
    versions.length[o] = rows.length[p]
    for i in range(rows.length[p]):
        versions.successor[fresh + i] = rows.successor[rows.begin[p] + i]
        for j in range(LANES):
            versions.weight[fresh + i, j] = rows.weight[rows.begin[p] + i]
    for j in range(LANES):
        versions.total[o, j] = rows.total[p]
        versions.reward_total[o, j] = rows.reward_total[p]
        versions.width[o, j] = radii.width[p]
    versions.used[0] = o + 1
    versions.used[1] = fresh + capacity


@bare
def _count_version_into(versions: Versions, o: int, lane: int, x: int, r: float) -> None:
    """Count a transition to x in the lanes from `lane` on; a weight of 0 adds nothing in the others."""
    begin, end = versions.begin[o], versions.begin[o] + versions.length[o]
    successor, weight = versions.successor, versions.weight
    i = find_place(successor, begin, end, x)
    if i == end or successor[i] != x:
        for k in range(end, i, -1):
            successor[k] = successor[k - 1]
            for j in range(LANES):
                weight[k, j] = weight[k - 1, j]
        successor[i] = x
        for j in range(LANES):
            weight[i, j] = 0.0
        versions.length[o] += 1
    for j in range(lane, LANES):
        weight[i, j] += 1.0
        versions.total[o, j] += 1.0
        versions.reward_total[o, j] += r


@bare
def forget_versions(versions: Versions) -> None:
    """Make every row the same in all lanes again."""
    for o in range(versions.used[0]):
        versions.place[versions.pair[o]] = -1
    versions.used[0] = 0
    versions.used[1] = 0


@bare
def plan_lanes_into(
    lanes: Lanes, rows: Rows, radii: Radii, side: Side, sign: int, prior: Ints, with_upper: bool
) -> None:
    """Fill one optimum in every lane, and with `with_upper` the upper value of the lanes' own policies.

    What `backward_into` does in mode OPTIMISE and then EVALUATE, in another order: the pair that was best
    last time is evaluated first, so that most of the others need not be.
    """
    versions = lanes.versions
    _bounds_into(
        lanes.bound,
        sign,
        radii.vmax[radii.horizon - 1],
        rows.total,
        rows.reward_total,
        radii.width,
        versions.place,
    )
    for s in range(len(lanes.rest)):
        lanes.rest[s] = np.inf
        lanes.earlier[s] = False
    side.used[0] = 0
    risen = ROUNDING
    for t in range(radii.horizon - 1, -1, -1):
        if t < radii.horizon - 1:
            risen += ROUNDING + radii.discount * _rise(side.v[t + 1], side.v[t + 2], lanes.room)
        _stage_lanes_into(
            t,
            side.v[t],
            side.guess[t],
            side.policy[t],
            side.split[t],
            side.action,
            side.stage,
            side.state,
            side.used,
            lanes.upper[t],
            side.v[t + 1],
            lanes.upper[t + 1],
            sign,
            with_upper,
            radii.vmax[t],
            radii.vmax[t + 1],
            risen,
            prior,
            lanes.bound,
            lanes.rest,
            lanes.held,
            lanes.earlier,
            radii.terminal,
            radii.discount,
            rows.pair_start,
            rows.pair_action,
            rows.pair_index,
            rows.begin,
            rows.length,
            rows.successor,
            rows.weight,
            rows.total,
            rows.reward_total,
            radii.width,
            versions.place,
            versions.begin,
            versions.length,
            versions.successor,
            versions.weight,
            versions.total,
            versions.reward_total,
            versions.width,
            lanes.room,
            lanes.pick,
            lanes.now,
        )


@bare
def _bounds_into(
    bound: Floats, sign: int, top: float, total: Floats, reward_total: Floats, width: Floats, place: Ints
) -> None:
    """Fill what each pair has at the last stage, where nothing lies behind it."""
    for p in range(len(bound)):
        bound[p] = np.inf
        if place[p] < 0:
            if total[p] == 0.0:
                bound[p] = np.inf if sign > 0 else -np.inf
            else:
                mean = reward_total[p] / total[p]
                bound[p] = mean + width[p] if sign > 0 else mean - width[p]
                if bound[p] >= top:
                    bound[p] = np.inf


@bare
def _rise(v: Floats, v_next: Floats, room: Floats) -> float:
    """Return by how much any value exceeds that of the next stage; lane by lane, which is vector code."""
    for j in range(LANES):
        room[BEST, j] = 0.0
    for s in range(len(v)):
        for j in range(LANES):
            room[BEST, j] = max(room[BEST, j], v[s, j] - v_next[s, j])
    return largest(room, BEST)


@bare
def _stage_lanes_into(
    t: int,
    v: Floats,
    guesses: Ints,
    policy: Actions,
    split: NDArray[np.int32],
    split_action: Actions,
    split_stage: Ints,
    split_state: Ints,
    split_used: Ints,
    upper: Floats,
    v_next: Floats,
    u_next: Floats,
    sign: int,
    with_upper: bool,
    top: float,
    later_top: float,
    risen: float,
    prior: Ints,
    bound: Floats,
    rest: Floats,
    held: Ints,
    earlier: NDArray[np.bool_],
    terminal: NDArray[np.bool_],
    discount: float,
    pair_start: Ints,
    pair_action: Ints,
    pair_index: Ints,
    begin: Ints,
    length: Ints,
    successor: Ints,
    weight: Floats,
    total: Floats,
    reward_total: Floats,
    width: Floats,
    place: Ints,
    its_begin: Ints,
    its_length: Ints,
    its_successor: Ints,
    its_weight: Floats,
    its_total: Floats,
    its_reward: Floats,
    its_width: Floats,
    room: Floats,
    pick: Ints,
    now: Ints,
) -> None:
    """Fill one stage; plain arrays, so that nothing is counted or unpacked.

    From one stage to the one before no Q rises more than the values behind it do, so that a pair evaluated
    at a later stage is left alone as long as what it had then, unclipped, and what values have risen since,
    `risen`, fall short of the best. `bound[p]` is what it had less what values had risen by then, and
    `rest[s]` the largest of these over the pairs of s other than `held[s]`, or where that one is at the top,
    over the `earlier[s]` ones alone.
    """
    direction = 1.0 if sign > 0 else -1.0
    settled = sign > 0 and top == later_top
    unseen = top if sign > 0 else 0.0
    almost = np.nextafter(top, 0.0)
    evaluated = 0
    for s in range(len(terminal)):
        first, last = pair_start[s], pair_start[s + 1]
        if first == last or terminal[s]:
            continue
        g = guesses[s]
        if settled and earlier[s] and g == held[s] and rest[s] + risen < top:
            # No value falls from a stage to the one before: at the top it stays there.
            for j in range(LANES):
                v[s, j] = top
            policy[s] = pair_action[g]
            split[s] = -1
            continue
        fused, mixed = False, False
        full = False
        favourite = pair_index[s, prior[s]] if prior[s] >= 0 else -1
        # Whether the pair held wins every tie: at the bottom all that is clipped there is worth the same.
        wins = g == favourite or (favourite < 0 and g == first)
        for i in range(first - 1, last):
            p, row = g, BEST
            if i >= first:
                p, row = i, VALUE
                if p == g or exceeds(room, BEST, max(bound[p] + risen, 0.0)):
                    continue
                if not mixed and ((wins and bound[p] + risen < 0.0) or (full and p > g)):
                    continue
            evaluated += 1
            o = place[p]
            if o >= 0:
                entry, end = its_begin[o], its_begin[o] + its_length[o]
                versions_into(
                    room, row, entry, end, its_successor, its_weight, v_next,
                    o, its_reward, discount, its_total, direction, its_width, top,
                )  # fmt: skip
                if its_total[o, 0] == 0.0:
                    for j in range(LANES):
                        if its_total[o, j] == 0.0:
                            room[row, j] = unseen
            elif total[p] == 0.0:
                for j in range(LANES):
                    room[row, j] = unseen
            else:
                entry, end, r, n = begin[p], begin[p] + length[p], reward_total[p], total[p]
                if i < first and with_upper:
                    fused = True
                    both_sides_into(
                        room, row, ABOVE, entry, end, successor, weight, v_next, u_next,
                        r, discount, n, width[p], top,
                    )  # fmt: skip
                else:
                    shift = direction * width[p]
                    one_row_into(room, row, entry, end, successor, weight, v_next, r, discount, n, shift, top)
            if i >= first:
                reached = largest(room, VALUE)
                bound[p] = reached - risen if reached < top else np.inf
            if not (i < first and fused):
                floor_into(room, row)
            if i < first:
                full = sign > 0 and exceeds(room, BEST, almost)
                if g != held[s]:
                    bound[held[s]] = np.inf
                elif full or not earlier[s]:
                    reach = rest[s] + risen
                    if (wins and reach < 0.0) or exceeds(room, BEST, max(reach, 0.0)):
                        break
                continue
            if not reaches(room, VALUE, BEST):
                continue
            if not mixed:
                mixed = True
                for j in range(LANES):
                    pick[j] = g
            for j in range(LANES):
                # Ties go to the prior's action, else to the lowest index.
                if room[VALUE, j] > room[BEST, j] or (
                    room[VALUE, j] == room[BEST, j]
                    and (p == favourite or (p < pick[j] and pick[j] != favourite))
                ):
                    room[BEST, j] = room[VALUE, j]
                    pick[j] = p
        else:
            # Every pair was looked at: know how far the others can reach, so as not to look again.
            held[s] = g
            farthest = -np.inf
            for p in range(first, last):
                if p != g and not (full and p > g):
                    farthest = max(farthest, bound[p])
            rest[s] = np.inf if mixed else farthest
            earlier[s] = full and not mixed
        copy_into(v, s, room, BEST)
        split[s] = -1
        if mixed:
            guesses[s] = pick[LANES - 1]
            mixed = False
            for j in range(LANES):
                mixed |= pick[j] != pick[LANES - 1]
            fused &= pick[LANES - 1] == g
            if mixed:
                place_of = split_used[0]
                split_used[0] += 1
                split[s] = place_of
                split_stage[place_of] = t
                split_state[place_of] = s
                for j in range(LANES):
                    split_action[place_of, j] = pair_action[pick[j]]
        policy[s] = pair_action[guesses[s]]
        if not with_upper:
            continue
        if mixed or not fused:
            done = -1
            for k in range(LANES):
                p = pick[k] if mixed else guesses[s]
                if p != done:
                    done = p
                    o = place[p]
                    if o >= 0:
                        entry, end = its_begin[o], its_begin[o] + its_length[o]
                        versions_into(
                            room, VALUE, entry, end, its_successor, its_weight, u_next,
                            o, its_reward, discount, its_total, 1.0, its_width, top,
                        )  # fmt: skip
                        if its_total[o, 0] == 0.0:
                            for j in range(LANES):
                                if its_total[o, j] == 0.0:
                                    room[VALUE, j] = top
                    elif total[p] == 0.0:
                        for j in range(LANES):
                            room[VALUE, j] = top
                    else:
                        entry, end, r, n = begin[p], begin[p] + length[p], reward_total[p], total[p]
                        one_row_into(
                            room, VALUE, entry, end, successor, weight, u_next, r, discount, n, width[p], top
                        )
                    floor_into(room, VALUE)
                room[ABOVE, k] = room[VALUE, k]
        copy_into(upper, s, room, ABOVE)
    now[Now.ROWS] += evaluated


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
            baseline_from_into(plan, lanes, 0)
            all_values_into(plan, lanes)
        differences_into(plan.difference, rows, radii, plan, scratch)
        now[Now.DIFFERENCES] = 1
