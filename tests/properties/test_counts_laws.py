"""Laws of the counts: totals, and that nothing depends on where rows lie in memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.model.rows import Rows, count_into, repacked, room_needed
from chary.simulation._loop import has_room

S, A = 7, 2
ALLOWED = np.ones((S, A), dtype=bool)
ALLOWED[3, 1] = False
SETTING = Setting.declare(n_states=S, n_actions=A, horizon=4, allowed=ALLOWED)


class Seen(NamedTuple):
    """One transition; rewards are multiples of 1/8, whose sums are exact in any order."""

    s: int
    a: int
    reward: float
    s_next: int


pairs = st.sampled_from([(int(s), int(a)) for s, a in np.argwhere(ALLOWED)])
transitions = st.builds(
    lambda pair, eighths, x: Seen(pair[0], pair[1], eighths / 8, x),
    pairs,
    st.integers(0, 8),
    st.integers(0, S - 1),
)
logs = st.lists(transitions, max_size=60)


def as_arrays(log: list[Seen]) -> tuple[Ints, Ints, Ints, Floats]:
    s, a, x = (np.array([seen[i] for seen in log], dtype=np.int64) for i in (0, 1, 3))
    return s, SETTING.pair_index[s, a], x, np.array([seen.reward for seen in log])


def count(log: list[Seen]) -> Knowledge:
    counts = Knowledge.empty(SETTING, Bounds(family="kl"), episodes=None, total_episodes=None)
    counts.learn(*as_arrays(log))
    return counts


def dense(rows: Rows) -> tuple[Floats, Floats]:
    """Return counts and sums of rewards, (P, S)."""
    counts, rewards = np.zeros((SETTING.n_pairs, S)), np.zeros((SETTING.n_pairs, S))
    for p in range(SETTING.n_pairs):
        span = slice(rows.begin[p], rows.begin[p] + rows.length[p])
        counts[p, rows.successor[span]] = rows.weight[span]
        rewards[p, rows.successor[span]] = rows.reward[span]
    return counts, rewards


def check_same(one: Rows, other: Rows) -> None:
    for mine, theirs in zip(dense(one), dense(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for name in ("total", "reward_total", "square_total", "visits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def check_rows(rows: Rows) -> None:
    """Check what kernels rely on: successors ascending, rows apart from each other and inside the entries."""
    taken = np.zeros(len(rows.successor), dtype=int)
    for p in range(SETTING.n_pairs):
        begin, length = int(rows.begin[p]), int(rows.length[p])
        assert length <= rows.capacity[p]
        assert (np.diff(rows.successor[begin : begin + length]) > 0).all()
        assert (rows.weight[begin : begin + length] > 0).all()
        taken[begin : begin + int(rows.capacity[p])] += 1
    assert taken.max(initial=0) <= 1
    assert np.flatnonzero(taken).max(initial=-1) < rows.used[0] <= len(rows.successor)


@given(log=logs)
def test_counts_equal_a_dense_recount(log: list[Seen]) -> None:
    counts = count(log)
    n, earned, squares = (np.zeros((S, A, S)) for _ in range(3))
    for s, a, r, x in log:
        n[s, a, x] += 1
        earned[s, a, x] += r
        squares[s, a, x] += r**2
    seen, rewards = dense(counts.rows)
    np.testing.assert_array_equal(seen, n[ALLOWED])
    np.testing.assert_array_equal(rewards, earned[ALLOWED])
    np.testing.assert_array_equal(counts.rows.square_total, squares[ALLOWED].sum(axis=1))
    np.testing.assert_array_equal(counts.rows.visits, n.sum(axis=(1, 2)))
    for s, a in np.argwhere(ALLOWED):
        assert counts.total(s, a) == n[s, a].sum()
        assert counts.successors(s, a) == {x: n[s, a, x] for x in range(S) if n[s, a, x]}
        if n[s, a].any():
            assert counts.reward_mean(s, a) == earned[s, a].sum() / n[s, a].sum()
        else:
            assert np.isnan(counts.reward_mean(s, a))
    check_rows(counts.rows)


@given(log=logs, later=logs, room=st.integers(0, 50))
def test_repacking_changes_nothing(log: list[Seen], later: list[Seen], room: int) -> None:
    counts, packed = count(log), count(log)
    packed.rows = repacked(packed.rows, room)
    check_same(packed.rows, counts.rows)
    check_rows(packed.rows)
    assert len(packed.rows.successor) - packed.rows.used[0] >= room
    for knowledge in (counts, packed):
        knowledge.learn(*as_arrays(later))
    check_same(packed.rows, counts.rows)
    check_rows(packed.rows)


@given(log=logs, cut=st.integers(0, 60))
def test_knowledge_is_the_same_however_it_was_learnt(log: list[Seen], cut: int) -> None:
    whole, parts = count(log), count(log[:cut])
    copy = parts.copy()
    parts.learn(*as_arrays(log[cut:]))
    check_same(whole.rows, parts.rows)
    for name in ("width", "reward_above", "reward_below", "spread"):
        np.testing.assert_array_equal(getattr(whole.radii, name), getattr(parts.radii, name))
    # What was copied did not learn along.
    assert copy.rows.total.sum() == min(cut, len(log))


@given(log=logs, later=logs)
def test_whatever_is_counted_fits_where_there_was_room(log: list[Seen], later: list[Seen]) -> None:
    packed = repacked(count(log).rows, 0)
    # The fewest entries that count as room: one less, and has_room must have said no.
    while not has_room(packed, len(later)):
        packed = packed._replace(
            successor=np.append(packed.successor, 0),
            weight=np.append(packed.weight, 0.0),
            reward=np.append(packed.reward, 0.0),
        )
    states, pair, successor, reward = as_arrays(later)
    for i in range(len(later)):
        count_into(packed, pair[i], successor[i], reward[i])
        packed.visits[states[i]] += 1.0
    check_same(packed, count(log + later).rows)
    check_rows(packed)


@given(log=logs, later=logs)
def test_the_room_asked_for_is_enough(log: list[Seen], later: list[Seen]) -> None:
    rows = repacked(count(log).rows, 0)
    pair = as_arrays(later)[1]
    before = int(rows.used[0])
    need = room_needed(rows, pair, len(pair))
    rows = repacked(rows, need)
    for seen, p in zip(later, pair, strict=True):
        count_into(rows, p, seen.s_next, seen.reward)
    assert rows.used[0] - before <= need
    check_rows(rows)
