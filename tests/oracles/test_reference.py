"""The reference planner against brute force, linear programs, SciPy and numbers worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from chary.arrays import Floats
from chary.mdp import FiniteMDP, KnownReward
from chary.model.bounds import Bounds
from chary.reference.charges import Side, deviation_bound
from chary.reference.planner import (
    Confidence,
    Tally,
    backup,
    backward,
    bf_bonus,
    declared_reward,
    exact,
    frequencies,
    hoeffding_bonus,
    kl_budget,
    kl_maximum,
    kl_reward_interval,
    l1_maximum,
    l1_radius,
    l1_reward_radius,
    mixture_regret,
    reachable,
    step_variance,
    visits,
)


def random_mdp(rng: np.random.Generator, S: int = 3, A: int = 2, H: int = 3, **options: object) -> FiniteMDP:
    allowed = rng.random((S, A)) < 0.8
    allowed[:, 0] = True
    P = rng.dirichlet(np.full(S, 0.7), size=(S, A))
    return FiniteMDP.from_arrays(P, rng.random((S, A, S)), allowed=allowed, horizon=H, **options)


def observe(mdp: FiniteMDP, rng: np.random.Generator, most: int = 30) -> Tally:
    """Return some observations of every pair, up to `most` of each."""
    n_pairs, S = mdp.setting.n_pairs, mdp.n_states
    counts, reward = np.zeros((n_pairs, S)), np.zeros((n_pairs, S))
    for p in range(n_pairs):
        row = slice(mdp.row_start[p], mdp.row_start[p + 1])
        share = mdp.probability[row] / mdp.probability[row].sum()
        counts[p, mdp.successor[row]] = rng.multinomial(int(rng.integers(1, most + 1)), share)
        reward[p, mdp.successor[row]] = mdp.reward[row]
    return Tally(counts, counts * reward, (counts * reward**2).sum(axis=1))


def trust(mdp: FiniteMDP, family: str, reward: str = "estimated", scale: float = 1.0) -> Confidence:
    bounds = Bounds(family=family, scale=scale)
    return Confidence(setting=mdp.told(reward), bounds=bounds, episodes=20, total_episodes=25)


@pytest.mark.parametrize("seed", range(5))
def test_exact_optimum_is_the_best_of_all_deterministic_policies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, S=2, A=2, H=3, discount=0.9, terminal=[] if seed % 2 else [1])
    choices = [np.flatnonzero(row) if row.any() else [0] for row in mdp.setting.allowed]
    P, R = mdp.dense()
    best = np.full(2, -np.inf)
    for flat in itertools.product(*choices * mdp.horizon):
        policy = np.array(flat, dtype=np.int64).reshape(mdp.horizon, 2)
        value = np.zeros(2)
        for t in reversed(range(mdp.horizon)):
            value = R[range(2), policy[t]] + 0.9 * P[range(2), policy[t]] @ value
        np.testing.assert_allclose(exact(mdp, policy).V[0], value, atol=1e-14)
        best = np.maximum(best, value)
    solution = exact(mdp)
    np.testing.assert_allclose(solution.V[0], best, atol=1e-14)
    np.testing.assert_allclose(exact(mdp, solution.policy).V, solution.V, atol=1e-14)


def l1_program(frequency: Floats, value: Floats, reach: NDArray[np.bool_], radius: float) -> float:
    """Solve max q.u as a linear program in (q, up, down): q = Ph + up - down."""
    S = len(value)
    zero, one = np.zeros((S, S)), np.eye(S)
    result = optimize.linprog(
        np.concatenate([-value, np.zeros(2 * S)]),
        A_ub=np.concatenate([np.zeros(S), np.ones(2 * S)])[None],
        b_ub=[radius],
        A_eq=np.vstack([np.hstack([one, -one, one]), np.concatenate([np.ones(S), zero[0], zero[0]])[None]]),
        b_eq=np.concatenate([frequency, [1.0]]),
        bounds=[(0, 1 if ok else 0) for ok in reach] + [(0, None)] * (2 * S),
    )
    assert result.status == 0
    return -float(result.fun)


@pytest.mark.parametrize("seed", range(30))
def test_l1_maximum_equals_a_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = int(rng.integers(1, 6))
    counts = rng.multinomial(int(rng.integers(1, 12)), rng.dirichlet(np.ones(S)))
    frequency, value = counts / counts.sum(), np.round(rng.normal(size=S), 1)
    reach = (counts > 0) | (rng.random() < 0.5)
    radius = float(rng.choice([0.0, 0.1, 0.7, 2.0]))
    found = l1_maximum(frequency, value, reach, radius)
    assert found == pytest.approx(l1_program(frequency, value, reach, radius), abs=1e-9)


def kl_program(counts: Floats, value: Floats, reach: NDArray[np.bool_], budget: float) -> float:
    """Maximise q.u over the KL ball with SLSQP, from several starting points."""
    n, observed, free = counts.sum(), counts > 0, np.flatnonzero(reach)
    seen = observed[free]

    def slack(q: Floats) -> float:
        return float(
            budget - (counts[observed] * np.log(counts[observed] / (n * np.maximum(q[seen], 1e-300)))).sum()
        )

    best = -math.inf
    for mix in (0.0, 0.05, 0.3):
        start = (1 - mix) * counts[free] / n + mix / len(free)
        result = optimize.minimize(
            lambda q: -float(q @ value[free]),
            start,
            method="SLSQP",
            bounds=[(1e-9 if o else 0.0, 1.0) for o in seen],
            constraints=[
                {"type": "eq", "fun": lambda q: q.sum() - 1},
                {"type": "ineq", "fun": slack},
            ],
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if abs(result.x.sum() - 1) < 1e-8 and slack(result.x) > -1e-7:
            best = max(best, -float(result.fun))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_kl_maximum_equals_scipys_optimiser(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = int(rng.integers(2, 5))
    counts = rng.multinomial(int(rng.integers(1, 12)), rng.dirichlet(np.ones(S))).astype(float)
    value = rng.normal(size=S)
    reach = (counts > 0) | (rng.random() < 0.5)
    budget = float(rng.choice([0.5, 2.0, 5.0]))
    found = kl_maximum(counts, value, reach, budget)
    assert found == pytest.approx(kl_program(counts, value, reach, budget), abs=2e-6)


@pytest.mark.parametrize("n", [(1, 1), (3, 7), (50, 1), (10**6, 3), (4000, 6000)])
@pytest.mark.parametrize("budget", [1e-6, 0.3, 4.0, 60.0])
def test_kl_maximum_over_two_states_is_a_root_of_the_binary_divergence(
    n: tuple[int, int], budget: float
) -> None:
    def excess(q: float) -> float:
        total = n[0] + n[1]
        return n[0] * math.log(n[0] / (total * (1 - q))) + n[1] * math.log(n[1] / (total * q)) - budget

    share = n[1] / (n[0] + n[1])
    reach = np.array([True, True])
    found = kl_maximum(np.array(n, dtype=float), np.array([0.0, 1.0]), reach, budget)
    if excess(1 - 1e-15) > 0:
        root = optimize.brentq(excess, share, 1 - 1e-15, xtol=1e-16, rtol=1e-15)
        assert found == pytest.approx(root, abs=1e-9)
    else:
        assert found == pytest.approx(1.0, abs=1e-12)


def test_kl_maximum_gives_the_rest_of_the_mass_to_a_better_unobserved_state() -> None:
    # One observed state: n ln(1 / q) <= beta, so q >= exp(-beta / n) and the rest may be elsewhere.
    counts, reach = np.array([4.0, 0.0, 0.0]), np.array([True, True, True])
    found = kl_maximum(counts, np.array([0.0, 0.5, 1.0]), reach, 2.0)
    assert found == pytest.approx(1 - math.exp(-0.5), abs=1e-15)


@pytest.mark.parametrize("value", [[0.3, 0.3, 0.3], [0.3, 0.3, 0.1], [0.3, 0.3, 0.3 + 1e-300]])
def test_kl_maximum_of_equal_observed_values_is_that_value(value: list[float]) -> None:
    found = kl_maximum(np.array([2.0, 1.0, 0.0]), np.array(value), np.array([True, True, True]), 1.0)
    assert found == 0.3


def test_kl_maximum_survives_a_budget_that_leaves_nothing_of_the_data() -> None:
    found = kl_maximum(np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.array([True, True]), 1e5)
    assert found == 1.0


# ln B is the log likelihood ratio of the best law to the Krichevsky-Trofimov mixture, whose predictive
# probability of x after n observations is (n_x + 1/2) / (n + K/2): 1/K for the first symbol; for K = 2 the
# second is 3/4 the same, 1/4 the other; for K = 3 it is 3/5 the same, 1/5 one given other.
@pytest.mark.parametrize(
    ("counts", "K", "ratio"),
    [
        ([1, 0], 2, 1 / (1 / 2)),
        ([2, 0], 2, 1 / (1 / 2 * 3 / 4)),
        ([1, 1], 2, (1 / 4) / (1 / 2 * 1 / 4)),
        ([1], 1, 1.0),
        ([7], 1, 1.0),
        ([1, 0, 0], 3, 3.0),
        ([2, 0, 0], 3, 1 / (1 / 3 * 3 / 5)),
        ([1, 0, 1], 3, (1 / 4) / (1 / 3 * 1 / 5)),
    ],
)
def test_mixture_regret_by_hand(counts: list[float], K: int, ratio: float) -> None:
    assert mixture_regret(counts, K) == pytest.approx(math.log(ratio), abs=1e-12)


def test_kl_budget_by_hand_with_known_and_with_estimated_rewards() -> None:
    mdp = FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=2)
    tally = Tally(np.array([[1.0, 0.0], [1.0, 1.0]]), np.zeros((2, 2)), np.zeros(2))
    # pairs / delta = 2 / .1 = 20, twice that if rewards are estimated; n = 1 and n = (1, 1) both add ln 2.
    for p in (0, 1):
        assert kl_budget(tally, trust(mdp, "kl", "known"), p) == pytest.approx(math.log(40))
        assert kl_budget(tally, trust(mdp, "kl", "estimated"), p) == pytest.approx(math.log(80))


@pytest.mark.parametrize(("n", "rsum"), [(1, 0.0), (1, 1.0), (2, 0.5), (10, 3.3), (1000, 990.5)])
def test_kl_reward_interval_ends_where_the_divergence_meets_its_budget(n: int, rsum: float) -> None:
    mdp = FiniteMDP.from_arrays(np.ones((1, 1, 1)), np.zeros((1, 1)), horizon=2)
    tally = Tally(np.array([[float(n)]]), np.array([[rsum]]), np.zeros(1))
    low, high = kl_reward_interval(tally, trust(mdp, "kl"), 0)
    assert 0 <= low <= rsum / n <= high <= 1
    budget = math.log(20) + mixture_regret([rsum, n - rsum], 2)

    def divergence(mu: float) -> float:
        hit = rsum * math.log(rsum / n / mu) if rsum else 0.0
        return hit + ((n - rsum) * math.log((1 - rsum / n) / (1 - mu)) if rsum < n else 0.0)

    assert low == 0 if rsum == 0 else divergence(low) == pytest.approx(budget, rel=1e-9)
    assert high == 1 if rsum == n else divergence(high) == pytest.approx(budget, rel=1e-6)


def test_radii_by_hand() -> None:
    mdp = FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=4)
    confidence = trust(mdp, "l1")  # n_max = 25 * 4 = 100, pairs = 2, K = 2: ln(2^2 - 2) = ln 2
    union = math.log(2) + math.log(2 * 2 * 100 / 0.1)
    assert l1_radius(confidence, 0, 50) == pytest.approx(math.sqrt(2 * union / 50))
    assert l1_radius(confidence, 0, 1) == 2.0
    assert l1_reward_radius(confidence, 50) == pytest.approx(math.sqrt(math.log(8000) / 100))
    assert l1_reward_radius(confidence, 1) == 1.0
    # 4 vmax_0 sqrt(S L / N), vmax_0 = H = 4, L = ln(5 * 2 * 1 * 4 * 20 / .1).
    hoeffding = trust(mdp, "hoeffding", scale=0.5)
    assert hoeffding_bonus(hoeffding, 9) == pytest.approx(0.5 * 16 * math.sqrt(2 * math.log(8000) / 9))


def test_a_declared_support_of_one_leaves_no_doubt_about_a_visited_row() -> None:
    P = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    mdp = FiniteMDP.from_arrays(P, np.full((2, 1), 0.5), horizon=2, support=1)
    tally = Tally(np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((2, 2)), np.zeros(2))
    for family in ("l1", "kl"):
        for sign in (-1, 1):
            found = backup(tally, trust(mdp, family, "known"), 0, np.array([0.0, 0.25]), sign)
            assert found == pytest.approx(0.75, abs=1e-15)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reward", ["estimated", "known"])
def test_step_variance_is_that_of_the_observed_sample(seed: int, reward: str) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, discount=0.8)
    tally, value = observe(mdp, rng), rng.random(3)
    confidence = trust(mdp, "bernstein", reward)
    for p in range(mdp.setting.n_pairs):
        seen = np.flatnonzero(tally.counts[p])
        reward_of = tally.rewards[p, seen] / tally.counts[p, seen]
        sample = np.repeat(reward_of + 0.8 * value[seen], tally.counts[p, seen].astype(int))
        assert step_variance(tally, confidence, p, value, +1) == pytest.approx(sample.var(), abs=1e-14)


def box_value(tally: Tally, confidence: Confidence, p: int, v: Floats, side: Side, radius: float) -> float:
    """Return the largest deviation of the true backup of one V, by a linear program over rows."""
    sign = 1 if side == "above" else -1
    setting = confidence.setting
    reward = np.zeros(setting.n_states) if setting.known is None else declared_reward(setting, p, sign)
    worth = sign * (reward + setting.discount * v)
    frequency = frequencies(tally, p)
    return l1_program(frequency, worth, reachable(tally, confidence, p), radius) - float(frequency @ worth)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reward", ["estimated", "known"])
def test_l1_deviation_bound_is_the_worst_vertex_of_the_box(seed: int, reward: str) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, discount=0.9)
    tally = observe(mdp, rng, most=int(rng.choice([3, 200])))
    confidence = trust(mdp, "l1", reward)
    v_lower = rng.random(3)
    v_upper = v_lower + rng.random(3) * rng.choice([0.1, 1.0])
    for p in range(mdp.setting.n_pairs):
        radius = l1_radius(confidence, p, visits(tally, p))
        c_r = 0.0 if reward == "known" else l1_reward_radius(confidence, visits(tally, p))
        for side in ("above", "below"):
            worst = max(
                box_value(tally, confidence, p, np.array(v), side, radius)
                for v in itertools.product(*zip(v_lower, v_upper, strict=True))
            )
            found = deviation_bound(tally, confidence, p, v_lower, v_upper, side=side)
            assert found == pytest.approx(c_r + worst, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reward", ["estimated", "known"])
@pytest.mark.parametrize("family", ["l1", "kl", "bernstein", "hoeffding", "ch", "bf"])
def test_deviation_bound_covers_the_bonus_of_every_value_in_the_box(
    seed: int, reward: str, family: str
) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, discount=0.9)
    tally = observe(mdp, rng)
    confidence = trust(mdp, family, reward, scale=1.0 if family in ("l1", "kl") else 0.01)
    v_lower = rng.random(3)
    v_upper = v_lower + rng.random(3)
    for p in range(mdp.setting.n_pairs):
        n = visits(tally, p)
        for value in (v_lower, v_upper, v_lower + rng.random(3) * (v_upper - v_lower)):
            for sign, side in ((1, "above"), (-1, "below")):
                seen = tally.rewards[p].sum() + 0.9 * tally.counts[p] @ value
                bonus = sign * (backup(tally, confidence, p, value, sign) - seen / n)
                most = deviation_bound(tally, confidence, p, v_lower, v_upper, side=side)  # type: ignore[arg-type]
                assert bonus <= most + 1e-12


def test_known_reward_of_an_unlisted_successor_is_the_worst_for_each_side() -> None:
    known = KnownReward(
        np.array([0, 1]),
        np.array([1]),
        np.array([0.5]),
        other_low=np.array([0.2]),
        other_high=np.array([0.9]),
    )
    mdp = FiniteMDP.from_successors(
        {(0, 0): [(1, 1.0, 0.5)]}, n_states=3, n_actions=1, terminal=[1, 2], horizon=1
    )
    values = {name: getattr(mdp.setting, name) for name in type(mdp.setting).__dataclass_fields__}
    setting = type(mdp.setting)(**{**values, "known": known})
    np.testing.assert_array_equal(declared_reward(setting, 0, +1), [0.9, 0.5, 0.9])
    np.testing.assert_array_equal(declared_reward(setting, 0, -1), [0.2, 0.5, 0.2])
    confidence = Confidence(setting=setting, bounds=Bounds(family="l1"), episodes=1, total_episodes=1)
    tally = Tally(np.array([[0.0, 1.0, 0.0]]), np.array([[0.0, 0.5, 0.0]]), np.array([0.25]))
    # One observation: the radius is 2, so all the mass may be elsewhere.
    assert backup(tally, confidence, 0, np.zeros(3), +1) == pytest.approx(0.9)
    assert backup(tally, confidence, 0, np.zeros(3), -1) == pytest.approx(0.2)


def test_bf_bonus_by_hand_with_a_terminal_successor() -> None:
    P = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    mdp = FiniteMDP.from_arrays(P, np.zeros((2, 1)), horizon=2, terminal=[1])
    tally = Tally(np.array([[3.0, 1.0]]), np.zeros((1, 2)), np.zeros(1))
    confidence = trust(mdp, "bf", scale=0.5)
    L = confidence.log_term
    # Only the return to state 0 is uncertain: its 4 visits leave min(100^2 ..., H^2) = H^2 = 4 at Ph = 3/4.
    expected = math.sqrt(8 * L / 4) * 0.1 + 14 * 2 * L / 12 + math.sqrt(8 * 0.75 * 4 / 4)
    assert bf_bonus(tally, confidence, 0, 0.1) == pytest.approx(0.5 * expected)


@pytest.mark.parametrize("family", ["l1", "kl", "bernstein", "hoeffding", "ch", "bf"])
def test_unvisited_pairs_get_the_bound_itself_and_values_stay_inside_it(family: str) -> None:
    rng = np.random.default_rng(0)
    mdp = random_mdp(rng, value_cap=1.5)
    tally = observe(mdp, rng)
    tally.counts[0] = 0.0
    confidence = trust(mdp, family)
    lower, upper = backward(tally, confidence, sign=-1), backward(tally, confidence, sign=+1)
    vmax = mdp.setting.value_bounds
    np.testing.assert_array_equal(lower.Q[:, 0], 0.0)
    np.testing.assert_array_equal(upper.Q[:, 0], vmax[:-1])
    for solution in (lower, upper):
        assert (solution.Q >= 0).all()
        assert (solution.Q <= vmax[:-1, None]).all()
    assert (lower.Q <= upper.Q).all()


def test_the_prior_wins_ties_of_the_lower_optimum_only() -> None:
    rng = np.random.default_rng(0)
    mdp = FiniteMDP.from_arrays(np.full((2, 3, 2), 0.5), rng.random((2, 3)), horizon=2)
    nothing = Tally(np.zeros((6, 2)), np.zeros((6, 2)), np.zeros(6))
    confidence = trust(mdp, "kl")
    prior = np.array([2, 1])
    np.testing.assert_array_equal(backward(nothing, confidence, sign=-1).policy, 0)
    np.testing.assert_array_equal(backward(nothing, confidence, sign=-1, prior=prior).policy, [prior, prior])
    np.testing.assert_array_equal(backward(nothing, confidence, sign=+1, prior=prior).policy, 0)
    # Other ties go to the first by rank, here action 1 in state 0 and 2 in state 1; on both sides.
    rank = np.array([1, 0, 2, 2, 1, 0])
    for sign in (-1, 1):
        np.testing.assert_array_equal(
            backward(nothing, confidence, sign=sign, rank=rank).policy, [[1, 2], [1, 2]]
        )
    some = np.array([2, -1])
    found = backward(nothing, confidence, sign=-1, prior=some, rank=rank).policy
    np.testing.assert_array_equal(found, [[2, 2], [2, 2]])
    # With data in favour of action 0 the prior has no say.
    counts = np.zeros((6, 2))
    counts[[0, 3]] = 1e6
    seen = Tally(counts, 0.9 * counts, 0.81 * counts.sum(axis=1))
    np.testing.assert_array_equal(backward(seen, confidence, sign=-1, prior=prior).policy, 0)


def test_a_ceiling_is_never_exceeded() -> None:
    rng = np.random.default_rng(1)
    mdp = random_mdp(rng)
    tally = observe(mdp, rng)
    confidence = trust(mdp, "hoeffding", scale=0.01)
    ceiling = rng.random((mdp.horizon, mdp.setting.n_pairs))
    assert (backward(tally, confidence, sign=+1, ceiling=ceiling).Q <= ceiling).all()


@pytest.mark.parametrize("reward", ["estimated", "known"])
@pytest.mark.parametrize("family", ["l1", "kl", "bernstein", "hoeffding"])
def test_bounds_close_in_on_the_truth_as_data_grows(family: str, reward: str) -> None:
    rng = np.random.default_rng(2)
    mdp = random_mdp(rng, discount=0.9)
    P, reward_of = np.zeros((mdp.setting.n_pairs, 3)), np.zeros((mdp.setting.n_pairs, 3))
    for p in range(mdp.setting.n_pairs):
        row = slice(mdp.row_start[p], mdp.row_start[p + 1])
        P[p, mdp.successor[row]], reward_of[p, mdp.successor[row]] = mdp.probability[row], mdp.reward[row]
    counts = 1e12 * P
    tally = Tally(counts, counts * reward_of, (counts * reward_of**2).sum(axis=1))
    truth = exact(mdp)
    for sign in (-1, 1):
        bound = backward(tally, trust(mdp, family, reward), sign=sign)
        assert (sign * (bound.Q - truth.Q) >= -1e-9).all()
        np.testing.assert_allclose(bound.Q, truth.Q, atol=2e-3)
        np.testing.assert_array_equal(bound.policy, truth.policy)
