"""Radii: how far the truth may lie from the counts, section 5, kept up to date pair by pair."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare
from chary.arrays import Floats, Ints
from chary.errors import InvalidSetting, check_integer
from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.rows import Rows

EXACT, HOEFFDING, L1, KL, BERNSTEIN, CH, BF = range(7)
CODES = {"hoeffding": HOEFFDING, "l1": L1, "kl": KL, "bernstein": BERNSTEIN, "ch": CH, "bf": BF}

# Rewards that are a function of the transition leave rounding noise in the variance within a successor.
SPREAD_NOISE = 1e-12


class Radii(NamedTuple):
    """One family of bounds, resolved for one problem.

    `width`, shape (P,), is the bonus (`hoeffding`, `ch`), the second-order part of it (`bernstein`, `bf`),
    the L1 radius (`l1`) or beta / n (`kl`); `reward_above` and `reward_below` bound R - Rh and Rh - R;
    `spread` is the variance of rewards within a successor. `vmax` has shape (H + 1,). The `known_*` arrays
    list the declared rewards (empty where rewards are estimated).

    States from `lost_from` on stand for lost outcomes, one per pair that has any, section 10: they end an
    episode, and what they are worth pays for the unknown reward as well. With `losses`, every pair may lose
    an outcome, and the first of these states stands for one that is not lost yet.
    """

    family: int
    scale: float
    log_term: float
    transition_log: float
    reward_log: float
    horizon: int
    n_actions: int
    discount: float
    vmax: Floats
    terminal: NDArray[np.bool_]
    support: Ints
    width: Floats
    reward_above: Floats
    reward_below: Floats
    spread: Floats
    known: bool
    known_begin: Ints
    known_successor: Ints
    known_reward: Floats
    other_low: Floats
    other_high: Floats
    lost_from: int
    losses: bool


def radii_for(setting: Setting, bounds: Bounds, *, episodes: int | None, total_episodes: int | None) -> Radii:
    """Resolve `bounds` for a problem.

    `episodes` are the online ones and `total_episodes` those of the warm-up too; both may be None for `kl`,
    which is valid for any number.

    Raises:
        InvalidSetting: if the family needs a number of episodes and none was declared.
    """
    P = setting.n_pairs
    if bounds.needs_episodes:
        if episodes is None or total_episodes is None:
            raise InvalidSetting(
                f"'episodes' must be declared with bonus {bounds.family!r}, got None. Bonus 'kl' needs none."
            )
        check_integer("episodes", episodes, minimum=1)
    family = CODES[bounds.family]
    transition_log = reward_log = 0.0
    if family == L1 and total_episodes is not None:
        most = total_episodes * setting.horizon
        transition_log = math.log(2 * P * most / bounds.delta)
        reward_log = math.log(4 * P * most / bounds.delta)
    elif family == KL:
        # Estimated rewards share the failure probability with the transitions, half each.
        share = 1 if setting.known is not None else 2
        transition_log = reward_log = math.log(share * P / bounds.delta)
    return _radii(
        setting,
        family,
        scale=bounds.scale,
        log_term=bounds.log_term(setting, episodes) if bounds.needs_episodes and episodes else 0.0,
        transition_log=transition_log,
        reward_log=reward_log,
    )


def exact_radii(setting: Setting) -> Radii:
    """Return radii of 0, for planning in an MDP that is known."""
    radii = _radii(setting, EXACT, scale=0.0, log_term=0.0, transition_log=0.0, reward_log=0.0)
    # The truth is not clipped: a value cap below it must show in the audit, not hide there.
    return radii._replace(vmax=np.full(setting.horizon + 1, np.inf), width=np.zeros(setting.n_pairs))


def _radii(
    setting: Setting, family: int, *, scale: float, log_term: float, transition_log: float, reward_log: float
) -> Radii:
    P = setting.n_pairs
    known = setting.known
    return Radii(
        family=family,
        scale=float(scale),
        log_term=log_term,
        transition_log=transition_log,
        reward_log=reward_log,
        horizon=setting.horizon,
        n_actions=setting.n_actions,
        discount=float(setting.discount),
        vmax=np.array(setting.value_bounds),
        terminal=np.array(setting.terminal),
        support=np.array(setting.support),
        width=np.full(P, np.inf),
        reward_above=np.zeros(P),
        reward_below=np.zeros(P),
        spread=np.zeros(P),
        known=known is not None,
        known_begin=np.zeros(P + 1, dtype=np.int64) if known is None else np.array(known.start),
        known_successor=np.zeros(0, dtype=np.int64) if known is None else np.array(known.successor),
        known_reward=np.zeros(0) if known is None else np.array(known.reward),
        other_low=np.zeros(P) if known is None else np.array(known.other_low),
        other_high=np.zeros(P) if known is None else np.array(known.other_high),
        lost_from=setting.n_states,
        losses=False,
    )


@bare
def refresh_into(radii: Radii, rows: Rows, p: int) -> None:
    """Recompute the radii of pair p after its counts changed; they depend on nothing else."""
    n = rows.total[p]
    if n == 0.0:
        return
    mean = rows.reward_total[p] / n
    # The pair's own lost outcomes are one more successor, worth more than any state.
    n_states, top = radii.lost_from, radii.vmax[0]
    if radii.losses or has_lost(radii, rows, p):
        n_states, top = n_states + 1, lost_worth(radii, 0, 1)
    if radii.family == HOEFFDING:
        radii.width[p] = hoeffding_width(radii.scale, radii.log_term, top, n_states, n)
    elif radii.family == CH:
        radii.width[p] = radii.scale * 7.0 * radii.horizon * radii.log_term / math.sqrt(n)
    elif radii.family == BERNSTEIN:
        radii.width[p] = radii.scale * 7.0 * top * radii.log_term / (3.0 * max(1.0, n - 1.0))
        radii.spread[p] = _reward_spread(rows, p)
    elif radii.family == BF:
        radii.width[p] = radii.scale * 14.0 * radii.horizon * radii.log_term / (3.0 * n)
    elif radii.family == L1:
        k = radii.support[p]
        # ln(2^K - 2), written so that 2^K cannot overflow; K = 1 leaves nothing to learn.
        log_subsets = k * math.log(2.0) + math.log1p(-(2.0 ** (1.0 - k))) if k > 1 else -math.inf
        radii.width[p] = 0.0
        if k > 1:
            radii.width[p] = min(2.0, math.sqrt(2.0 * (log_subsets + radii.transition_log) / n))
        if not radii.known:
            radius = min(1.0, math.sqrt(radii.reward_log / (2.0 * n)))
            radii.reward_above[p] = radius
            radii.reward_below[p] = radius
    elif radii.family == KL:
        begin = rows.begin[p]
        log_likelihood = 0.0
        mixture = math.lgamma(radii.support[p] / 2.0) - math.lgamma(n + radii.support[p] / 2.0)
        for i in range(begin, begin + rows.length[p]):
            w = rows.weight[i]
            log_likelihood += w * math.log(w / n)
            mixture += math.lgamma(w + 0.5) - math.lgamma(0.5)
        radii.width[p] = (radii.transition_log + log_likelihood - mixture) / n
        if not radii.known:
            radius = _reward_divergence(mean * n, n, radii.reward_log)
            radii.reward_above[p] = _bernoulli_edge(mean, radius) - mean
            radii.reward_below[p] = mean - (1.0 - _bernoulli_edge(1.0 - mean, radius))


@bare
def has_lost(radii: Radii, rows: Rows, p: int) -> bool:
    """Return whether an outcome of pair p is lost; its state is the last of the row, which ascends."""
    return rows.length[p] > 0 and rows.successor[rows.begin[p] + rows.length[p] - 1] >= radii.lost_from


@bare
def lost_worth(radii: Radii, t: int, sign: int) -> float:
    """Return the value at t that stands for a lost outcome, section 10: the most above, nothing below.

    Its reward is unknown, too, and counted as 0; a reward of 1 is therefore part of the value.
    """
    return radii.vmax[t] + 1.0 / radii.discount if sign > 0 else 0.0


@bare
def additive(family: int) -> bool:
    """Return whether a backup is a sum and a bonus that depends on the counts alone."""
    return family == HOEFFDING or family == CH


@bare
def hoeffding_width(scale: float, log_term: float, vmax: float, n_states: int, n: float) -> float:
    """Return the `hoeffding` bonus after n visits."""
    # At least 1: rewards in [0, 1] fluctuate by 1 even where values are capped below it.
    return scale * 4.0 * max(1.0, vmax) * math.sqrt(n_states * log_term / max(1.0, n))


@bare
def _reward_spread(rows: Rows, p: int) -> float:
    """Return the mean variance of rewards among transitions to the same successor."""
    between = 0.0
    for i in range(rows.begin[p], rows.begin[p] + rows.length[p]):
        between += rows.reward[i] * rows.reward[i] / rows.weight[i]
    left = rows.square_total[p] - between
    return left / rows.total[p] if left > SPREAD_NOISE * rows.square_total[p] else 0.0


@bare
def _reward_divergence(total: float, n: float, log_term: float) -> float:
    """Return beta / n of the Krichevsky-Trofimov mixture for two symbols, counts `total` and n - total.

    Valid for any rewards in [0, 1]: the likelihood ratio is convex in the reward, so its mean under mu is
    at most that of a Bernoulli(mu).
    """
    other = n - total
    log_likelihood = 0.0
    if total > 0.0:
        log_likelihood += total * math.log(total / n)
    if other > 0.0:
        log_likelihood += other * math.log(other / n)
    mixture = math.lgamma(total + 0.5) + math.lgamma(max(other, 0.0) + 0.5) - 2.0 * math.lgamma(0.5)
    mixture -= math.lgamma(n + 1.0)
    return max(0.0, (log_term + log_likelihood - mixture) / n)


@bare
def _bernoulli_edge(mean: float, divergence: float) -> float:
    """Return the largest mu in [mean, 1] with kl(mean || mu) <= divergence, by bisection to the last bit."""
    low, high = min(mean, 1.0), 1.0
    for _ in range(60):
        mu = 0.5 * (low + high)
        if mu <= low or mu >= high:
            break
        kl = 0.0
        if mean > 0.0:
            kl += mean * math.log(mean / mu)
        if mean < 1.0:
            kl += (1.0 - mean) * math.log((1.0 - mean) / (1.0 - mu))
        if kl <= divergence:
            low = mu
        else:
            high = mu
    return high
