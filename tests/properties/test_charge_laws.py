"""The laws of the charges, docs/algorithm.md section 3, on random MDPs and data.

Two kinds of instances. `sampled`: data drawn from the MDP, any family, a box of any width around the
truth. `adversarial` (`l1`, `kl`): the true rows lie on the edge of their balls and the true mean rewards at
the ends of their intervals, so that a charge has nothing to spare that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.mdp import FiniteMDP
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES, Bounds
from chary.reference.charges import (
    Side,
    charge_coupled,
    charge_difference,
    charge_paper,
    deviation_bound,
    differences,
)
from chary.reference.planner import (
    Confidence,
    Solution,
    Tally,
    backward,
    exact,
    kl_budget,
    kl_reward_interval,
    l1_radius,
    l1_reward_radius,
    reward_mean,
    visits,
)

ROUNDING = 1e-9
ALL_FAMILIES = FAMILIES + UCBVI_FAMILIES
BALLS = ("l1", "kl")
REWARDS = ("estimated", "known")

seeds = st.integers(0, 2**32 - 1)


class Instance(NamedTuple):
    """A true MDP, what was seen of it, and the bounds."""

    mdp: FiniteMDP
    tally: Tally
    confidence: Confidence


class Shape(NamedTuple):
    """What an instance is built from: `support` (S, A, S) tells where a row may lead."""

    S: int
    A: int
    options: dict[str, object]
    support: NDArray[np.bool_]
    counts: Floats  # (S, A, S)


def draw_shape(rng: np.random.Generator) -> Shape:
    S, A, H = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    allowed = rng.random((S, A)) < 0.8
    allowed[:, 0] = True
    support = rng.random((S, A, S)) < 0.7
    support[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    declared = support.sum(axis=2) if rng.random() < 0.5 else np.full((S, A), S)
    counts = np.zeros((S, A, S))
    for s, a in np.ndindex(S, A):
        row = rng.dirichlet(np.ones(S)) * support[s, a]
        counts[s, a] = rng.multinomial(int(rng.choice([0, 1, 3, 10, 100, 3000])), row / row.sum())
    options: dict[str, object] = {
        "allowed": allowed,
        "horizon": H,
        "discount": float(rng.choice([1.0, 0.9, 0.5])),
        "terminal": [S - 1] if rng.random() < 0.3 else [],
        "support": declared,
    }
    return Shape(S, A, options, support, counts)


def trust(mdp: FiniteMDP, family: str, reward: str, scale: float = 1.0, delta: float = 0.1) -> Confidence:
    bounds = Bounds(family=family, scale=scale, delta=delta)
    return Confidence(setting=mdp.told(reward), bounds=bounds, episodes=50, total_episodes=60)


def sampled(seed: int, family: str, reward: str) -> Instance:
    rng = np.random.default_rng(seed)
    shape = draw_shape(rng)
    S, A = shape.S, shape.A
    P = rng.dirichlet(np.full(S, 0.5), size=(S, A)) * shape.support + 1e-3 * shape.support
    P /= P.sum(axis=2, keepdims=True)
    mdp = FiniteMDP.from_arrays(P, rng.random((S, A, S)), **shape.options)  # type: ignore[arg-type]
    n_pairs = mdp.setting.n_pairs
    counts, earned = np.zeros((n_pairs, S)), np.zeros((n_pairs, S))
    for p in range(n_pairs):
        row = slice(mdp.row_start[p], mdp.row_start[p + 1])
        share = mdp.probability[row] / mdp.probability[row].sum()
        counts[p, mdp.successor[row]] = rng.multinomial(int(rng.choice([0, 1, 3, 10, 100, 3000])), share)
        earned[p, mdp.successor[row]] = mdp.reward[row]
    tally = Tally(counts, counts * earned, (counts * earned**2).sum(axis=1))
    scale = 1.0 if family in BALLS else float(rng.choice([1.0, 0.1, 0.01, 0.001]))
    return Instance(mdp, tally, trust(mdp, family, reward, scale))


def inside_ball(tally: Tally, confidence: Confidence, p: int, row: Floats) -> bool:
    counts, n = tally.counts[p], visits(tally, p)
    if confidence.bounds.family == "l1":
        return bool(np.abs(row - counts / n).sum() <= l1_radius(confidence, p, n))
    seen = counts > 0
    if (row[seen] <= 0).any():
        return False
    spent = (counts[seen] * np.log(counts[seen] / (n * row[seen]))).sum()
    return bool(spent <= kl_budget(tally, confidence, p))


def edge_of_ball(tally: Tally, confidence: Confidence, p: int, target: Floats) -> Floats:
    """Return the last row of the ball on the way from the empirical one to `target`."""
    start = tally.counts[p] / visits(tally, p)
    inside, outside = 0.0, 1.0
    if inside_ball(tally, confidence, p, target):
        return target
    for _ in range(60):
        middle = (inside + outside) / 2
        if inside_ball(tally, confidence, p, start + middle * (target - start)):
            inside = middle
        else:
            outside = middle
    row = start + inside * (target - start)
    return np.asarray(row / row.sum())


def end_of_interval(tally: Tally, confidence: Confidence, p: int, rng: np.random.Generator) -> float:
    """Return a true mean reward that the data allows, often the most extreme one."""
    mean = reward_mean(tally, confidence, p, +1)
    if confidence.bounds.family == "l1":
        radius = l1_reward_radius(confidence, visits(tally, p))
        low, high = max(0.0, mean - radius), min(1.0, mean + radius)
    else:
        low, high = kl_reward_interval(tally, confidence, p)
    return float(rng.choice([low, high, rng.uniform(low, high)]))


def adversarial(seed: int, family: str, reward: str) -> Instance:
    rng = np.random.default_rng(seed)
    shape = draw_shape(rng)
    S, A = shape.S, shape.A
    uniform = shape.support / shape.support.sum(axis=2, keepdims=True)
    # A wide delta makes balls narrow: the laws must hold given the event, whatever its probability.
    delta = float(rng.choice([0.1, 0.99]))
    blank = FiniteMDP.from_arrays(uniform, np.zeros((S, A)), **shape.options)  # type: ignore[arg-type]
    confidence = trust(blank, family, reward, delta=delta)
    setting = blank.setting
    counts = shape.counts[setting.allowed]
    mean = rng.random((S, A, S)) if reward == "known" else np.repeat(rng.random((S, A, 1)), S, axis=2)
    tally = Tally(counts, counts * mean[setting.allowed], (counts * mean[setting.allowed] ** 2).sum(axis=1))
    P, R = uniform.copy(), mean.copy()
    for s, a in zip(*np.nonzero(setting.allowed), strict=True):
        p = int(setting.pair_index[s, a])
        places = np.flatnonzero(shape.support[s, a])
        target = np.zeros(S)
        if rng.random() < 0.5:
            target[rng.choice(places)] = 1.0
        else:
            target[places] = rng.dirichlet(np.ones(len(places)))
        P[s, a] = target
        if visits(tally, p) > 0:
            P[s, a] = edge_of_ball(tally, confidence, p, target)
            if reward == "estimated":
                R[s, a] = end_of_interval(tally, confidence, p, rng)
    mdp = FiniteMDP.from_arrays(P, R, **shape.options)  # type: ignore[arg-type]
    return Instance(mdp, tally, trust(mdp, family, reward, delta=delta))


def baseline_bounds(instance: Instance) -> tuple[Solution, Solution]:
    lower = backward(instance.tally, instance.confidence, sign=-1)
    return lower, backward(instance.tally, instance.confidence, sign=+1, policy=lower.policy)


def box_around_truth(instance: Instance, rng: np.random.Generator) -> tuple[Solution, Solution, Solution]:
    """Return valid bounds of a random baseline, wide or narrow, and its truth."""
    setting = instance.confidence.setting
    policy = np.zeros((setting.horizon, setting.n_states), dtype=np.int64)
    for t, s in np.ndindex(policy.shape):
        if not setting.terminal[s]:
            policy[t, s] = rng.choice(np.flatnonzero(setting.allowed[s]))
    truth = exact(instance.mdp, policy)
    width = float(rng.choice([0.0, 0.1, 1.0]))
    open_states = ~setting.terminal & (np.arange(setting.horizon + 1) < setting.horizon)[:, None]
    below, above = (width * rng.random(truth.V.shape) * open_states for _ in range(2))
    lower = Solution(truth.V - below, truth.Q - width * rng.random(truth.Q.shape), policy)
    return lower, Solution(truth.V + above, truth.Q + width, policy), truth


def steps(instance: Instance) -> Iterator[tuple[int, int, int]]:
    setting = instance.confidence.setting
    for t in range(setting.horizon):
        for s, a in zip(*np.nonzero(setting.allowed), strict=True):
            yield t, int(s), int(a)


def true_deviation(instance: Instance, p: int, value: Floats) -> float:
    """Return the true backup of `value` minus the empirical one."""
    mdp, tally, gamma = instance.mdp, instance.tally, instance.confidence.setting.discount
    row = slice(mdp.row_start[p], mdp.row_start[p + 1])
    true = mdp.probability[row] @ (mdp.reward[row] + gamma * value[mdp.successor[row]])
    mean = reward_mean(tally, instance.confidence, p, +1)
    return float(true - mean - gamma * tally.counts[p] @ value / visits(tally, p))


def event_holds(instance: Instance, p: int, lower: Floats, upper: Floats, value: Floats, side: Side) -> bool:
    """Return whether section 3's bonus event holds at one pair, on the side a charge needs."""
    sign = 1 if side == "above" else -1
    b = deviation_bound(instance.tally, instance.confidence, p, lower, upper, side=side)
    return visits(instance.tally, p) == 0 or sign * true_deviation(instance, p, value) <= b + ROUNDING / 10


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@given(seed=seeds)
def test_coupled_charge_covers_the_true_gap_wherever_the_bonus_event_holds(
    family: str, reward: str, seed: int
) -> None:
    instance = sampled(seed, family, reward)
    lower, upper, truth = box_around_truth(instance, np.random.default_rng([seed, 1]))
    index = instance.confidence.setting.pair_index
    for t, s, a in steps(instance):
        box = lower.V[t + 1], upper.V[t + 1], truth.V[t + 1]
        first, second = int(index[s, lower.policy[t, s]]), int(index[s, a])
        held = event_holds(instance, first, *box, "above") and event_holds(instance, second, *box, "below")
        if held:
            gap = truth.V[t, s] - truth.Q[t, second]
            charge = charge_coupled(instance.tally, instance.confidence, lower, upper, t, s, a)
            assert gap <= charge + ROUNDING


# Of `l1` and `kl` the event is the ball, not one deviation: see the adversarial test.
@pytest.mark.parametrize("family", [f for f in ALL_FAMILIES if f not in BALLS])
@pytest.mark.parametrize("reward", REWARDS)
@given(seed=seeds)
def test_difference_charge_covers_the_true_gap_when_every_row_keeps_the_bonus_event(
    family: str, reward: str, seed: int
) -> None:
    instance = sampled(seed, family, reward)
    lower, upper, truth = box_around_truth(instance, np.random.default_rng([seed, 1]))
    setting = instance.confidence.setting
    for t in range(setting.horizon):
        box = lower.V[t + 1], upper.V[t + 1], truth.V[t + 1]
        for p in range(setting.n_pairs):
            if not (event_holds(instance, p, *box, "above") and event_holds(instance, p, *box, "below")):
                return
    D = differences(instance.tally, instance.confidence, lower.policy, lower.V, upper.V)
    assert (truth.V[:, :, None] - truth.V[:, None, :] <= D + ROUNDING).all()
    for t, s, a in steps(instance):
        gap = truth.V[t, s] - truth.Q[t, setting.pair_index[s, a]]
        assert (
            gap <= charge_difference(instance.tally, instance.confidence, lower, upper, D, t, s, a) + ROUNDING
        )


@pytest.mark.parametrize("family", BALLS)
@pytest.mark.parametrize("reward", REWARDS)
@given(seed=seeds)
def test_bounds_and_charges_cover_the_truth_when_it_lies_on_the_edge_of_every_ball(
    family: str, reward: str, seed: int
) -> None:
    instance = adversarial(seed, family, reward)
    tally, confidence = instance.tally, instance.confidence
    lower, upper = baseline_bounds(instance)
    truth, best = exact(instance.mdp, lower.policy), exact(instance.mdp)
    optimistic = backward(tally, confidence, sign=+1)
    assert (lower.Q <= truth.Q + ROUNDING).all()
    assert (truth.Q <= upper.Q + ROUNDING).all()
    assert (best.Q <= optimistic.Q + ROUNDING).all()
    D = differences(tally, confidence, lower.policy, lower.V, upper.V)
    assert (truth.V[:, :, None] - truth.V[:, None, :] <= D + ROUNDING).all()
    for t, s, a in steps(instance):
        p = int(confidence.setting.pair_index[s, a])
        for side in ("above", "below"):
            assert event_holds(instance, p, lower.V[t + 1], upper.V[t + 1], truth.V[t + 1], side)
        gap = truth.V[t, s] - truth.Q[t, p]
        assert gap <= charge_difference(tally, confidence, lower, upper, D, t, s, a) + ROUNDING
        assert gap <= charge_coupled(tally, confidence, lower, upper, t, s, a) + ROUNDING


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@given(seed=seeds)
def test_charges_are_ordered_and_free_where_explorer_and_baseline_agree(
    family: str, reward: str, seed: int
) -> None:
    instance = sampled(seed, family, reward)
    tally, confidence = instance.tally, instance.confidence
    lower, upper = baseline_bounds(instance)
    D = differences(tally, confidence, lower.policy, lower.V, upper.V)
    for t, s, a in steps(instance):
        paper = charge_paper(confidence, lower, upper, t, s, a)
        coupled = charge_coupled(tally, confidence, lower, upper, t, s, a)
        difference = charge_difference(tally, confidence, lower, upper, D, t, s, a)
        assert 0 <= difference <= coupled <= paper
        if a == lower.policy[t, s]:
            assert coupled == difference == 0


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@given(seed=seeds)
def test_evaluating_the_optimal_policy_gives_its_values_back(family: str, reward: str, seed: int) -> None:
    instance = sampled(seed, family, reward)
    for sign in (-1, 1):
        best = backward(instance.tally, instance.confidence, sign=sign)
        again = backward(instance.tally, instance.confidence, sign=sign, policy=best.policy)
        np.testing.assert_array_equal(best.V, again.V)
        np.testing.assert_array_equal(best.Q, again.Q)
