"""The planner in plain NumPy: slow, one function per formula, the oracle of the kernels.

The formulas are those of docs/algorithm.md: section 5 (bounds and planning) and section 9 (UCBVI's own
bonuses); the charges are in `charges.py`. Successors are summed in ascending order, as defined in section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from chary.arrays import Bools, Floats, Ints
from chary.mdp import FiniteMDP, Setting
from chary.model.bounds import Bounds

# exp(700) is about the largest power of e in float64; beyond it the dual optimum is an end point.
LOG_RANGE = 700.0


class Tally(NamedTuple):
    """The observations, dense over the P allowed pairs and S successors; rewards are scaled."""

    counts: Floats  # (P, S): n_x, the number of transitions from the pair to x
    rewards: Floats  # (P, S): the sum of the rewards on those transitions
    squares: Floats  # (P,): the sum of the squared rewards


class Solution(NamedTuple):
    """Values of one backward induction; terminal states are worth 0 and play action 0."""

    V: Floats  # (H + 1, S)
    Q: Floats  # (H, P)
    policy: Ints  # (H, S) actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """The parameters of bounds: the problem's shape, the family and the number of episodes."""

    setting: Setting
    bounds: Bounds
    episodes: int  # N_episodes, the online ones
    total_episodes: int  # warm-up and online
    # Section 11: state lost_from + p stands for the lost outcomes of pair p; None where nothing is lost. With
    # `losses` every pair may lose outcomes, and its support includes them.
    lost_from: int | None = None
    losses: bool = False

    @property
    def log_term(self) -> float:
        """L = ln(5 S A H N_episodes / delta), section 5."""
        told, first = self.setting, self.lost_from
        return self.bounds.log_term(told if first is None else replace(told, n_states=first), self.episodes)

    @property
    def max_visits(self) -> int:
        """n_max = all episodes * H, section 5."""
        return self.total_episodes * self.setting.horizon

    @property
    def value_bound(self) -> float:
        """vmax_0, section 5."""
        return float(self.setting.value_bounds[0])


def total(terms: Iterable[float]) -> float:
    """Return the sum of the terms, in their order."""
    # One by one from the left: np.sum adds in pairs and Python's sum compensates (3.12).
    result = 0.0
    for term in terms:
        result += float(term)
    return result


def visits(tally: Tally, p: int) -> float:
    """Return N(s, a) of pair `p`."""
    return total(tally.counts[p])


def frequencies(tally: Tally, p: int) -> Floats:
    """Return Ph(. | s, a) of a visited pair, (S,); section 3, "Policy construction"."""
    return np.asarray(tally.counts[p] / visits(tally, p))


def declared_reward(setting: Setting, p: int, sign: int) -> Floats:
    """Return the declared r(s, a, x) of pair `p` for every x, (S,).

    If none is listed, the largest (`sign` +1) or the smallest (-1) possible reward.
    """
    known = setting.known
    assert known is not None
    other = known.other_high[p] if sign > 0 else known.other_low[p]
    reward = np.full(setting.n_states, other)
    listed = slice(known.start[p], known.start[p + 1])
    reward[known.successor[listed]] = known.reward[listed]
    return reward


def shift_reward(confidence: Confidence, p: int, sign: int) -> Floats:
    """Return the rewards that move with transition mass, (S,): the declared ones, otherwise 0."""
    if confidence.setting.known is None:
        return np.zeros(confidence.setting.n_states)
    return declared_reward(confidence.setting, p, sign)


def reward_mean(tally: Tally, confidence: Confidence, p: int, sign: int) -> float:
    """Return Rh(s, a) of a visited pair: the mean observed reward, or the declared one under Ph."""
    return _reward_sum(tally, confidence, p, sign) / visits(tally, p)


def reachable(tally: Tally, confidence: Confidence, p: int) -> Bools:
    """Return the possible successors, (S,): all states while fewer than K were observed, otherwise those."""
    observed, first = tally.counts[p] > 0, confidence.lost_from
    if first is None:
        return np.asarray(observed | (observed.sum() < confidence.setting.support[p]))
    own = first + p
    may_lose = bool(observed[own]) or confidence.losses
    reach = observed.copy()
    reach[:first] |= observed[:first].sum() < confidence.setting.support[p] - may_lose
    reach[own] = may_lose
    return np.asarray(reach)


def may_lose(tally: Tally, confidence: Confidence, p: int) -> bool:
    """Return whether the bounds of a pair allow for lost outcomes, section 10."""
    first = confidence.lost_from
    return first is not None and (confidence.losses or bool(tally.counts[p, first + p] > 0))


def _most(confidence: Confidence, lossy: bool) -> float:
    """Return vmax_0, or what a lost outcome may be worth: its unknown reward is part of it."""
    return confidence.value_bound + (1.0 / confidence.setting.discount if lossy else 0.0)


def hoeffding_bonus(confidence: Confidence, n: float, *, lossy: bool = False) -> float:
    """Return scale * 4 max(1, vmax_0) sqrt(S L / max(1, N)), section 5.

    A `lossy` pair has one successor more, worth the most.
    """
    first, L = confidence.lost_from, confidence.log_term
    S = (confidence.setting.n_states if first is None else first) + lossy
    # Values may be capped below 1, but a reward in [0, 1] still fluctuates by 1.
    width = max(1.0, _most(confidence, lossy))
    return confidence.bounds.scale * 4 * width * math.sqrt(S * L / max(1.0, n))


def step_variance(tally: Tally, confidence: Confidence, p: int, value: Floats, sign: int) -> float:
    """Return Var(r + gamma V') under the empirical joint distribution of (r, x), never below 0; section 5."""
    n, gamma = visits(tally, p), confidence.setting.discount
    seen = tally.counts[p] > 0
    counts = tally.counts[p][seen]
    if _observed(tally, confidence, p):
        rewards = tally.rewards[p][seen]
        within = float(tally.squares[p]) - total(rewards**2 / counts)
    else:
        rewards = counts * declared_reward(confidence.setting, p, sign)[seen]
        within = 0.0
    # Around the mean: the difference of two second moments would leave 1e-8 of rounding in the root.
    worth = rewards / counts + gamma * value[seen]
    mean = total(counts * worth) / n
    return (max(0.0, within) + total(counts * (worth - mean) ** 2)) / n


def value_deviation(frequency: Floats, value: Floats) -> float:
    """Return sd_Ph(V')."""
    mean = total(frequency * value)
    return math.sqrt(total(frequency * (value - mean) ** 2))


def bernstein_bonus(confidence: Confidence, n: float, deviation: float, *, lossy: bool = False) -> float:
    """Return scale * (sqrt(2 L / N) sd + 7 vmax_0 L / (3 max(1, N - 1))), sd = `deviation`; section 5."""
    L = confidence.log_term
    lower_order = 7 * _most(confidence, lossy) * L / (3 * max(1.0, n - 1))
    return confidence.bounds.scale * (math.sqrt(2 * L / n) * deviation + lower_order)


def ch_bonus(confidence: Confidence, n: float) -> float:
    """Return scale * 7 H L / sqrt(N), UCBVI-CH; section 9."""
    return confidence.bounds.scale * 7 * confidence.setting.horizon * confidence.log_term / math.sqrt(n)


def bf_bonus(tally: Tally, confidence: Confidence, p: int, deviation: float) -> float:
    """Return UCBVI-BF's bonus with sd(V') = `deviation`, section 9.

    scale * (sqrt(8 L / N) sd + 14 H L / (3 N)
    + sqrt(8 sum_y Ph(y) min(100^2 H^3 S^2 A L^2 / N'(y), H^2) / N)), where N'(y) are the visits of y; a
    terminal y adds nothing, since its value is known.
    """
    setting, L, n = confidence.setting, confidence.log_term, visits(tally, p)
    H, S, A = setting.horizon, setting.n_states, setting.n_actions
    spread = 0.0
    for y in np.flatnonzero((tally.counts[p] > 0) & ~setting.terminal):
        pairs = range(int(setting.pair_start[y]), int(setting.pair_start[y + 1]))
        seen = max(1.0, total(visits(tally, q) for q in pairs))
        spread += tally.counts[p, y] / n * min(100**2 * H**3 * S**2 * A * L**2 / seen, H**2)
    first = math.sqrt(8 * L / n) * deviation
    return float(confidence.bounds.scale * (first + 14 * H * L / (3 * n) + math.sqrt(8 * spread / n)))


def l1_radius(confidence: Confidence, p: int, n: float) -> float:
    """Return eps = min(2, sqrt(2 [ln(2^K - 2) + ln(2 pairs n_max / delta)] / n)), 0 if K = 1; section 5."""
    K = int(confidence.setting.support[p])
    if K == 1:
        return 0.0
    subsets = K * math.log(2) + math.log1p(-(2.0 ** (1 - K)))
    union = math.log(2 * confidence.setting.n_pairs * confidence.max_visits / confidence.bounds.delta)
    return min(2.0, math.sqrt(2 * (subsets + union) / n))


def l1_reward_radius(confidence: Confidence, n: float) -> float:
    """Return c_r = min(1, sqrt(ln(4 pairs n_max / delta) / (2 n))), section 5."""
    union = math.log(4 * confidence.setting.n_pairs * confidence.max_visits / confidence.bounds.delta)
    return min(1.0, math.sqrt(union / (2 * n)))


def mixture_regret(counts: Iterable[float], K: int) -> float:
    """Return the regret of the Krichevsky-Trofimov mixture to the best law of K symbols; section 5, `kl`.

    sum n_x ln(n_x / n) - [lnG(K/2) - K lnG(1/2) + sum lnG(n_x + 1/2) - lnG(n + K/2)], the second sum over
    all K symbols. `counts` may leave out unobserved symbols and need not be whole numbers.
    """
    seen = [float(n_x) for n_x in counts if n_x > 0]
    n = total(seen)
    likelihood = total(n_x * math.log(n_x / n) for n_x in seen)
    mixture = math.lgamma(K / 2) - math.lgamma(n + K / 2)
    mixture += total(math.lgamma(n_x + 0.5) - math.lgamma(0.5) for n_x in seen)
    return likelihood - mixture


def kl_budget(tally: Tally, confidence: Confidence, p: int) -> float:
    """Return beta of the transition ball, section 5, `kl`: ln(pairs / delta) + the mixture's regret.

    With estimated rewards half of delta goes to them: ln(2 pairs / delta).
    """
    union = _kl_union(confidence)
    return union + mixture_regret(tally.counts[p], int(confidence.setting.support[p]))


def kl_reward_interval(tally: Tally, confidence: Confidence, p: int) -> tuple[float, float]:
    """Return the ends of {mu in [0, 1]: n kl(Rh || mu) <= beta_r}, section 5.

    beta_r is the budget of a law on K = 2 symbols seen rsum and n - rsum times: by convexity in r the
    mixture is a supermartingale for any reward in [0, 1], not only for Bernoulli rewards.
    """
    n = visits(tally, p)
    rsum = min(max(total(tally.rewards[p]), 0.0), n)
    budget = (_kl_union(confidence) + mixture_regret((rsum, n - rsum), 2)) / n
    mean = rsum / n
    # min: rounding of 1 - mean must not put the lower end above the mean.
    return min(mean, 1.0 - _largest_mean(1.0 - mean, budget)), _largest_mean(mean, budget)


def l1_maximum(frequency: Floats, value: Floats, reach: Bools, radius: float) -> float:
    """Return max q.u over the simplex on `reach` with ||q - Ph||_1 <= radius, section 5: sort and shift.

    Half the radius moves onto the best state from the worst ones.
    """
    best = max(np.flatnonzero(reach), key=lambda x: value[x])
    left = min(radius / 2, 1.0 - float(frequency[best]))
    q = np.array(frequency)
    q[best] += left
    for y in sorted(np.flatnonzero(frequency), key=lambda y: value[y]):
        if y != best:
            moved = min(left, float(q[y]))
            q[y] -= moved
            left -= moved
    return total(q * value)


def kl_maximum(counts: Floats, value: Floats, reach: Bools, budget: float) -> float:
    """Return max q.u over the simplex on `reach` with sum n_x ln(n_x / (n q_x)) <= budget, section 5.

    On observed states the optimum is q_x ~ n_x / (nu - u_x), nu > max u, and with that q
    f(nu) = sum Ph_x ln(nu - u_x) + ln sum Ph_x / (nu - u_x) equals budget / n: one root in nu, found by
    bisection. If an unobserved state is worth more than all observed ones and f(nu) stays
    below budget / n even at nu = its worth, it receives the rest of the mass.
    """
    observed = counts > 0
    n = total(counts)
    frequency, seen = counts[observed] / n, value[observed]
    top = float(value[reach].max())
    span = top - float(seen.min())
    if span <= 0:
        return top
    distance = (top - seen) / span  # f does not depend on the unit
    limit = budget / n

    def excess(slack: float) -> float:
        ratio = distance / slack
        if ratio.max() < 1:
            shrunk = math.log1p(-total(frequency * ratio / (1 + ratio)))
        else:
            shrunk = math.log(total(frequency / (1 + ratio)))
        return total(frequency * np.log1p(ratio)) + shrunk - limit

    if distance.min() > 0:
        logs = total(frequency * np.log(distance))
        if logs + math.log(total(frequency / distance)) <= limit:
            return top - span * math.exp(logs - limit)
    if excess(math.exp(-LOG_RANGE)) <= 0:
        return top
    slack = math.exp(_root(lambda log_slack: excess(math.exp(log_slack)), -LOG_RANGE, LOG_RANGE))
    weight = frequency / (distance + slack)
    return top - span * total(weight * distance) / total(weight)


def backup(tally: Tally, confidence: Confidence, p: int, value: Floats, sign: int) -> float:
    """Return Q(s, a) of a visited pair before clipping, `value` (S,) being V_{t+1}; section 5.

    `sign` is +1 for the upper bound and -1 for the lower one.
    """
    setting, family = confidence.setting, confidence.bounds.family
    if family in ("l1", "kl"):
        return _robust_backup(tally, confidence, p, value, sign)
    n, lossy = visits(tally, p), may_lose(tally, confidence, p)
    if family == "hoeffding":
        bonus = hoeffding_bonus(confidence, n, lossy=lossy)
    elif family == "bernstein":
        deviation = math.sqrt(step_variance(tally, confidence, p, value, sign))
        bonus = bernstein_bonus(confidence, n, deviation, lossy=lossy)
    elif family == "ch":
        bonus = ch_bonus(confidence, n)
    else:
        bonus = bf_bonus(tally, confidence, p, value_deviation(frequencies(tally, p), value))
    reward = _reward_sum(tally, confidence, p, sign)
    return (reward + setting.discount * total(tally.counts[p] * value)) / n + sign * bonus


def backward(
    tally: Tally,
    confidence: Confidence,
    *,
    sign: int,
    policy: Ints | None = None,
    prior: Ints | None = None,
    rank: Ints | None = None,
    ceiling: Floats | None = None,
) -> Solution:
    """Return the lower (`sign` -1) or upper (+1) values of `policy`, or of the best one; section 5.

    Q = clip(backup, 0, vmax_t), unvisited pairs get the bound itself, V is the policy's Q or the
    largest one.

    Args:
        tally: The observations.
        confidence: The bounds.
        sign: -1 or +1.
        policy: (H, S) actions to evaluate; None to optimise.
        prior: (S,) actions that win ties of the lower optimum.
        rank: (P,) places of pairs in their states; the first wins other ties, by default the lowest index.
        ceiling: (H, P) values that Q must not exceed: UCBVI's previous Q, section 9.
    """
    setting = confidence.setting
    bounds = setting.value_bounds

    def action_values(t: int, following: Floats) -> Floats:
        Q = np.full(setting.n_pairs, bounds[t] if sign > 0 else 0.0)
        for p in range(setting.n_pairs):
            if visits(tally, p) > 0:
                Q[p] = min(max(backup(tally, confidence, p, following, sign), 0.0), bounds[t])
        return Q if ceiling is None else np.minimum(Q, ceiling[t])

    lost = None
    if confidence.lost_from is not None and sign > 0:
        # The most: the reward of a lost outcome is counted as 0, so 1 is part of the value.
        lost = (confidence.lost_from, bounds + 1.0 / setting.discount)
    return _induce(setting, action_values, policy, prior if sign < 0 else None, lost, rank)


def exact(mdp: FiniteMDP, policy: Ints | None = None) -> Solution:
    """Return the true values of `policy`, (H, S) actions, or of the best one (ties: lowest index)."""
    setting = mdp.setting

    def action_values(t: int, following: Floats) -> Floats:
        Q = np.empty(setting.n_pairs)
        for p in range(setting.n_pairs):
            row = slice(mdp.row_start[p], mdp.row_start[p + 1])
            earned = mdp.reward[row] + setting.discount * following[mdp.successor[row]]
            Q[p] = total(mdp.probability[row] * earned)
        return Q

    return _induce(setting, action_values, policy, None)


def _robust_backup(tally: Tally, confidence: Confidence, p: int, value: Floats, sign: int) -> float:
    """Return the best (+1) or worst (-1) backup over the rewards and rows that `l1` or `kl` allow."""
    setting, n = confidence.setting, visits(tally, p)
    worth = sign * (shift_reward(confidence, p, sign) + setting.discount * value)
    reach = reachable(tally, confidence, p)
    if confidence.bounds.family == "l1":
        extreme = l1_maximum(frequencies(tally, p), worth, reach, l1_radius(confidence, p, n))
    else:
        extreme = kl_maximum(tally.counts[p], worth, reach, kl_budget(tally, confidence, p))
    if setting.known is not None:
        return sign * extreme
    if confidence.bounds.family == "l1":
        reward = reward_mean(tally, confidence, p, sign) + sign * l1_reward_radius(confidence, n)
    else:
        reward = kl_reward_interval(tally, confidence, p)[0 if sign < 0 else 1]
    return reward + sign * extreme


def _induce(
    setting: Setting,
    action_values: Callable[[int, Floats], Floats],
    policy: Ints | None,
    prior: Ints | None,
    lost: tuple[int, Floats] | None = None,
    rank: Ints | None = None,
) -> Solution:
    """Go backward from V_H = 0; `action_values(t, V_{t+1})` gives Q_t, (P,).

    `lost` are the first state that stands for lost outcomes and the values, (H + 1,), of all such states.
    """
    H, S = setting.horizon, setting.n_states
    V, Q, played = np.zeros((H + 1, S)), np.zeros((H, setting.n_pairs)), np.zeros((H, S), dtype=np.int64)
    if lost is not None:
        V[:, lost[0] :] = lost[1][:, None]
    for t in reversed(range(H)):
        Q[t] = action_values(t, V[t + 1])
        for s in np.flatnonzero(~setting.terminal):
            first, last = int(setting.pair_start[s]), int(setting.pair_start[s + 1])
            if policy is not None:
                a = int(policy[t, s])
            else:
                best = Q[t, first:last] == Q[t, first:last].max()
                winners = setting.pair_action[first:last][best]
                foremost = 0 if rank is None else int(np.argmin(rank[first:last][best]))
                a = int(prior[s]) if prior is not None and prior[s] in winners else int(winners[foremost])
            played[t, s] = a
            V[t, s] = Q[t, setting.pair_index[s, a]]
    return Solution(V, Q, played)


def _reward_sum(tally: Tally, confidence: Confidence, p: int, sign: int) -> float:
    if _observed(tally, confidence, p):
        return total(tally.rewards[p])
    return total(tally.counts[p] * declared_reward(confidence.setting, p, sign))


def _observed(tally: Tally, confidence: Confidence, p: int) -> bool:
    """Return whether the observed rewards of a pair count, and not the declared ones.

    A successor that is not listed has a reward in a declared range. The bonuses pay for observed rewards as
    for estimated ones; `l1` and `kl` pay no radius for known rewards, so there the range itself counts.
    """
    setting = confidence.setting
    if setting.known is None or confidence.bounds.family in ("l1", "kl"):
        return setting.known is None
    unlisted = declared_reward(setting, p, +1) != declared_reward(setting, p, -1)
    return bool((unlisted & (tally.counts[p] > 0)).any())


def _kl_union(confidence: Confidence) -> float:
    shares = 1 if confidence.setting.known is not None else 2
    return math.log(shares * confidence.setting.n_pairs / confidence.bounds.delta)


def _largest_mean(mean: float, budget: float) -> float:
    """Return the largest mu in [mean, 1] with kl(mean || mu) <= budget, for Bernoulli distributions."""
    if mean >= 1.0:
        return 1.0

    def excess(mu: float) -> float:
        hit = mean * math.log(mean / mu) if mean > 0 else 0.0
        return budget - hit - (1 - mean) * (math.log1p(-mean) - math.log1p(-mu))

    almost = math.nextafter(1.0, 0.0)
    return 1.0 if mean >= almost or excess(almost) >= 0 else _root(excess, mean, almost)


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a decreasing function, by bisection to the last bit."""
    while low < (middle := low + (high - low) / 2) < high:
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return high
