"""The charges of docs/algorithm.md section 3 on examples worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chary.mdp import FiniteMDP
from chary.model.bounds import Bounds
from chary.reference.charges import (
    charge_coupled,
    charge_difference,
    charge_paper,
    deviation_bound,
    differences,
    transport_cost,
)
from chary.reference.planner import (
    Confidence,
    Solution,
    Tally,
    backup,
    backward,
    exact,
    frequencies,
    hoeffding_bonus,
    l1_radius,
    visits,
)


def counter_example() -> tuple[FiniteMDP, Tally, Confidence]:
    """Return section 3's counter-example.

    Both rows look alike, (0, .5, .5), but are (0, .6, .4) and (0, .4, .6), within eps = .2 of it.
    State 1 pays 1 and ends with the horizon, so V' = (0, 1, 0). States 1 and 2 were never left, so their
    box is [0, 1].
    """
    P = np.zeros((3, 2, 3))
    P[0] = [[0.0, 0.6, 0.4], [0.0, 0.4, 0.6]]
    P[1:, :, 0] = 1.0
    mdp = FiniteMDP.from_arrays(P, np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), horizon=2)
    confidence = Confidence(
        setting=mdp.told("known"), bounds=Bounds(family="l1"), episodes=100, total_episodes=100
    )
    # eps = sqrt(c / n) with c = eps(1)^2 before the cap; n = c / .04 (counts need not be whole).
    c = 2 * (math.log(2**3 - 2) + math.log(2 * 6 * 200 / 0.1))
    counts = np.zeros((6, 3))
    counts[:2, 1:] = c / 0.04 / 2
    return mdp, Tally(counts, np.zeros((6, 3)), np.zeros(6)), confidence


def bounds_of_baseline(tally: Tally, confidence: Confidence) -> tuple[Solution, Solution]:
    lower = backward(tally, confidence, sign=-1)
    return lower, backward(tally, confidence, sign=+1, policy=lower.policy)


def test_counter_example_has_the_radius_the_true_gap_and_the_box_of_section_3() -> None:
    mdp, tally, confidence = counter_example()
    lower, upper = bounds_of_baseline(tally, confidence)
    truth = exact(mdp, lower.policy)
    assert l1_radius(confidence, 0, visits(tally, 0)) == pytest.approx(0.2, abs=1e-15)
    assert lower.policy[0, 0] == 0
    np.testing.assert_array_equal(truth.V[1], [0, 1, 0])
    np.testing.assert_array_equal(lower.V[1, 1:], [0, 0])
    np.testing.assert_array_equal(upper.V[1, 1:], [1, 1])
    assert truth.V[0, 0] - truth.Q[0, 1] == pytest.approx(0.2)


def test_reading_the_l1_bonus_off_the_upper_backup_charges_nothing_and_is_wrong() -> None:
    _, tally, confidence = counter_example()
    _, upper = bounds_of_baseline(tally, confidence)
    read_off = backup(tally, confidence, 0, upper.V[1], +1) - frequencies(tally, 0) @ upper.V[1]
    assert read_off == pytest.approx(0.0, abs=1e-12)


def test_coupled_and_difference_charge_the_counter_example_its_true_gap() -> None:
    _, tally, confidence = counter_example()
    lower, upper = bounds_of_baseline(tally, confidence)
    # Each row may have moved .1 of its mass from a state worth 0 to a state worth 1.
    for p, side in ((0, "above"), (1, "below")):
        b = deviation_bound(tally, confidence, p, lower.V[1], upper.V[1], side=side)  # type: ignore[arg-type]
        assert b == pytest.approx(0.1)
    D = differences(tally, confidence, lower.policy, lower.V, upper.V)
    assert charge_paper(confidence, lower, upper, 0, 0, 1) == pytest.approx(1.0)
    assert charge_coupled(tally, confidence, lower, upper, 0, 0, 1) == pytest.approx(0.2)
    assert charge_difference(tally, confidence, lower, upper, D, 0, 0, 1) == pytest.approx(0.2)


def test_coupled_charge_of_two_rows_by_hand() -> None:
    # One state beside the start; gamma = .5, H = 2, so vmax = (1.5, 1).
    P = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = FiniteMDP.from_arrays(P, np.full((2, 2), 0.5), horizon=2, discount=0.5)
    # A scale of 1e-3 keeps the bonuses far below what is compared.
    confidence = Confidence(
        setting=mdp.setting, bounds=Bounds(family="hoeffding", scale=1e-3), episodes=10, total_episodes=10
    )
    # Action 0: Ph = (3/4, 1/4), Rh = 1/2. Action 1: Ph = (1/4, 3/4), Rh = 1/4. So w = (1/2, -1/2).
    counts = np.array([[3.0, 1.0], [1.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    rewards = np.array([[1.5, 0.5], [0.25, 0.75], [0.0, 0.0], [0.0, 0.0]])
    tally = Tally(counts, rewards, np.zeros(4))
    policy = np.zeros((2, 2), dtype=np.int64)
    v_lower, v_upper = np.array([[0.0, 0.0], [0.4, 0.1], [0, 0]]), np.array([[1.5, 1.5], [0.6, 0.3], [0, 0]])
    lower, upper = Solution(v_lower, np.zeros((2, 4)), policy), Solution(v_upper, np.zeros((2, 4)), policy)
    # 1/2 - 1/4 + .5 (.5 * .6 - .5 * .1) = .375, and two bonuses.
    expected = 0.375 + 2 * hoeffding_bonus(confidence, 4.0)
    assert charge_coupled(tally, confidence, lower, upper, 0, 0, 1) == pytest.approx(expected, rel=1e-14)


def test_the_baselines_own_action_is_free_even_where_nothing_was_seen() -> None:
    mdp, _, confidence = counter_example()
    nothing = Tally(np.zeros((6, 3)), np.zeros((6, 3)), np.zeros(6))
    lower, upper = bounds_of_baseline(nothing, confidence)
    D = differences(nothing, confidence, lower.policy, lower.V, upper.V)
    for t in range(mdp.horizon):
        for s in range(mdp.n_states):
            a = int(lower.policy[t, s])
            assert charge_coupled(nothing, confidence, lower, upper, t, s, a) == 0.0
            assert charge_difference(nothing, confidence, lower, upper, D, t, s, a) == 0.0


def test_an_unvisited_pair_is_charged_equation_4() -> None:
    _, tally, confidence = counter_example()
    lower, upper = bounds_of_baseline(tally, confidence)
    D = differences(tally, confidence, lower.policy, lower.V, upper.V)
    paper = charge_paper(confidence, lower, upper, 0, 1, 1)
    assert paper == upper.V[0, 1] - lower.Q[0, 3] == 2.0
    assert charge_coupled(tally, confidence, lower, upper, 0, 1, 1) == paper
    assert charge_difference(tally, confidence, lower, upper, D, 0, 1, 1) == paper


def test_paper_charge_is_never_negative() -> None:
    _, _, confidence = counter_example()
    policy = np.zeros((2, 3), dtype=np.int64)
    better = Solution(np.zeros((3, 3)), np.ones((2, 6)), policy)
    assert charge_paper(confidence, better, better, 0, 0, 1) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "cost"),
    [
        # Nothing to move.
        ([0.5, 0.5, 0.0], [0.5, 0.5, 0.0], 0.0),
        # .5 stays on state 1; .5 goes from 0 to 2.
        ([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], 0.5 * 2),
        # Surplus .75 at 2, deficits .5 at 0 and .25 at 1; order 2 > 1 > 0: state 1 is served first.
        ([0.0, 0.25, 0.75], [0.5, 0.5, 0.0], 0.25 * 21 + 0.5 * 20),
    ],
)
def test_transport_keeps_shared_mass_and_serves_the_dearest_first(
    first: list[float], second: list[float], cost: float
) -> None:
    D = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0], [20.0, 21.0, 22.0]])
    found = transport_cost(np.array(first), np.array(second), D, np.array([0.0, 1.0, 2.0]))
    assert found == pytest.approx(cost)
