"""Sparse rows over state-action pairs: the one layout of counts and of true probabilities in kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.mdp import FiniteMDP, Setting

FIRST_CAPACITY = 4
# Stands for the next state of a transition whose outcome is lost.
LOST = -1
# Arrays by entry, and sums by pair or state; the others are places.
ENTRIES = ("successor", "weight", "reward")
TOTALS = ("total", "reward_total", "square_total", "visits")


class Rows(NamedTuple):
    """Rows of weights over successors, one per pair; weights are counts, or probabilities with total 1.

    Row p has `length[p]` entries from `begin[p]` on, successors ascending, with room for
    `capacity[p]`; `reward` are sums of rewards on the transition. `total`, `reward_total` and
    `square_total` are N(s, a) and the sums of rewards and of their squares, shape (P,); `visits` is N(s),
    shape (S,); `used[0]` is how much of the entries is handed out and `used[1]` the largest capacity.
    `rank` (P,) is the place of a pair among those of its state, from 0 on: of equally good ones the first is
    chosen.
    """

    pair_start: Ints
    pair_action: Ints
    pair_index: Ints
    begin: Ints
    length: Ints
    capacity: Ints
    successor: Ints
    weight: Floats
    reward: Floats
    total: Floats
    reward_total: Floats
    square_total: Floats
    visits: Floats
    used: Ints
    rank: Ints


def empty_rows(setting: Setting, room: int = 0, rank: Ints | None = None) -> Rows:
    """Return rows that have counted nothing, with `room` free entries; `rank` is by default the actions'."""
    P = setting.n_pairs
    return Rows(
        pair_start=np.array(setting.pair_start),
        pair_action=np.array(setting.pair_action),
        pair_index=np.array(setting.pair_index),
        begin=np.zeros(P, dtype=np.int64),
        length=np.zeros(P, dtype=np.int64),
        capacity=np.zeros(P, dtype=np.int64),
        successor=np.zeros(room, dtype=np.int64),
        weight=np.zeros(room),
        reward=np.zeros(room),
        total=np.zeros(P),
        reward_total=np.zeros(P),
        square_total=np.zeros(P),
        visits=np.zeros(setting.n_states),
        used=np.zeros(2, dtype=np.int64),
        rank=rank_by_index(setting) if rank is None else np.array(rank),
    )


def pair_states(setting: Setting) -> Ints:
    """Return the states of pairs (P,)."""
    return np.repeat(np.arange(setting.n_states), np.diff(setting.pair_start))


def rank_by_index(setting: Setting) -> Ints:
    """Return the ranks of pairs (P,) in the order of the actions' numbers."""
    return np.arange(setting.n_pairs) - setting.pair_start[pair_states(setting)]


def shuffled_rank(setting: Setting, generator: np.random.Generator) -> Ints:
    """Return ranks of pairs (P,) in an order drawn at random for every state."""
    rank = np.empty(setting.n_pairs, dtype=np.int64)
    rank[np.lexsort((generator.random(setting.n_pairs), pair_states(setting)))] = rank_by_index(setting)
    return rank


def no_rows(like: Rows) -> Rows:
    """Return rows of no pairs at all, of the same types: kernels take them for an absent data set."""
    return Rows(**{name: np.zeros((0,) * array.ndim, array.dtype) for name, array in like._asdict().items()})


def true_rows(mdp: FiniteMDP) -> Rows:
    """Return the MDP's own probabilities as rows; only `audit` and the simulated world may call this."""
    rows = empty_rows(mdp.setting, len(mdp.successor))
    rows.begin[:] = mdp.row_start[:-1]
    rows.length[:] = np.diff(mdp.row_start)
    rows.capacity[:] = rows.length
    rows.successor[:] = mdp.successor
    rows.weight[:] = mdp.probability
    rows.reward[:] = mdp.probability * mdp.reward
    rows.total[:] = 1.0
    rows.reward_total[:] = np.add.reduceat(rows.reward, mdp.row_start[:-1])
    rows.used[:] = len(mdp.successor), rows.capacity.max(initial=0)
    return rows


@bare
def find_place(ascending: Ints, begin: int, end: int, x: int) -> int:
    """Return the first place in begin..end-1 whose entry is >= x, else `end`, by bisection.

    Takes plain arrays: a tuple of many would be unpacked and counted at every call.
    """
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def count_into(rows: Rows, p: int, x: int, r: float) -> None:
    """Count one transition of pair p to x with reward r; `room_needed` entries must be free."""
    end = rows.begin[p] + rows.length[p]
    place = find_place(rows.successor, rows.begin[p], end, x)
    if place == end or rows.successor[place] != x:
        if rows.length[p] == rows.capacity[p]:
            # Move the row to the free end with twice the room; the old place is lost until the next repack.
            offset = place - rows.begin[p]
            fresh = rows.used[0]
            capacity = max(FIRST_CAPACITY, 2 * rows.capacity[p])
            for i in range(rows.length[p]):
                rows.successor[fresh + i] = rows.successor[rows.begin[p] + i]
                rows.weight[fresh + i] = rows.weight[rows.begin[p] + i]
                rows.reward[fresh + i] = rows.reward[rows.begin[p] + i]
            rows.begin[p] = fresh
            rows.capacity[p] = capacity
            rows.used[0] = fresh + capacity
            rows.used[1] = max(rows.used[1], capacity)
            place = fresh + offset
            end = fresh + rows.length[p]
        for i in range(end, place, -1):
            rows.successor[i] = rows.successor[i - 1]
            rows.weight[i] = rows.weight[i - 1]
            rows.reward[i] = rows.reward[i - 1]
        rows.successor[place] = x
        rows.weight[place] = 0.0
        rows.reward[place] = 0.0
        rows.length[p] += 1
    rows.weight[place] += 1.0
    rows.reward[place] += r
    rows.total[p] += 1.0
    rows.reward_total[p] += r
    rows.square_total[p] += r * r


count_kernel = kernel_of(count_into)


@jit
def room_needed(rows: Rows, pairs: Ints, steps: int) -> int:
    """Return a bound on the entries that counting these transitions may take from the free end.

    A row of capacity c that takes in m more moves to 2c, 4c, ...: at most 2c + 4m entries for all its moves.
    """
    need = 0
    for i in range(steps):
        need += FIRST_CAPACITY + 2 * rows.capacity[pairs[i]]
    return need


def repacked(rows: Rows, room: int) -> Rows:
    """Return the same counts, rows contiguous in pair order, with at least `room` free entries behind."""
    # Half as much again per row: enough that common rows rarely move, and cheap to keep in cache.
    capacity = rows.length + np.maximum(rows.length // 2, np.where(rows.length > 0, 2, 0))
    begin = np.concatenate([[0], np.cumsum(capacity)]).astype(np.int64)
    used = int(begin[-1])
    size = used + max(room, used // 2)
    successor, weight, reward = np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size)
    _move_rows(rows, begin, successor, weight, reward)
    return rows._replace(
        **{name: getattr(rows, name).copy() for name in ("length", *TOTALS)},
        begin=begin[:-1].copy(),
        capacity=capacity,
        successor=successor,
        weight=weight,
        reward=reward,
        used=np.array([used, capacity.max(initial=0)], dtype=np.int64),
    )


@jit
def _move_rows(rows: Rows, begin: Ints, successor: Ints, weight: Floats, reward: Floats) -> None:
    for p in range(len(rows.length)):
        for i in range(rows.length[p]):
            successor[begin[p] + i] = rows.successor[rows.begin[p] + i]
            weight[begin[p] + i] = rows.weight[rows.begin[p] + i]
            reward[begin[p] + i] = rows.reward[rows.begin[p] + i]
