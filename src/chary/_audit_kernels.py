"""The judge, compiled: what an episode really cost, from the true MDP. The slow twin is `audit`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import inner, jit
from chary.mdp import FiniteMDP
from chary.model.radii import Radii, exact_radii
from chary.model.rows import Rows, true_rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup, deviation
from chary.planner._kernels import (
    EVALUATE,
    EVALUATE_ALL,
    OPTIMISE,
    PlanArrays,
    backward_into,
    charge_of,
    sorted_states,
)

__all__ = [
    "COVERAGES",
    "EVERYWHERE",
    "PLAYED",
    "Judge",
    "evaluate_truly_into",
    "judge_coverage",
    "judge_deficit",
    "judge_regret",
    "new_judge",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COVERAGES = ("played", "everywhere")
PLAYED, EVERYWHERE = range(2)

# Bounds are compared with the truth up to rounding of sums of at most H rewards.
COVERAGE_TOLERANCE = 1e-9


class Judge(NamedTuple):
    """The truth: exact rows, the optimum, and the warm-up's baseline, each value (H + 1, S) and Q (H, P)."""

    rows: Rows
    radii: Radii
    v_star: Floats
    q_star: Floats
    v_frozen: Floats
    q_frozen: Floats
    v_true: Floats
    q_true: Floats
    coverage: int


def new_judge(mdp: FiniteMDP, scratch: Scratch, *, coverage: int) -> Judge:
    """Solve the true MDP once."""
    setting = mdp.setting
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs

    def pair() -> tuple[Floats, Floats]:
        return np.zeros((H + 1, S)), np.zeros((H, P))

    v_star, q_star = pair()
    v_frozen, q_frozen = pair()
    v_true, q_true = pair()
    judge = Judge(
        true_rows(mdp), exact_radii(setting), v_star, q_star, v_frozen, q_frozen, v_true, q_true, coverage
    )
    nobody = np.full(S, -1, dtype=np.int64)
    policy = np.zeros((H, S), dtype=np.int64)
    backward_into(
        v_star, q_star, policy, judge.rows, judge.radii, UPPER, OPTIMISE, nobody, np.zeros((0, 0)), scratch
    )
    return judge


@jit
def evaluate_truly_into(
    v: Floats, q: Floats, judge: Judge, policy: Ints, all_pairs: bool, scratch: Scratch
) -> None:
    """Fill the exact value (H + 1, S) of a policy, and with `all_pairs` its Q (H, P) everywhere."""
    nobody = np.full(len(judge.rows.visits), -1)
    mode = EVALUATE_ALL if all_pairs else EVALUATE
    backward_into(v, q, policy, judge.rows, judge.radii, UPPER, mode, nobody, np.zeros((0, 0)), scratch)


@inner
def judge_regret(judge: Judge, states: Ints, pairs: Ints, steps: int) -> float:
    """Return sum_t gamma^t (V*_t(s_t) - Q*_t(s_t, a_t)), section 7."""
    total, weight = 0.0, 1.0
    for t in range(steps):
        total += weight * (judge.v_star[t, states[t]] - judge.q_star[t, pairs[t]])
        weight *= judge.radii.discount
    return total


@inner
def judge_deficit(
    judge: Judge,
    v: Floats,
    baseline: Ints,
    states: Ints,
    actions: Ints,
    pairs: Ints,
    steps: int,
    scratch: Scratch,
) -> tuple[float, float, float]:
    """Return z* of eq. (1), the signed sum of eq. (2) and the largest gap; v is the baseline's true value."""
    nobody = np.zeros(0, dtype=np.int64)
    deficit, signed, largest, weight = 0.0, 0.0, 0.0, 1.0
    for t in range(steps):
        # V - Q(s, baseline) is 0 by definition: no rounding may turn it into a deficit.
        if actions[t] != baseline[t, states[t]]:
            q = backup(judge.rows, judge.radii, pairs[t], t, UPPER, v[t + 1], nobody, scratch)
            gap = v[t, states[t]] - q
            deficit += max(gap, 0.0)
            signed += weight * gap
            largest = max(largest, gap)
        weight *= judge.radii.discount
    return deficit, signed, largest


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
    lower, upper = plan.v_lower[t + 1], plan.v_upper[t + 1]
    orders = sorted_states(radii, lower), sorted_states(radii, upper)
    b = deviation(rows, radii, p, side, lower, upper, orders[0], orders[1], scratch)
    return abs(truth - estimate) > b + COVERAGE_TOLERANCE


@inner
def judge_coverage(
    judge: Judge,
    kind: int,
    rows: Rows,
    radii: Radii,
    plan: PlanArrays,
    states: Ints,
    actions: Ints,
    pairs: Ints,
    explored: NDArray[np.bool_],
    charges: Floats,
    steps: int,
    scratch: Scratch,
) -> tuple[bool, bool, bool, float]:
    """Return whether a value bound, a bonus or a charge failed, and the largest true gap there.

    Everywhere: at every (t, s, a). Played: at the explored steps of the episode. `judge.v_true` and
    `judge.q_true` hold the exact values of the plan's baseline.
    """
    value_fails, bonus_fails, charge_fails, largest = False, False, False, 0.0
    v, q = judge.v_true, judge.q_true
    nobody = np.zeros(0, dtype=np.int64)
    if judge.coverage == PLAYED:
        for t in range(steps):
            if not explored[t]:
                continue
            s, p = states[t], pairs[t]
            truth = backup(judge.rows, judge.radii, p, t, UPPER, v[t + 1], nobody, scratch)
            gap = v[t, s] - truth if actions[t] != plan.baseline[t, s] else 0.0
            largest = max(largest, gap)
            value_fails |= plan.v_upper[t, s] < v[t, s] - COVERAGE_TOLERANCE
            value_fails |= plan.q_lower[t, p] > truth + COVERAGE_TOLERANCE
            charge_fails |= charges[t] < gap - COVERAGE_TOLERANCE
            if not bonus_fails and actions[t] != plan.baseline[t, s]:
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
                value_fails |= plan.q_lower[t, p] > q[t, p] + COVERAGE_TOLERANCE
                if not bonus_fails:
                    bonus_fails = _bonus_fails(judge, rows, radii, plan, v, p, t, scratch)
                if gap > 0.0 and not charge_fails:
                    charge = charge_of(kind, rows, radii, plan, t, s, a, scratch)
                    charge_fails = charge < gap - COVERAGE_TOLERANCE
    return value_fails, bonus_fails, charge_fails, largest
