"""Linear worlds against their slow twin, against the tabular worlds, and the residual test against truth."""

from __future__ import annotations

import numpy as np
import pytest

from chary.arrays import Floats, Ints
from chary.envs import make
from chary.linear import LinearModel, fourier, one_hot, own
from chary.linear.algebra import quantiles_of, steps_left
from chary.linear.features import Features, median_distance
from chary.linear.plan import LinearPlan
from chary.linear.worlds import LinearWorlds, Pseudo, Steps
from chary.model.worlds import Worlds
from chary.reference import worlds as tabular
from chary.reference.linear import Data, Ends, plan_linear
from chary.shield.worlds import TAIL, Panel, upper

H, A, GAMMA = 5, 2, 0.9


def model(**options: float) -> LinearModel:
    given = {
        "low": -1.0,
        "high": 2.0,
        "worlds": 4,
        "explorers": 2,
        "held_out": 0.0,
        "pessimism": 0.5,
        "prior": 0.3,
    }
    return LinearModel(**{**given, **options})  # type: ignore[arg-type]


def walks(n: int, seed: int = 1, lost: int = 0) -> Steps:
    """Return transitions of a noisy walk in the plane, some terminal and the last ones lost."""
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(n, 2)), rng.integers(0, A, n)
    after = x + 0.3 * rng.normal(size=(n, 2)) + 0.2 * a[:, None]
    gone = np.arange(n) >= n - lost
    return Steps(x, a, np.tanh(x[:, 0]), after, rng.random(n) < 0.1, rng.integers(0, H, n), gone)


def drawn(n: int, lanes: int = 6) -> Floats:
    return np.random.default_rng(5).standard_exponential((n, lanes))


@pytest.mark.parametrize("lost", [0, 7])
def test_the_plan_is_that_of_the_twin(lost: int) -> None:
    told, features, steps = model(), fourier(2, 6, 1.5), walks(60, lost=lost)
    worlds = LinearWorlds(features, A, told, np.random.default_rng(0))
    prior = np.zeros((2, A, told.lanes, 6))
    # Both ends of every coefficient's range, read back from the sums without data.
    half = (told.high - told.low) / 2
    ends = np.array([[told.low, *[-half] * 5], [told.high, *[half] * 5]])
    total = np.diagonal(worlds.sums.gram, axis1=2, axis2=3)
    prior[1] = (worlds.sums.pull - ends[0] * total) / (ends[1] - ends[0])
    prior[0] = total - prior[1]
    assert (prior > 0).all()
    weights = drawn(60)
    worlds.add(steps, weights)
    worlds.losses = lost
    worlds.nodes = walks(30, seed=2).observation
    plan = worlds.plan(H, GAMMA)
    after = np.where((steps.ended | steps.lost)[:, None], 0.0, features(steps.after))
    rewards = np.where(steps.lost, 0.0, steps.reward)
    data = Data(features(steps.observation), steps.action, rewards, after, steps.lost, weights)
    options = {
        "actions": A, "horizon": H, "discount": GAMMA, "rewards": (told.low, told.high), "judges": 4,
        "pessimism": 0.5,
    }  # fmt: skip
    nodes = features(worlds.nodes)
    expected = plan_linear(data, Ends(ends, prior), nodes, **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(plan.theta, expected.theta, rtol=1e-8, atol=1e-9)
    frozen = LinearPlan(plan, features, told)
    for t in range(H):
        for m, here in enumerate(worlds.nodes[:8]):
            assert frozen.baseline(t, here) == expected.baseline[t, m]
    if lost:
        best = plan_linear(
            data._replace(weight=weights[:, :4]), Ends(ends, prior[:, :, :4]), nodes,
            **options, lost_is="high", policy=expected.baseline,  # type: ignore[arg-type]
        )  # fmt: skip
        np.testing.assert_allclose(plan.top, best.theta, rtol=1e-8, atol=1e-9)
    else:
        assert plan.top.size == 0


def test_charges_are_gaps_of_every_world_and_those_of_the_baseline_are_nothing() -> None:
    told, features = model(margin=0.25), fourier(2, 6, 1.5)
    worlds = LinearWorlds(features, A, told, np.random.default_rng(0))
    worlds.learn(walks(50))
    plan = LinearPlan(worlds.plan(H, GAMMA), features, told)
    here = np.array([0.3, -0.2])
    own_action = plan.baseline(1, here)
    phi = features(here[None])[0]
    q = np.clip(plan.values.theta[1, :, :4] @ phi, plan.values.low[1], plan.values.high[1])
    gaps = np.maximum(q[own_action] - q[1 - own_action], 0.0) + 0.25
    np.testing.assert_allclose(plan.charges(1, here, 1 - own_action), gaps, atol=1e-12)
    assert not plan.charges(1, here, own_action).any()
    assert plan.charge(1, here, 1 - own_action) == pytest.approx(upper(gaps.tolist(), told.panel))


def test_one_hot_features_are_the_tabular_worlds() -> None:
    # The prior draws of flat rows are handed over; the data's weights are the same exponentials.
    S, told = 5, LinearModel(low=0, high=1, worlds=8, explorers=4, held_out=0, pessimism=0.5, prior=1e-300)
    mdp = make("random", horizon=6, n_states=S, n_actions=3)
    setting, rewards = mdp.told("known"), np.asarray(mdp.reward[mdp.row_start[:-1]])
    worlds = Worlds(setting, told.lanes, np.random.default_rng(1), kind="flat")
    mine = LinearWorlds(one_hot(S), 3, told, np.random.default_rng(2))
    mine.generator.bit_generator.state = worlds.generator.bit_generator.state
    rng = np.random.default_rng(7)
    pairs, nexts = rng.integers(setting.n_pairs, size=5000), rng.integers(S, size=5000)
    worlds.learn(pairs, nexts, rewards[pairs])
    mine.learn(_steps(pairs // 3, pairs % 3, rewards[pairs], nexts))
    entries, (states, actions) = worlds.counts, np.divmod(worlds.counts.pair, 3)
    found = mine.sums.moves[actions, :, states, entries.successor]
    np.testing.assert_allclose(found, worlds.rows.weight, rtol=1e-12)

    dense = tabular.dense_weights(worlds, setting)
    prior = dense.copy()
    prior[entries.pair, entries.successor] -= worlds.rows.weight
    s, a, x = (each.ravel() for each in np.indices((S, 3, S)))
    mine.add(_steps(s, a, rewards[s * 3 + a], x), prior[s * 3 + a, x])
    rank = np.arange(setting.n_pairs)
    expected = tabular.plan_worlds(dense, worlds.rows.reward, setting, judges=8, pessimism=0.5, rank=rank)
    plan = mine.plan(6, setting.discount)
    q = plan.theta.transpose(0, 3, 1, 2).reshape(6, 15, told.lanes)
    np.testing.assert_allclose(np.clip(q, 0.0, setting.value_bounds[:6, None, None]), expected.q, atol=1e-11)
    frozen = LinearPlan(plan, one_hot(S), told)
    for t in range(6):
        for state in range(S):
            here = np.array([float(state)])
            assert frozen.baseline(t, here) == expected.baseline[t, state]
            assert [frozen.explore(m, t, here) for m in range(4)] == expected.explorer[t, state].tolist()


def test_a_prior_of_transitions_draws_dirichlet_rows() -> None:
    # Every state may follow, with shape 1/2: shares have mean 1/S and, being Dirichlet, a known variance.
    S, told = 3, LinearModel(low=0, high=1, worlds=4000, explorers=1, held_out=0)
    s, a, x = (each.ravel() for each in np.indices((S, 1, S)))
    pseudo = Pseudo(_steps(s, a, np.zeros(S * S), x), np.full(S * S, 0.5))
    worlds = LinearWorlds(one_hot(S), 1, told, np.random.default_rng(0), pseudo=pseudo)
    total = np.diagonal(worlds.sums.gram[0], axis1=1, axis2=2)
    shares = worlds.sums.moves[0] / total[:, :, None]
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 3, atol=5 * 0.3 / np.sqrt(4000))
    np.testing.assert_allclose(shares.var(axis=0), (1 / 3) * (2 / 3) / 2.5, rtol=0.1)


def _steps(s: Ints, a: Ints, r: Floats, x: Ints) -> Steps:
    no = np.zeros(len(s), dtype=bool)
    here, after = (np.asarray(each, dtype=np.float64)[:, None] for each in (s, x))
    return Steps(here, np.asarray(a, np.int64), r, after, no, np.zeros(len(s), dtype=np.int64), no)


@pytest.mark.parametrize("risk", [0.3, 0.01, 1e-4])
def test_the_panel_on_arrays_is_that_of_the_shield(risk: float) -> None:
    rng = np.random.default_rng(0)
    for worlds in (5, 24, 64):
        panel = Panel.of(risk, worlds=worlds)
        deficits = rng.exponential(size=(50, worlds)) * (rng.random((50, worlds)) < 0.6)
        fitted = worlds // TAIL if panel.reach > 0.0 else 0
        found = quantiles_of(np, deficits, panel.allowed, panel.z, panel.reach, fitted)
        np.testing.assert_allclose(found, [upper(row.tolist(), panel) for row in deficits], rtol=1e-12)


def test_fourier_features_are_those_of_the_gaussian_kernel() -> None:
    features = fourier(3, 20_001, 0.7, seed=3)
    x = np.random.default_rng(0).normal(size=(6, 3)) * 0.5
    phi = features(x)[:, 1:]
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    np.testing.assert_allclose(phi @ phi.T, np.exp(-distance / (2 * 0.7**2)), atol=0.03)
    np.testing.assert_array_equal(features(x), fourier(3, 20_001, 0.7, seed=3)(x))
    assert not np.array_equal(features(x), fourier(3, 20_001, 0.7, seed=4)(x))


def test_the_median_distance_leaves_equal_observations_out() -> None:
    x = np.array([[0.0], [0.0], [0.0], [1.0], [4.0]])
    # Different pairs: 3 of distance 1, 3 of 4, 1 of 3, each counted twice.
    assert float(median_distance(np, x)) == 3.0
    assert float(median_distance(np, np.zeros((4, 2)))) == 1.0


def test_a_terminal_step_is_worth_its_reward() -> None:
    # One action that ends at once with reward 1: every value is 1 at every stage, though g_0 = H.
    told = LinearModel(low=0.0, high=1.0, worlds=3, explorers=1, prior=1e-9, held_out=0.0)
    worlds = LinearWorlds(own(lambda x: x, 1), 1, told, np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(200, 1))
    ones, no = np.ones(200), np.zeros(200, dtype=bool)
    worlds.learn(Steps(x, np.zeros(200, dtype=np.int64), ones, x, ~no, np.zeros(200, dtype=np.int64), no))
    theta = worlds.plan(H, 1.0).theta
    np.testing.assert_allclose(theta[:, 0, :, 0], 1.0, atol=1e-6)
    np.testing.assert_allclose(theta[:, 0, :, 1], 0.0, atol=1e-6)
    assert steps_left(H, 1.0)[0] == H


def test_nodes_and_held_out_transitions_are_uniform_samples_and_change_no_weight() -> None:
    steps, features = walks(3000), fourier(2, 6, 1.5)
    plain = LinearWorlds(features, A, model(), np.random.default_rng(0))
    held = LinearWorlds(features, A, model(held_out=0.2, nodes=50, held_most=80), np.random.default_rng(0))
    for first in range(0, 3000, 500):
        plain.learn(steps.at(slice(first, first + 500)))
        held.learn(steps.at(slice(first, first + 500)))
    assert (len(held.nodes), len(held.held.action)) == (50, 80)
    assert held.learnt == pytest.approx(2400, abs=6 * np.sqrt(3000 * 0.16))
    assert plain.learnt == 3000
    # Where in the data the samples come from: the mean place of a uniform sample is the middle.
    place = {tuple(row): i for i, row in enumerate(steps.observation)}
    places = [place[tuple(row)] for row in held.held.observation]
    assert abs(np.mean(places) - 1500) < 5 * 3000 / np.sqrt(12 * 80)


def test_features_of_all_kinds_come_back_from_a_file() -> None:
    x = np.arange(3.0)[:, None]
    square = own(lambda x: x**2, 1)
    for features in (fourier(1, 4, 2.0), one_hot(3), square):
        arrays, about = features.record()
        again = Features.restored(about, arrays, features.function)
        np.testing.assert_array_equal(again(x), features(x))
