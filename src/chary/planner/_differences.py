"""Differences of values, D_t(x, y) >= V_t(x) - V_t(y) of the baseline, section 3: the charge `difference`."""

from __future__ import annotations

import numpy as np

from chary._compile import inner
from chary.arrays import Floats, Ints
from chary.model.radii import KL, L1, Radii
from chary.model.rows import Rows
from chary.planner._backup import (
    LOWER,
    UPPER,
    Scratch,
    contains,
    deviation,
    listed_reward,
    may_lose_first,
    may_surprise,
    mean_reward,
    seen_reward,
    tail_mass,
)


@inner
def differences_into(
    difference: Floats,
    rows: Rows,
    radii: Radii,
    v_lower: Floats,
    v_upper: Floats,
    baseline: Ints,
    scratch: Scratch,
) -> None:
    """Fill D_t(x, y) of the baseline (H, S) with values (H + 1, S); `difference` has shape (H + 1, S, S)."""
    horizon = radii.horizon
    n_states = len(rows.visits)
    difference[horizon] = 0.0
    for x in range(radii.lost_from, n_states):
        difference[horizon, x] = v_upper[horizon, x]
        difference[horizon, x, x] = 0.0
    dense = np.zeros((n_states, n_states))
    above, below = np.zeros(n_states), np.zeros(n_states)
    # The pair that the baseline plays, -1 where there is none or it was never played.
    pair = np.zeros(n_states, dtype=np.int64)
    for t in range(horizon - 1, -1, -1):
        price, lower, upper = difference[t + 1], v_lower[t + 1], v_upper[t + 1]
        by_value = _by_value_descending(lower)
        for x in range(n_states):
            p = rows.pair_index[x, baseline[t, x]] if not radii.terminal[x] else -1
            pair[x] = p if p >= 0 and rows.total[p] > 0.0 else -1
            if pair[x] >= 0:
                dense[x] = 0.0
                _spread_row_into(dense[x], rows, p)
                above[x] = _priced_error(rows, radii, p, UPPER, price, lower, upper, scratch)
                below[x] = _priced_error(rows, radii, p, LOWER, price, lower, upper, scratch)
        for x in range(n_states):
            for y in range(n_states):
                if x == y:
                    difference[t, x, y] = 0.0
                    continue
                bound = v_upper[t, x] - v_lower[t, y]
                p, o = pair[x], pair[y]
                if p >= 0 and o >= 0:
                    means = mean_reward(rows, radii, p, UPPER) - mean_reward(rows, radii, o, LOWER)
                    moved = _transport_cost(dense[x], dense[y], price, by_value)
                    bound = min(bound, means + radii.discount * moved + above[x] + below[y])
                difference[t, x, y] = bound


@inner
def row_difference(
    rows: Rows,
    radii: Radii,
    p: int,
    o: int,
    price: Floats,
    v_lower: Floats,
    v_upper: Floats,
    scratch: Scratch,
) -> tuple[float, float]:
    """Return what turning the row of pair p into that of o costs at `price`, and how far both may be off."""
    slack = _priced_error(rows, radii, p, UPPER, price, v_lower, v_upper, scratch)
    slack += _priced_error(rows, radii, o, LOWER, price, v_lower, v_upper, scratch)
    n_states = len(rows.visits)
    giving, taking = np.zeros(n_states), np.zeros(n_states)
    _spread_row_into(giving, rows, p)
    _spread_row_into(taking, rows, o)
    return _transport_cost(giving, taking, price, _by_value_descending(v_lower)), slack


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
    return deviation(rows, radii, p, side, v_lower, v_upper, scratch)


@inner
def _priced_deviation(rows: Rows, radii: Radii, p: int, side: int, price: Floats, scratch: Scratch) -> float:
    """Return what moving the ball's mass costs at D prices, the dearest donors first, over all receivers."""
    n = rows.total[p]
    begin, k = rows.begin[p], rows.length[p]
    radius = tail_mass(radii, p)
    any_receiver, first_loss = may_surprise(radii, rows, p), may_lose_first(radii, rows, p)
    best = 0.0
    for z in range(len(rows.visits)):
        seen = contains(rows.successor, begin, begin + k, z)
        lost = z >= radii.lost_from
        if not (seen or (any_receiver and not lost) or (first_loss and z == radii.lost_from)):
            continue
        left = min(radius, 1.0)
        r_z = listed_reward(radii, p, z, side) if radii.known and not lost else 0.0
        for i in range(k):
            y = rows.successor[begin + i]
            r_y = seen_reward(rows, radii, p, begin + i, side) if radii.known else 0.0
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
