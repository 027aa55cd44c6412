"""The compiled planner: one backward induction for every purpose, and the charges of section 3."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model.radii import CH, EXACT, HOEFFDING, KL, L1, Radii
from chary.model.rows import Rows
from chary.planner._backup import (
    LOWER,
    UPPER,
    Scratch,
    backup,
    contains,
    deviation,
    expected_backup,
    listed_reward,
    tail_mass,
)

__all__ = [
    "CHARGES",
    "COUPLED",
    "DIFFERENCE",
    "EVALUATE",
    "EVALUATE_ALL",
    "OPTIMISE",
    "PAPER",
    "START",
    "Explorer",
    "PlanArrays",
    "backward_into",
    "charge_kernel",
    "charge_of",
    "count_charge",
    "differences_into",
    "explore_into",
    "explore_kernel",
    "lower_q",
    "new_explorer",
    "new_plan_arrays",
    "plan_into",
    "sorted_states",
]


CHARGES = ("paper", "coupled", "difference")
PAPER, COUPLED, DIFFERENCE = range(3)

# NumPy scalars, since numba compiles a kernel anew for each literal it is called with.
START: int = np.int64(0)  # type: ignore[assignment]
EVALUATE: int = np.int64(0)  # type: ignore[assignment]
OPTIMISE: int = np.int64(1)  # type: ignore[assignment]
EVALUATE_ALL: int = np.int64(2)  # type: ignore[assignment]


class PlanArrays(NamedTuple):
    """What a plan holds: lower and upper value of the baseline, its policy, value differences.

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


@inner
def sorted_states(radii: Radii, v: Floats) -> Ints:
    """Return the states by value, ascending, where the family needs it."""
    if radii.family == L1 or radii.family == KL:
        return np.argsort(v)
    return np.zeros(0, dtype=np.int64)


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

    `stages` are the first and the last to fill, 0 and H - 1 for all; what lies behind the last is taken as
    it stands. `q` may be (0, 0): Q is not kept then. In mode OPTIMISE the policy becomes the argmax, ties
    going to the action of `prior` (-1 for none), else to the lowest index; EVALUATE evaluates `policy` and
    fills Q for its own pairs only, EVALUATE_ALL for all. `ceiling` (H, P), or (0, 0) for none, caps Q from
    above and takes on the result, as UCBVI's own bonuses ask.
    """
    n_states = len(rows.visits)
    # Fields of a tuple are fetched and counted at every use: hold what the inner loop reads.
    pair_start, pair_action, pair_index = rows.pair_start, rows.pair_action, rows.pair_index
    begin, length, successor, weight = rows.begin, rows.length, rows.successor, rows.weight
    total, reward_total, width = rows.total, rows.reward_total, radii.width
    terminal, discount = radii.terminal, radii.discount
    plain = radii.family == EXACT or radii.family == HOEFFDING or radii.family == CH
    v[radii.horizon] = 0.0
    first_stage, last_stage = stages
    for t in range(last_stage, first_stage - 1, -1):
        v_next = v[t + 1]
        vmax = radii.vmax[t]
        order = sorted_states(radii, v_next)
        for s in range(n_states):
            first, last = pair_start[s], pair_start[s + 1]
            if first == last or terminal[s]:
                v[t, s] = 0.0
                if mode == OPTIMISE:
                    policy[t, s] = 0
                continue
            played = -1
            if mode != OPTIMISE:
                played = pair_index[s, policy[t, s]]
            if mode == EVALUATE:
                first, last = played, played + 1
            best, chosen = -1.0, 0
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
                if value > best or (value == best and action == prior[s]):
                    best, chosen = value, action
            v[t, s] = best
            if mode == OPTIMISE:
                policy[t, s] = chosen


@jit
def plan_into(
    plan: PlanArrays, rows: Rows, radii: Radii, prior: Ints, kind: int, upper: bool, scratch: Scratch
) -> None:
    """Fill the plan: the lower optimum with its baseline, and where asked that baseline's upper value."""
    none = np.zeros((0, 0))
    stages = (START, radii.horizon - 1)
    backward_into(
        plan.v_lower, none, plan.baseline, rows, radii, LOWER, OPTIMISE, prior, none, stages, scratch
    )
    if upper:
        backward_into(
            plan.v_upper, none, plan.baseline, rows, radii, UPPER, EVALUATE, prior, none, stages, scratch
        )
        if kind == DIFFERENCE:
            differences_into(plan.difference, rows, radii, plan, scratch)


@jit
def explore_into(explorer: Explorer, rows: Rows, radii: Radii, scratch: Scratch) -> None:
    """Fill the optimistic plan; ties go to the lowest index."""
    nobody = np.full(len(rows.visits), -1)
    backward_into(
        explorer.v,
        explorer.q,
        explorer.policy,
        rows,
        radii,
        UPPER,
        OPTIMISE,
        nobody,
        explorer.ceiling,
        (START, radii.horizon - 1),
        scratch,
    )


explore_kernel = kernel_of(explore_into)


@inner
def lower_q(rows: Rows, radii: Radii, plan: PlanArrays, t: int, p: int, scratch: Scratch) -> float:
    """Return the lower Q_t of pair p under the plan's baseline."""
    v_next = plan.v_lower[t + 1]
    return backup(rows, radii, p, t, LOWER, v_next, sorted_states(radii, v_next), scratch)


@jit
def charge_of(
    kind: int, rows: Rows, radii: Radii, plan: PlanArrays, t: int, s: int, a: int, scratch: Scratch
) -> float:
    """Return what playing `a` at (t, s) is charged, section 3."""
    a1 = plan.baseline[t, s]
    p = rows.pair_index[s, a]
    if a == a1 and kind != PAPER:
        return 0.0
    p1 = rows.pair_index[s, a1]
    v_lower, v_upper = plan.v_lower[t + 1], plan.v_upper[t + 1]
    column = (len(v_lower), 1)
    if kind != DIFFERENCE and (radii.family == HOEFFDING or radii.family == CH):
        return count_charge(
            kind,
            p,
            p1,
            rows.begin,
            rows.length,
            rows.successor,
            rows.weight,
            rows.total,
            rows.reward_total,
            radii.width,
            radii.discount,
            radii.vmax[t],
            plan.v_upper[t, s],
            v_lower.reshape(column),
            0,
            v_upper.reshape(column),
            0,
        )
    whole = max(plan.v_upper[t, s] - lower_q(rows, radii, plan, t, p, scratch), 0.0)
    if kind == PAPER or rows.total[p] == 0.0 or rows.total[p1] == 0.0:
        return whole
    order_lower, order_upper = sorted_states(radii, v_lower), sorted_states(radii, v_upper)
    means = rows.reward_total[p1] / rows.total[p1] - rows.reward_total[p] / rows.total[p]
    gap = means + radii.discount * shared_mass_gap(
        rows.begin[p1],
        rows.begin[p1] + rows.length[p1],
        rows.total[p1],
        rows.begin[p],
        rows.begin[p] + rows.length[p],
        rows.total[p],
        rows.successor,
        rows.weight,
        v_lower.reshape(column),
        0,
        v_upper.reshape(column),
        0,
    )
    above = deviation(rows, radii, p1, UPPER, v_lower, v_upper, order_lower, order_upper, scratch)
    below = deviation(rows, radii, p, LOWER, v_lower, v_upper, order_lower, order_upper, scratch)
    coupled = max(0.0, min(whole, gap + above + below))
    if kind == COUPLED:
        return coupled
    price = plan.difference[t + 1]
    slack = _priced_error(rows, radii, p1, UPPER, price, v_lower, v_upper, scratch)
    slack += _priced_error(rows, radii, p, LOWER, price, v_lower, v_upper, scratch)
    n_states = len(rows.visits)
    giving, taking = np.zeros(n_states), np.zeros(n_states)
    _spread_row_into(giving, rows, p1)
    _spread_row_into(taking, rows, p)
    moved = _transport_cost(giving, taking, price, _by_value_descending(v_lower))
    return max(0.0, min(coupled, means + radii.discount * moved + slack))


charge_kernel = kernel_of(charge_of)


@bare
def count_charge(
    kind: int,
    p: int,
    p1: int,
    begin: Ints,
    length: Ints,
    successor: Ints,
    weight: Floats,
    total: Floats,
    reward_total: Floats,
    width: Floats,
    discount: float,
    top: float,
    worth: float,
    v_lower: Floats,
    lower_lane: int,
    v_upper: Floats,
    upper_lane: int,
) -> float:
    """Return the charge of pair p where the baseline plays p1, for bonuses that the counts give alone.

    `worth` is the upper value here; `v_lower` and `v_upper` are (S, lanes) of the next stage, one lane of
    each being read. Plain arrays, for speed: this is what every proposal of the shield costs.
    """
    q = 0.0
    if total[p] > 0.0:
        future = 0.0
        for i in range(begin[p], begin[p] + length[p]):
            future += weight[i] * v_lower[successor[i], lower_lane]
        q = (reward_total[p] + discount * future) / total[p]
        q = min(max(q - width[p], 0.0), top)
    whole = max(worth - q, 0.0)
    if kind == PAPER or total[p] == 0.0 or total[p1] == 0.0:
        return whole
    means = reward_total[p1] / total[p1] - reward_total[p] / total[p]
    gap = means + discount * shared_mass_gap(
        begin[p1],
        begin[p1] + length[p1],
        total[p1],
        begin[p],
        begin[p] + length[p],
        total[p],
        successor,
        weight,
        v_lower,
        lower_lane,
        v_upper,
        upper_lane,
    )
    return max(0.0, min(whole, gap + width[p1] + width[p]))


@bare
def shared_mass_gap(
    i: int,
    end_i: int,
    n_i: float,
    j: int,
    end_j: int,
    n_j: float,
    successor: Ints,
    weight: Floats,
    v_lower: Floats,
    lower_lane: int,
    v_upper: Floats,
    upper_lane: int,
) -> float:
    """Return the sum of w+ V_hi - w- V_lo, w the difference of two ascending rows, merging them."""
    total = 0.0
    while i < end_i or j < end_j:
        x_i = successor[i] if i < end_i else len(v_lower)
        x_j = successor[j] if j < end_j else len(v_lower)
        x = min(x_i, x_j)
        w = 0.0
        if x_i == x:
            w += weight[i] / n_i
            i += 1
        if x_j == x:
            w -= weight[j] / n_j
            j += 1
        total += w * (v_upper[x, upper_lane] if w > 0.0 else v_lower[x, lower_lane])
    return total


@inner
def differences_into(
    difference: Floats, rows: Rows, radii: Radii, plan: PlanArrays, scratch: Scratch
) -> None:
    """Fill D_t(x, y) >= V_t(x) - V_t(y) of the baseline, (H + 1, S, S), section 3."""
    horizon = radii.horizon
    n_states = len(rows.visits)
    difference[horizon] = 0.0
    dense = np.zeros((n_states, n_states))
    above, below = np.zeros(n_states), np.zeros(n_states)
    for t in range(horizon - 1, -1, -1):
        price = difference[t + 1]
        v_lower, v_upper = plan.v_lower[t + 1], plan.v_upper[t + 1]
        by_value = _by_value_descending(v_lower)
        for x in range(n_states):
            p = rows.pair_index[x, plan.baseline[t, x]] if not radii.terminal[x] else -1
            if p < 0 or rows.total[p] == 0.0:
                continue
            dense[x] = 0.0
            _spread_row_into(dense[x], rows, p)
            above[x] = _priced_error(rows, radii, p, UPPER, price, v_lower, v_upper, scratch)
            below[x] = _priced_error(rows, radii, p, LOWER, price, v_lower, v_upper, scratch)
        for x in range(n_states):
            p = rows.pair_index[x, plan.baseline[t, x]] if not radii.terminal[x] else -1
            for y in range(n_states):
                if x == y:
                    difference[t, x, y] = 0.0
                    continue
                bound = plan.v_upper[t, x] - plan.v_lower[t, y]
                o = rows.pair_index[y, plan.baseline[t, y]] if not radii.terminal[y] else -1
                if p >= 0 and o >= 0 and rows.total[p] > 0.0 and rows.total[o] > 0.0:
                    means = rows.reward_total[p] / rows.total[p] - rows.reward_total[o] / rows.total[o]
                    moved = _transport_cost(dense[x], dense[y], price, by_value)
                    bound = min(bound, means + radii.discount * moved + above[x] + below[y])
                difference[t, x, y] = bound


@inner
def _spread_row_into(dense: Floats, rows: Rows, p: int) -> None:
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        dense[rows.successor[i]] = rows.weight[i] / rows.total[p]


@inner
def _by_value_descending(v: Floats) -> Ints:
    """Return the states by value, descending, equal ones by index; insertion sort, for small S."""
    order = np.zeros(len(v), dtype=np.int64)
    for s in range(len(v)):
        j = s
        while j > 0 and v[order[j - 1]] < v[s]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = s
    return order


@inner
def _transport_cost(giving: Floats, taking: Floats, price: Floats, order: Ints) -> float:
    """Return the cost of turning one row into another at `price`, shared mass staying in place.

    Any plan bounds (giving - taking).V from above; this one pairs surplus and deficit in the order of value.
    """
    n = len(order)
    i, j = 0, 0
    surplus = max(giving[order[0]] - taking[order[0]], 0.0)
    deficit = max(taking[order[0]] - giving[order[0]], 0.0)
    total = 0.0
    while True:
        while surplus <= 0.0 and i < n - 1:
            i += 1
            surplus = max(giving[order[i]] - taking[order[i]], 0.0)
        while deficit <= 0.0 and j < n - 1:
            j += 1
            deficit = max(taking[order[j]] - giving[order[j]], 0.0)
        if surplus <= 0.0 or deficit <= 0.0:
            return total
        moved = min(surplus, deficit)
        total += moved * price[order[i], order[j]]
        surplus -= moved
        deficit -= moved


@inner
def _priced_error(
    rows: Rows,
    radii: Radii,
    p: int,
    side: int,
    price: Floats,
    v_lower: Floats,
    v_upper: Floats,
    scratch: Scratch,
) -> float:
    """Return how far the true backup may lie from the estimate, at D prices where the family is a ball."""
    if radii.family == L1 or radii.family == KL:
        radius = radii.reward_above[p] if side > 0 else radii.reward_below[p]
        return _priced_deviation(rows, radii, p, side, price, scratch) + radius
    nobody = np.zeros(0, dtype=np.int64)
    return deviation(rows, radii, p, side, v_lower, v_upper, nobody, nobody, scratch)


@inner
def _priced_deviation(rows: Rows, radii: Radii, p: int, side: int, price: Floats, scratch: Scratch) -> float:
    """Return what moving the ball's mass costs at D prices, the dearest donors first, over all receivers."""
    n = rows.total[p]
    begin, k = rows.begin[p], rows.length[p]
    radius = tail_mass(radii, p)
    any_receiver = k < radii.support[p]
    best = 0.0
    for z in range(len(rows.visits)):
        seen = contains(rows.successor, begin, begin + k, z)
        if not (seen or any_receiver):
            continue
        left = min(radius, 1.0)
        r_z = listed_reward(radii, p, z, side) if radii.known else 0.0
        for i in range(k):
            y = rows.successor[begin + i]
            r_y = rows.reward[begin + i] / rows.weight[begin + i] if radii.known else 0.0
            # Donors enter ascending by minus the price, so that the dearest comes first.
            gain = (
                r_z - r_y + radii.discount * price[z, y]
                if side > 0
                else r_y - r_z + radii.discount * price[y, z]
            )
            scratch.value[i] = gain
            scratch.mass[i] = rows.weight[begin + i] / n
            if y == z:
                scratch.value[i] = 0.0
                left = min(radius, 1.0 - scratch.mass[i])
        total = 0.0
        while left > 0.0:
            dearest = -1
            for i in range(k):
                if scratch.value[i] > 0.0 and (dearest < 0 or scratch.value[i] > scratch.value[dearest]):
                    dearest = i
            if dearest < 0:
                break
            moved = min(left, scratch.mass[dearest])
            total += moved * scratch.value[dearest]
            left -= moved
            scratch.value[dearest] = 0.0
        best = max(best, total)
    return best
