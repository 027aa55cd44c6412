"""Exact plans for several episodes at once: what the full pass computes, bit for bit, several times faster.

A plan needs the counts of every episode before it, so plans seem to come one at a time. But episodes can be
guessed: played ahead by the current plan, the next few almost always come out as they will in the run. Their
counts differ in a few rows only. Lane j of the arrays here takes the counts after the first j of the guessed
episodes, and one backward induction over all lanes makes all their plans while each row is read once. The
episodes are then played in the run, each by its own plan. The first that differs from its guess ends the
batch: the plans behind it were made from counts that never came to be, and are dropped. Nothing is
approximate, and a wrong guess costs time only.

Three shortcuts are exact as well. A pair that fell short of the best, at a later stage or in an earlier
batch, is skipped as long as values have not risen enough since for it to catch up. The upper value of the
baseline is left out until a charge needs it, which is not the case where the lower value alone shows that
the budget refuses. And rows are read for lower and upper value together where both are wanted.

Vectors need a backup that is a sum and a bonus that depends on N(s, a) alone: `hoeffding`. With the other
families episodes are planned one by one, the upper value on demand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, folded
from chary.arrays import Floats, Ints
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import UPPER
from chary.planner._batch_arrays import Actions, Batch, Now, Side
from chary.planner._vectors import (
    LANES,
    both_sides_into,
    copy_into,
    exceeds,
    fill_into,
    floor_into,
    gains_into,
    largest,
    one_row_into,
    reaches,
    versions_into,
)

# Bounds that skip an action widen by this much at every stage: more than rounding could ever make of them.
ROUNDING = 1e-9
# Rows of `Batch.room`: the best so far, the one under evaluation, the upper value, and by how much the values
# of a stage exceed those of the next one and those of the last batch. NumPy scalars, as types go.
BEST: int = np.int64(0)  # type: ignore[assignment]
VALUE: int = np.int64(1)  # type: ignore[assignment]
ABOVE: int = np.int64(2)  # type: ignore[assignment]
RISE: int = np.int64(3)  # type: ignore[assignment]
DRIFT: int = np.int64(4)  # type: ignore[assignment]


@bare
def plan_lanes_into(
    batch: Batch, rows: Rows, radii: Radii, side: Side, sign: int, prior: Ints, with_upper: bool
) -> None:
    """Fill one optimum in every lane, and with `with_upper` the upper value of the lanes' own policies.

    The result is that of `backward_into` in mode OPTIMISE and then EVALUATE, in another order: the pair that
    was best last time is evaluated first, so that most of the others need not be. `batch.packed` must
    contain the rows.
    """
    room = batch.room
    _bounds_into(batch, rows, radii, sign)
    _forget_changed(side, rows, batch.versions.place)
    for s in range(len(batch.rest)):
        batch.rest[s] = np.inf
        batch.earlier[s] = False
    side.used[0] = 0
    risen, behind = ROUNDING, 0.0
    for t in range(radii.horizon - 1, -1, -1):
        side.drifted[t] += ROUNDING + radii.discount * behind
        for j in range(LANES):
            room[RISE, j] = 0.0
            room[DRIFT, j] = 0.0
        _stage_into(batch, rows, radii, side, sign, prior, with_upper, t, risen)
        risen += ROUNDING + radii.discount * largest(room, RISE)
        behind = largest(room, DRIFT)


@bare
def _bounds_into(batch: Batch, rows: Rows, radii: Radii, sign: int) -> None:
    """Fill what each pair is worth at the last stage, where nothing lies behind it."""
    bound, place, top = batch.bound, batch.versions.place, radii.vmax[radii.horizon - 1]
    for p in range(len(bound)):
        bound[p] = np.inf
        if place[p] < 0:
            if rows.total[p] == 0.0:
                bound[p] = np.inf if sign > 0 else -np.inf
            else:
                mean = rows.reward_total[p] / rows.total[p]
                bound[p] = mean + radii.width[p] if sign > 0 else mean - radii.width[p]
                if bound[p] >= top:
                    bound[p] = np.inf


@bare
def _forget_changed(side: Side, rows: Rows, place: Ints) -> None:
    """Forget how far the pairs reach that have other counts than last time.

    Counts only grow: where N(s, a) is the same, the row is.
    """
    for s in range(len(rows.pair_start) - 1):
        for p in range(rows.pair_start[s], rows.pair_start[s + 1]):
            if place[p] >= 0 or rows.total[p] != side.counted[p]:
                for t in range(len(side.guess)):
                    side.reach[t, p] = np.inf
                    if side.guess[t, s] != p:
                        side.others[t, s] = np.inf
            side.counted[p] = rows.total[p] if place[p] < 0 else -1.0


@bare
def _stage_into(
    batch: Batch,
    rows: Rows,
    radii: Radii,
    side: Side,
    sign: int,
    prior: Ints,
    with_upper: bool,
    t: int,
    risen: float,
) -> None:
    """Fill stage t.

    From one stage to the one before no Q rises more than the values behind it do. A pair evaluated at a later
    stage is skipped as long as its value then, unclipped, and what values have risen since, `risen`, fall
    short of the best. `bound[p]` is its value less what values had risen by then, and `rest[s]` the largest
    of these over the pairs of s other than `held[s]`, or where that one is at the top, over the `earlier[s]`
    ones alone. Nor does any Q rise from one batch to the next by more than the values behind it do: `reach`
    and `others` of the same pairs, see `Side`, and what values have drifted since bound them as well.
    """
    room, held, rest, earlier = batch.room, batch.held, batch.rest, batch.earlier
    v, v_next, upper, u_next = side.v[t], side.v[t + 1], batch.upper[t], batch.upper[t + 1]
    guess, policy, split = side.guess[t], side.policy[t], side.split[t]
    reach, others, early = side.reach[t], side.others[t], side.early[t]
    bound, place, rank = batch.bound, batch.versions.place, rows.rank
    drifted, top = side.drifted[t], radii.vmax[t]
    settled, almost = sign > 0 and top == radii.vmax[t + 1], np.nextafter(top, 0.0)
    evaluated = 0
    for s in range(len(radii.terminal)):
        first, last = rows.pair_start[s], rows.pair_start[s + 1]
        if first == last or radii.terminal[s]:
            continue
        g = guess[s]
        # No value falls from a stage to the one before: at the top it stays there.
        full = settled and earlier[s] and g == held[s]
        if full and min(rest[s] + risen, others[s] + drifted) < top:
            if v[s, LANES - 1] < top:
                room[DRIFT, 0] = max(room[DRIFT, 0], top - v[s, LANES - 1])
            fill_into(v, s, top)
            policy[s] = rows.pair_action[g]
            split[s] = -1
            continue
        favourite = rows.pair_index[s, prior[s]] if prior[s] >= 0 else -1
        # Whether the pair held wins every tie: at the bottom all that is clipped there is worth the same.
        wins = g == favourite or (favourite < 0 and rank[g] == 0)
        fused, mixed, decided = False, False, False
        if full:
            fill_into(room, BEST, top)
        else:
            evaluated += 1
            fused = with_upper and place[g] < 0 and rows.total[g] > 0.0
            if fused:
                _both_into(room, g, v_next, u_next, t, batch, rows, radii)
            else:
                _pair_into(room, BEST, g, v_next, sign, t, batch, rows, radii)
                floor_into(room, BEST)
            full = sign > 0 and exceeds(room, BEST, almost)
            limit = np.inf
            if g == held[s] and (full or not earlier[s]):
                limit = rest[s] + risen
            if full or not early[s]:
                limit = min(limit, others[s] + drifted)
            decided = (wins and limit < 0.0) or exceeds(room, BEST, max(limit, 0.0))
            if decided:
                rest[s] = limit - risen
                earlier[s] = full
        if not decided:
            for p in range(first, last):
                limit = min(bound[p] + risen, reach[p] + drifted)
                if p == g or exceeds(room, BEST, max(limit, 0.0)):
                    continue
                if not mixed and ((wins and limit < 0.0) or (full and rank[p] > rank[g])):
                    continue
                evaluated += 1
                _pair_into(room, VALUE, p, v_next, sign, t, batch, rows, radii)
                reached = largest(room, VALUE)
                bound[p] = reached - risen if reached < top else np.inf
                reach[p] = reached - drifted if reached < top and place[p] < 0 else np.inf
                floor_into(room, VALUE)
                if reaches(room, VALUE, BEST):
                    _better_into(room, batch.pick, rank, p, g, favourite, mixed)
                    mixed = True
            _others_into(batch, rows, side, t, s, risen, full, mixed)
        held[s] = g
        gains_into(room, RISE, DRIFT, BEST, v_next, s, v[s, LANES - 1])
        copy_into(v, s, room, BEST)
        split[s] = -1
        if mixed:
            guess[s] = batch.pick[LANES - 1]
            fused &= guess[s] == g
            _split_into(side, batch.pick, rows, t, s)
        policy[s] = rows.pair_action[guess[s]]
        if with_upper:
            if fused and split[s] < 0:
                copy_into(upper, s, room, ABOVE)
            else:
                policy_row_into(upper, s, u_next, policy, split, side.action, UPPER, t, batch, rows, radii)
    batch.now[Now.ROWS] += evaluated


@folded
def _pair_into(
    out: Floats, row: int, p: int, v: Floats, sign: int, t: int, batch: Batch, rows: Rows, radii: Radii
) -> None:
    """Fill out[row] with the backup of pair p at stage t in every lane, clipped from above alone.

    `v` (S, LANES) are the values of the next stage.
    """
    versions, packed = batch.versions, batch.packed
    direction, top = 1.0 if sign > 0 else -1.0, radii.vmax[t]
    unseen = top if sign > 0 else 0.0
    # Behind the last stage all values are 0: no entry of a row is read.
    ahead = 1 if t + 1 < radii.horizon else 0
    o = versions.place[p]
    if o >= 0:
        begin, end = versions.begin[o], versions.begin[o] + versions.length[o] * ahead
        versions_into(
            out, row, begin, end, versions.successor, versions.weight, v,
            o, versions.reward_total, radii.discount, versions.total, direction, versions.width, top,
        )  # fmt: skip
        if versions.total[o, 0] == 0.0:
            for j in range(LANES):
                if versions.total[o, j] == 0.0:
                    out[row, j] = unseen
    elif rows.total[p] == 0.0:
        fill_into(out, row, unseen)
    else:
        begin, end = packed.begin[p], packed.begin[p] + rows.length[p] * ahead
        one_row_into(
            out, row, begin, end, packed.successor, packed.weight, v,
            rows.reward_total[p], radii.discount, rows.total[p], direction * radii.width[p], top,
        )  # fmt: skip


@folded
def _both_into(
    room: Floats, p: int, v: Floats, u: Floats, t: int, batch: Batch, rows: Rows, radii: Radii
) -> None:
    """Fill BEST and ABOVE with the lower and upper backup of a pair with visits, the same in every lane."""
    packed, begin = batch.packed, batch.packed.begin[p]
    end = begin + rows.length[p] if t + 1 < radii.horizon else begin
    both_sides_into(
        room, BEST, ABOVE, begin, end, packed.successor, packed.weight, v, u,
        rows.reward_total[p], radii.discount, rows.total[p], radii.width[p], radii.vmax[t],
    )  # fmt: skip


@folded
def _better_into(room: Floats, pick: Ints, rank: Ints, p: int, g: int, favourite: int, mixed: bool) -> None:
    """Let pair p take over the lanes in which it is better than the pairs picked, g if not yet `mixed`.

    Ties go to the prior's action, else to the first by `rank`.
    """
    if not mixed:
        for j in range(LANES):
            pick[j] = g
    for j in range(LANES):
        if room[VALUE, j] > room[BEST, j] or (
            room[VALUE, j] == room[BEST, j]
            and (p == favourite or (rank[p] < rank[pick[j]] and pick[j] != favourite))
        ):
            room[BEST, j] = room[VALUE, j]
            pick[j] = p


@folded
def _others_into(
    batch: Batch, rows: Rows, side: Side, t: int, s: int, risen: float, full: bool, mixed: bool
) -> None:
    """Note how far the pairs of s other than the guess can reach, all being evaluated or ruled out."""
    g, drifted, reach, rank = side.guess[t, s], side.drifted[t], side.reach[t], rows.rank
    farthest, lasting = -np.inf, not mixed
    for p in range(rows.pair_start[s], rows.pair_start[s + 1]):
        if p != g and not (full and rank[p] > rank[g]):
            farthest = max(farthest, min(batch.bound[p] + risen, reach[p] + drifted))
            lasting &= batch.versions.place[p] < 0
    batch.rest[s] = np.inf if mixed else farthest - risen
    batch.earlier[s] = full and not mixed
    side.others[t, s] = farthest - drifted if lasting else np.inf
    side.early[t, s] = full


@folded
def _split_into(side: Side, pick: Ints, rows: Rows, t: int, s: int) -> None:
    """Keep the action of every lane where they differ."""
    differs = False
    for j in range(LANES):
        differs |= pick[j] != pick[LANES - 1]
    if differs:
        place = side.used[0]
        side.used[0] += 1
        side.split[t, s] = place
        side.stage[place] = t
        side.state[place] = s
        for j in range(LANES):
            side.action[place, j] = rows.pair_action[pick[j]]


@folded
def policy_row_into(
    out: Floats,
    s: int,
    v: Floats,
    policy: Actions,
    split: NDArray[np.int32],
    action: Actions,
    sign: int,
    t: int,
    batch: Batch,
    rows: Rows,
    radii: Radii,
) -> None:
    """Fill out[s] with the upper or lower value of the lanes' policies in s at stage t, see `Side`.

    `v` (S, LANES) are their values at the next stage.
    """
    room, place, done = batch.room, split[s], -1
    for k in range(LANES):
        p = rows.pair_index[s, policy[s] if place < 0 else action[place, k]]
        if p != done:
            done = p
            _pair_into(room, VALUE, p, v, sign, t, batch, rows, radii)
            floor_into(room, VALUE)
        if place < 0:
            copy_into(out, s, room, VALUE)
            break
        out[s, k] = room[VALUE, k]
