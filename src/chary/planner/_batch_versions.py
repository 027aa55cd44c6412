"""Rows that differ from lane to lane: what the episodes guessed ahead would count."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from chary._compile import bare
from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model.radii import Radii, hoeffding_width
from chary.model.rows import Rows, find_place
from chary.planner._vectors import LANES

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


def vectors(*shape: int, lanes: int = LANES) -> Floats:
    """Return zeros of shape (..., lanes) in which no vector lies across two lines of the cache."""
    room = np.zeros(math.prod(shape) * lanes + lanes)
    start = -(room.ctypes.data // room.itemsize) % lanes
    return room[start : start + math.prod(shape) * lanes].reshape(*shape, lanes)


def new_versions(setting: Setting, *, on: bool) -> Versions:
    """Return room for the versions of one batch, or for none."""
    H, P, entries = (setting.horizon, setting.n_pairs, VERSION_ENTRIES) if on else (0, 0, 0)
    rows = LANES * H

    def ints(n: int, value: int = 0) -> Ints:
        return np.full(n, value, dtype=np.int64)

    return Versions(
        place=ints(P, -1),
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
