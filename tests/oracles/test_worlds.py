"""Posterior worlds against their slow twin: laws of draws, evidence, and joint plans."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from chary.arrays import Floats, Ints
from chary.envs import make
from chary.errors import InvalidSetting
from chary.mdp import FiniteMDP, Setting
from chary.model._world_draws import draw_flat_into, draw_kinds_into, rewards_of
from chary.model.beliefs import (
    ALPHAS,
    FLAT,
    FLAT_WEIGHTS,
    KINDS,
    check_flat,
    fit_prior,
    flat_evidence,
    shrunk_evidence,
)
from chary.model.rows import LOST
from chary.model.worlds import Worlds, smallest_jump
from chary.planner._worlds import (
    FLOOR,
    NEAR,
    ONLY,
    PRIOR,
    Own,
    evaluate_worlds_into,
    new_world_plan,
    plan_worlds_into,
    price_worlds_into,
    shape_of,
)
from chary.reference import worlds as twin
from chary.shield.worlds import Panel

KAPPA = 5.0


def transitions(mdp: FiniteMDP, n: int, rng: np.random.Generator) -> tuple[Ints, Ints, Floats]:
    """Return n transitions of uniformly random pairs."""
    pairs = rng.integers(mdp.setting.n_pairs, size=n)
    places = np.array(
        [
            begin + min(np.searchsorted(mdp.cumulative[begin:end], u, side="right"), end - begin - 1)
            for begin, end, u in zip(
                mdp.row_start[pairs], mdp.row_start[pairs + 1], rng.random(n), strict=True
            )
        ]
    )
    return pairs, mdp.successor[places].astype(np.int64), mdp.reward[places]


def taught(
    kind: str, reward: str, lanes: int = 12, problem: str = "random", **options: int
) -> tuple[Worlds, Setting, Floats]:
    """Return worlds that have learnt in several goes, their setting, and the counts (P, S)."""
    mdp = make(problem, horizon=6, **options)
    setting = mdp.told(reward)
    rng = np.random.default_rng(7)
    worlds = Worlds(setting, lanes, np.random.default_rng(1), kind=kind, kappa=KAPPA)
    counts = np.zeros((setting.n_pairs, setting.n_states))
    for n in (40, 3, 30, 8, 60):
        pairs, nexts, rewards = transitions(mdp, n, rng)
        worlds.learn(pairs, nexts, rewards)
        np.add.at(counts, (pairs, nexts), 1.0)
    return worlds, setting, counts


@pytest.mark.parametrize("kind", ["shrunk", "flat", "auto"])
@pytest.mark.parametrize("reward", ["known", "estimated"])
@pytest.mark.parametrize("problem", ["random", "corridor"])
def test_the_joint_plan_is_that_of_the_twin(kind: str, reward: str, problem: str) -> None:
    worlds, setting, _ = taught(kind, reward, problem=problem)
    weights = twin.dense_weights(worlds, setting)
    np.testing.assert_allclose(weights.sum(axis=1), worlds.rows.total, rtol=1e-12)
    rank = np.random.default_rng(3).permutation(setting.n_pairs)
    for optimism in (None, 1.0):
        expected = twin.plan_worlds(
            weights, worlds.rows.reward, setting, judges=8, pessimism=0.5, rank=rank, optimism=optimism
        )
        plan = new_world_plan(setting, 8, 4)
        plan_worlds_into(
            plan, worlds.rows, shape_of(setting, rank), 0.5, math.nan if optimism is None else optimism
        )
        np.testing.assert_allclose(plan.value, expected.value, atol=1e-12)
        np.testing.assert_array_equal(plan.baseline, expected.baseline)
        np.testing.assert_array_equal(plan.explorer, expected.explorer)


def test_known_rewards_are_weighted_in_every_world() -> None:
    for kind in ("shrunk", "flat"):
        worlds, setting, _ = taught(kind, "known")
        weights, declared = twin.dense_weights(worlds, setting), rewards_of(setting)
        reward = np.repeat(declared.other[:, None], setting.n_states, axis=1)
        pair = np.repeat(np.arange(setting.n_pairs), np.diff(declared.start))
        reward[pair, declared.successor] = declared.reward
        expected = (weights * reward[:, :, None]).sum(axis=1) / weights.sum(axis=1)
        np.testing.assert_allclose(worlds.rows.reward, expected, rtol=1e-12)


def test_evidence_is_that_of_the_twin() -> None:
    worlds, setting, counts = taught("shrunk", "estimated")
    means = twin.prior_means(counts, setting, KAPPA)
    expected = [twin.log_evidence(counts, alpha * means) for alpha in ALPHAS]
    shrunk = shrunk_evidence(worlds.counts, setting, KAPPA)
    np.testing.assert_allclose(shrunk.sum(axis=1), expected, rtol=1e-10)
    # Every state may follow: nothing is unknown about labels.
    flat = flat_evidence(worlds.counts, setting)
    expected = [twin.log_evidence(counts, twin.flat_weights(setting, weight)) for weight in FLAT_WEIGHTS]
    np.testing.assert_allclose(flat.sum(axis=1), expected, rtol=1e-12)
    # Under `auto` a row is of any kind, by its own evidence.
    likelihood, weights = fit_prior("auto", worlds.counts, setting, KAPPA)
    together = np.vstack([shrunk, flat])
    np.testing.assert_allclose(likelihood.T, np.exp(together - together.max(axis=0)), rtol=1e-9)
    np.testing.assert_allclose(weights[FLAT:], 1 / 6)
    assert weights.sum() == pytest.approx(1.0)
    untried = Worlds(setting, 400, np.random.default_rng(0), kind="auto")
    # The share of flat rows is Beta(1/2, 1/2) over worlds: mean 1/2, and few worlds are in between.
    shares = (untried.kinds >= FLAT).mean(axis=0)
    assert shares.mean() == pytest.approx(0.5, abs=0.08)
    assert ((shares < 0.1) | (shares > 0.9)).mean() > 0.3


def test_kinds_of_rows_have_their_exact_posterior() -> None:
    # Three pairs tried, one not, and two kinds: all assignments can be listed. The shares integrate out: an
    # assignment with n_c rows of kind c has the prior probability of a Dirichlet-multinomial.
    likelihood = np.array([[1.0, 0.2], [0.1, 1.0], [1.0, 0.5], [1.0, 1.0]])
    weights = np.array([0.3, 0.7])
    exact = np.zeros(4)
    total = 0.0
    for kinds in itertools.product((0, 1), repeat=4):
        number = np.bincount(kinds, minlength=2)
        log_prior = sum(math.lgamma(w + n) - math.lgamma(w) for w, n in zip(weights, number, strict=True))
        mass = math.exp(log_prior) * math.prod(likelihood[p, c] for p, c in enumerate(kinds))
        total += mass
        exact += mass * np.array(kinds)
    drawn = np.zeros((4, 20_000), dtype=np.int8)
    tried = np.array([True, True, True, False])
    draw_kinds_into(drawn, likelihood, weights, tried, 20, np.random.default_rng(0))
    # Five standard errors of a share of 20,000 draws.
    np.testing.assert_allclose(drawn.mean(axis=1), exact / total, atol=5 * 0.5 / math.sqrt(20_000))


def test_labels_are_part_of_the_evidence_of_a_declared_support() -> None:
    # Three states, two possible successors, and one transition: by symmetry each state had probability 1/3.
    setting = Setting.declare(n_states=3, n_actions=1, horizon=2, support=2)
    worlds = Worlds(setting, 2, np.random.default_rng(0), kind="flat")
    worlds.learn(np.array([1]), np.array([2]), np.array([0.0]))
    np.testing.assert_allclose(flat_evidence(worlds.counts, setting)[:, 1], math.log(1 / 3))
    # The second one repeats it: Dirichlet(w, w) after one count gives (1 + w) / (1 + 2 w).
    worlds.learn(np.array([1]), np.array([2]), np.array([0.0]))
    again = [math.log(1 / 3 * share) for share in (1.5 / 2, 1.1 / 1.2, 1.02 / 1.04)]
    np.testing.assert_allclose(flat_evidence(worlds.counts, setting)[:, 1], again)


def drawn_flat(n_states: int, seen: list[int], weight: float, lanes: int) -> tuple[Ints, Floats]:
    """Return the states and weights of one flat row in every world, (L, S), all states being possible."""
    size, kinds = n_states, np.full((1, lanes), FLAT, dtype=np.int8)
    states, weights = np.zeros(lanes * size, dtype=np.int32), np.zeros(lanes * size, dtype=np.float32)
    atoms, start = np.arange(lanes + 1) * size, np.array([0, len(seen)])
    draw_flat_into(
        states, weights, atoms, start, np.array(seen, dtype=np.int64), n_states, kinds,
        FLAT, np.array([weight]), np.random.default_rng(0),
    )  # fmt: skip
    return states.reshape(lanes, size).astype(np.int64), weights.reshape(lanes, size).astype(float)


@pytest.mark.parametrize("weight", FLAT_WEIGHTS)
def test_flat_rows_of_any_weight_are_dirichlet_draws(weight: float) -> None:
    # Three states, one of them seen: the shares of Dirichlet(w, w, w) have mean 1/3 and, by its covariance,
    # E[sum of squares] = (w + 1) / (3 w + 1). Alone, shares do not depend on the sum, and many sums are tiny.
    lanes = 40_000
    states, weights = drawn_flat(3, [1], weight, lanes)
    total = weights.sum(axis=1)
    assert (total > 0).all()
    shares = weights / total[:, None]
    by_state = np.zeros((lanes, 3))
    np.put_along_axis(by_state, states, shares, axis=1)
    np.testing.assert_allclose(by_state.mean(axis=0), 1 / 3, atol=5 * 0.5 / math.sqrt(lanes))
    squares = (shares**2).sum(axis=1)
    np.testing.assert_allclose(squares.mean(), (weight + 1) / (3 * weight + 1), atol=5 * squares.std() / 200)
    # The sum is Gamma(3 w), but for sums that no sum of numbers counted can tell from 0.
    np.testing.assert_allclose(total.mean(), 3 * weight, atol=5 * math.sqrt(3 * weight / lanes))


def test_the_only_possible_successor_has_a_weight_however_small_the_prior() -> None:
    states, weights = drawn_flat(1, [], 1e-3, 20_000)
    assert (states == 0).all()
    assert (weights > 0).all()


def test_worlds_saved_before_flat_rows_had_small_weights_go_on() -> None:
    # Kinds up to FLAT, with weight 1/2, were all there were.
    mdp = make("random", horizon=6)
    rng = np.random.default_rng(7)
    worlds = Worlds(mdp.setting, 5, np.random.default_rng(1), kind="flat")
    worlds.learn(*transitions(mdp, 50, rng))
    assert (worlds.kinds == FLAT).all()
    resumed = Worlds(mdp.setting, 5, np.random.default_rng(2), kind="auto")
    resumed.restore(worlds.to_arrays())
    resumed.learn(*transitions(mdp, 3, rng))
    assert (resumed.kinds == FLAT).all()
    resumed.learn(*transitions(mdp, 100, rng))
    assert resumed.kinds.max() < KINDS


@pytest.mark.parametrize("kind", ["shrunk", "flat"])
def test_draws_have_the_moments_of_the_exact_posterior(kind: str) -> None:
    # 8,000 worlds: the value of a row under weights of its successors, and its total.
    lanes = 8_000
    worlds, setting, counts = taught(kind, "known", lanes)
    # The prior was fitted, and p0 fixed, when the data had grown by a quarter: after 40, 73 and 141.
    means = twin.flat_weights(setting) if kind == "flat" else twin.prior_means(counts, setting, KAPPA)
    of_kind = np.array([*ALPHAS, *np.array(FLAT_WEIGHTS) / FLAT_WEIGHTS[0]])
    short = np.zeros(len(of_kind))
    for i, alpha in enumerate(ALPHAS):
        smallest, _ = smallest_jump(alpha)
        short[i] = 1 - (1 + smallest) * math.exp(-smallest)
    weights = twin.dense_weights(worlds, setting)
    f = np.random.default_rng(5).random(setting.n_states)
    scale, missing = of_kind[worlds.kinds], short[worlds.kinds]
    for worth in (np.ones(setting.n_states), f):
        # Given the kind of a row in a world, (P, L).
        mean = scale * (means @ worth)[:, None] + (counts @ worth)[:, None]
        of_prior, of_data = (means @ worth**2)[:, None], (counts @ worth**2)[:, None]
        variance = scale * (1 - missing) * of_prior + of_data
        off = np.einsum("pxl,x->pl", weights, worth) - mean
        assert (np.abs(off.mean(axis=1)) < 5 * np.sqrt(variance.mean(axis=1) / lanes)).all()
        # The sd of a sample variance is near sqrt(kurtosis / n): 15 % is more than 4 of them.
        assert np.abs((off**2).mean(axis=1) / variance.mean(axis=1) - 1).max() < 0.15
    if kind == "shrunk":
        return
    prior = means
    exact = twin.draw_weights(counts, prior, 4_000, np.random.default_rng(2))
    mine = np.einsum("pxl,x->pl", weights / weights.sum(axis=1, keepdims=True), f)
    other = np.einsum("pxl,x->pl", exact / exact.sum(axis=1, keepdims=True), f)
    np.testing.assert_allclose(mine.mean(axis=1), other.mean(axis=1), atol=0.02)
    np.testing.assert_allclose(mine.std(axis=1), other.std(axis=1), rtol=0.1)


def test_a_pair_that_was_not_tried_earns_what_arrivals_earned() -> None:
    # Two actions in state 0; only action 0 was tried, leads to state 1, and earns 1. Elsewhere all earn 0.
    setting = Setting.declare(n_states=3, n_actions=2, horizon=2)
    worlds = Worlds(setting, 4_000, np.random.default_rng(0), kind="shrunk", kappa=1.0)
    pairs = np.repeat(setting.pair_index[[0, 1, 2], [0, 0, 0]], 200)
    nexts, rewards = np.repeat([1, 2, 2], 200), np.repeat([1.0, 0.0, 0.0], 200)
    worlds.learn(pairs, nexts, rewards)
    earned = worlds.rows.reward.mean(axis=1)
    tried, other, elsewhere = (earned[setting.pair_index[s, a]] for s, a in ((0, 0), (0, 1), (1, 1)))
    assert tried > 0.99
    # The other action of state 0 probably leads to state 1, too, that of state 1 to state 2.
    assert 0.75 < other < 0.9
    assert 0.1 < elsewhere < 0.25
    # State 2 was reached by two pairs, with one reward: with probability 1/3 rewards are not so simple, and
    # an untried pair earns anything in that share of the worlds.
    assert worlds.rows.reward[setting.pair_index[0, 1]].std() > 0.05


def test_possible_successors_that_were_not_seen_have_distinct_labels() -> None:
    setting = Setting.declare(n_states=9, n_actions=1, horizon=2, support=4)
    worlds = Worlds(setting, 50, np.random.default_rng(0), kind="flat")
    # The first go fits the prior; later ones only relabel.
    worlds.learn(np.zeros(20, dtype=np.int64), np.full(20, 3), np.zeros(20))
    for x in (7, 1):
        worlds.learn(np.array([0]), np.array([x]), np.array([0.0]))
        atoms = worlds.rows.atom_state.reshape(50, 9, 4)[:, 0]
        assert all(len(set(labels)) == 4 and {3, x} <= set(labels) for labels in atoms.tolist())
    # What is left has any label that was not seen.
    others = {int(x) for labels in atoms for x in labels} - {1, 3, 7}
    assert others == {0, 2, 4, 5, 6, 8}


def test_saved_worlds_go_on_to_the_same_bits() -> None:
    mdp = make("random", horizon=6)
    rng = np.random.default_rng(7)
    generator = np.random.default_rng(1)
    worlds = Worlds(mdp.setting, 5, generator, kind="auto")
    worlds.learn(*transitions(mdp, 50, rng))
    arrays, state = worlds.to_arrays(), generator.bit_generator.state
    later = transitions(mdp, 40, rng)
    worlds.learn(*later)
    other = np.random.default_rng(99)
    resumed = Worlds(mdp.setting, 5, other, kind="auto")
    resumed.restore(arrays)
    other.bit_generator.state = state
    resumed.learn(*later)
    for name, array in worlds.to_arrays().items():
        assert array.tobytes() == resumed.to_arrays()[name].tobytes(), name


def test_flat_needs_a_declared_support_where_states_are_many() -> None:
    with pytest.raises(InvalidSetting, match="'world_prior' flat needs the number of possible successors"):
        check_flat(Setting.declare(n_states=700, n_actions=2, horizon=3))
    check_flat(Setting.declare(n_states=700, n_actions=2, horizon=3, support=5))
    check_flat(Setting.declare(n_states=10, n_actions=2, horizon=3))


def test_rewards_paid_on_arrival_are_weighted_like_the_row_itself() -> None:
    # 5 states, 10 actions, every pair seen once; arriving in state 4 earns 1. Where rewards are paid on
    # arrival, a pair earns what its row leads to: (1 + 1/2) / (1 + 5/2) after one success, and not the 0.6
    # that a prior of weight 1 would leave.
    setting = Setting.declare(n_states=5, n_actions=10, horizon=2, support=5)
    worlds = Worlds(setting, 4_000, np.random.default_rng(0), kind="flat")
    pairs = np.arange(setting.n_pairs)
    worlds.learn(pairs, pairs % 5, (pairs % 5 == 4).astype(float))
    weights = twin.dense_weights(worlds, setting)
    expected = (weights[:, 4] / weights.sum(axis=1)).mean(axis=1)
    assert np.abs(expected[4] - 1.5 / 3.5) < 0.02
    assert np.abs(worlds.rows.reward.mean(axis=1) - expected).max() < 0.03


def with_losses(reward: str = "estimated") -> tuple[Worlds, Setting, Floats]:
    """Return worlds that have lost some outcomes, and the weights of those, (P, L)."""
    worlds, setting, _ = taught("auto", reward)
    pairs = np.random.default_rng(11).integers(setting.n_pairs, size=30)
    worlds.learn(pairs, np.full(30, LOST), np.zeros(30))
    return worlds, setting, worlds.lost_shares()[0] * worlds.rows.total


@pytest.mark.parametrize("reward", ["known", "estimated"])
def test_policies_are_valued_as_by_the_twin_where_outcomes_get_lost(reward: str) -> None:
    worlds, setting, lost = with_losses(reward)
    weights, rank = twin.dense_weights(worlds, setting), np.arange(setting.n_pairs)
    np.testing.assert_allclose(weights.sum(axis=1) + lost, worlds.rows.total, rtol=1e-12)
    shape, rng = shape_of(setting, rank), np.random.default_rng(2)
    policy = rng.integers(setting.n_actions, size=(setting.horizon, setting.n_states))
    shares, values = worlds.lost_shares(), []
    for gone, rewards in ((np.zeros((2, 0, 0)), None), (shares, shares[1])):
        plan = new_world_plan(setting, 8, 4)
        evaluate_worlds_into(plan, worlds.rows, shape, policy, gone)
        expected = twin.evaluate_worlds(weights, worlds.rows.reward, setting, policy, lost, rewards)
        np.testing.assert_allclose(plan.value, expected, atol=1e-12)
        values.append(plan.value)
    assert (values[0] <= values[1]).all()
    assert (values[0][0] < values[1][0]).all()
    planned = new_world_plan(setting, 8, 4)
    plan_worlds_into(planned, worlds.rows, shape, 0.0, math.nan)
    dense = twin.plan_worlds(
        weights, worlds.rows.reward, setting, judges=8, pessimism=0.0, rank=rank, lost=lost
    )
    np.testing.assert_allclose(planned.value, dense.value, atol=1e-12)


@pytest.mark.parametrize("losses", [False, True])
def test_gaps_are_those_of_the_twin(losses: bool) -> None:
    check_gaps(*(with_losses() if losses else (*taught("auto", "estimated")[:2], None)))


def test_gaps_are_those_of_the_twin_where_values_fill_the_nearest_cache() -> None:
    worlds, setting, _ = taught("auto", "estimated", n_states=400, n_actions=2)
    assert setting.n_states * worlds.rows.total.shape[1] > NEAR
    check_gaps(worlds, setting, None)


def check_gaps(worlds: Worlds, setting: Setting, lost: Floats | None) -> None:
    weights, rank = twin.dense_weights(worlds, setting), np.arange(setting.n_pairs)
    shape, K = shape_of(setting, rank), 8
    plan = new_world_plan(setting, K, 4)
    plan_worlds_into(plan, worlds.rows, shape, 0.0, math.nan)
    dense = twin.plan_worlds(
        weights, worlds.rows.reward, setting, judges=K, pessimism=0.0, rank=rank, lost=lost
    )
    top = dense.value
    if lost is not None:
        best = plan._replace(value=np.zeros_like(plan.value), spread=np.zeros_like(plan.spread))
        evaluate_worlds_into(best, worlds.rows, shape, plan.baseline, worlds.lost_shares())
        plan = plan._replace(top=best.value)
        shares = worlds.lost_shares()[1]
        top = twin.evaluate_worlds(weights, worlds.rows.reward, setting, dense.baseline, lost, shares)
    steps = np.argwhere(np.ones((setting.horizon, setting.n_states, setting.n_actions), dtype=bool))
    prices = np.empty((len(steps), K))
    price_worlds_into(prices, plan, worlds.rows, shape, np.ascontiguousarray(steps))
    for (t, s, a), gaps in zip(steps.tolist(), prices, strict=True):
        expected = np.maximum(top[t, s, :K] - dense.q[t, setting.pair_index[s, a], :K], 0.0)
        if a == dense.baseline[t, s]:
            expected = np.zeros(K)
        np.testing.assert_allclose(gaps, expected, atol=1e-12)


@pytest.mark.parametrize(("role", "name"), [(PRIOR, "prior"), (FLOOR, "floor"), (ONLY, "only")])
@pytest.mark.parametrize("panel", [Panel(2, 1.0), Panel(-1, 0.5)])
def test_plans_with_a_policy_of_the_user_are_those_of_the_twin(role: int, name: str, panel: Panel) -> None:
    worlds, setting, _ = taught("auto", "estimated")
    weights, rank = twin.dense_weights(worlds, setting), np.arange(setting.n_pairs)
    shape, rng = shape_of(setting, rank), np.random.default_rng(4)
    table = rng.integers(setting.n_actions, size=(setting.horizon, setting.n_states))
    theirs = new_world_plan(setting, 8, 4)
    evaluate_worlds_into(theirs, worlds.rows, shape, table, np.zeros((2, 0, 0)))
    plan = new_world_plan(setting, 8, 4)
    plan_worlds_into(plan, worlds.rows, shape, 0.0, math.nan, Own(role, table, theirs.value, panel))
    own = twin.DenseOwn(name, table, twin.evaluate_worlds(weights, worlds.rows.reward, setting, table), panel)
    dense = twin.plan_worlds(
        weights, worlds.rows.reward, setting, judges=8, pessimism=0.0, rank=rank, own=own
    )
    np.testing.assert_array_equal(plan.baseline, dense.baseline)
    np.testing.assert_allclose(plan.value, dense.value, atol=1e-12)
    kept = (plan.baseline == table).mean()
    assert kept == 1.0 if name == "only" else 0.0 < kept < 1.0


def merged_in(order: str, lanes: int) -> tuple[Worlds, Setting, Floats]:
    """Return three sets of worlds merged, as (ab)c or a(bc), and the counts of all, (P, S)."""
    mdp = make("random", horizon=4)
    setting, rng = mdp.told("estimated"), np.random.default_rng(7)
    counts = np.zeros((setting.n_pairs, setting.n_states))
    sets = []
    for i, n in enumerate((60, 25, 40)):
        worlds = Worlds(setting, lanes, np.random.default_rng([ord(order[0]), i]), kind="flat")
        pairs, nexts, rewards = transitions(mdp, n, rng)
        worlds.learn(pairs, nexts, rewards)
        np.add.at(counts, (pairs, nexts), 1.0)
        sets.append(worlds)
    a, b, c = sets
    return (a.merged(b).merged(c) if order == "left" else a.merged(b.merged(c))), setting, counts


@pytest.mark.parametrize("order", ["left", "right"])
def test_merged_worlds_are_the_posterior_of_all_the_data(order: str) -> None:
    # Exact moments of Dirichlet(1/2 + counts): both orders must have them, so merging is associative in law.
    lanes = 4_000
    worlds, setting, counts = merged_in(order, lanes)
    assert worlds.learnt == 125
    assert worlds.counts.number.sum() == 125
    weights = twin.dense_weights(worlds, setting)
    drawn = weights / weights.sum(axis=1, keepdims=True)
    alpha = counts + 0.5
    total = alpha.sum(axis=1, keepdims=True)
    mean = alpha / total
    variance = mean * (1 - mean) / (total + 1)
    assert (np.abs(drawn.mean(axis=2) - mean) < 5 * np.sqrt(variance / lanes)).all()
    assert np.abs(drawn.var(axis=2) / variance - 1).max() < 0.2
    # Rewards: the same weights on those observed, and two atoms of weight 1 together.
    n = counts.sum(axis=1)
    assert (np.abs(worlds.rows.reward.mean(axis=1) - 0.5) < 0.5 * n / (n + 1) + 0.05).all()


def test_worlds_merge_only_with_their_like() -> None:
    worlds, setting, _ = taught("flat", "estimated")
    other = Worlds(setting, 3, np.random.default_rng(0), kind="flat", kappa=KAPPA)
    with pytest.raises(InvalidSetting, match=r"'other' must be worlds of the same .* got \(3, 'flat'"):
        worlds.merged(other)
    # Drawn with one seed, the data's weights of two sets are the same numbers: their sum is no posterior.
    same = taught("flat", "estimated")[0]
    with pytest.raises(InvalidSetting, match="'other' must be drawn with another seed"):
        worlds.merged(same)
    elsewhere = taught("flat", "estimated", problem="corridor")[0]
    with pytest.raises(InvalidSetting, match="for another problem"):
        worlds.merged(elsewhere)


def test_what_is_lost_has_the_law_of_one_more_successor() -> None:
    # One pair, flat, three possible successors: Dirichlet(1/2 + 4, 1/2, 1/2; 1/2 + 2 lost).
    setting = Setting.declare(n_states=3, n_actions=1, horizon=2)
    worlds = Worlds(setting, 20_000, np.random.default_rng(0), kind="flat")
    worlds.learn(np.zeros(6, dtype=np.int64), np.array([1, LOST, 1, 1, LOST, 1]), np.zeros(6))
    share, total = worlds.lost_shares()[0, 0], 8.0
    mean = 2.5 / total
    assert share.mean() == pytest.approx(mean, abs=0.005)
    assert share.var() == pytest.approx(mean * (1 - mean) / (total + 1), rel=0.05)
    assert worlds.learnt == 6
    assert worlds.counts.number.tolist() == [4.0]
