"""Plans in lanes, equal bits: vector instructions against plain NumPy, every lane against the full pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chary._compile import jit
from chary.arrays import Floats, Ints
from chary.audit import Truth
from chary.mdp import FiniteMDP
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.model.radii import Radii, exact_radii
from chary.model.rows import Rows, shuffled_rank, true_rows
from chary.planner import _vectors as _lanes
from chary.planner._backup import LOWER, UPPER, new_scratch
from chary.planner._batch import plan_lanes_into
from chary.planner._batch_arrays import Batch, Side, new_batch, pack_into, with_room
from chary.planner._batch_versions import Versions, forget_versions, vectors, version_into
from chary.planner._current import lane_action
from chary.planner._full import EVALUATE, OPTIMISE, additive_value_into, backward_into
from chary.planner._vectors import HALF, LANES

# Types of instructions are for numba: to a type checker they are anything.
instructions: Any = _lanes
compiled: Any = jit

fewer = settings(max_examples=max(1, settings().max_examples // 2))
seeds = st.integers(0, 2**32 - 1)


# Instructions, each called through a kernel of its own, as none can be called from Python


@compiled
def one_row(out, row, begin, end, successor, weight, v, reward, discount, n, shift, top):  # type: ignore[no-untyped-def]
    instructions.one_row_into(out, row, begin, end, successor, weight, v, reward, discount, n, shift, top)


@compiled
def half_row(out, row, begin, end, successor, weight, v, reward, discount, n, shift, top):  # type: ignore[no-untyped-def]
    instructions.half_row_into(out, row, begin, end, successor, weight, v, reward, discount, n, shift, top)


@compiled
def two_half_rows(out, row, other, begin, end, begin_2, end_2, successor, weight, v, r, r_2, discount):  # type: ignore[no-untyped-def]
    instructions.two_half_rows_into(
        out, row, other, begin, end, begin_2, end_2, successor, weight, v, r, r_2, discount
    )


@compiled
def both_sides(out, lower, upper, begin, end, successor, weight, v, u, reward, discount, n, width, top):  # type: ignore[no-untyped-def]
    instructions.both_sides_into(
        out, lower, upper, begin, end, successor, weight, v, u, reward, discount, n, width, top
    )


@compiled
def versions_row(out, row, begin, end, successor, weight, v, o, reward, discount, n, sign, width, top):  # type: ignore[no-untyped-def]
    instructions.versions_into(
        out, row, begin, end, successor, weight, v, o, reward, discount, n, sign, width, top
    )


@compiled
def largest_of(values, row):  # type: ignore[no-untyped-def]
    return instructions.largest(values, row)


@compiled
def all_exceed(values, row, x):  # type: ignore[no-untyped-def]
    return instructions.exceeds(values, row, x)


@compiled
def any_reaches(values, row, other):  # type: ignore[no-untyped-def]
    return instructions.reaches(values, row, other)


@compiled
def floor_row(values, row):  # type: ignore[no-untyped-def]
    instructions.floor_into(values, row)


@compiled
def fill_row(values, row, x):  # type: ignore[no-untyped-def]
    instructions.fill_into(values, row, x)


@compiled
def note_gains(values, over_later, over_before, best, later, s, before):  # type: ignore[no-untyped-def]
    instructions.gains_into(values, over_later, over_before, best, later, s, before)


@compiled
def copy_row(out, row, values, other):  # type: ignore[no-untyped-def]
    instructions.copy_into(out, row, values, other)


def summed(begin: int, end: int, successor: Ints, weight: Floats, v: Floats) -> Floats:
    """Return sum_i weight_i V(x_i) by lane, one entry after the other."""
    total = np.zeros(LANES)
    for i in range(begin, end):
        total = total + weight[i] * v[successor[i]]
    return total


def finished(future: Floats, reward: Any, discount: float, n: Any, shift: Any, top: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (reward + discount * future) / n + shift
    return np.asarray(np.minimum(value, top))


class Drawn(NamedTuple):
    """A row somewhere in a store of entries, with values to apply it to and numbers of every size."""

    begin: int
    end: int
    successor: Ints
    weight: Floats
    v: Floats
    u: Floats
    top: float
    discount: float


def draw_row(rng: np.random.Generator) -> Drawn:
    n_states, length = int(rng.integers(1, 40)), int(rng.choice([0, 1, 2, 7, 25]))
    length, begin = min(length, n_states), int(rng.integers(0, 5))
    successor = rng.integers(n_states, size=begin + length + 3)
    successor[begin : begin + length] = np.sort(rng.choice(n_states, size=length, replace=False))
    top = float(rng.choice([1.0, 7.3]))
    v, u = vectors(n_states), vectors(n_states)
    for values in (v, u):
        values[:] = rng.uniform(0, top, size=values.shape)
        # Values that are clipped: at 0, at the top.
        values[rng.random(values.shape) < 0.2] = 0.0
        values[rng.random(values.shape) < 0.2] = top
    weight = rng.random(len(successor))
    if rng.random() < 0.5:
        weight = np.ceil(9 * weight)
    return Drawn(begin, begin + length, successor, weight, v, u, top, float(rng.choice([1.0, 0.9])))


def same_bits(one: Floats, other: Floats) -> None:
    np.testing.assert_array_equal(one, other)
    assert one.tobytes() == other.tobytes()


@given(seed=seeds)
def test_one_row_is_the_sum_of_its_entries_in_their_order_in_every_lane(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = draw_row(rng)
    out, before = vectors(3), rng.random((3, LANES))
    out[:] = before
    reward, n = float(rng.random() * 5), float(rng.integers(1, 50))
    for shift in (0.0, float(rng.normal() * row.top), -1e6, 1e6):
        numbers = (reward, row.discount, n, shift, row.top)
        one_row(out, 1, row.begin, row.end, row.successor, row.weight, row.v, *numbers)
        future = summed(row.begin, row.end, row.successor, row.weight, row.v)
        same_bits(out[1], finished(future, *numbers))
        same_bits(out[::2], before[::2])


@given(seed=seeds)
def test_half_a_row_is_one_row_in_the_first_half_of_the_lanes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = draw_row(rng)
    out, before, v = vectors(3, lanes=HALF), rng.random((3, HALF)), vectors(len(row.v), lanes=HALF)
    out[:], v[:] = before, row.v[:, :HALF]
    whole = vectors(1)
    numbers = (float(rng.random() * 5), row.discount, float(rng.integers(1, 50)), 0.5, row.top)
    one_row(whole, 0, row.begin, row.end, row.successor, row.weight, row.v, *numbers)
    for successor in (row.successor, row.successor.astype(np.int32)):
        out[:] = before
        half_row(out, 1, row.begin, row.end, successor, row.weight, v, *numbers)
        same_bits(out[1], whole[0, :HALF])
        same_bits(out[::2], before[::2])


@given(seed=seeds)
def test_two_half_rows_are_each_what_it_is_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = draw_row(rng)
    out, before, v = vectors(4, lanes=HALF), rng.random((4, HALF)), vectors(len(row.v), lanes=HALF)
    out[:], v[:] = before, row.v[:, :HALF]
    # Rows of any two lengths, none among them, that may even share entries.
    ends = np.sort(rng.integers(len(row.successor) + 1, size=(2, 2)), axis=1).tolist()
    entries, rewards = (row.successor.astype(np.int32), row.weight, v), (5 * rng.random(2)).tolist()
    two_half_rows(out, 2, 0, *ends[0], *ends[1], *entries, *rewards, row.discount)
    alone = vectors(2, lanes=HALF)
    for i in range(2):
        half_row(alone, i, *ends[i], *entries, rewards[i], row.discount, 1.0, 0.0, np.inf)
    same_bits(out[[2, 0]], alone)
    same_bits(out[1::2], before[1::2])


@given(seed=seeds)
def test_both_sides_are_one_row_with_the_bonus_taken_off_and_put_on_and_not_below_0(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = draw_row(rng)
    out = vectors(3)
    reward, n = float(rng.random() * 5), float(rng.integers(1, 50))
    for width in (0.0, float(rng.random() * row.top), 1e6):
        numbers = (reward, row.discount, n)
        entries = (row.begin, row.end, row.successor, row.weight)
        both_sides(out, 2, 0, *entries, row.v, row.u, *numbers, width, row.top)
        lower = finished(summed(*entries, row.v), *numbers, -width, row.top)
        upper = finished(summed(*entries, row.u), *numbers, width, row.top)
        same_bits(out[2], np.maximum(lower, 0.0))
        same_bits(out[0], np.maximum(upper, 0.0))
        same_bits(out[1], np.zeros(LANES))


@given(seed=seeds)
def test_versions_are_one_row_with_counts_of_its_own_in_every_lane(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = draw_row(rng)
    out, weight = vectors(2), vectors(len(row.successor))
    # Entries seen in a guessed episode weigh nothing in the lanes before it.
    weight[:] = rng.integers(0, 4, size=weight.shape)
    reward, n, width = vectors(4), vectors(4), vectors(4)
    reward[:] = rng.random(reward.shape) * 5
    n[:] = rng.integers(0, 50, size=n.shape)
    width[:] = rng.random(width.shape) * row.top
    for sign, counts in ((-1.0, weight), (1.0, weight), (1.0, weight.astype(np.int32))):
        entries = (row.begin, row.end, row.successor)
        versions_row(out, 1, *entries, counts, row.v, 2, reward, row.discount, n, sign, width, row.top)
        future = summed(*entries, weight, row.v)
        expected = finished(future, reward[2], row.discount, n[2], sign * width[2], row.top)
        seen = n[2] > 0
        same_bits(out[1][seen], expected[seen])
        same_bits(out[0], np.zeros(LANES))


@given(seed=seeds)
def test_comparisons_look_at_every_lane(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = vectors(3)
    # Few numbers, so that many are equal.
    values[:] = rng.integers(0, 3, size=values.shape) if rng.random() < 0.5 else rng.random(values.shape)
    # Lanes that agree but for one, wherever it is.
    values[1] = values[0]
    values[1, rng.integers(LANES)] += float(rng.choice([-1.0, 0.0, 1.0]))
    for row in range(3):
        assert largest_of(values, row) == values[row].max()
        for x in (*values[row], values[row].min() - 1e-9, -1.0, 2.0):
            assert all_exceed(values, row, float(x)) == (values[row] > x).all()
        for other in range(3):
            assert any_reaches(values, row, other) == (values[row] >= values[other]).any()


@pytest.mark.parametrize("lane", range(LANES))
def test_one_lane_alone_decides_a_comparison(lane: int) -> None:
    values = vectors(2)
    values[0], values[1] = 1.0, 2.0
    assert not any_reaches(values, 0, 1)
    values[0, lane] = 2.0
    assert any_reaches(values, 0, 1)
    assert all_exceed(values, 1, 1.0)
    values[1, lane] = 1.0
    assert not all_exceed(values, 1, 1.0)
    values[0, lane] = 3.0
    assert largest_of(values, 0) == 3.0


def test_the_floor_is_0_and_nothing_above_it_changes() -> None:
    values, before = vectors(3), np.random.default_rng(0).normal(size=(3, LANES))
    before[1, :3] = 0.0, 5e-324, -5e-324
    values[:] = before
    floor_row(values, 1)
    same_bits(values[1], np.where(before[1] > 0, before[1], 0.0))
    same_bits(values[::2], before[::2])


def test_a_copy_has_the_same_bits_and_leaves_its_neighbours_alone() -> None:
    out, values = vectors(3), np.random.default_rng(0).random((4, LANES))
    copy_row(out, 1, values, 2)
    same_bits(out[1], values[2])
    same_bits(out[::2], np.zeros((2, LANES)))


def test_a_row_that_is_filled_leaves_its_neighbours_alone() -> None:
    values = vectors(3)
    fill_row(values, 1, 0.7)
    same_bits(values, np.repeat([0.0, 0.7, 0.0], LANES).reshape(3, LANES))


@given(seed=seeds)
def test_gains_are_the_largest_so_far_lane_by_lane(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, later, before = vectors(4), vectors(5), float(rng.random())
    values[:], later[:] = rng.random(values.shape), rng.random(later.shape)
    expected = values.copy()
    expected[2] = np.maximum(values[2], values[1] - later[3])
    expected[0] = np.maximum(values[0], values[1] - before)
    note_gains(values, 2, 0, 1, later, 3, before)
    same_bits(values, expected)


# Plans


@compiled
def plan_both_sides(batch, rows, radii, prior, nobody, with_upper):  # type: ignore[no-untyped-def]
    pack_into(batch.packed, rows)
    plan_lanes_into(batch, rows, radii, batch.lower, LOWER, prior, with_upper)
    plan_lanes_into(batch, rows, radii, batch.optimistic, UPPER, nobody, False)


@compiled
def count_ahead(versions, rows, radii, lane, pairs, nexts, rewards, steps):  # type: ignore[no-untyped-def]
    return version_into(versions, rows, radii, lane, pairs, nexts, rewards, steps)


@compiled
def forget(versions):  # type: ignore[no-untyped-def]
    forget_versions(versions)


@compiled
def policy_into(policy, side, lane):  # type: ignore[no-untyped-def]
    for t in range(policy.shape[0]):
        for s in range(policy.shape[1]):
            policy[t, s] = lane_action(side, t, s, lane)


@compiled
def evaluate(v, policy, rows, radii, sign, stages):  # type: ignore[no-untyped-def]
    additive_value_into(v, policy, rows, radii, sign, stages)


class Episode(NamedTuple):
    """Transitions in the order in which they were played."""

    states: Ints
    pairs: Ints
    nexts: Ints
    rewards: Floats


def draw_mdp(rng: np.random.Generator) -> FiniteMDP:
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    # Actions that do the same, and rewards of 0 and 1 alone, make ties.
    P, R = rng.dirichlet(np.full(S, 0.5), size=(S, A)), rng.random((S, A, S)).round(int(rng.choice([0, 9])))
    options: dict[str, Any] = {
        "allowed": allowed,
        "horizon": int(rng.integers(1, 7)),
        "discount": float(rng.choice([1.0, 0.9])),
        "terminal": [S - 1] if S > 2 and rng.random() < 0.4 else [],
        "reward_range": (0.0, 1.0),
    }
    mdp = FiniteMDP.from_arrays(P, R, **options)
    best = float(Truth(mdp).optimal_value.max())
    if best > 0 and rng.random() < 0.5:
        # A cap makes the highest value the same at several stages.
        return FiniteMDP.from_arrays(P, R, **options, value_cap=best)
    return mdp


def play(mdp: FiniteMDP, rng: np.random.Generator, policy: Ints | None = None) -> Episode:
    """Play an episode at random, or mostly by a policy, as episodes that are guessed do."""
    setting = mdp.setting
    s, steps = int(rng.choice(np.flatnonzero(~setting.terminal))), []
    for t in range(setting.horizon):
        if policy is not None and rng.random() < 0.9:
            p = int(setting.pair_index[s, policy[t, s]])
        else:
            p = int(rng.integers(setting.pair_start[s], setting.pair_start[s + 1]))
        row = slice(mdp.row_start[p], mdp.row_start[p + 1])
        entry = int(mdp.row_start[p]) + int(rng.choice(len(mdp.successor[row]), p=mdp.probability[row]))
        x = int(mdp.successor[entry])
        steps.append((s, p, x, float(mdp.reward[entry])))
        s = x
        if setting.terminal[s]:
            break
    states, pairs, nexts, rewards = zip(*steps, strict=True)
    return Episode(np.array(states), np.array(pairs), np.array(nexts), np.array(rewards))


def draw_policy(mdp: FiniteMDP, rng: np.random.Generator) -> Ints:
    policy = np.zeros((mdp.horizon, mdp.n_states), dtype=np.int64)
    for t, s in np.ndindex(policy.shape):
        if not mdp.setting.terminal[s]:
            policy[t, s] = rng.choice(np.flatnonzero(mdp.setting.allowed[s]))
    return policy


def full_pass(rows: Rows, radii: Radii, sign: int, mode: int, policy: Ints, prior: Ints) -> Floats:
    """Return the values (H + 1, S); in mode OPTIMISE `policy` is filled."""
    H, S = policy.shape
    v, none = np.full((H + 1, S), np.nan), np.zeros((0, 0))
    backward_into(v, none, policy, rows, radii, sign, mode, prior, none, (0, H - 1), new_scratch(S))
    return v


def check_versions(versions: Versions, lane: int, learnt: Knowledge) -> None:
    """Check that the rows of a lane are those that were learnt for real."""
    rows = learnt.rows
    for o in range(int(versions.used[0])):
        p = int(versions.pair[o])
        assert versions.place[p] == o
        span = slice(versions.begin[o], versions.begin[o] + versions.length[o])
        seen = versions.weight[span, lane] > 0
        real = slice(rows.begin[p], rows.begin[p] + rows.length[p])
        np.testing.assert_array_equal(versions.successor[span][seen], rows.successor[real])
        same_bits(versions.weight[span, lane][seen], rows.weight[real])
        found = versions.total[o, lane], versions.reward_total[o, lane], versions.width[o, lane]
        assert found == (rows.total[p], rows.reward_total[p], learnt.radii.width[p])


def check_lane(
    batch: Batch, lane: int, learnt: Knowledge, prior: Ints, nobody: Ints, *, with_upper: bool
) -> Ints:
    """Check a lane against the full pass of what was learnt; return its baseline."""
    H, S = batch.lower.policy.shape
    baseline = np.zeros((H, S), dtype=np.int64)
    sides: tuple[tuple[Side, int, Ints], ...] = (
        (batch.optimistic, UPPER, nobody),
        (batch.lower, LOWER, prior),
    )
    for side, sign, ties in sides:
        expected = full_pass(learnt.rows, learnt.radii, sign, OPTIMISE, baseline, ties)
        same_bits(np.ascontiguousarray(side.v[:, :, lane]), expected)
        played = np.full_like(baseline, -1)
        policy_into(played, side, lane)
        np.testing.assert_array_equal(played, baseline)
    if with_upper:
        upper = full_pass(learnt.rows, learnt.radii, UPPER, EVALUATE, baseline, nobody)
        same_bits(np.ascontiguousarray(batch.upper[:, :, lane]), upper)
    return baseline


@fewer
@given(seed=seeds)
def test_every_lane_holds_the_plan_of_the_episodes_before_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    setting, S = mdp.setting, mdp.n_states
    bounds = Bounds(family="hoeffding", scale=float(rng.choice([1.0, 0.01, 0.001, 0.0])) or 1e-6)
    rank = shuffled_rank(setting, rng) if rng.random() < 0.7 else None
    real = Knowledge.empty(setting, bounds, episodes=99, total_episodes=99, rank=rank)
    for _ in range(int(rng.choice([0, 3, 60]))):
        real.learn(*play(mdp, rng))
    batch, nobody = new_batch(setting, real.radii.family), np.full(S, -1, dtype=np.int64)
    prior = draw_policy(mdp, rng)[0] if rng.random() < 0.5 else nobody
    baseline = draw_policy(mdp, rng)
    for _ in range(4):
        # The lanes remember from batch to batch what was best, and how far short the others fell.
        forget(batch.versions)
        assert (batch.versions.place == -1).all()
        guessed = [play(mdp, rng, baseline) for _ in range(LANES - 1)]
        for lane, episode in enumerate(guessed, start=1):
            steps = len(episode.pairs)
            assert count_ahead(batch.versions, real.rows, real.radii, lane, *episode[1:], steps)
        with_upper = bool(rng.random() < 0.7)
        batch = with_room(batch, len(real.rows.successor))
        plan_both_sides(batch, real.rows, real.radii, prior, nobody, with_upper)
        learnt = real.copy()
        for lane in range(LANES):
            check_versions(batch.versions, lane, learnt)
            baseline = check_lane(batch, lane, learnt, prior, nobody, with_upper=with_upper)
            if lane < LANES - 1:
                learnt.learn(*guessed[lane])
        for episode in guessed[: int(rng.integers(1, LANES))]:
            real.learn(*episode)


def test_two_pairs_that_tie_stay_tied_through_the_stages() -> None:
    # Pairs 1 and 2 have the same counts; what they had at the last stage and what values rose since add up to
    # what they have now, but for rounding. Pair 2 was best last time; the lowest index wins all the same.
    S, H = 3, 6
    P, R = np.zeros((S, 3, S)), np.zeros((S, 3))
    P[:] = np.eye(S)[:, None, :]
    setting = FiniteMDP.from_arrays(P, R, horizon=H, discount=0.9, reward_range=(0.0, 1.0)).setting
    bounds = Bounds(family="hoeffding", scale=0.0002)
    nobody = np.full(S, -1, dtype=np.int64)
    for earned in np.random.default_rng(0).random(50) * 0.05:
        knowledge = Knowledge.empty(setting, bounds, episodes=30, total_episodes=30)
        # Pair 0 is best at the last stage, 1 and 2 before it: they lead to where nothing was seen.
        pairs, nexts, rewards = np.array([0, 1, 2]), np.array([0, 1, 1]), np.array([0.3, earned, earned])
        knowledge.learn(np.zeros(3, dtype=np.int64), pairs, nexts, rewards)
        batch = new_batch(setting, knowledge.radii.family)
        batch.optimistic.guess[:, 0] = [2, 2, 2, 2, 2, 0]
        batch = with_room(batch, len(knowledge.rows.successor))
        plan_both_sides(batch, knowledge.rows, knowledge.radii, nobody, nobody, False)
        for lane in (0, LANES - 1):
            check_lane(batch, lane, knowledge, nobody, nobody, with_upper=False)


def test_an_episode_that_finds_no_room_is_not_counted() -> None:
    rng = np.random.default_rng(0)
    mdp = draw_mdp(rng)
    knowledge = Knowledge.empty(
        mdp.setting, Bounds(family="hoeffding", scale=0.01), episodes=9, total_episodes=9
    )
    batch, episode = new_batch(mdp.setting, knowledge.radii.family), play(mdp, rng)
    versions = batch.versions._replace(successor=batch.versions.successor[:1].copy())
    steps = len(episode.pairs)
    assert not count_ahead(versions, knowledge.rows, knowledge.radii, 1, *episode[1:], steps)
    assert versions.used.tolist() == [0, 0]
    assert (versions.place == -1).all()
    assert count_ahead(batch.versions, knowledge.rows, knowledge.radii, 1, *episode[1:], steps)


@given(seed=seeds)
def test_evaluations_have_the_bits_of_the_full_pass(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    H, nobody = mdp.horizon, np.full(mdp.n_states, -1, dtype=np.int64)
    bounds = Bounds(family="hoeffding", scale=float(rng.choice([1.0, 0.01, 0.0001])))
    knowledge = Knowledge.empty(mdp.setting, bounds, episodes=99, total_episodes=99)
    for _ in range(int(rng.choice([0, 3, 60]))):
        knowledge.learn(*play(mdp, rng))
    policy = draw_policy(mdp, rng)
    truth = true_rows(mdp), exact_radii(mdp.setting)
    for rows, radii in ((knowledge.rows, knowledge.radii), truth):
        for sign in (LOWER, UPPER):
            expected = full_pass(rows, radii, sign, EVALUATE, policy, nobody)
            v = np.full_like(expected, np.nan)
            evaluate(v, policy, rows, radii, sign, (0, H - 1))
            same_bits(v, expected)
            # From some stage on, on top of what lies behind it.
            first, last = sorted(rng.integers(H, size=2).tolist())
            v[first : last + 1] = np.nan
            evaluate(v, policy, rows, radii, sign, (first, last))
            same_bits(v, expected)
