"""The problems: facts of docs/algorithm.md section 8, numbers worked by hand, siblings and bad options."""

from __future__ import annotations

import hashlib
import math
from importlib import resources
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from chary.arrays import Floats
from chary.envs import PROBLEMS, corridor, inventory, make, random, riverswim, sepsis, sibling
from chary.envs import sepsis as sepsis_problem
from chary.envs.sepsis import DATA_SHA256, DEATH, SURVIVAL, clinicians, parse
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.mdp import FiniteMDP


def values(mdp: FiniteMDP, policy: Floats | None = None) -> tuple[Floats, Floats]:
    """Return V, (H + 1, S), and Q, (H, S, A), of the optimum or a stationary policy, by dense induction."""
    P, R = mdp.dense()
    allowed = mdp.setting.allowed
    V = np.zeros((mdp.horizon + 1, mdp.n_states))
    Q = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    for t in reversed(range(mdp.horizon)):
        Q[t] = R + P @ V[t + 1]
        if policy is None:
            V[t] = np.where(allowed.any(axis=1), np.where(allowed, Q[t], -1.0).max(axis=1), 0.0)
        else:
            V[t] = (policy * Q[t]).sum(axis=1)
    return V, Q


def value(mdp: FiniteMDP, policy: Floats | None = None) -> float:
    return float(mdp.start @ values(mdp, policy)[0][0])


def played(mdp: FiniteMDP, actions: NDArray[np.int64]) -> Floats:
    policy = np.zeros((mdp.n_states, mdp.n_actions))
    policy[np.arange(mdp.n_states), actions] = 1.0
    return policy


# Inventory. Raw rewards run from -17 (order 5 into empty stock: -2 - 10 - 5, nothing sold) to 35 (hold 5,
# sell all: -5 + 40), so 52 units of money make one scaled unit.


def test_inventory_has_the_papers_shape() -> None:
    mdp = inventory()
    assert (mdp.n_states, mdp.n_actions, mdp.horizon) == (6, 6, 20)
    assert mdp.setting.n_pairs == 21
    assert mdp.setting.allowed.tolist() == [[s + a <= 5 for a in range(6)] for s in range(6)]
    assert mdp.start.tolist() == [1, 0, 0, 0, 0, 0]
    assert mdp.setting.support.tolist() == [6] * 21


def test_inventory_row_worked_by_hand() -> None:
    # s = 1, a = 2: u = 3 in stock; demand 0, 1, 2 leaves 3, 2, 1 and 3, 4, 5 leave 0. O = 2 + 4, h = 3.
    x, p, r = inventory(units="money").row(1, 2)
    assert x.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(p, [3 / 6, 1 / 6, 1 / 6, 1 / 6], rtol=1e-15)
    # Sold 3, 2, 1, 0: 24, 16, 8, 0, less 9.
    np.testing.assert_allclose(r, (np.array([15, 7, -1, -9]) + 17) / 52, rtol=1e-15)


def test_inventory_in_money_is_the_same_problem_with_its_scale() -> None:
    scaled, money = inventory(), inventory(units="money")
    assert (scaled.scale.low, scaled.scale.high) == (0.0, 1.0)
    assert (money.scale.low, money.scale.high) == (-17.0, 35.0)
    np.testing.assert_array_equal(scaled.reward, money.reward)
    np.testing.assert_array_equal(scaled.known.reward, money.known.reward)
    np.testing.assert_array_equal(scaled.probability, money.probability)
    assert (scaled.reward.min(), scaled.reward.max()) == (0.0, 1.0)


def test_inventory_declares_rewards_of_impossible_successors() -> None:
    mdp = inventory()
    assert np.diff(mdp.known.start).tolist() == [6] * 21
    assert ((mdp.known.reward >= 0) & (mdp.known.reward <= 1)).all()
    # (0, 0): nothing ordered, nothing sold: 17 / 52; a stock of 1 out of nothing would earn -8: 9 / 52.
    np.testing.assert_allclose(mdp.known.reward[:2], [17 / 52, 9 / 52], rtol=1e-15)


def test_inventory_optimum_has_the_recorded_gaps() -> None:
    mdp = inventory()
    V, Q = values(mdp)
    gaps = (V[:-1, :, None] - Q)[:, mdp.setting.allowed]
    assert gaps.max() == pytest.approx(0.169, abs=5e-4)


def test_inventory_last_month_worked_by_hand() -> None:
    # With one month left and empty stock, ordering u sells min(D, u): u = 2 earns
    # 8 (1/6 * 1 + 4/6 * 2) - 6 - 2 = 4 and u = 3 earns 8 (1/6 * 1 + 1/6 * 2 + 3/6 * 3) - 8 - 3 = 5; u = 4
    # earns 8 (1/6 + 2/6 + 3/6 + 2/6 * 4) - 10 - 4 = 4.67. Best: 5, scaled (5 + 17) / 52.
    assert value(inventory(horizon=1)) == pytest.approx(22 / 52, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"capacity": 0}, InvalidSetting, r"'capacity' must be a whole number >= 1, got 0\."),
        ({"horizon": 0}, CharyError, r"'horizon' must be a whole number >= 1, got 0\."),
        (
            {"units": "monney"},
            UnknownName,
            r"'units' must be one of scaled, money, got 'monney'\. Did you mean 'money'",
        ),
        ({"fixed_cost": -1.0}, InvalidSetting, r"'fixed_cost' must lie in \[0, inf\), got -1\.0\."),
        ({"unit_cost": math.inf}, InvalidSetting, r"'unit_cost' must lie in \[0, inf\), got inf\."),
        ({"holding_cost": math.nan}, InvalidSetting, r"'holding_cost' must lie in \[0, inf\), got nan\."),
        ({"unit_revenue": "8"}, InvalidSetting, r"'unit_revenue' must lie in \[0, inf\), got '8'\."),
        ({"demand": [0.5, 0.4]}, InvalidSetting, r"'demand' must sum to 1, got a sum of 0\.9\."),
        ({"demand": [1.5, -0.5]}, InvalidSetting, r"'demand' must be a list of probabilities >= 0"),
        ({"demand": "often"}, InvalidSetting, r"'demand' must be a list of probabilities, got 'often'\."),
        (
            {"fixed_cost": 0, "unit_cost": 0, "holding_cost": 0, "unit_revenue": 0},
            InvalidSetting,
            r"must leave rewards that differ, got -?0 everywhere\.",
        ),
    ],
)
def test_bad_inventory_options_are_refused(
    options: dict[str, Any], error: type[CharyError], message: str
) -> None:
    with pytest.raises(error, match=message):
        inventory(**options)


# Sepsis.


def test_shipped_sepsis_file_has_the_recorded_hash() -> None:
    content = resources.files("chary.envs").joinpath("data", "sepsis.npz").read_bytes()
    assert hashlib.sha256(content).hexdigest() == DATA_SHA256
    readme = resources.files("chary.envs").joinpath("data", "README.md").read_text(encoding="utf-8")
    assert DATA_SHA256 in readme
    licence = resources.files("chary.envs").joinpath("data", "LICENSE-icu-sepsis").read_text(encoding="utf-8")
    assert licence.startswith("MIT License")


def test_a_damaged_sepsis_file_is_refused() -> None:
    content = resources.files("chary.envs").joinpath("data", "sepsis.npz").read_bytes()
    with pytest.raises(
        InvalidData, match=rf"'sepsis.npz' must have the SHA-256 {DATA_SHA256}, got [0-9a-f]{{64}}\."
    ):
        parse(content[:-1] + b"x")


def test_sepsis_facts_with_admissible_actions() -> None:
    mdp = sepsis_problem()
    assert (mdp.n_states, mdp.n_actions, mdp.horizon, mdp.setting.n_pairs) == (716, 25, 20, 2238)
    assert np.flatnonzero(mdp.setting.terminal).tolist() == [713, 714, 715]
    assert mdp.setting.value_cap == 1.0
    assert mdp.restricts_actions
    V, Q = values(mdp)
    assert float(mdp.start @ V[0]) == pytest.approx(0.792216, abs=1e-6)
    gaps = (V[:-1, :, None] - Q)[:, mdp.setting.allowed]
    assert gaps.max() == pytest.approx(0.365, abs=5e-4)
    assert (gaps > 0.05).mean() == pytest.approx(0.116, abs=5e-4)
    assert mdp.recorded_policy is not None
    assert value(mdp, played(mdp, mdp.recorded_policy)) == pytest.approx(0.705565, abs=1e-6)


def test_sepsis_facts_with_all_actions() -> None:
    mdp = sepsis(actions="all")
    assert mdp.setting.n_pairs == 713 * 25
    assert not mdp.restricts_actions
    assert value(mdp) == pytest.approx(0.792216, abs=1e-6)
    assert value(mdp, np.full((716, 25), 1 / 25)) == pytest.approx(0.685447, abs=1e-6)
    assert value(mdp, clinicians()) == pytest.approx(0.691983, abs=1e-6)


def test_an_inadmissible_row_is_the_mean_of_the_admissible_ones() -> None:
    few, every = sepsis(), sepsis(actions="all")
    s = 0
    admissible = np.flatnonzero(few.setting.allowed[s])
    mean = np.zeros(few.n_states)
    for a in admissible:
        x, p, _ = few.row(s, int(a))
        mean[x] += p / len(admissible)
    other = int(np.flatnonzero(~few.setting.allowed[s])[0])
    x, p, r = every.row(s, other)
    np.testing.assert_allclose(p, mean[x], rtol=1e-12)
    assert (mean > 0).sum() == len(x)
    np.testing.assert_array_equal(r, x == SURVIVAL)


def test_sepsis_pays_for_survival_alone_and_says_so() -> None:
    mdp = sepsis()
    np.testing.assert_array_equal(mdp.reward, mdp.successor == SURVIVAL)
    assert mdp.successor.max() == SURVIVAL
    assert (mdp.successor == DEATH).any()
    assert set(mdp.known.successor.tolist()) == {SURVIVAL}
    assert mdp.known.other_high.max() == mdp.known.other_low.min() == 0.0


def test_clinicians_policy_is_a_distribution_in_every_state_but_the_last_three() -> None:
    np.testing.assert_allclose(clinicians().sum(axis=1), [1.0] * 713 + [0.0] * 3, atol=1e-12)


# Corridor, RiverSwim, random.


def test_corridor_rows_worked_by_hand() -> None:
    mdp = corridor(length=2)
    # Hurrying in the last cell cannot pass the gate, state 2.
    assert mdp.row(1, 1)[0].tolist() == [2]
    assert mdp.row(0, 1)[0].tolist() == [1, 2]
    assert mdp.row(0, 2)[0].tolist() == [0]
    # Arm 1: lit (3) with 0.65 and reward 1, dim (4) with 0.35 and 0; arm 2: 0.35.
    x, p, r = mdp.row(2, 1)
    assert (x.tolist(), r.tolist()) == ([3, 4], [1.0, 0.0])
    np.testing.assert_allclose(p, [0.65, 0.35], rtol=1e-12)
    np.testing.assert_allclose(mdp.row(2, 2)[1], [0.35, 0.65], rtol=1e-12)
    assert mdp.row(2, 0)[2].tolist() == [0.5, 0.5]
    assert mdp.setting.allowed[3:].tolist() == [[True, False, False]] * 2


def test_hurrying_down_the_corridor_costs_more_than_a_budget_and_arm_one_less_than_nothing() -> None:
    mdp = corridor()
    L = 11
    baseline = np.zeros((mdp.n_states, mdp.n_actions))
    baseline[:, 0] = 1.0  # walk, then the safe arm
    V, Q = values(mdp, baseline)
    gap = V[:-1, :, None] - Q
    # 0.09 - 0.5 * (0.5 - 0.45) in every cell that is not next to the gate, where no cell can be gained.
    np.testing.assert_allclose(gap[0, : L - 1, 1], 0.065, atol=1e-12)
    np.testing.assert_allclose(gap[0, L - 1, 1], 0.09, atol=1e-12)
    np.testing.assert_allclose(gap[:-1, L, 1], -0.15, atol=1e-12)
    assert value(mdp) > value(mdp, baseline) + 0.5


def test_riverswim_rows_are_the_classic_ones() -> None:
    P, R = riverswim().dense()
    np.testing.assert_allclose(P[0, 1, :2], [0.4, 0.6], rtol=1e-12)
    np.testing.assert_allclose(P[2, 1, 1:4], [0.05, 0.6, 0.35], rtol=1e-12)
    np.testing.assert_allclose(P[5, 1, 4:], [0.4, 0.6], rtol=1e-12)
    np.testing.assert_array_equal(P[:, 0].argmax(axis=1), [0, 0, 1, 2, 3, 4])
    assert (R[0, 0], R[5, 1], R.sum()) == (0.005, 1.0, 1.005)


@pytest.mark.parametrize("successors", [None, 1, 2, 7, 8])
def test_random_is_ergodic_under_every_policy(successors: int | None) -> None:
    mdp = random(n_states=8, n_actions=3, successors=successors, seed=5)
    expected = 8 if successors is None else successors
    assert np.diff(mdp.row_start).tolist() == [expected] * 24
    for seed in range(20):
        actions = np.random.default_rng(seed).integers(3, size=8)
        reached = np.stack([mdp.dense()[0][s, a] for s, a in enumerate(actions)]) > 0
        assert connected_components(reached, connection="strong", return_labels=False) == 1


def test_random_is_fixed_by_its_seed() -> None:
    one, again, other = random(seed=1), random(seed=1), random(seed=2)
    assert one.probability.tobytes() == again.probability.tobytes()
    assert one.reward.tobytes() == again.reward.tobytes()
    assert one.probability.tobytes() != other.probability.tobytes()


def test_random_of_twenty_thousand_states_stays_sparse() -> None:
    mdp = random(n_states=20_000, n_actions=10, horizon=50, successors=5)
    assert mdp.setting.n_pairs == 200_000
    assert len(mdp.successor) == 1_000_000
    held = sum(
        array.nbytes for array in (mdp.row_start, mdp.successor, mdp.probability, mdp.reward, mdp.cumulative)
    )
    held += sum(array.nbytes for array in mdp.known)
    assert held < 50e6


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        ("corridor", {"length": 0}, r"'length' must be a whole number >= 1, got 0\."),
        ("corridor", {"arms": 1}, r"'arms' must be a whole number >= 2, got 1\."),
        (
            "corridor",
            {"early_gap": 0.5},
            r"'early_gap' must lie in \[0, 0\.45\], got 0\.5\. It is paid out of",
        ),
        ("corridor", {"late_gain": 0.6}, r"'late_gain' must keep .* got 0\.6 with safe_reward = 0\.5\."),
        ("corridor", {"boost": math.nan}, r"'boost' must lie in \[0, 1\], got nan\."),
        ("riverswim", {"n_states": 1}, r"'n_states' must be a whole number >= 2, got 1\."),
        ("riverswim", {"forward": 0.99}, r"'forward' \+ 'backward' must be <= 1, got 0\.99 \+ 0\.05\."),
        ("riverswim", {"large_reward": 2}, r"'large_reward' must lie in \[0, 1\], got 2\."),
        ("random", {"n_states": 0}, r"'n_states' must be a whole number >= 1, got 0\."),
        ("random", {"successors": 11}, r"'successors' must be at most n_states = 10, got 11\."),
        ("random", {"seed": -1}, r"'seed' must be a whole number >= 0, got -1\."),
        ("random", {"n_states": 20_000}, r"'successors' must be given if .* got None with 20000 states"),
        (
            "sepsis",
            {"actions": "al"},
            r"'actions' must be one of admissible, all, got 'al'\. Did you mean 'all'\?",
        ),
        ("sepsis", {"horizon": 0}, r"'horizon' must be a whole number >= 1, got 0\."),
        (
            "inventori",
            {},
            r"'problem' must be one of inventory, .*, got 'inventori'\. Did you mean 'inventory'\?",
        ),
        (
            "riverswim",
            {"states": 3},
            r"'states' must be an option of 'riverswim' .* Did you mean 'n_states'\?",
        ),
        (
            "riverswim",
            {"actions": "admissible"},
            r"'actions' must be 'all' for 'riverswim'.* got 'admissible'",
        ),
        ("inventory", {"actions": "all"}, r"'actions' must be 'admissible' for 'inventory'.* got 'all'"),
        ("inventory", {"actions": "some"}, r"'actions' must be one of admissible, all, got 'some'"),
    ],
)
def test_bad_options_are_refused(problem: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CharyError, match=message) as caught:
        make(problem, **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(CharyError, match=message):
        sibling(problem, 0, **options)


def test_actions_may_be_named_where_the_problem_offers_them() -> None:
    assert make("inventory", actions="admissible").setting.n_pairs == 21
    assert make("riverswim", actions="all").setting.n_pairs == 12
    assert make("riverswim", actions=None).setting.n_pairs == 12
    assert make("sepsis", actions="admissible").setting.n_pairs == 2238


# Siblings.


@pytest.mark.parametrize("name", PROBLEMS)
def test_siblings_have_the_size_of_the_problem_and_are_others(name: str) -> None:
    mdp, one, again, two = make(name), sibling(name, 1), sibling(name, 1), sibling(name, 2)
    for other in (one, two):
        assert (other.n_states, other.n_actions, other.horizon) == (mdp.n_states, mdp.n_actions, mdp.horizon)
        np.testing.assert_array_equal(other.setting.allowed, mdp.setting.allowed)
        assert other.setting.value_cap == mdp.setting.value_cap
        assert len(other.successor) == len(mdp.successor)
        assert other.probability.tobytes() != mdp.probability.tobytes()
    assert one.probability.tobytes() == again.probability.tobytes()
    assert one.probability.tobytes() != two.probability.tobytes()


@pytest.mark.parametrize("name", PROBLEMS)
def test_fifty_siblings_can_be_drawn(name: str) -> None:
    for seed in range(3 if name == "sepsis" else 50):
        assert sibling(name, seed).name == name


def test_a_bad_sibling_seed_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"'seed' must be a whole number >= 0, got -1\."):
        sibling("inventory", -1)


def test_sibling_keeps_sizes_and_units() -> None:
    mdp = sibling("inventory", 3, capacity=3, horizon=7, units="money")
    assert (mdp.n_states, mdp.horizon) == (4, 7)
    assert mdp.scale.span > 1
    assert sibling("sepsis", 0, actions="all", horizon=5).setting.n_pairs == 713 * 25


def test_a_sepsis_sibling_is_of_the_kind_but_unrelated() -> None:
    mdp, other = sepsis(), sibling("sepsis", 0)
    V, W = values(mdp)[0][0][:713], values(other)[0][0][:713]
    assert abs(np.corrcoef(V, W)[0, 1]) < 0.3
    assert 0.7 < value(other) < 0.87
    assert 0.04 < W.std() < 0.12
