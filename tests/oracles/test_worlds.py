"""Posterior worlds against their slow twin: laws of draws, evidence, and joint plans."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chary.arrays import Floats, Ints
from chary.envs import make
from chary.errors import InvalidSetting
from chary.mdp import FiniteMDP, Setting
from chary.model._world_draws import rewards_of
from chary.model.beliefs import ALPHAS, check_flat, fit_prior, flat_evidence, shrunk_evidence
from chary.model.worlds import Worlds, smallest_jump
from chary.planner._worlds import new_world_plan, plan_worlds_into, shape_of
from chary.reference import worlds as twin

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
    kind: str, reward: str, lanes: int = 12, problem: str = "random"
) -> tuple[Worlds, Setting, Floats]:
    """Return worlds that have learnt in several goes, their setting, and the counts (P, S)."""
    mdp = make(problem, horizon=6)
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
    assert flat.sum() == pytest.approx(twin.log_evidence(counts, twin.flat_weights(setting)), rel=1e-12)
    # Under `auto` a row has either prior, by its own evidence.
    best = fit_prior("auto", worlds.counts, setting, KAPPA)
    i = ALPHAS.index(best.alpha)
    np.testing.assert_allclose(best.pools, 1 / (1 + np.exp(flat - shrunk[i])), rtol=1e-9)
    untried = Worlds(setting, 2, np.random.default_rng(0), kind="auto")
    assert (untried.prior.pools == 0.5).all()


def test_labels_are_part_of_the_evidence_of_a_declared_support() -> None:
    # Three states, two possible successors, and one transition: by symmetry each state had probability 1/3.
    setting = Setting.declare(n_states=3, n_actions=1, horizon=2, support=2)
    worlds = Worlds(setting, 2, np.random.default_rng(0), kind="flat")
    worlds.learn(np.array([1]), np.array([2]), np.array([0.0]))
    assert flat_evidence(worlds.counts, setting).sum() == pytest.approx(math.log(1 / 3))
    # The second one repeats it: Dirichlet(1/2, 1/2) after one count gives (1 + 1/2) / 2.
    worlds.learn(np.array([1]), np.array([2]), np.array([0.0]))
    assert flat_evidence(worlds.counts, setting).sum() == pytest.approx(math.log(1 / 3 * 3 / 4))


@pytest.mark.parametrize("kind", ["shrunk", "flat"])
def test_draws_have_the_moments_of_the_exact_posterior(kind: str) -> None:
    # 8,000 worlds: the value of a row under weights of its successors, and its total.
    lanes = 8_000
    worlds, setting, counts = taught(kind, "known", lanes)
    prior = twin.flat_weights(setting)
    short = 0.0
    if kind == "shrunk":
        # The prior was fitted, and p0 fixed, when the data had grown by a quarter: after 40, 73 and 141.
        prior = worlds.prior.alpha * twin.prior_means(counts, setting, KAPPA)
        smallest, _ = smallest_jump(worlds.prior.alpha)
        short = 1 - (1 + smallest) * math.exp(-smallest)
    weights = twin.dense_weights(worlds, setting)
    f = np.random.default_rng(5).random(setting.n_states)
    for worth in (np.ones(setting.n_states), f):
        drawn = np.einsum("pxl,x->pl", weights, worth)
        mean, variance = (prior + counts) @ worth, (prior + counts) @ worth**2
        error = np.sqrt(variance / lanes)
        assert (np.abs(drawn.mean(axis=1) - mean) < 5 * error).all()
        missing = short * (prior @ worth**2) / variance
        ratio = drawn.var(axis=1) / variance + missing
        # The sd of a sample variance is near sqrt(kurtosis / n): 12 % is more than 4 of them.
        assert np.abs(ratio - 1).max() < 0.12
    exact = twin.draw_weights(counts, prior, 4_000, np.random.default_rng(2))
    mine = np.einsum("pxl,x->pl", weights / weights.sum(axis=1, keepdims=True), f)
    other = np.einsum("pxl,x->pl", exact / exact.sum(axis=1, keepdims=True), f)
    np.testing.assert_allclose(mine.mean(axis=1), other.mean(axis=1), atol=0.02)
    np.testing.assert_allclose(mine.std(axis=1), other.std(axis=1), rtol=0.1)


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
