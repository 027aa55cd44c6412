"""The compiled planner against the NumPy reference, on random problems and random data of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chary.agents._mixtures import CUCBVI, EPSMIX, STEPMIX, new_mixture, switch_step
from chary.arrays import Floats, Ints
from chary.mdp import FiniteMDP, Setting
from chary.mdp.setting import KnownReward
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES, Bounds
from chary.model.knowledge import Knowledge
from chary.model.rows import shuffled_rank
from chary.planner._backup import LOWER, UPPER, new_scratch
from chary.planner._full import CHARGES, EVALUATE, OPTIMISE, backward_into, explore_into, new_explorer
from chary.planner.plan import TabularPlan
from chary.reference import charges as reference_charges
from chary.reference import planner as reference
from chary.reference.planner import Confidence, Solution, Tally
from chary.simulation._judge import PLAYED, new_judge

ROUNDING = 1e-9
# The variance of rewards within a successor is a difference of sums: 1e-16 off is 1e-8 under the root.
ROOT_OF_ROUNDING = 1e-7
ALL_FAMILIES = FAMILIES + UCBVI_FAMILIES
REWARDS = ("estimated", "known")
EPISODES, TOTAL = 50, 60
fewer = settings(max_examples=max(1, settings().max_examples // 3))
seeds = st.integers(0, 2**32 - 1)


class Case(NamedTuple):
    """What was seen of one problem, as the kernels keep it and as the reference does."""

    setting: Setting
    knowledge: Knowledge
    tally: Tally
    confidence: Confidence
    prior: Ints

    def reference_charge(
        self, kind: str, lower: Solution, upper: Solution, D: Floats, t: int, s: int, a: int
    ) -> float:
        if kind == "paper":
            return reference_charges.charge_paper(self.confidence, lower, upper, t, s, a)
        if kind == "coupled":
            return reference_charges.charge_coupled(self.tally, self.confidence, lower, upper, t, s, a)
        return reference_charges.charge_difference(self.tally, self.confidence, lower, upper, D, t, s, a)


class Log(NamedTuple):
    """Transitions in the order in which they were observed; `pair` numbers (s, a)."""

    state: Ints
    pair: Ints
    successor: Ints
    reward: Floats


def draw_mdp(rng: np.random.Generator) -> FiniteMDP:
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    possible = rng.random((S, A, S)) < rng.choice([0.4, 0.8, 1.0])
    possible[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    P = (rng.dirichlet(np.full(S, 0.5), size=(S, A)) + 1e-3) * possible
    P /= P.sum(axis=2, keepdims=True)
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    # Rewards of 0 and 1 alone make ties, of pairs as well as of clipped bounds.
    R = rng.random((S, A, S)) if rng.random() < 0.7 else rng.integers(0, 2, size=(S, A, S)).astype(float)
    if rng.random() < 0.3:
        R = R[:, :, 0]
    return FiniteMDP.from_arrays(
        P,
        R,
        allowed=allowed,
        horizon=int(rng.integers(1, 6)),
        discount=float(rng.choice([1.0, 0.9, 0.5])),
        terminal=[S - 1] if rng.random() < 0.4 else [],
        support=possible.sum(axis=2) if rng.random() < 0.5 else None,
    )


def observe(mdp: FiniteMDP, rng: np.random.Generator, reward: str) -> Log:
    """Play some pairs often, some seldom and some never; estimated rewards may be noisy."""
    setting = mdp.setting
    sizes = rng.choice([0, 0, 1, 2, 5, 30, 400], size=setting.n_pairs)
    pair = rng.permutation(np.repeat(np.arange(setting.n_pairs), sizes))
    entry = np.zeros(len(pair), dtype=np.int64)
    for i, p in enumerate(pair):
        first, last = int(mdp.row_start[p]), int(mdp.row_start[p + 1])
        entry[i] = first + min(
            int(np.searchsorted(mdp.cumulative[first:last], rng.random(), side="right")), last - first - 1
        )
    earned = mdp.reward[entry]
    if reward == "estimated" and rng.random() < 0.5:
        earned = (rng.random(len(pair)) < earned).astype(float)
    state = np.repeat(np.arange(mdp.n_states), np.diff(setting.pair_start))[pair]
    return Log(state.astype(np.int64), pair.astype(np.int64), mdp.successor[entry], earned)


def partly_listed(setting: Setting, rng: np.random.Generator) -> KnownReward:
    """Return declared rewards that leave some successors out: there only the range of rewards is known."""
    known = setting.known
    assert known is not None
    kept = rng.random(len(known.successor)) < 0.5
    start = np.concatenate([[0], np.cumsum(kept)])[known.start]
    low, high = np.zeros(setting.n_pairs), np.ones(setting.n_pairs)
    return KnownReward(start, known.successor[kept], known.reward[kept], low, high)


def case(seed: int, family: str, reward: str) -> Case:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    scale = 1.0 if family in ("l1", "kl") else float(rng.choice([1.0, 0.1, 0.01, 0.001]))
    bounds = Bounds(family=family, scale=scale, delta=float(rng.choice([0.1, 0.9])))
    setting = mdp.told("known" if reward == "partly" else reward)
    if reward == "partly":
        setting = replace(setting, known=partly_listed(setting, rng))
    rank = shuffled_rank(setting, rng) if rng.random() < 0.7 else None
    knowledge = Knowledge.empty(setting, bounds, episodes=EPISODES, total_episodes=TOTAL, rank=rank)
    log = observe(mdp, rng, reward)
    # In pieces, so that rows have to grow and move more than once.
    for piece in np.array_split(np.arange(len(log.pair)), 5):
        knowledge.learn(log.state[piece], log.pair[piece], log.successor[piece], log.reward[piece])
    counts, earned = (np.zeros((setting.n_pairs, setting.n_states)) for _ in range(2))
    np.add.at(counts, (log.pair, log.successor), 1.0)
    np.add.at(earned, (log.pair, log.successor), log.reward)
    squares = np.zeros(setting.n_pairs)
    np.add.at(squares, log.pair, log.reward**2)
    tally = Tally(counts, earned, squares)
    prior = np.full(setting.n_states, -1, dtype=np.int64)
    if rng.random() < 0.5:
        acting = np.flatnonzero(~setting.terminal)
        prior[acting] = [rng.choice(np.flatnonzero(setting.allowed[s])) for s in acting]
    confidence = Confidence(setting=setting, bounds=bounds, episodes=EPISODES, total_episodes=TOTAL)
    return Case(setting, knowledge, tally, confidence, prior)


def draw_policy(setting: Setting, rng: np.random.Generator) -> Ints:
    policy = np.zeros((setting.horizon, setting.n_states), dtype=np.int64)
    for t, s in np.ndindex(policy.shape):
        if not setting.terminal[s]:
            policy[t, s] = rng.choice(np.flatnonzero(setting.allowed[s]))
    return policy


def lower_q_of(here: Case, plan: TabularPlan) -> Floats:
    """Return the lower Q (H, P), which a plan no longer keeps, of the very induction that made the plan."""
    setting, arrays = here.setting, plan.arrays
    v, policy = np.full_like(arrays.v_lower, -1), np.full_like(arrays.baseline, -1)
    q = np.full((setting.horizon, setting.n_pairs), np.nan)
    none, stages, scratch = np.zeros((0, 0)), (0, setting.horizon - 1), new_scratch(setting.n_states)
    rows, radii = here.knowledge.rows, here.knowledge.radii
    backward_into(v, q, policy, rows, radii, LOWER, OPTIMISE, here.prior, none, stages, scratch)
    # Whether Q is kept changes nothing else.
    assert v.tobytes() == arrays.v_lower.tobytes()
    assert policy.tobytes() == arrays.baseline.tobytes()
    return q


def check_best(setting: Setting, policy: Ints, Q: Floats, prior: Ints, rank: Ints) -> None:
    """Check that the policy is the argmax of its own Q: ties to the prior's action, else to the first."""
    for t, s in np.ndindex(policy.shape):
        span = slice(setting.pair_start[s], setting.pair_start[s + 1])
        if setting.terminal[s]:
            assert policy[t, s] == 0
            continue
        best = Q[t, span] == Q[t, span].max()
        winners = setting.pair_action[span][best]
        first = winners[rank[span][best].argmin()]
        assert policy[t, s] == (prior[s] if prior[s] in winners else first)


def tolerance_of(family: str, reward: str) -> float:
    return ROOT_OF_ROUNDING if family == "bernstein" and reward != "known" else ROUNDING


def close(actual: Floats, expected: Floats, tolerance: float = ROUNDING) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", [*REWARDS, "partly"])
@fewer
@given(seed=seeds)
def test_plans_and_charges_equal_the_reference(family: str, reward: str, seed: int) -> None:
    here, tolerance = case(seed, family, reward), tolerance_of(family, reward)
    setting, prior = here.setting, here.prior
    plans = {kind: TabularPlan(setting, here.knowledge, prior, charge=kind) for kind in CHARGES}
    arrays, q_lower = plans["difference"].arrays, lower_q_of(here, plans["difference"])

    rank = here.knowledge.rows.rank
    lower = reference.backward(here.tally, here.confidence, sign=-1, prior=prior, rank=rank)
    close(arrays.v_lower, lower.V, tolerance)
    close(q_lower, lower.Q, tolerance)
    check_best(setting, arrays.baseline, q_lower, prior, rank)

    upper = reference.backward(here.tally, here.confidence, sign=+1, policy=arrays.baseline)
    close(arrays.v_upper, upper.V, tolerance)

    # From here on the kernels' own numbers: a tie decided otherwise would be another baseline.
    lower = Solution(arrays.v_lower, q_lower, arrays.baseline)
    upper = Solution(arrays.v_upper, upper.Q, arrays.baseline)
    D = reference_charges.differences(here.tally, here.confidence, arrays.baseline, lower.V, upper.V)
    close(arrays.difference, D, tolerance)
    for kind, plan in plans.items():
        np.testing.assert_array_equal(plan.arrays.baseline, arrays.baseline)
        for t in range(setting.horizon):
            for s, a in np.argwhere(setting.allowed):
                expected = here.reference_charge(kind, lower, upper, D, t, int(s), int(a))
                assert plan.charge(t, int(s), int(a)) == pytest.approx(expected, rel=0, abs=tolerance)


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_charges_are_ordered_to_the_bit_and_agreement_is_free(family: str, reward: str, seed: int) -> None:
    here = case(seed, family, reward)
    paper, coupled, difference = (
        TabularPlan(here.setting, here.knowledge, here.prior, charge=kind) for kind in CHARGES
    )
    for t in range(here.setting.horizon):
        for s, a in np.argwhere(here.setting.allowed).tolist():
            assert 0 <= difference.charge(t, s, a) <= coupled.charge(t, s, a) <= paper.charge(t, s, a)
            if a == paper.baseline(t, s):
                assert coupled.charge(t, s, a) == difference.charge(t, s, a) == 0


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_explorers_and_evaluations_equal_the_reference(family: str, reward: str, seed: int) -> None:
    here, tolerance = case(seed, family, reward), tolerance_of(family, reward)
    setting, rows, radii = here.setting, here.knowledge.rows, here.knowledge.radii
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs
    nobody, scratch = np.full(S, -1, dtype=np.int64), new_scratch(S)

    optimistic = reference.backward(here.tally, here.confidence, sign=+1, rank=rows.rank)
    explorer = new_explorer(S, P, H, falling=family in UCBVI_FAMILIES)
    explore_into(explorer, rows, radii, scratch)
    close(explorer.v, optimistic.V, tolerance)
    close(explorer.q, optimistic.Q, tolerance)
    check_best(setting, explorer.policy, explorer.q, nobody, rows.rank)

    rng = np.random.default_rng([seed, 1])
    policy = draw_policy(setting, rng)
    pair = np.array([setting.pair_index[np.arange(S), actions] for actions in policy])
    none, stages = np.zeros((0, 0)), (0, H - 1)
    for sign in (LOWER, UPPER):
        expected = reference.backward(here.tally, here.confidence, sign=int(sign), policy=policy)
        v, q, played = np.ones((H + 1, S)), np.full((H, P), np.nan), policy.copy()
        backward_into(v, q, played, rows, radii, sign, EVALUATE, nobody, none, stages, scratch)
        close(v, expected.V, tolerance)
        np.testing.assert_array_equal(played, policy)
        for t, s in np.ndindex(H, S):
            if pair[t, s] >= 0:
                assert q[t, pair[t, s]] == v[t, s]
        # Nothing but the policy's own pairs is written.
        assert np.isnan(q).sum() == H * P - (pair >= 0).sum()


@pytest.mark.parametrize("family", UCBVI_FAMILIES)
@fewer
@given(seed=seeds)
def test_the_ceiling_of_ucbvi_falls_and_stays(family: str, seed: int) -> None:
    here = case(seed, family, "estimated")
    setting, rows, radii = here.setting, here.knowledge.rows, here.knowledge.radii
    size = (setting.n_states, setting.n_pairs, setting.horizon)
    explorer = new_explorer(*size, falling=True)
    before = np.random.default_rng([seed, 1]).uniform(0, setting.horizon, explorer.ceiling.shape)
    explorer.ceiling[:] = before
    explore_into(explorer, rows, radii, new_scratch(setting.n_states))
    expected = reference.backward(here.tally, here.confidence, sign=+1, ceiling=before)
    close(explorer.q, expected.Q)
    close(explorer.v, expected.V)
    np.testing.assert_array_equal(explorer.ceiling, explorer.q)
    assert (explorer.ceiling <= before).all()


def reference_width(here: Case, p: int) -> float:
    """Return what `Radii.width` holds for a visited pair."""
    n, family = reference.visits(here.tally, p), here.confidence.bounds.family
    if family == "hoeffding":
        return reference.hoeffding_bonus(here.confidence, n)
    if family == "ch":
        return reference.ch_bonus(here.confidence, n)
    if family == "bernstein":
        return reference.bernstein_bonus(here.confidence, n, 0.0)
    if family == "l1":
        return reference.l1_radius(here.confidence, p, n)
    return reference.kl_budget(here.tally, here.confidence, p) / n


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_radii_equal_the_reference(family: str, reward: str, seed: int) -> None:
    here = case(seed, family, reward)
    radii, confidence, tally = here.knowledge.radii, here.confidence, here.tally
    close(here.knowledge.rows.total, tally.counts.sum(axis=1))
    for p in range(here.setting.n_pairs):
        n = reference.visits(tally, p)
        if n == 0:
            assert radii.width[p] == np.inf
            continue
        above, below = radii.reward_above[p], radii.reward_below[p]
        if family != "bf":
            assert radii.width[p] == pytest.approx(reference_width(here, p), rel=1e-12, abs=1e-12)
        if reward == "known" or family not in ("l1", "kl"):
            assert above == below == 0
        elif family == "l1":
            assert above == below == reference.l1_reward_radius(confidence, n)
        else:
            low, high = reference.kl_reward_interval(tally, confidence, p)
            mean = reference.reward_mean(tally, confidence, p, +1)
            assert (mean - below, mean + above) == pytest.approx((low, high), rel=0, abs=ROUNDING)


# The neighbours, section 9


def mixed_values(here: Case, frozen: Ints, explorer: Ints, s: int) -> Floats:
    """Return LB(h0), h0 = 0..H: the lower value from s of pi_b before step h0, the explorer from there on."""
    H = here.setting.horizon
    policies = [np.concatenate([frozen[:h0], explorer[h0:]]) for h0 in range(H + 1)]
    return np.array(
        [
            reference.backward(here.tally, here.confidence, sign=-1, policy=policy).V[0, s]
            for policy in policies
        ]
    )


def stepmix(lower: Floats, threshold: float, u: float) -> int:
    """StepMix by the words of section 9."""
    H = len(lower) - 1
    reaching = [h0 for h0 in range(H + 1) if lower[h0] >= threshold]
    if not reaching:
        return H
    h0 = min(reaching)
    if h0 == 0:
        return 0
    return h0 if u < (threshold - lower[h0 - 1]) / (lower[h0] - lower[h0 - 1]) else h0 - 1


def epsmix(lower: Floats, threshold: float, u: float) -> int:
    """EpsMix by the words of section 9."""
    H = len(lower) - 1
    if lower[0] >= threshold:
        return 0
    if lower[H] < threshold:
        return H
    return H if u < (threshold - lower[0]) / (lower[H] - lower[0]) else 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kind", "rule"), [(STEPMIX, stepmix), (EPSMIX, epsmix)], ids=["stepmix", "epsmix"])
@fewer
@given(seed=seeds, told=st.booleans())
def test_mixtures_switch_where_section_10_says(
    family: str, kind: int, rule: Callable[[Floats, float, float], int], seed: int, told: bool
) -> None:
    here = case(seed, family, "known")
    setting, rng = here.setting, np.random.default_rng([seed, 2])
    frozen, explorer = draw_policy(setting, rng), draw_policy(setting, rng)
    s, u = int(rng.choice(np.flatnonzero(~setting.terminal))), float(rng.random())
    lower = mixed_values(here, frozen, explorer, s)
    # A threshold among the candidates' values, met exactly by the worth of pi_b that the oracle tells.
    threshold = float(rng.uniform(lower.min() - 0.1, lower.max() + 0.1))
    worth = reference.backward(here.tally, here.confidence, sign=+1, policy=frozen).V[0]
    oracle = np.full(setting.n_states, threshold + 0.5) if told else None
    eta = 0.5 if told else float(worth[s]) - threshold
    mixture = new_mixture(kind, frozen=frozen, eta=eta, oracle_value=oracle)
    knowledge = here.knowledge
    found = switch_step(
        mixture, knowledge.rows, knowledge.radii, explorer, s, u, new_scratch(setting.n_states)
    )
    expected = {rule(lower, threshold + off, u + off) for off in (0.0, ROUNDING, -ROUNDING)}
    assert found in expected
    if kind == STEPMIX:
        close(mixture.lower, lower)


@pytest.mark.parametrize("family", FAMILIES)
@fewer
@given(seed=seeds, alpha=st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_cucbvi_is_optimistic_while_enough_was_earned(family: str, seed: int, alpha: float) -> None:
    here = case(seed, family, "known")
    setting, rng = here.setting, np.random.default_rng([seed, 2])
    frozen, explorer = draw_policy(setting, rng), draw_policy(setting, rng)
    worth = reference.backward(here.tally, here.confidence, sign=+1, policy=frozen).V[0]
    bound = reference.backward(here.tally, here.confidence, sign=-1, policy=explorer).V[0]
    mixture = new_mixture(CUCBVI, frozen=frozen, alpha=alpha)
    knowledge, scratch = here.knowledge, new_scratch(setting.n_states)
    promised = earned = owed = 0.0
    for s in rng.choice(np.flatnonzero(~setting.terminal), size=12):
        owed += worth[s]
        surplus = promised + bound[s] + earned - (1 - alpha) * owed
        found = switch_step(mixture, knowledge.rows, knowledge.radii, explorer, int(s), 0.0, scratch)
        if abs(surplus) > ROUNDING:
            assert found == (0 if surplus >= 0 else setting.horizon)
        if found == 0:
            promised += bound[s]
        else:
            earned += worth[s]


@pytest.mark.parametrize("seed", range(20))
def test_exact_optimum_is_the_best_of_all_deterministic_policies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, A, H, gamma = 2, 2, 3, float(rng.choice([1.0, 0.8]))
    terminal = [1] if seed % 3 == 0 else []
    P, R = rng.dirichlet(np.ones(S), size=(S, A)), rng.random((S, A))
    allowed = np.array([[True, seed % 2 == 0], [True, True]])
    mdp = FiniteMDP.from_arrays(P, R, allowed=allowed, horizon=H, discount=gamma, terminal=terminal)
    choices = [[0] if s in terminal else np.flatnonzero(allowed[s]).tolist() for s in range(S)]
    best = np.full((H + 1, S), -np.inf)
    for flat in itertools.product(*choices * H):
        value = np.zeros((H + 1, S))
        for t, s in itertools.product(reversed(range(H)), range(S)):
            if s not in terminal:
                a = flat[t * S + s]
                value[t, s] = R[s, a] + gamma * sum(P[s, a, x] * value[t + 1, x] for x in range(S))
        best = np.maximum(best, value)
    judge = new_judge(mdp, new_scratch(S), coverage=PLAYED)
    np.testing.assert_allclose(judge.v_star, best, rtol=0, atol=1e-13)
