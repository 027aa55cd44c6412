"""The full pass: one compiled backward induction for every purpose, section 5, and the plan it fills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model.radii import EXACT, Radii, additive, lost_worth
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup, expected_backup, sorted_states
from chary.planner._differences import differences_into

CHARGES = ("paper", "coupled", "difference")
PAPER, COUPLED, DIFFERENCE = range(3)

# NumPy scalars, since numba compiles a kernel again for each literal it is called with.
START: int = np.int64(0)  # type: ignore[assignment]
EVALUATE: int = np.int64(0)  # type: ignore[assignment]
OPTIMISE: int = np.int64(1)  # type: ignore[assignment]
EVALUATE_ALL: int = np.int64(2)  # type: ignore[assignment]


class PlanArrays(NamedTuple):
    """A plan: lower and upper value of the baseline, its policy, value differences.

    Shapes: `v_lower` and `v_upper` (H + 1, S), `baseline` (H, S), `difference` (H + 1, S, S) for the charge
    of that name and (0, 0, 0) otherwise. The lower Q is a backup away: `lower_q`.
    """

    v_lower: Floats
    v_upper: Floats
    baseline: Ints
    difference: Floats


def new_plan_arrays(n_states: int, horizon: int, *, differences: bool) -> PlanArrays:
    """Return a plan with nothing in it."""
    size = (horizon + 1, n_states, n_states) if differences else (0, 0, 0)
    return PlanArrays(
        np.zeros((horizon + 1, n_states)),
        np.zeros((horizon + 1, n_states)),
        np.zeros((horizon, n_states), dtype=np.int64),
        np.zeros(size),
    )


class Explorer(NamedTuple):
    """The optimistic plan: value (H + 1, S), Q (H, P), policy (H, S); UCBVI's falling ceiling or (0, 0)."""

    v: Floats
    q: Floats
    policy: Ints
    ceiling: Floats


def new_explorer(n_states: int, n_pairs: int, horizon: int, *, falling: bool) -> Explorer:
    """Return an optimistic plan with nothing in it."""
    return Explorer(
        np.zeros((horizon + 1, n_states)),
        np.zeros((horizon, n_pairs)),
        np.zeros((horizon, n_states), dtype=np.int64),
        np.full((horizon, n_pairs), np.inf) if falling else np.zeros((0, 0)),
    )


@jit
def backward_into(
    v: Floats,
    q: Floats,
    policy: Ints,
    rows: Rows,
    radii: Radii,
    sign: int,
    mode: int,
    prior: Ints,
    ceiling: Floats,
    stages: tuple[int, int],
    scratch: Scratch,
) -> None:
    """Fill values (H + 1, S), Q (H, P) and policy (H, S) by backward induction, section 5.

    `stages` are the first and the last to fill, 0 and H - 1 for all; what lies behind the last is left as
    it is. `q` may be (0, 0): Q is not kept then. In mode OPTIMISE the policy becomes the argmax, ties
    going to the action of `prior` (-1 for none), else to the first by the rows' `rank`; EVALUATE evaluates
    `policy` and fills Q for its own pairs only, EVALUATE_ALL for all. `ceiling` (H, P), or (0, 0) for none,
    caps Q from above and then becomes the result, as UCBVI's own bonuses need.
    """
    n_states = len(rows.visits)
    # Fields of a tuple are fetched and counted at every use: keep what the inner loop reads.
    pair_start, pair_action, pair_index = rows.pair_start, rows.pair_action, rows.pair_index
    begin, length, successor, weight = rows.begin, rows.length, rows.successor, rows.weight
    total, reward_total, rank, width = rows.total, rows.reward_total, rows.rank, radii.width
    terminal, discount = radii.terminal, radii.discount
    plain = radii.family == EXACT or additive(radii.family)
    v[radii.horizon] = 0.0
    for s in range(radii.lost_from, n_states):
        v[radii.horizon, s] = lost_worth(radii, radii.horizon, sign)
    first_stage, last_stage = stages
    for t in range(last_stage, first_stage - 1, -1):
        v_next = v[t + 1]
        vmax = radii.vmax[t]
        order = sorted_states(radii, v_next)
        for s in range(n_states):
            first, last = pair_start[s], pair_start[s + 1]
            if first == last or terminal[s]:
                v[t, s] = lost_worth(radii, t, sign) if s >= radii.lost_from else 0.0
                if mode == OPTIMISE:
                    policy[t, s] = 0
                continue
            played = -1
            if mode != OPTIMISE:
                played = pair_index[s, policy[t, s]]
            if mode == EVALUATE:
                first, last = played, played + 1
            best, chosen, place = -1.0, 0, 0
            for p in range(first, last):
                if total[p] == 0.0:
                    value = vmax if sign > 0 else 0.0
                elif plain:
                    value = expected_backup(
                        begin[p],
                        begin[p] + length[p],
                        successor,
                        weight,
                        reward_total[p],
                        total[p],
                        discount,
                        v_next,
                    )
                    value = min(max(value + sign * width[p], 0.0), vmax)
                else:
                    value = backup(rows, radii, p, t, sign, v_next, order, scratch)
                if len(ceiling) > 0:
                    value = min(value, ceiling[t, p])
                    ceiling[t, p] = value
                if len(q) > 0:
                    q[t, p] = value
                if mode != OPTIMISE:
                    if p == played:
                        best = value
                    continue
                action = pair_action[p]
                if value > best or (
                    value == best and (action == prior[s] or (rank[p] < place and chosen != prior[s]))
                ):
                    best, chosen, place = value, action, rank[p]
            v[t, s] = best
            if mode == OPTIMISE:
                policy[t, s] = chosen


@jit
def plan_differences_into(plan: PlanArrays, rows: Rows, radii: Radii, scratch: Scratch) -> None:
    """Fill the differences of values of a plan from its baseline and its values."""
    differences_into(plan.difference, rows, radii, plan.v_lower, plan.v_upper, plan.baseline, scratch)


plan_differences_kernel = kernel_of(plan_differences_into)


@jit
def plan_into(
    plan: PlanArrays, rows: Rows, radii: Radii, prior: Ints, kind: int, upper: bool, scratch: Scratch
) -> None:
    """Fill the plan: the lower optimum with its baseline, and with `upper` that baseline's upper value."""
    lower_optimum_into(plan, rows, radii, prior, (START, radii.horizon - 1), scratch)
    if upper:
        none, stages = np.zeros((0, 0)), (START, radii.horizon - 1)
        backward_into(
            plan.v_upper, none, plan.baseline, rows, radii, UPPER, EVALUATE, prior, none, stages, scratch
        )
        if kind == DIFFERENCE:
            plan_differences_kernel(plan, rows, radii, scratch)


@inner
def lower_optimum_into(
    plan: PlanArrays, rows: Rows, radii: Radii, prior: Ints, stages: tuple[int, int], scratch: Scratch
) -> None:
    """Fill the lower optimum with its baseline at some stages, ties going to the actions of `prior` (S,)."""
    none = np.zeros((0, 0))
    backward_into(
        plan.v_lower, none, plan.baseline, rows, radii, LOWER, OPTIMISE, prior, none, stages, scratch
    )


@jit
def explore_into(explorer: Explorer, rows: Rows, radii: Radii, scratch: Scratch) -> None:
    """Fill the optimistic plan; ties go to the first pair by the rows' `rank`."""
    nobody, stages = np.full(len(rows.visits), -1), (START, radii.horizon - 1)
    v, q, policy, ceiling = explorer.v, explorer.q, explorer.policy, explorer.ceiling
    backward_into(v, q, policy, rows, radii, UPPER, OPTIMISE, nobody, ceiling, stages, scratch)


explore_kernel = kernel_of(explore_into)


@inner
def policy_value_into(
    v: Floats, policy: Ints, rows: Rows, radii: Radii, sign: int, stages: tuple[int, int], scratch: Scratch
) -> None:
    """Fill the upper or lower value (H + 1, S) of a policy (H, S) at some stages, in the quickest way."""
    if additive(radii.family):
        additive_value_into(v, policy, rows, radii, sign, stages)
    else:
        nobody, none = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        backward_into(v, none, policy, rows, radii, sign, EVALUATE, nobody, none, stages, scratch)


@bare
def additive_value_into(
    v: Floats, policy: Ints, rows: Rows, radii: Radii, sign: int, stages: tuple[int, int]
) -> None:
    """Fill the upper or lower value of a policy at some stages, from rows whose backup is a sum.

    The result is that of `backward_into` in mode EVALUATE for `hoeffding`, `ch` and exact rows, in less time.
    """
    pair_index, begin, length = rows.pair_index, rows.begin, rows.length
    successor, weight = rows.successor, rows.weight
    direction, (first, last) = 1.0 if sign > 0 else -1.0, stages
    for s in range(v.shape[1]):
        v[radii.horizon, s] = 0.0
    for t in range(last, first - 1, -1):
        here, behind, top = v[t], v[t + 1], radii.vmax[t]
        for s in range(len(here)):
            here[s] = 0.0
            if radii.terminal[s] or pair_index[s, policy[t, s]] < 0:
                continue
            # Places are unsigned: numba then leaves out the question whether to count them from the end.
            p = np.uint64(pair_index[s, policy[t, s]])
            here[s] = top if sign > 0 else 0.0
            if rows.total[p] > 0.0:
                future = 0.0
                for i in range(begin[p], begin[p] + length[p]):
                    future += weight[np.uint64(i)] * behind[np.uint64(successor[np.uint64(i)])]
                value = (rows.reward_total[p] + radii.discount * future) / rows.total[p]
                here[s] = min(max(value + direction * radii.width[p], 0.0), top)
