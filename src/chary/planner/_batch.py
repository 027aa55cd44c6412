"""Exact plans for several episodes at once: what the full pass computes, bit for bit, several times faster.

A plan needs the counts of every episode before it, so plans seem to come one at a time. But episodes can be
guessed: played ahead by the plan at hand, the next few almost always come out as they will for real. Their
counts differ in a few rows only; lane j of the arrays here takes the counts after the first j of the guessed
episodes, and one backward induction over all lanes makes all their plans while each row is read once. The
episodes are then played for real, each by its own plan. The first that comes out otherwise than guessed ends
the batch: the plans behind it were made from counts that never came to be, and are thrown away. Nothing is
approximate, and a wrong guess costs time only.

Three shortcuts are exact as well. A pair that fell short of the best, at a later stage or in an earlier
batch, is left alone as long as values have not risen enough since for it to catch up. The upper value of the
baseline is left out until a charge asks for it, which is not the case where the lower value alone shows that
the budget refuses. And rows are read for lower and upper value together where both are wanted.

Vectors need a backup that is a sum and a bonus that N(s, a) gives alone: `hoeffding`. With the other families
episodes are planned one by one, the upper value on demand.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare
from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model.radii import HOEFFDING, Radii
from chary.model.rows import Rows
from chary.planner._batch_versions import Versions, new_versions, vectors
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

__all__ = ["Lanes", "Now", "Packed", "Side", "new_lanes", "pack_into", "plan_lanes_into", "with_room"]

Actions = NDArray[np.int16]

# Bounds that skip an action widen by this much at every stage: more than rounding could ever make of them.
ROUNDING = 1e-9
# Rows of `Lanes.room`: the best so far, the one at hand, the upper value, and by how much the values of a
# stage exceed those of the next one and those of the last batch. NumPy scalars, as types go.
BEST: int = np.int64(0)  # type: ignore[assignment]
VALUE: int = np.int64(1)  # type: ignore[assignment]
ABOVE: int = np.int64(2)  # type: ignore[assignment]
RISE: int = np.int64(3)  # type: ignore[assignment]
DRIFT: int = np.int64(4)  # type: ignore[assignment]


class Side(NamedTuple):
    """One optimum over all lanes: the lower one with the baseline, or the upper one with the explorer.

    `v` is (H + 1, S, LANES) and `guess` (H, S) the pair that was best last time. Lanes seldom differ in what
    they play: `policy` (H, S) is the last lane's, and at the `used[0]` places in which another lane plays
    otherwise `split` (H, S), else -1, is a row of `action` (places, LANES); `stage` and `state` say where.

    The rest is what one batch knows from those before it. `reach` (H, P) is what a pair had when it was last
    looked at, less what `drifted` (H,) was then: the sum over all batches of how far values behind the stage
    rose from the last lane of one to any lane of the next. `others` (H, S) is the largest of these over the
    pairs of s but the guess, or where `early` (H, S) over those before the guess alone. `counted` (P,) are
    the counts N(s, a) that this was found with, -1 where they differed from lane to lane.
    """

    v: Floats
    guess: Ints
    policy: Actions
    split: NDArray[np.int32]
    action: Actions
    stage: Ints
    state: Ints
    used: Ints
    reach: Floats
    others: Floats
    early: NDArray[np.bool_]
    drifted: Floats
    counted: Floats


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


class Packed(NamedTuple):
    """A copy of the counts to read at every stage: rows without gaps in pair order, from `begin` (P,) on.

    Rows that grow move about in `Rows`: a processor is late to guess what is read next, and keeps less of it.
    """

    begin: Ints
    successor: NDArray[np.int32]
    weight: Floats


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
    packed: Packed
    now: Ints
    bound: Floats
    rest: Floats
    held: Ints
    earlier: NDArray[np.bool_]
    room: Floats
    pick: Ints


def new_lanes(setting: Setting, family: int) -> Lanes:
    """Return room for batches of plans, or for none where the family of bounds does not allow them."""
    on = family == HOEFFDING
    H, S, P = (setting.horizon, setting.n_states, setting.n_pairs) if on else (setting.horizon, 0, 0)

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
            reach=np.full((H, P), np.inf),
            others=np.full((H, S), np.inf),
            early=np.zeros((H, S), dtype=bool),
            drifted=np.zeros(H),
            counted=np.full(P, -1.0),
        )

    return Lanes(
        on=on,
        lower=side(),
        optimistic=side(),
        upper=vectors(H + 1, S),
        versions=new_versions(setting, on=on),
        packed=Packed(ints(P), np.zeros(0, dtype=np.int32), np.zeros(0)),
        now=ints(len(Now)),
        bound=np.zeros(P),
        rest=np.zeros(S),
        held=ints(S),
        earlier=np.zeros(S, dtype=bool),
        room=vectors(5),
        pick=ints(LANES),
    )


def with_room(lanes: Lanes, entries: int) -> Lanes:
    """Return lanes that can pack as many entries of rows."""
    if not lanes.on or entries <= len(lanes.packed.successor):
        return lanes
    packed = lanes.packed._replace(successor=np.zeros(entries, dtype=np.int32), weight=np.zeros(entries))
    return lanes._replace(packed=packed)


@bare
def pack_into(packed: Packed, rows: Rows) -> None:
    """Copy the counts at hand, before a batch is planned; there must be room for them."""
    place = 0
    for p in range(len(packed.begin)):
        first, n = rows.begin[p], rows.length[p]
        packed.begin[p] = place
        # Parts of the arrays, where no place can be negative: numba would test for that at every entry.
        successor, weight = rows.successor[first : first + n], rows.weight[first : first + n]
        narrow, copied = packed.successor[place : place + n], packed.weight[place : place + n]
        for i in range(n):
            narrow[i] = successor[i]
            copied[i] = weight[i]
        place += n


@bare
def plan_lanes_into(
    lanes: Lanes, rows: Rows, radii: Radii, side: Side, sign: int, prior: Ints, with_upper: bool
) -> None:
    """Fill one optimum in every lane, and with `with_upper` the upper value of the lanes' own policies.

    What `backward_into` does in mode OPTIMISE and then EVALUATE, in another order: the pair that was best
    last time is evaluated first, so that most of the others need not be. `lanes.packed` must hold the rows.
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
    _forget_changed(
        side.reach, side.others, side.guess, side.counted, rows.pair_start, rows.total, versions.place
    )
    for s in range(len(lanes.rest)):
        lanes.rest[s] = np.inf
        lanes.earlier[s] = False
    side.used[0] = 0
    risen, behind = ROUNDING, 0.0
    for t in range(radii.horizon - 1, -1, -1):
        side.drifted[t] += ROUNDING + radii.discount * behind
        for j in range(LANES):
            lanes.room[RISE, j] = 0.0
            lanes.room[DRIFT, j] = 0.0
        _stage_lanes_into(
            t,
            t == radii.horizon - 1,
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
            side.drifted[t],
            side.reach[t],
            side.others[t],
            side.early[t],
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
            lanes.packed.begin,
            rows.length,
            lanes.packed.successor,
            lanes.packed.weight,
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
        risen += ROUNDING + radii.discount * largest(lanes.room, RISE)
        behind = largest(lanes.room, DRIFT)


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
def _forget_changed(
    reach: Floats,
    others: Floats,
    guess: Ints,
    counted: Floats,
    pair_start: Ints,
    total: Floats,
    place: Ints,
) -> None:
    """Forget how far the pairs reach that have other counts than last time.

    Counts only grow: where N(s, a) is the same, the row is.
    """
    for s in range(len(pair_start) - 1):
        for p in range(pair_start[s], pair_start[s + 1]):
            if place[p] >= 0 or total[p] != counted[p]:
                for t in range(len(guess)):
                    reach[t, p] = np.inf
                    if guess[t, s] != p:
                        others[t, s] = np.inf
            counted[p] = total[p] if place[p] < 0 else -1.0


@bare
def _stage_lanes_into(
    t: int,
    last_stage: bool,
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
    drifted: float,
    reach: Floats,
    others: Floats,
    early: NDArray[np.bool_],
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
    successor: NDArray[np.int32],
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
    over the `earlier[s]` ones alone. Nor does any Q rise from one batch to the next by more than the values
    behind it do: what `reach[p]` and `others[s]` say of the same pairs, see `Side`, and what values have
    drifted since bound them as well.
    """
    direction = 1.0 if sign > 0 else -1.0
    settled = sign > 0 and top == later_top
    unseen = top if sign > 0 else 0.0
    almost = np.nextafter(top, 0.0)
    # Behind the last stage all values are 0: no entry of a row is read.
    ahead = 0 if last_stage else 1
    evaluated = 0
    for s in range(len(terminal)):
        first, last = pair_start[s], pair_start[s + 1]
        if first == last or terminal[s]:
            continue
        g = guesses[s]
        # No value falls from a stage to the one before: at the top it stays there.
        full = settled and earlier[s] and g == held[s]
        if full and min(rest[s] + risen, others[s] + drifted) < top:
            if v[s, LANES - 1] < top:
                room[DRIFT, 0] = max(room[DRIFT, 0], top - v[s, LANES - 1])
            fill_into(v, s, top)
            policy[s] = pair_action[g]
            split[s] = -1
            continue
        fused, mixed = False, False
        favourite = pair_index[s, prior[s]] if prior[s] >= 0 else -1
        # Whether the pair held wins every tie: at the bottom all that is clipped there is worth the same.
        wins = g == favourite or (favourite < 0 and g == first)
        begun = first - 1
        if full:
            begun = first
            fill_into(room, BEST, top)
        for i in range(begun, last):
            p, row = g, BEST
            if i >= first:
                p, row = i, VALUE
                limit = min(bound[p] + risen, reach[p] + drifted)
                if p == g or exceeds(room, BEST, max(limit, 0.0)):
                    continue
                if not mixed and ((wins and limit < 0.0) or (full and p > g)):
                    continue
            evaluated += 1
            o = place[p]
            if o >= 0:
                entry, end = its_begin[o], its_begin[o] + its_length[o] * ahead
                versions_into(
                    room, row, entry, end, its_successor, its_weight, v_next,
                    o, its_reward, discount, its_total, direction, its_width, top,
                )  # fmt: skip
                if its_total[o, 0] == 0.0:
                    for j in range(LANES):
                        if its_total[o, j] == 0.0:
                            room[row, j] = unseen
            elif total[p] == 0.0:
                fill_into(room, row, unseen)
            else:
                entry, end, r, n = begin[p], begin[p] + length[p] * ahead, reward_total[p], total[p]
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
                reach[p] = reached - drifted if reached < top and o < 0 else np.inf
            if not (i < first and fused):
                floor_into(room, row)
            if i < first:
                full = sign > 0 and exceeds(room, BEST, almost)
                limit = np.inf
                if g == held[s] and (full or not earlier[s]):
                    limit = rest[s] + risen
                if full or not early[s]:
                    limit = min(limit, others[s] + drifted)
                if (wins and limit < 0.0) or exceeds(room, BEST, max(limit, 0.0)):
                    held[s] = g
                    rest[s] = limit - risen
                    earlier[s] = full
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
            farthest, lasting = -np.inf, not mixed
            for p in range(first, last):
                if p != g and not (full and p > g):
                    farthest = max(farthest, min(bound[p] + risen, reach[p] + drifted))
                    lasting &= place[p] < 0
            rest[s] = np.inf if mixed else farthest - risen
            earlier[s] = full and not mixed
            others[s] = farthest - drifted if lasting else np.inf
            early[s] = full
        gains_into(room, RISE, DRIFT, BEST, v_next, s, v[s, LANES - 1])
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
                        entry, end = its_begin[o], its_begin[o] + its_length[o] * ahead
                        versions_into(
                            room, VALUE, entry, end, its_successor, its_weight, u_next,
                            o, its_reward, discount, its_total, 1.0, its_width, top,
                        )  # fmt: skip
                        if its_total[o, 0] == 0.0:
                            for j in range(LANES):
                                if its_total[o, j] == 0.0:
                                    room[VALUE, j] = top
                    elif total[p] == 0.0:
                        fill_into(room, VALUE, top)
                    else:
                        entry, end, r, n = begin[p], begin[p] + length[p] * ahead, reward_total[p], total[p]
                        one_row_into(
                            room, VALUE, entry, end, successor, weight, u_next, r, discount, n, width[p], top
                        )
                    floor_into(room, VALUE)
                room[ABOVE, k] = room[VALUE, k]
        copy_into(upper, s, room, ABOVE)
    now[Now.ROWS] += evaluated
