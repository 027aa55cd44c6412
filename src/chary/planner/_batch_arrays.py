"""The arrays of a batch: plans of several episodes, one per lane, and the counts that they are made from."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare
from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model.radii import HOEFFDING
from chary.model.rows import Rows
from chary.planner._batch_versions import Versions, new_versions, vectors
from chary.planner._vectors import LANES

# Policies of lanes and of chains take 16 bits per action.
Actions = NDArray[np.int16]


class Side(NamedTuple):
    """One optimum over all lanes: the lower one with the baseline, or the upper one with the explorer.

    `v` is (H + 1, S, LANES) and `guess` (H, S) the pair that was best last time. Lanes seldom differ in what
    they play: `policy` (H, S) is the last lane's. At the `used[0]` places where another lane plays
    otherwise, `split` (H, S), else -1, is a row of `action` (places, LANES); `stage` and `state` are where.

    The rest carries over from batch to batch. `reach` (H, P) is the value of a pair when it was last
    evaluated, less what `drifted` (H,) was then: the sum over all batches of how far values behind the stage
    rose from the last lane of one to any lane of the next. `others` (H, S) is the largest of these over the
    pairs of s except the guess, or where `early` (H, S) over those before the guess alone. `counted` (P,) are
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
    """Places in `Batch.now`, the plan in use."""

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

    Rows that grow move about in `Rows`, and scattered rows defeat prefetching and waste cache.
    """

    begin: Ints
    successor: NDArray[np.int32]
    weight: Floats


class Batch(NamedTuple):
    """The plans of one batch; `on` is whether there are any, `now` which of them is in use.

    `upper` (H + 1, S, LANES) is the upper value of the lanes' baselines. The rest is room for one pass: what
    each pair (P,) can reach, what all pairs of a state (S,) except the one held can reach, and vectors.
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


def new_batch(setting: Setting, family: int) -> Batch:
    """Return room for batches of plans, or for none where the family of bounds does not allow them."""
    on = family == HOEFFDING
    H, S, P = (setting.horizon, setting.n_states, setting.n_pairs) if on else (setting.horizon, 0, 0)

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    def side() -> Side:
        return Side(
            v=vectors(H + 1, S),
            guess=np.tile(setting.pair_start[:-1] if on else ints(0), (H, 1)),
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

    return Batch(
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


def with_room(batch: Batch, entries: int) -> Batch:
    """Return a batch that can pack as many entries of rows."""
    if not batch.on or entries <= len(batch.packed.successor):
        return batch
    packed = batch.packed._replace(successor=np.zeros(entries, dtype=np.int32), weight=np.zeros(entries))
    return batch._replace(packed=packed)


@bare
def pack_into(packed: Packed, rows: Rows) -> None:
    """Copy the current counts, before a batch is planned; there must be room for them."""
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
