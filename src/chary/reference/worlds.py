"""Posterior worlds, slowly and plainly, on dense arrays: the twin of `model.worlds` and `planner._worlds`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model.beliefs import FLAT_WEIGHTS
from chary.model.worlds import Worlds
from chary.shield.worlds import Panel, upper


class DensePlan(NamedTuple):
    """A joint plan: `value` (H + 1, S, L), `baseline` (H, S), `explorer` (H, S, L - K), `q` (H, P, L)."""

    value: Floats
    baseline: Ints
    explorer: Ints
    q: Floats


class DenseOwn(NamedTuple):
    """The user's policy: its role, actions (H, S), value in every world (H + 1, S, L), and who must agree."""

    role: str
    table: Ints
    value: Floats
    panel: Panel


def prior_means(counts: Floats, setting: Setting, kappa: float) -> Floats:
    """Return p0(x | s, a), (P, S): the other actions of s, backed off to the whole log, of counts (P, S)."""
    P, S = counts.shape
    everywhere = (counts.sum(axis=0) + 1.0 / S) / (counts.sum() + 1.0)
    means = np.zeros((P, S))
    for s in range(S):
        pairs = range(setting.pair_start[s], setting.pair_start[s + 1])
        for p in pairs:
            others = sum((counts[q] for q in pairs if q != p), np.zeros(S))
            means[p] = (others + kappa * everywhere) / (others.sum() + kappa)
    return means


def log_evidence(counts: Floats, weights: Floats) -> float:
    """Return the log probability of events with counts (P, S), in order, rows being Dirichlet(weights)."""
    total = 0.0
    for row, prior in zip(counts, weights, strict=True):
        n = row.sum()
        if n > 0:
            total += math.lgamma(prior.sum()) - math.lgamma(prior.sum() + n)
            for x in np.flatnonzero(row):
                total += math.lgamma(prior[x] + row[x]) - math.lgamma(prior[x])
    return total


def draw_weights(counts: Floats, weights: Floats, worlds: int, generator: np.random.Generator) -> Floats:
    """Return exact draws of the weights of every world, (P, S, L): Gamma(prior weight + count)."""
    return generator.standard_gamma((weights + counts)[:, :, None], (*counts.shape, worlds))


def flat_weights(setting: Setting, weight: float = FLAT_WEIGHTS[0]) -> Floats:
    """Return the prior weights of flat rows where every state may follow, (P, S)."""
    return np.full((setting.n_pairs, setting.n_states), weight)


def dense_weights(worlds: Worlds, setting: Setting) -> Floats:
    """Return the stored weights of every world as an array, (P, S, L)."""
    rows, S, P = worlds.rows, setting.n_states, setting.n_pairs
    L = rows.total.shape[1]
    dense, pooled = np.zeros((P, S, L)), np.zeros((P, S))
    pair = worlds.counts.pair
    dense[pair, rows.successor] = rows.weight
    pooled[pair, rows.successor] = rows.pooled
    lane, owner = np.divmod(np.repeat(np.arange(P * L), np.diff(rows.atom_start)), P)
    np.add.at(dense, (owner, rows.atom_state, lane), rows.atom_weight)
    for s in range(S):
        pairs = range(setting.pair_start[s], setting.pair_start[s + 1])
        for p in pairs:
            others = sum((pooled[q] for q in pairs if q != p), np.zeros(S))
            dense[p] += (rows.rest[p] * (others + rows.back_off))[:, None] * rows.pools[p]
    return dense


def plan_worlds(
    weights: Floats,
    reward: Floats,
    setting: Setting,
    *,
    judges: int,
    pessimism: float,
    rank: Ints,
    optimism: float | None = None,
    own: DenseOwn | None = None,
    lost: Floats | None = None,
) -> DensePlan:
    """Plan worlds of weights (P, S, L) and mean rewards (P, L) backwards, section 11.

    Q_k = R_k + gamma * P_k V_k in world k; the baseline is the argmax of mean - pessimism * sd over the first
    `judges` worlds, and V_k = Q_k(s, baseline) there. Every other world plays its own best action, or with
    `optimism` the argmax of mean + optimism * sd over them. `rank` (P,) decides ties, the lowest first. `own`
    is the user's policy. Lost outcomes of weights `lost` (P, L) are worth nothing.
    """
    H, S, (P, _, L) = setting.horizon, setting.n_states, weights.shape
    probability = _probabilities(weights, lost)
    value, q = np.zeros((H + 1, S, L)), np.zeros((H, P, L))
    baseline, explorer = np.zeros((H, S), dtype=np.int64), np.zeros((H, S, L - judges), dtype=np.int64)
    for t in reversed(range(H)):
        ahead = np.einsum("pxl,xl->pl", probability, value[t + 1])
        q[t] = np.clip(reward + setting.discount * ahead, 0.0, setting.value_bounds[t])
        for s in np.flatnonzero(~setting.terminal):
            pairs = np.arange(setting.pair_start[s], setting.pair_start[s + 1])
            mine = q[t, pairs]
            judging, exploring = mine[:, :judges], mine[:, judges:]
            order = rank[pairs]
            theirs = -1 if own is None else int(setting.pair_index[s, own.table[t, s]] - pairs[0])
            if own is not None:
                order = np.where(np.arange(len(pairs)) == theirs, rank.min() - 1, order)
            best = _first(judging.mean(axis=1) - pessimism * judging.std(axis=1, ddof=1), order)
            if own is not None and own.role != "prior":
                worse = (own.value[t, s, :judges] - judging[best]).tolist()
                if own.role == "only" or upper(worse, own.panel) > 0:
                    best = theirs
            baseline[t, s] = setting.pair_action[pairs[best]]
            value[t, s, :judges] = judging[best]
            for k in range(L - judges):
                scores = exploring[:, k]
                if optimism is not None:
                    scores = exploring.mean(axis=1) + optimism * exploring.std(axis=1, ddof=1)
                chosen = _first(scores, rank[pairs])
                explorer[t, s, k] = setting.pair_action[pairs[chosen]]
                value[t, s, judges + k] = exploring[chosen, k]
    return DensePlan(value, baseline, explorer, q)


def evaluate_worlds(
    weights: Floats,
    reward: Floats,
    setting: Setting,
    policy: Ints,
    lost: Floats | None = None,
    lost_rewards: Floats | None = None,
) -> Floats:
    """Return what every world thinks of a policy (H, S), (H + 1, S, L).

    Lost outcomes have the weights `lost` (P, L) and are worth nothing; with `lost_rewards` (P, L) they are
    worth the most: that share of rewards is 1 in place of 0, and the value behind the largest possible.
    """
    H, S, (P, _, L) = setting.horizon, setting.n_states, weights.shape
    probability, most = _probabilities(weights, lost), setting.value_bounds
    gone, earned = np.zeros((P, L)), reward
    if lost is not None and lost_rewards is not None:
        gone, earned = lost / (weights.sum(axis=1) + lost), reward + lost_rewards
    value = np.zeros((H + 1, S, L))
    for t in reversed(range(H)):
        ahead = np.einsum("pxl,xl->pl", probability, value[t + 1]) + gone * most[t + 1]
        q = np.clip(earned + setting.discount * ahead, 0.0, most[t])
        for s in np.flatnonzero(~setting.terminal):
            value[t, s] = q[setting.pair_index[s, policy[t, s]]]
    return value


def _probabilities(weights: Floats, lost: Floats | None) -> Floats:
    total = weights.sum(axis=1) if lost is None else weights.sum(axis=1) + lost
    return np.asarray(weights / total[:, None, :])


def _first(scores: Floats, rank: Ints) -> int:
    """Return the place of the highest score, and among equals of the lowest rank."""
    best = np.flatnonzero(scores == scores.max())
    return int(best[rank[best].argmin()])
