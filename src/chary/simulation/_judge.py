"""The compiled judge: the true cost of an episode, from the true MDP. Its slow twin is `chary.audit`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.mdp import FiniteMDP
from chary.model.radii import Radii, exact_radii
from chary.model.rows import Rows, true_rows
from chary.planner._backup import LOWER, UPPER, Scratch, deviation, expected_backup
from chary.planner._batch_arrays import Side
from chary.planner._batch_versions import vectors
from chary.planner._charges import charge_kernel, lower_q
from chary.planner._full import (
    EVALUATE,
    EVALUATE_ALL,
    OPTIMISE,
    START,
    PlanArrays,
    backward_into,
)
from chary.planner._vectors import HALF, LANES, half_row_into, two_half_rows_into
from chary.simulation._episode import Playing

COVERAGES = ("played", "everywhere")
PLAYED, EVERYWHERE = range(2)

# A NumPy scalar, since numba compiles a kernel again for each literal.
FIRST: int = np.int64(0)  # type: ignore[assignment]

# Bounds are compared with the truth up to rounding of sums of at most H rewards.
COVERAGE_TOLERANCE = 1e-9


class Judge(NamedTuple):
    """The truth: exact rows, and the values (H + 1, S) of the optimum, the incumbent and the plan's baseline.

    `start` (S,) is the law of the first state, and `incumbent` (H, S) the policy of the first day: the
    user's, or else the warm-up's baseline. `q_star` is (H, P), and `q_true` too where bounds are compared
    everywhere, else (0, 0). Where plans are made in lanes, `columns` (H + 1, S, HALF) are the true values of
    their baselines, and `worth` (HALF,) their means over the first state: `column` (LANES,) is the one of a
    lane, -1 for none, and `lane_of` (HALF,) the lane of a column. `valued` (H, S) are the actions that they
    were last computed with, -1 where columns differ or have none, and `successor` those of the rows, narrow
    since they are read so often.
    """

    rows: Rows
    radii: Radii
    start: Floats
    v_star: Floats
    q_star: Floats
    incumbent: Ints
    v_incumbent: Floats
    v_true: Floats
    q_true: Floats
    columns: Floats
    worth: Floats
    column: Ints
    lane_of: Ints
    valued: NDArray[np.int16]
    successor: NDArray[np.int32]
    room: Floats
    coverage: int


def new_judge(mdp: FiniteMDP, scratch: Scratch, *, coverage: int, in_lanes: bool = False) -> Judge:
    """Solve the true MDP once."""
    setting = mdp.setting
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs

    rows = true_rows(mdp)
    judge = Judge(
        rows=rows,
        radii=exact_radii(setting),
        start=np.array(mdp.start),
        v_star=np.zeros((H + 1, S)),
        q_star=np.zeros((H, P)),
        incumbent=np.zeros((H, S), dtype=np.int64),
        v_incumbent=np.zeros((H + 1, S)),
        v_true=np.zeros((H + 1, S)),
        q_true=np.zeros((H, P) if coverage == EVERYWHERE else (0, 0)),
        columns=vectors(*((H + 1, S) if in_lanes else (0, 0)), lanes=HALF),
        worth=np.zeros(HALF),
        column=np.full(LANES, -1),
        lane_of=np.zeros(HALF, dtype=np.int64),
        valued=np.full((H, S) if in_lanes else (0, 0), -1, dtype=np.int16),
        successor=rows.successor.astype(np.int32),
        room=vectors(1, lanes=HALF),
        coverage=coverage,
    )
    nobody, policy = np.full(S, -1, dtype=np.int64), np.zeros((H, S), dtype=np.int64)
    v, q, none, stages = judge.v_star, judge.q_star, np.zeros((0, 0)), (START, H - 1)
    backward_into(v, q, policy, rows, judge.radii, UPPER, OPTIMISE, nobody, none, stages, scratch)
    return judge


@jit
def evaluate_truly_into(
    v: Floats, q: Floats, judge: Judge, policy: Ints, first: int, scratch: Scratch
) -> None:
    """Fill the exact value (H + 1, S) of a policy from stage `first` on, and unless (0, 0) its Q (H, P)."""
    nobody = np.full(len(judge.rows.visits), -1)
    mode = EVALUATE if len(q) == 0 else EVALUATE_ALL
    stages = (first, judge.radii.horizon - 1)
    backward_into(
        v, q, policy, judge.rows, judge.radii, UPPER, mode, nobody, np.zeros((0, 0)), stages, scratch
    )


@jit
def mean_at_start(judge: Judge, value: Floats) -> float:
    """Return the mean of a value (H + 1, S) over the first state."""
    total = 0.0
    for s in range(len(judge.start)):
        total += judge.start[s] * value[0, s]
    return total


mean_at_start_kernel = kernel_of(mean_at_start)


def set_incumbent_into(judge: Judge, policy: Ints, scratch: Scratch) -> None:
    """Take a policy, (S,) or (H, S), for the one of the first day."""
    judge.incumbent[:] = policy
    judge.v_incumbent[:] = true_value(judge, judge.incumbent, scratch)


def true_value(judge: Judge, policy: Ints, scratch: Scratch) -> Floats:
    """Return the exact value (H + 1, S) of a policy (H, S)."""
    v = np.zeros_like(judge.v_star)
    evaluate_truly_into(v, np.zeros((0, 0)), judge, policy, 0, scratch)
    return v


@bare
def value_lanes_truly_into(judge: Judge, side: Side, n: int) -> None:
    """Fill the true values of the policies of the first n lanes, those that play the same in one column.

    Policies of which there are too many get none. Behind the last stage in which any of them differs from
    those of the time before, all columns are what they were then.
    """
    used = 0
    for j in range(LANES):
        judge.column[j] = -1
        if j < n:
            for c in range(used):
                if judge.column[j] < 0 and _same(side, judge.lane_of[c], j):
                    judge.column[j] = c
            if judge.column[j] < 0 and used < HALF:
                judge.column[j] = used
                judge.lane_of[used] = j
                used += 1
    until = judge.radii.horizon
    while until > 0 and _stays(judge.valued[until - 1], side.policy[until - 1], side.split[until - 1]):
        until -= 1
    for t in range(until - 1, -1, -1):
        _true_stage_into(judge, side, t, used, t + 1 == until)
    for c in range(HALF):
        judge.worth[c] = 0.0
    for s in range(len(judge.start)):
        for c in range(HALF):
            judge.worth[c] += judge.start[s] * judge.columns[0, s, c]


@bare
def _stays(valued: NDArray[np.int16], policy: NDArray[np.int16], split: NDArray[np.int32]) -> bool:
    """Return whether every lane plays at this stage what the columns were computed with."""
    for s in range(len(valued)):
        if valued[s] != policy[s] or split[s] >= 0:
            return False
    return True


@bare
def _same(side: Side, i: int, j: int) -> bool:
    """Return whether lanes i and j play the same."""
    for place in range(side.used[0]):
        if side.action[place, i] != side.action[place, j]:
            return False
    return True


@bare
def true_values_into(judge: Judge, baseline: Ints, lane: int, t: int, s: int, p: int) -> None:
    """Copy into `v_true` the true values of a lane at (t, s) and behind its baseline and p."""
    v, columns, c = judge.v_true, judge.columns, judge.column[lane]
    v[t, s] = columns[t, s, c]
    for pair in (p, judge.rows.pair_index[s, baseline[t, s]]):
        for i in range(judge.rows.begin[pair], judge.rows.begin[pair] + judge.rows.length[pair]):
            x = judge.rows.successor[i]
            v[t + 1, x] = columns[t + 1, x, c]


@bare
def _true_stage_into(judge: Judge, side: Side, t: int, used: int, unmoved: bool) -> None:
    """Fill stage t in every column, as `backward_into` would with exact rows: no bonus and no clipping.

    Where the values behind are `unmoved`, only states whose action changed are computed.
    """
    v, v_next, valued = judge.columns[t], judge.columns[t + 1], judge.valued[t]
    policy, split = side.policy[t], side.split[t]
    pair_index, begin, length = judge.rows.pair_index, judge.rows.begin, judge.rows.length
    successor, weight, reward_total = judge.successor, judge.rows.weight, judge.rows.reward_total
    terminal, discount, room = judge.radii.terminal, judge.radii.discount, judge.room
    waiting = -1
    for s in range(len(v)):
        stays = valued[s] == policy[s] and split[s] < 0
        valued[s] = policy[s] if split[s] < 0 else -1
        if (unmoved and stays) or terminal[s] or pair_index[s, policy[s]] < 0:
            continue
        if split[s] < 0:
            # Rows go two by two.
            if waiting < 0:
                waiting = s
                continue
            p, q = pair_index[waiting, policy[waiting]], pair_index[s, policy[s]]
            two_half_rows_into(
                v, waiting, s, begin[p], begin[p] + length[p], begin[q], begin[q] + length[q],
                successor, weight, v_next, reward_total[p], reward_total[q], discount,
            )  # fmt: skip
            waiting = -1
            continue
        done = -1
        for c in range(used):
            p = pair_index[s, side.action[split[s], judge.lane_of[c]]]
            if p != done:
                done = p
                half_row_into(
                    room, FIRST, begin[p], begin[p] + length[p], successor, weight, v_next,
                    reward_total[p], discount, 1.0, 0.0, np.inf,
                )  # fmt: skip
            v[s, c] = room[0, c]
    if waiting >= 0:
        p = pair_index[waiting, policy[waiting]]
        half_row_into(
            v, waiting, begin[p], begin[p] + length[p], successor, weight, v_next,
            reward_total[p], discount, 1.0, 0.0, np.inf,
        )  # fmt: skip


@bare
def judge_regret(judge: Judge, playing: Playing, steps: int) -> float:
    """Return sum_t gamma^t (V*_t(s_t) - Q*_t(s_t, a_t)), section 7."""
    total, weight = 0.0, 1.0
    for t in range(steps):
        total += weight * (judge.v_star[t, playing.states[t]] - judge.q_star[t, playing.pairs[t]])
        weight *= judge.radii.discount
    return total


@bare
def _true_q(judge: Judge, p: int, v_next: Floats) -> float:
    """Return the exact backup of pair p: what `backup` gives with exact rows."""
    begin = judge.rows.begin[p]
    end = begin + judge.rows.length[p]
    reward, discount = judge.rows.reward_total[p], judge.radii.discount
    return expected_backup(begin, end, judge.rows.successor, judge.rows.weight, reward, 1.0, discount, v_next)


@bare
def judge_deficit(
    judge: Judge, v: Floats, baseline: Ints, playing: Playing, steps: int
) -> tuple[float, float, float]:
    """Return z* of eq. (1), the signed sum of eq. (2) and the largest gap; v is the baseline's true value."""
    deficit, signed, largest, weight = 0.0, 0.0, 0.0, 1.0
    for t in range(steps):
        # V - Q(s, baseline) is 0 by definition: no rounding may turn it into a deficit.
        s = playing.states[t]
        if playing.actions[t] != baseline[t, s]:
            gap = v[t, s] - _true_q(judge, playing.pairs[t], v[t + 1])
            deficit += max(gap, 0.0)
            signed += weight * gap
            largest = max(largest, gap)
        weight *= judge.radii.discount
    return deficit, signed, largest


@bare
def charge_fails(judge: Judge, baseline: Ints, playing: Playing, steps: int) -> bool:
    """Return whether a step was charged less than its true gap; `judge.v_true` is the baseline's value."""
    for t in range(steps):
        s = playing.states[t]
        if playing.explored[t] and playing.actions[t] != baseline[t, s]:
            gap = judge.v_true[t, s] - _true_q(judge, playing.pairs[t], judge.v_true[t + 1])
            if playing.charges[t] < gap - COVERAGE_TOLERANCE:
                return True
    return False


@inner
def _bonus_fails(
    judge: Judge, rows: Rows, radii: Radii, plan: PlanArrays, v: Floats, p: int, t: int, scratch: Scratch
) -> bool:
    """Return whether the true backup of V lies outside b of the empirical one, section 3's event."""
    n = rows.total[p]
    if n == 0.0:
        return False
    future = 0.0
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        future += rows.weight[i] * v[t + 1, rows.successor[i]]
    estimate = (rows.reward_total[p] + radii.discount * future) / n
    truth = judge.rows.reward_total[p]
    for i in range(judge.rows.begin[p], judge.rows.begin[p] + judge.rows.length[p]):
        truth += radii.discount * judge.rows.weight[i] * v[t + 1, judge.rows.successor[i]]
    side = UPPER if truth > estimate else LOWER
    b = deviation(rows, radii, p, side, plan.v_lower[t + 1], plan.v_upper[t + 1], scratch)
    return abs(truth - estimate) > b + COVERAGE_TOLERANCE


@inner
def judge_coverage(
    judge: Judge,
    kind: int,
    rows: Rows,
    radii: Radii,
    plan: PlanArrays,
    playing: Playing,
    steps: int,
    scratch: Scratch,
) -> tuple[bool, bool, bool, float]:
    """Return whether a value bound, a bonus or a charge failed, and the largest true gap there.

    Everywhere: at every (t, s, a). Played: at the explored steps of the episode that differ from the
    baseline's, the only ones that rely on a bound. `judge.v_true` and `judge.q_true` are the exact values of
    the plan's baseline.
    """
    value_fails, bonus_fails, charge_fails, largest = False, False, False, 0.0
    v, q = judge.v_true, judge.q_true
    if judge.coverage == PLAYED:
        for t in range(steps):
            s, p = playing.states[t], playing.pairs[t]
            if not playing.explored[t] or playing.actions[t] == plan.baseline[t, s]:
                continue
            truth = _true_q(judge, p, v[t + 1])
            gap = v[t, s] - truth
            largest = max(largest, gap)
            value_fails |= plan.v_upper[t, s] < v[t, s] - COVERAGE_TOLERANCE
            value_fails |= lower_q(rows, radii, plan, t, p, scratch) > truth + COVERAGE_TOLERANCE
            charge_fails |= playing.charges[t] < gap - COVERAGE_TOLERANCE
            if not bonus_fails:
                p1 = rows.pair_index[s, plan.baseline[t, s]]
                bonus_fails = _bonus_fails(judge, rows, radii, plan, v, p1, t, scratch)
                bonus_fails |= _bonus_fails(judge, rows, radii, plan, v, p, t, scratch)
        return value_fails, bonus_fails, charge_fails, largest
    for t in range(radii.horizon):
        for s in range(len(rows.visits)):
            value_fails |= plan.v_upper[t, s] < v[t, s] - COVERAGE_TOLERANCE
            for p in range(rows.pair_start[s], rows.pair_start[s + 1]):
                a = rows.pair_action[p]
                gap = v[t, s] - q[t, p] if a != plan.baseline[t, s] else 0.0
                largest = max(largest, gap)
                value_fails |= lower_q(rows, radii, plan, t, p, scratch) > q[t, p] + COVERAGE_TOLERANCE
                if not bonus_fails:
                    bonus_fails = _bonus_fails(judge, rows, radii, plan, v, p, t, scratch)
                if gap > 0.0 and not charge_fails:
                    charge = charge_kernel(kind, rows, radii, plan, t, s, a, scratch)
                    charge_fails = charge < gap - COVERAGE_TOLERANCE
    return value_fails, bonus_fails, charge_fails, largest
