"""The charges in plain NumPy, over the bounds of `planner.py`: one function per formula, the kernels' oracle.

The formulas are those of docs/algorithm.md section 3: the amount that an action other than the
baseline's adds to the deficit, by eq. (4), coupled and by differences of values.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from chary.arrays import Floats, Ints
from chary.reference.planner import (
    Confidence,
    Solution,
    Tally,
    bernstein_bonus,
    bf_bonus,
    ch_bonus,
    frequencies,
    hoeffding_bonus,
    kl_budget,
    kl_reward_interval,
    l1_radius,
    l1_reward_radius,
    may_lose,
    reachable,
    reward_mean,
    shift_reward,
    step_variance,
    total,
    value_deviation,
    visits,
)

Side = Literal["above", "below"]


def deviation_bound(
    tally: Tally, confidence: Confidence, p: int, v_lower: Floats, v_upper: Floats, *, side: Side
) -> float:
    """Return b(s, a) of section 3, infinite for an unvisited pair.

    It bounds the amount by which the true backup of *any* V with v_lower <= V <= v_upper, both (S,), exceeds
    (`above`) or falls short of (`below`) the empirical one, Rh + gamma Ph.V.
    """
    n, family, gamma = visits(tally, p), confidence.bounds.family, confidence.setting.discount
    if n == 0:
        return math.inf
    if family == "hoeffding":
        return hoeffding_bonus(confidence, n, lossy=may_lose(tally, confidence, p))
    if family == "ch":
        return ch_bonus(confidence, n)
    sign = _sign(side)
    frequency = frequencies(tally, p)
    width = math.sqrt(total(frequency * (v_upper - v_lower) ** 2))
    if family == "bernstein":
        step = math.sqrt(step_variance(tally, confidence, p, v_upper, sign))
        return bernstein_bonus(confidence, n, step + gamma * width, lossy=may_lose(tally, confidence, p))
    if family == "bf":
        return bf_bonus(tally, confidence, p, value_deviation(frequency, v_upper) + width)
    reward = shift_reward(confidence, p, sign)
    gained, lost = (v_upper, v_lower) if sign > 0 else (-v_lower, -v_upper)
    price = (sign * reward + gamma * gained)[:, None] - (sign * reward + gamma * lost)[None, :]
    return _reward_radius(tally, confidence, p, side) + _shift_cost(tally, confidence, p, price)


def charge_paper(confidence: Confidence, lower: Solution, upper: Solution, t: int, s: int, a: int) -> float:
    """Return max(V_hi_t(s) - Q_lo_t(s, a), 0), eq. (4).

    `lower` and `upper` are the bounds of one baseline, `lower.policy`.
    """
    p = confidence.setting.pair_index[s, a]
    return max(float(upper.V[t, s] - lower.Q[t, p]), 0.0)


def charge_coupled(
    tally: Tally, confidence: Confidence, lower: Solution, upper: Solution, t: int, s: int, a: int
) -> float:
    """Return the coupled charge of section 3, 0 for the baseline's own action, never above eq. (4).

    max(0, min(paper, Rh(s,a1) - Rh(s,a) + gamma sum_x [w+ V_hi(x) - w- V_lo(x)] + b(s,a1) + b(s,a))) with
    a1 = pi_bar_t(s), w = Ph(.|s,a1) - Ph(.|s,a), V at t + 1. An unvisited pair is charged eq. (4).
    """
    setting = confidence.setting
    baseline = int(lower.policy[t, s])
    if a == baseline:
        return 0.0
    paper = charge_paper(confidence, lower, upper, t, s, a)
    p, q = int(setting.pair_index[s, baseline]), int(setting.pair_index[s, a])
    if visits(tally, p) == 0 or visits(tally, q) == 0:
        return paper
    v_lower, v_upper = lower.V[t + 1], upper.V[t + 1]
    w = frequencies(tally, p) - frequencies(tally, q)
    coupled = (
        reward_mean(tally, confidence, p, +1)
        - reward_mean(tally, confidence, q, -1)
        + setting.discount * total(np.where(w > 0, w * v_upper, w * v_lower))
        + deviation_bound(tally, confidence, p, v_lower, v_upper, side="above")
        + deviation_bound(tally, confidence, q, v_lower, v_upper, side="below")
    )
    return max(0.0, min(paper, coupled))


def charge_difference(
    tally: Tally,
    confidence: Confidence,
    lower: Solution,
    upper: Solution,
    D: Floats,
    t: int,
    s: int,
    a: int,
) -> float:
    """Return the difference charge of section 3, 0 for the baseline's own action.

    It is never above the coupled one. `D` is the result of `differences` for the same baseline, (H + 1, S,
    S).
    """
    setting = confidence.setting
    baseline = int(lower.policy[t, s])
    if a == baseline:
        return 0.0
    coupled = charge_coupled(tally, confidence, lower, upper, t, s, a)
    p, q = int(setting.pair_index[s, baseline]), int(setting.pair_index[s, a])
    if visits(tally, p) == 0 or visits(tally, q) == 0:
        return coupled
    return max(
        0.0, min(coupled, _pair_difference(tally, confidence, p, q, D[t + 1], lower.V[t + 1], upper.V[t + 1]))
    )


def differences(
    tally: Tally, confidence: Confidence, policy: Ints, v_lower: Floats, v_upper: Floats
) -> Floats:
    """Return D_t(x, y) >= V_t(x) - V_t(y) for the values V of `policy`, (H + 1, S, S); section 3.

    D_t(x, y) = min(V_hi(x) - V_lo(y), the difference of the two rows' backups at D_{t+1}), 0 on the
    diagonal; for a terminal state or an unvisited row it is the first term. `v_lower` and
    `v_upper` are (H + 1, S).
    """
    setting = confidence.setting
    H, S = setting.horizon, setting.n_states
    D = np.zeros((H + 1, S, S))
    # 0 but for states that stand for lost outcomes.
    D[H] = np.where(np.eye(S, dtype=bool), 0.0, v_upper[H][:, None] - v_lower[H][None, :])
    for t in reversed(range(H)):
        for x in range(S):
            for y in range(S):
                if x == y:
                    continue
                D[t, x, y] = v_upper[t, x] - v_lower[t, y]
                if setting.terminal[x] or setting.terminal[y]:
                    continue
                p, q = (int(setting.pair_index[z, policy[t, z]]) for z in (x, y))
                if visits(tally, p) > 0 and visits(tally, q) > 0:
                    rows = _pair_difference(tally, confidence, p, q, D[t + 1], v_lower[t + 1], v_upper[t + 1])
                    D[t, x, y] = min(D[t, x, y], rows)
    return D


def transport_cost(first: Floats, second: Floats, D: Floats, order: Floats) -> float:
    """Return T(Ph_x, Ph_y; D) of section 3: an upper bound on (Ph_x - Ph_y).V when V(i) - V(j) <= D(i, j).

    Shared mass stays where it is; what `first` has more is matched to what `second` has more, both
    taken by `order` descending (ties: the lower index first), north-west corner.
    """
    ranked = np.argsort(-order, kind="stable")
    surplus, deficit = np.maximum(first - second, 0.0), np.maximum(second - first, 0.0)
    givers = [int(i) for i in ranked if surplus[i] > 0]
    takers = [int(j) for j in ranked if deficit[j] > 0]
    cost, g, k = 0.0, 0, 0
    while g < len(givers) and k < len(takers):
        i, j = givers[g], takers[k]
        mass = min(surplus[i], deficit[j])
        cost += mass * D[i, j]
        surplus[i] -= mass
        deficit[j] -= mass
        # A remainder of rounding is not mass: each side that is used up moves to its next state.
        g, k = g + int(surplus[i] <= 0), k + int(deficit[j] <= 0)
    return float(cost)


def row_uncertainty(
    tally: Tally, confidence: Confidence, p: int, D: Floats, v_lower: Floats, v_upper: Floats, *, side: Side
) -> float:
    """Return c_r + gamma dev+ (`above`) or c_r + gamma dev- (`below`) of section 3, at prices D_{t+1}.

    Mass moved from y to z is worth V(z) - V(y) <= D(z, y) above, and V(y) - V(z) <= D(y, z) below;
    known rewards move with it. If the family has no ball, the row's `deviation_bound` replaces
    both terms.
    """
    if confidence.bounds.family not in ("l1", "kl"):
        return deviation_bound(tally, confidence, p, v_lower, v_upper, side=side)
    sign = _sign(side)
    reward = sign * shift_reward(confidence, p, sign)
    price = reward[:, None] - reward[None, :] + confidence.setting.discount * (D if sign > 0 else D.T)
    return _reward_radius(tally, confidence, p, side) + _shift_cost(tally, confidence, p, price)


def _pair_difference(
    tally: Tally, confidence: Confidence, p: int, q: int, D: Floats, v_lower: Floats, v_upper: Floats
) -> float:
    """Bound the backup of pair p minus that of pair q at the same V_{t+1}; section 3, `difference`."""
    moved = transport_cost(frequencies(tally, p), frequencies(tally, q), D, v_lower)
    return (
        reward_mean(tally, confidence, p, +1)
        - reward_mean(tally, confidence, q, -1)
        + confidence.setting.discount * moved
        + row_uncertainty(tally, confidence, p, D, v_lower, v_upper, side="above")
        + row_uncertainty(tally, confidence, q, D, v_lower, v_upper, side="below")
    )


def _shift_cost(tally: Tally, confidence: Confidence, p: int, price: Floats) -> float:
    """Return the most that moving eps/2 of the row's mass can cost; `price[z, y]`: from y to z, per unit.

    One receiver is enough: two could be merged into the more expensive one, since neither gives. Only
    positive prices count.
    """
    frequency = frequencies(tally, p)
    radius = _ball_radius(tally, confidence, p)
    worst = 0.0
    for z in np.flatnonzero(reachable(tally, confidence, p)):
        left, cost = min(radius / 2, 1.0 - float(frequency[z])), 0.0
        for y in sorted(np.flatnonzero(frequency), key=lambda y, z=z: -price[z, y]):  # type: ignore[misc]
            if y == z:
                continue
            if left <= 0 or price[z, y] <= 0:
                break
            moved = min(left, float(frequency[y]))
            cost += moved * float(price[z, y])
            left -= moved
        worst = max(worst, cost)
    return worst


def _ball_radius(tally: Tally, confidence: Confidence, p: int) -> float:
    """Return eps of the row, for `kl` through Pinsker: min(2, sqrt(2 beta / n)); section 3."""
    n = visits(tally, p)
    if confidence.bounds.family == "l1":
        return l1_radius(confidence, p, n)
    return min(2.0, math.sqrt(2 * kl_budget(tally, confidence, p) / n))


def _reward_radius(tally: Tally, confidence: Confidence, p: int, side: Side) -> float:
    """Return the largest distance of the true mean reward above or below Rh; 0 if rewards are known."""
    if confidence.setting.known is not None:
        return 0.0
    if confidence.bounds.family == "l1":
        return l1_reward_radius(confidence, visits(tally, p))
    mean = reward_mean(tally, confidence, p, _sign(side))
    low, high = kl_reward_interval(tally, confidence, p)
    return high - mean if side == "above" else mean - low


def _sign(side: Side) -> int:
    return 1 if side == "above" else -1
