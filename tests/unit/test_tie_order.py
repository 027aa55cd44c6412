"""The order in which equally good actions are chosen, and problems with other labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chary import UCBVI, CharyUCBVI, FiniteMDP, Setting, TabularAgent
from chary.audit import Truth
from chary.envs import random, sepsis
from chary.errors import InvalidData, InvalidMDP
from chary.model.rows import pair_states, rank_by_index, shuffled_rank
from chary.storage.sealed import pack
from chary.sweeps.tabular import Algorithm, Conditions

SETTING = Setting.declare(n_states=40, n_actions=5, horizon=2, terminal=[7])


def baseline(seed: int | None, **options: object) -> list[int]:
    """Return what an agent that knows nothing plays first in every state: ties alone decide."""
    generator = None if seed is None else np.random.default_rng(seed)
    agent = TabularAgent(CharyUCBVI(eta=1.0, **options), SETTING, generator=generator)  # type: ignore[arg-type]
    found: list[int] = agent.plan.arrays.baseline[0].tolist()
    assert found == agent.plan.arrays.baseline[1].tolist()
    # The explorer decides its ties in the same order.
    assert [agent.plan.explore(0, 0, s) for s in range(40)] == found
    return found


def test_ties_follow_an_order_drawn_per_seed_and_state() -> None:
    first, second = baseline(0), baseline(1)
    assert first == baseline(0)
    assert first != second
    assert len(set(first)) == 5
    assert baseline(None) == baseline(None)
    assert set(baseline(0, ties="index")) == {0}


def test_the_prior_wins_ties_before_the_order_does() -> None:
    agent = TabularAgent(
        CharyUCBVI(eta=1.0), SETTING, prior=np.full(40, 3), generator=np.random.default_rng(0)
    )
    assert set(np.delete(agent.plan.arrays.baseline[0], 7).tolist()) == {3}


def test_the_order_takes_no_number_from_the_generator() -> None:
    generator = np.random.default_rng(5)
    TabularAgent(UCBVI(), SETTING, generator=generator)
    assert generator.random() == np.random.default_rng(5).random()


def test_every_order_of_a_state_is_equally_likely() -> None:
    setting = Setting.declare(n_states=6000, n_actions=3, horizon=1)
    ranks = shuffled_rank(setting, np.random.default_rng(0)).reshape(6000, 3)
    assert (np.sort(ranks, axis=1) == np.arange(3)).all()
    counts = np.unique(ranks, axis=0, return_counts=True)[1]
    # Six orders, 1,000 each on average with a standard deviation of 29.
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 130


def test_a_saved_agent_keeps_its_order_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    agent = TabularAgent(CharyUCBVI(eta=1.0), SETTING, generator=np.random.default_rng(3))
    agent.save(path)
    again = TabularAgent.load(path)
    np.testing.assert_array_equal(again.plan.arrays.baseline, agent.plan.arrays.baseline)
    arrays, about = agent._record()
    rank = arrays["rank"].copy()
    rank[:2] = rank[0]
    path.write_bytes(pack("agent", {**arrays, "rank": rank}, about))
    with pytest.raises(InvalidData, match="rank"):
        TabularAgent.load(path)


def test_runs_with_ties_by_index_have_the_ids_of_version_0_1() -> None:
    here = Conditions(problem="riverswim", episodes=5, warmup=1, seeds=1, etas=(0.1,), bonus="kl")
    algorithm = Algorithm(label="chary", agent="chary")
    assert algorithm.resolved(here, 0.1)["ties"] == "shuffled"
    assert "ties" not in algorithm.resolved(replace(here, ties="index"), 0.1)


def test_a_relabelled_problem_is_the_same_problem() -> None:
    mdp = random(n_states=6, n_actions=4, seed=2)
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(4) for _ in range(6)])
    other = mdp.relabelled(labels)
    for s, a in np.argwhere(mdp.setting.allowed).tolist():
        for one, two in zip(mdp.row(s, a), other.row(s, int(labels[s, a])), strict=True):
            np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(Truth(other).optimal_value, Truth(mdp).optimal_value, atol=1e-14)
    back = other.relabelled(np.argsort(labels, axis=1))
    assert back.told("known").digest == mdp.told("known").digest
    np.testing.assert_array_equal(back.probability, mdp.probability)


def test_a_relabelled_problem_keeps_its_restrictions_and_its_recorded_policy() -> None:
    mdp = sepsis()
    S, A = mdp.n_states, mdp.n_actions
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(A) for _ in range(S)])
    other = mdp.relabelled(labels)
    assert mdp.recorded_policy is not None
    assert other.recorded_policy is not None
    np.testing.assert_array_equal(other.setting.allowed[np.arange(S)[:, None], labels], mdp.setting.allowed)
    acting = np.flatnonzero(~mdp.setting.terminal)
    np.testing.assert_array_equal(other.recorded_policy[acting], labels[acting, mdp.recorded_policy[acting]])
    assert Truth(other).value_of_start(Truth(other).optimal_value) == pytest.approx(0.792216, abs=1e-6)


@pytest.mark.parametrize("labels", [[[0, 1]], [[0, 0], [0, 1]], [[0, 2], [0, 1]]])
def test_labels_must_be_permutations(labels: list[list[int]]) -> None:
    mdp = FiniteMDP.from_arrays(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=1)
    with pytest.raises(InvalidMDP, match="labels"):
        mdp.relabelled(labels)


def test_ranks_by_index_are_the_places_of_actions_in_their_states() -> None:
    setting = Setting.declare(n_states=2, n_actions=3, horizon=1, allowed=[[True, False, True], [True] * 3])
    assert pair_states(setting).tolist() == [0, 0, 1, 1, 1]
    assert rank_by_index(setting).tolist() == [0, 1, 0, 1, 2]
