"""One backup of one pair under each family of bounds, section 5, and its error over a box, section 3."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from chary._compile import bare, inner
from chary.arrays import Floats, Ints
from chary.model.radii import BERNSTEIN, BF, KL, L1, Radii, additive, has_lost
from chary.model.rows import Rows, find_place

# The direction of a bound. NumPy scalars, since numba compiles a kernel again for each literal it is called
# with.
UPPER: int = np.int64(1)  # type: ignore[assignment]
LOWER: int = np.int64(-1)  # type: ignore[assignment]


# The root nu of a KL backup: relative precision, well above the rounding of f, and the most steps to it.
NU_PRECISION = 1e-12
MOST_STEPS = 100


class Scratch(NamedTuple):
    """Room for one row while it is being solved; shape (S + 1,) each."""

    value: Floats
    loss: Floats
    mass: Floats
    place: Ints


def new_scratch(n_states: int) -> Scratch:
    """Return room for rows of an MDP with `n_states` states."""
    n = n_states + 1
    return Scratch(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64))


@inner
def sorted_states(radii: Radii, v: Floats) -> Ints:
    """Return the states by value, ascending, where the family needs it."""
    if radii.family == L1 or radii.family == KL:
        return np.argsort(v)
    return np.zeros(0, dtype=np.int64)


@bare
def expected_backup(
    begin: int,
    end: int,
    successor: Ints,
    weight: Floats,
    reward_total: float,
    n: float,
    discount: float,
    v_next: Floats,
) -> float:
    """Return (rsum + gamma * sum_x n_x V'(x)) / N, successors ascending; plain arrays, for speed."""
    future = 0.0
    for i in range(begin, end):
        future += weight[i] * v_next[successor[i]]
    return (reward_total + discount * future) / n


@inner
def backup(
    rows: Rows, radii: Radii, p: int, t: int, sign: int, v_next: Floats, order: Ints, scratch: Scratch
) -> float:
    """Return Q_t(s, a) of pair p with the bonus in direction `sign`, clipped to [0, vmax_t].

    `order` sorts the states by v_next, ascending; only `l1` and `kl` read it.
    """
    n = rows.total[p]
    if n == 0.0:
        return radii.vmax[t] if sign > 0 else 0.0
    if radii.family == L1 or radii.family == KL:
        q = _worst_case(rows, radii, p, sign, v_next, order, scratch)
    else:
        begin = rows.begin[p]
        end = begin + rows.length[p]
        q = expected_backup(
            begin, end, rows.successor, rows.weight, rows.reward_total[p], n, radii.discount, v_next
        )
        if additive(radii.family):
            q += sign * radii.width[p]
        elif radii.family == BERNSTEIN or radii.family == BF:
            q += sign * _variance_bonus(rows, radii, p, v_next)
    return min(max(q, 0.0), radii.vmax[t])


@inner
def _variance_bonus(rows: Rows, radii: Radii, p: int, v_next: Floats) -> float:
    """Return the `bernstein` bonus (variance of r + gamma V') or the `bf` one (variance of V' alone)."""
    n = rows.total[p]
    deviation = _deviation_of_value(rows, radii, p, v_next)
    if radii.family == BERNSTEIN:
        return radii.width[p] + radii.scale * math.sqrt(2.0 * radii.log_term / n) * deviation
    return radii.width[p] + radii.scale * (
        math.sqrt(8.0 * radii.log_term / n) * deviation + _unseen_term(rows, radii, p)
    )


@inner
def _deviation_of_value(rows: Rows, radii: Radii, p: int, v_next: Floats) -> float:
    """Return the empirical standard deviation of r + gamma V' (`bf`: of V')."""
    n = rows.total[p]
    begin, end = rows.begin[p], rows.begin[p] + rows.length[p]
    successor, weight, reward = rows.successor, rows.weight, rows.reward
    with_reward = radii.family == BERNSTEIN
    gamma = radii.discount if with_reward else 1.0
    mean = 0.0
    for i in range(begin, end):
        r = reward[i] if with_reward else 0.0
        mean += r + gamma * weight[i] * v_next[successor[i]]
    mean /= n
    variance = radii.spread[p] if with_reward else 0.0
    for i in range(begin, end):
        r = reward[i] / weight[i] if with_reward else 0.0
        away = r + gamma * v_next[successor[i]] - mean
        variance += weight[i] / n * away * away
    return math.sqrt(variance)


@inner
def _unseen_term(rows: Rows, radii: Radii, p: int) -> float:
    """Return UCBVI-BF's last term: what the successors' own uncertainty adds."""
    n = rows.total[p]
    H = radii.horizon
    n_states = len(rows.visits)
    top = 100.0**2 * float(H) ** 3 * float(n_states) ** 2 * radii.n_actions * radii.log_term**2
    total = 0.0
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        x = rows.successor[i]
        if not radii.terminal[x]:
            total += rows.weight[i] / n * min(top / max(1.0, rows.visits[x]), float(H) ** 2)
    return math.sqrt(8.0 * total / n)


@inner
def contains(ascending: Ints, begin: int, end: int, x: int) -> bool:
    """Return whether x is among the entries begin..end-1."""
    place = find_place(ascending, begin, end, x)
    return place < end and ascending[place] == x


@inner
def listed_reward(radii: Radii, p: int, x: int, sign: int) -> float:
    """Return the declared reward of moving to x, or the most (`sign` > 0) or least of an undeclared one."""
    end = radii.known_begin[p + 1]
    place = find_place(radii.known_successor, radii.known_begin[p], end, x)
    if place < end and radii.known_successor[place] == x:
        return radii.known_reward[place]
    return radii.other_high[p] if sign > 0 else radii.other_low[p]


@inner
def seen_reward(rows: Rows, radii: Radii, p: int, i: int, sign: int) -> float:
    """Return the known reward of entry i of pair p, or the most (`sign` > 0) or least where it is not listed.

    For `l1` and `kl`, which pay nothing for known rewards: the mean observed would be taken for exact.
    """
    x = rows.successor[i]
    if radii.other_low[p] < radii.other_high[p] and x < radii.lost_from:
        if not contains(radii.known_successor, radii.known_begin[p], radii.known_begin[p + 1], x):
            return radii.other_high[p] if sign > 0 else radii.other_low[p]
    return rows.reward[i] / rows.weight[i]


@inner
def mean_reward(rows: Rows, radii: Radii, p: int, sign: int) -> float:
    """Return Rh(s, a) of pair p, with `seen_reward` where the family is a ball and rewards are known."""
    total = rows.reward_total[p]
    ball = radii.family == L1 or radii.family == KL
    if radii.known and ball and radii.other_low[p] < radii.other_high[p]:
        for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
            x = rows.successor[i]
            listed = contains(radii.known_successor, radii.known_begin[p], radii.known_begin[p + 1], x)
            if x < radii.lost_from and not listed:
                other = radii.other_high[p] if sign > 0 else radii.other_low[p]
                total += rows.weight[i] * other - rows.reward[i]
    return total / rows.total[p]


@inner
def may_lose_first(radii: Radii, rows: Rows, p: int) -> bool:
    """Return whether pair p may lose an outcome and has not lost any."""
    return radii.losses and not has_lost(radii, rows, p)


@inner
def may_surprise(radii: Radii, rows: Rows, p: int) -> bool:
    """Return whether pair p may lead to a state that it was not seen to lead to, losses apart."""
    lost = has_lost(radii, rows, p)
    seen = rows.length[p] - (1 if lost else 0)
    return seen < radii.support[p] - (1 if lost or radii.losses else 0)


@inner
def _best_unobserved(rows: Rows, radii: Radii, p: int, sign: int, v_next: Floats, order: Ints) -> float:
    """Return the largest sign * (r + gamma V') among successors never seen, -inf if there can be none."""
    best = -math.inf
    discount = radii.discount
    if may_lose_first(radii, rows, p):
        best = sign * discount * v_next[radii.lost_from]
    if not may_surprise(radii, rows, p):
        return best
    seen, begin, end = rows.successor, rows.begin[p], rows.begin[p] + rows.length[p]
    listed, rewards = radii.known_successor, radii.known_reward
    listed_begin, listed_end = radii.known_begin[p], radii.known_begin[p + 1]
    place = begin
    for i in range(listed_begin, listed_end):
        x = listed[i]
        while place < end and seen[place] < x:
            place += 1
        if place == end or seen[place] != x:
            best = max(best, sign * (rewards[i] + discount * v_next[x]))
    n_states = len(v_next)
    if listed_end - listed_begin == radii.lost_from:
        return best
    other = radii.other_high[p] if sign > 0 else radii.other_low[p]
    for i in range(n_states):
        x = order[n_states - 1 - i] if sign > 0 else order[i]
        if x >= radii.lost_from:
            continue
        if not contains(seen, begin, end, x) and not contains(listed, listed_begin, listed_end, x):
            return max(best, sign * (other + discount * v_next[x]))
    return best


@inner
def _worst_case(
    rows: Rows, radii: Radii, p: int, sign: int, v_next: Floats, order: Ints, scratch: Scratch
) -> float:
    """Return the largest (`sign` > 0) or smallest backup over the confidence ball of pair p, exactly."""
    n = rows.total[p]
    begin = rows.begin[p]
    k = rows.length[p]
    successor, weight = rows.successor, rows.weight
    value, mass = scratch.value, scratch.mass
    for i in range(k):
        r = seen_reward(rows, radii, p, begin + i, sign) if radii.known else 0.0
        value[i] = sign * (r + radii.discount * v_next[successor[begin + i]])
        mass[i] = weight[begin + i] / n
    unseen = _best_unobserved(rows, radii, p, sign, v_next, order)
    if radii.family == L1:
        best = _l1_maximum(k, unseen, radii.width[p] / 2.0, scratch)
    else:
        best = _kl_maximum(k, unseen, radii.width[p], scratch)
    if radii.known:
        return sign * best
    reward = rows.reward_total[p] / n
    return sign * best + reward + (radii.reward_above[p] if sign > 0 else -radii.reward_below[p])


@inner
def _sort_places_into(place: Ints, k: int, key: Floats) -> None:
    """Sort 0..k-1 by key, ascending; insertion sort, since rows are short."""
    for i in range(k):
        j = i
        while j > 0 and key[place[j - 1]] > key[i]:
            place[j] = place[j - 1]
            j -= 1
        place[j] = i


@inner
def _l1_maximum(k: int, unseen: float, radius: float, scratch: Scratch) -> float:
    """Return max q.u over half the L1 distance <= radius: fill the best, empty the worst."""
    value, mass, place = scratch.value, scratch.mass, scratch.place
    _sort_places_into(place, k, value)
    top = place[k - 1]
    total = 0.0
    for i in range(k):
        total += mass[i] * value[i]
    if unseen > value[top]:
        receive = unseen
        left = min(radius, 1.0)
        donors = k
    else:
        receive = value[top]
        left = min(radius, 1.0 - mass[top])
        donors = k - 1
    for j in range(donors):
        if left <= 0.0:
            break
        moved = min(left, mass[place[j]])
        total += moved * (receive - value[place[j]])
        left -= moved
    return total


@inner
def _kl_maximum(k: int, unseen: float, divergence: float, scratch: Scratch) -> float:
    """Return max q.u over sum_x p_x ln(p_x / q_x) <= divergence, by its dual.

    The maximiser is q_x proportional to p_x / (nu - u_x), where nu solves
    f(nu) = sum p ln(nu - u) + ln sum p / (nu - u) = divergence, unless a successor never seen is worth more
    than nu: then nu is its worth and it takes the mass 1 - exp(f(nu) - divergence). f is convex and falls.
    """
    value, mass = scratch.value, scratch.mass
    top, mean, variance = -math.inf, 0.0, 0.0
    for i in range(k):
        top = max(top, value[i])
    below = 0.0
    for i in range(k):
        # Measured from the best value, nu keeps its precision where it is close to it.
        value[i] -= top
        below = min(below, value[i])
        mean += mass[i] * value[i]
    if divergence <= 0.0:
        return top + mean
    low, high = 0.0, math.inf
    if unseen > top:
        low = unseen - top
        f, _ = _dual(low, k, value, mass)
        if f < divergence:
            weight = math.exp(f - divergence)
            return unseen - weight * (low - _tilted_mean(low, k, value, mass))
        nu = low
    else:
        if below >= -1e-15 * max(1.0, abs(top)):
            return top
        for i in range(k):
            variance += mass[i] * (value[i] - mean) ** 2
        # Far from the values f(nu) is about variance / (2 (nu - mean)^2).
        nu = max(mean + math.sqrt(variance / (2.0 * divergence)), -1e-3 * below)
    for _ in range(MOST_STEPS):
        f, slope = _dual(nu, k, value, mass)
        if f > divergence:
            low = nu
        else:
            high = nu
        # Newton in ln(nu), in which f is nearly straight where nu is close to the best value.
        step = nu * math.exp(-(f - divergence) / (slope * nu))
        if not low < step < high:
            step = 0.5 * (low + high) if high < math.inf else 2.0 * nu
        if abs(step - nu) <= NU_PRECISION * nu:
            break
        nu = step
    return top + _tilted_mean(nu, k, value, mass)


@inner
def _dual(nu: float, k: int, value: Floats, mass: Floats) -> tuple[float, float]:
    """Return f(nu) and its derivative."""
    logs, first, second = 0.0, 0.0, 0.0
    for i in range(k):
        room = nu - value[i]
        logs += mass[i] * math.log(room)
        first += mass[i] / room
        second += mass[i] / (room * room)
    return logs + math.log(first), first - second / first


@inner
def _tilted_mean(nu: float, k: int, value: Floats, mass: Floats) -> float:
    """Return the mean of u under q_x proportional to p_x / (nu - u_x)."""
    total, weighted = 0.0, 0.0
    for i in range(k):
        q = mass[i] / (nu - value[i])
        total += q
        weighted += q * value[i]
    return weighted / total


@inner
def tail_mass(radii: Radii, p: int) -> float:
    """Return how much probability the ball of pair p can move: half its L1 radius (`kl`: by Pinsker)."""
    if radii.family == KL:
        return 0.5 * min(2.0, math.sqrt(2.0 * max(radii.width[p], 0.0)))
    return 0.5 * radii.width[p]


@inner
def deviation(
    rows: Rows, radii: Radii, p: int, side: int, v_lower: Floats, v_upper: Floats, scratch: Scratch
) -> float:
    """Return b(s, a) of section 3: how far the true backup of any V in the box may lie from the estimate.

    `side` > 0 bounds truth - estimate, `side` < 0 estimate - truth.
    """
    if additive(radii.family):
        return radii.width[p]
    if radii.family == BERNSTEIN or radii.family == BF:
        return _box_variance_bonus(rows, radii, p, v_lower, v_upper)
    n = rows.total[p]
    begin = rows.begin[p]
    k = rows.length[p]
    for i in range(k):
        x = rows.successor[begin + i]
        r = seen_reward(rows, radii, p, begin + i, side) if radii.known else 0.0
        low = r + radii.discount * v_lower[x]
        high = r + radii.discount * v_upper[x]
        scratch.value[i] = high if side > 0 else -low
        scratch.loss[i] = low if side > 0 else -high
        scratch.mass[i] = rows.weight[begin + i] / n
    v = v_upper if side > 0 else v_lower
    unseen = _best_unobserved(rows, radii, p, side, v, sorted_states(radii, v))
    moved = _box_maximum(k, unseen, tail_mass(radii, p), scratch)
    return moved + (radii.reward_above[p] if side > 0 else radii.reward_below[p])


@inner
def _box_variance_bonus(rows: Rows, radii: Radii, p: int, v_lower: Floats, v_upper: Floats) -> float:
    """Return the variance bonus with sd(V') replaced by its bound sd(V_hi) + sqrt(Ph.(V_hi - V_lo)^2)."""
    n = rows.total[p]
    gap = 0.0
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        x = rows.successor[i]
        gap += rows.weight[i] / n * (v_upper[x] - v_lower[x]) ** 2
    gamma = radii.discount if radii.family == BERNSTEIN else 1.0
    factor = 2.0 if radii.family == BERNSTEIN else 8.0
    extra = radii.scale * math.sqrt(factor * radii.log_term / n) * gamma * math.sqrt(gap)
    return _variance_bonus(rows, radii, p, v_upper) + extra


@inner
def _box_maximum(k: int, unseen: float, radius: float, scratch: Scratch) -> float:
    """Return the most that moving `radius` of mass gains, each receiver tried, donors the cheapest first."""
    value, loss, mass, place = scratch.value, scratch.loss, scratch.mass, scratch.place
    _sort_places_into(place, k, loss)
    best = 0.0
    for receiver in range(-1, k):
        if receiver < 0:
            receive, left = unseen, min(radius, 1.0)
        else:
            receive, left = value[receiver], min(radius, 1.0 - mass[receiver])
        gain = 0.0
        for j in range(k):
            donor = place[j]
            if left <= 0.0 or loss[donor] >= receive:
                break
            if donor == receiver:
                continue
            moved = min(left, mass[donor])
            gain += moved * (receive - loss[donor])
            left -= moved
        best = max(best, gain)
    return best
