"""Assumptions 2.2 and 2.3: worked by hand, and against brute force over every policy of tiny MDPs."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary.arrays import Bools, Floats
from chary.assumptions import (
    FAILS,
    HOLDS,
    UNDECIDED,
    DiameterWitness,
    _diameter,
    _gaps,
    check_assumptions,
    check_diameter,
    check_gaps,
)
from chary.audit import Truth
from chary.errors import InvalidBudget
from chary.mdp import FiniteMDP


def two_states(slow: float, horizon: int) -> FiniteMDP:
    """In state 0, action 0 leaves with probability 1/2 and action 1 with `slow`; state 1 leaves with 1/2."""
    P = [[[0.5, 0.5], [1 - slow, slow]], [[0.5, 0.5], [0.5, 0.5]]]
    return FiniteMDP.from_arrays(P, np.zeros((2, 2)), horizon=horizon)


def crossroads() -> FiniteMDP:
    """An MDP whose largest gap is .1 while the bounds say .2: both arms of state 0 hang on the same policy.

    State 0: action 0 leads to 1 or 2, evenly, action 1 to 3. State 1 leads to 4, state 2 to 5, state 3
    to either, evenly. In 4 one stays for ever and earns 0 or .1 a step, in 5 one stays and earns .05.
    With H = 10, eight steps are left on arrival: V(4) may be anything in [0, .8], V(5) = .4, and action
    0 is worth V(4)/2 + V(5)/2 whatever the policy, exactly as action 1. So only state 4 has gaps: .1.
    Box at t = 0: (.8 + .4)/2 - (0 + .4)/2 = .4. Transport: V(1) - V(3) = (V(4) - V(5))/2 <= .2 and
    V(2) - V(3) = (V(5) - V(4))/2 <= .2, half of each: .2, though no policy attains both.
    """
    even = 0.5
    rows = {
        (0, 0): [(1, even, 0.0), (2, even, 0.0)],
        (0, 1): [(3, 1.0, 0.0)],
        (1, 0): [(4, 1.0, 0.0)],
        (2, 0): [(5, 1.0, 0.0)],
        (3, 0): [(4, even, 0.0), (5, even, 0.0)],
        (4, 0): [(4, 1.0, 0.0)],
        (4, 1): [(4, 1.0, 0.1)],
        (5, 0): [(5, 1.0, 0.05)],
    }
    return FiniteMDP.from_successors(rows, n_states=6, n_actions=2, horizon=10)


def random_mdp(seed: int, *, horizon: int = 3, states: int = 3) -> FiniteMDP:
    """A random MDP, some of its rows deterministic, some of its instances with a terminal state."""
    rng = np.random.default_rng(seed)
    S, A = states, 2
    P = rng.dirichlet(np.ones(S), size=(S, A))
    jumps = rng.random((S, A)) < rng.choice([0.0, 0.3, 0.8])
    P[jumps] = np.eye(S)[rng.integers(0, S, size=int(jumps.sum()))]
    terminal = [S - 1] if rng.random() < 0.25 else []
    return FiniteMDP.from_arrays(P, rng.random((S, A)), horizon=horizon, terminal=terminal, discount=0.95)


def chain_of(mdp: FiniteMDP, policy: tuple[int, ...]) -> Floats:
    P, _ = mdp.dense()
    chain: Floats = P[np.arange(mdp.n_states), np.array(policy)]
    ends = mdp.setting.terminal
    chain[ends] = np.eye(mdp.n_states)[ends]
    return chain


def hitting_times(chain: Floats, target: int) -> Floats:
    """Return E[T(., target)], infinite where the target is missed with positive probability."""
    S = len(chain)
    reach = np.linalg.matrix_power((chain > 0) + np.eye(S), S) > 0
    # To miss it is to get, without passing through it, to where it cannot be reached.
    cut = chain.copy()
    cut[target] = 0.0
    reach_without = np.linalg.matrix_power((cut > 0) + np.eye(S), S) > 0
    may_miss: Bools = np.any(reach_without & ~reach[:, target], axis=1)
    time = np.where(may_miss, math.inf, 0.0)
    rest = np.flatnonzero(~may_miss & (np.arange(S) != target))
    time[target] = 0.0
    time[rest] = np.linalg.solve(np.eye(len(rest)) - chain[np.ix_(rest, rest)], np.ones(len(rest)))
    return time


def diameter_by_brute_force(mdp: FiniteMDP) -> float:
    choices = [[int(a) for a in np.flatnonzero(row)] or [0] for row in mdp.setting.allowed]
    return max(
        float(hitting_times(chain_of(mdp, policy), target).max())
        for policy in itertools.product(*choices)
        for target in range(mdp.n_states)
    )


def largest_gap_by_brute_force(mdp: FiniteMDP) -> float:
    """Try every policy of two actions; what is played first changes no later value and is left free."""
    truth, H, S = Truth(mdp), mdp.horizon, mdp.n_states
    largest = 0.0
    for later in itertools.product(range(2), repeat=S * (H - 1)):
        policy = np.array((0,) * S + later).reshape(H, S)
        for row in truth.evaluate(policy).q:
            largest = max(largest, float((truth.highest(row)[1] + truth.highest(-row)[1]).max()))
    return largest


def verify(mdp: FiniteMDP, witness: DiameterWitness) -> None:
    """Check a witness by evaluating it."""
    chain = chain_of(mdp, tuple(int(a) for a in witness.policy))
    time = hitting_times(chain, witness.target)[witness.origin]
    assert time == pytest.approx(witness.expected_time, rel=1e-9)
    assert witness.origin != witness.target
    if math.isinf(witness.expected_time):
        assert witness.target not in witness.loop
        loop = list(witness.loop)
        np.testing.assert_allclose(chain[np.ix_(loop, loop)].sum(axis=1), 1.0)
        cut = chain.copy()
        cut[witness.target] = 0.0
        steps = np.linalg.matrix_power(np.eye(len(chain)) + cut, len(chain))
        assert (steps[witness.origin, loop] > 0).any()


def test_diameter_is_the_slowest_policy_to_the_farthest_state() -> None:
    # From 0 to 1 action 1 takes 1 / .25 = 4 steps on average; from 1 to 0 any takes 2.
    report = check_diameter(two_states(slow=0.25, horizon=8))
    assert report.status == HOLDS
    assert report.lower == report.upper == pytest.approx(4.0, rel=1e-12)
    assert report.witness is None


def test_a_diameter_above_half_the_horizon_fails_with_its_policy() -> None:
    mdp = two_states(slow=0.25, horizon=7)
    report = check_diameter(mdp)
    assert report.status == FAILS
    assert report.witness is not None
    assert (report.witness.origin, report.witness.target, report.witness.policy[0]) == (0, 1, 1)
    verify(mdp, report.witness)
    assert "takes 4 steps on average to reach state 1" in report.describe()


def test_a_policy_that_stays_makes_the_diameter_infinite() -> None:
    mdp = two_states(slow=0.0, horizon=100)
    report = check_diameter(mdp)
    assert report.status == FAILS
    assert math.isinf(report.lower)
    assert report.witness is not None
    assert (report.witness.origin, report.witness.target, report.witness.loop) == (0, 1, (0,))
    verify(mdp, report.witness)
    assert "from state 0 some policy stays in state 0 forever and never reaches state 1" in report.describe()


def test_a_terminal_state_makes_the_diameter_infinite() -> None:
    # 0 leads to 1 or to the end, evenly, and 1 back to 0: from 0 half of the episodes never meet 1.
    mdp = FiniteMDP.from_arrays(
        [[[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]], np.zeros((3, 1)), horizon=50, terminal=[2]
    )
    report = check_diameter(mdp)
    assert report.status == FAILS
    assert report.witness is not None
    assert (report.witness.origin, report.witness.target, report.witness.loop) == (0, 1, (2,))
    verify(mdp, report.witness)
    assert "can reach state 2 before state 1, and stays there forever" in report.describe()


def test_a_single_state_has_no_diameter_to_speak_of() -> None:
    report = check_diameter(FiniteMDP.from_arrays([[[1.0]]], [[0.0]], horizon=1))
    assert (report.status, report.upper) == (HOLDS, 0.0)


def test_a_loop_of_several_states_is_found_and_named() -> None:
    # Eight states in a ring; action 1 of state 7 leads on to state 8, action 0 back to 0.
    rows = {(s, 0): [(s + 1, 1.0, 0.0)] for s in range(7)}
    rows |= {(7, 0): [(0, 1.0, 0.0)], (7, 1): [(8, 1.0, 0.0)], (8, 0): [(0, 1.0, 0.0)]}
    report = check_diameter(FiniteMDP.from_successors(rows, n_states=9, n_actions=2, horizon=100))
    assert report.witness is not None
    assert report.witness.loop == tuple(range(8))
    assert "states 0, 1, 2, 3, 4, 5 and 2 more" in report.describe()


@given(seed=st.integers(0, 10_000), states=st.integers(2, 4))
def test_diameter_agrees_with_brute_force_over_all_policies(seed: int, states: int) -> None:
    mdp = random_mdp(seed, states=states)
    report = check_diameter(mdp)
    expected = diameter_by_brute_force(mdp)
    assert report.lower == report.upper == pytest.approx(expected, rel=1e-8)
    assert report.status == (HOLDS if expected <= mdp.horizon / 2 else FAILS)
    if report.witness is not None:
        verify(mdp, report.witness)


@given(seed=st.integers(0, 10_000))
def test_the_bound_for_many_states_is_attained_and_at_least_all_other_states(seed: int) -> None:
    mdp = random_mdp(seed, states=4)
    exact = check_diameter(mdp)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_diameter, "EXACT_STATES", 1)
        patch.setattr(_diameter, "GRAPH_WORK", 1)
        rough = check_diameter(mdp)
    if math.isinf(rough.lower):
        assert math.isinf(exact.lower)
    else:
        assert mdp.n_states - 1 - 1e-9 <= rough.lower <= exact.lower * (1 + 1e-9)
        assert math.isinf(rough.upper)
    if rough.witness is not None:
        verify(mdp, rough.witness)


def test_gaps_of_a_single_state_are_differences_of_rewards() -> None:
    mdp = FiniteMDP.from_arrays([[[1.0], [1.0]]], [[0.25, 1.0]], horizon=3)
    holding = check_gaps(mdp, 0.75)
    assert (holding.status, holding.lower, holding.upper) == (HOLDS, 0.75, 0.75)
    failing = check_gaps(mdp, 0.7)
    assert failing.status == FAILS
    assert (failing.witness.s, failing.witness.a) == (0, 0)
    assert failing.witness.policy[failing.witness.t, 0] == 1


def test_gaps_between_the_bounds_are_undecided() -> None:
    report = check_gaps(crossroads(), 0.15)
    assert report.status == UNDECIDED
    assert report.lower == pytest.approx(0.1, abs=1e-12)
    assert report.upper == pytest.approx(0.2, abs=1e-12)
    assert report.witness.s == 4
    assert "is undecided: the largest gap of any policy lies between 0.1 and 0.2" in report.describe()


@pytest.mark.parametrize(("bound", "status"), [(0.05, FAILS), (0.2, HOLDS), (math.inf, HOLDS), (0.0, FAILS)])
def test_gaps_outside_the_bounds_are_decided(bound: float, status: str) -> None:
    assert check_gaps(crossroads(), bound).status == status


def test_without_transport_plans_the_box_bounds_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gaps, "REFINE_ENTRIES", 0)
    report = check_gaps(crossroads(), 0.15)
    assert report.upper == pytest.approx(0.4, abs=1e-12)
    monkeypatch.setattr(_gaps, "CHUNK_ENTRIES", 1)
    assert check_gaps(crossroads(), 0.15).upper == report.upper


def test_an_mdp_without_choices_has_no_gaps() -> None:
    report = check_gaps(FiniteMDP.from_arrays([[[1.0]]], [[0.5]], horizon=4), 0.0)
    assert (report.status, report.lower, report.upper) == (HOLDS, 0.0, 0.0)


@given(seed=st.integers(0, 10_000), horizon=st.integers(1, 3), refine=st.booleans())
def test_bounds_enclose_brute_force_over_all_policies(seed: int, horizon: int, refine: bool) -> None:
    mdp = random_mdp(seed, horizon=horizon)
    with pytest.MonkeyPatch.context() as patch:
        if not refine:
            patch.setattr(_gaps, "REFINE_ENTRIES", 0)
        report = check_gaps(mdp, 0.5, rng=np.random.default_rng(seed))
    exact = largest_gap_by_brute_force(mdp)
    assert report.lower - 1e-12 <= exact <= report.upper + 1e-12
    if horizon <= 2:
        # One step ahead every state has its own action, so the box is attained.
        assert report.lower == pytest.approx(report.upper, abs=1e-12)


@given(seed=st.integers(0, 10_000))
def test_the_witness_has_the_gap_it_claims(seed: int) -> None:
    mdp = random_mdp(seed, horizon=4)
    witness = check_gaps(mdp, 0.0).witness
    value, q = Truth(mdp).evaluate(witness.policy)
    gap = value[witness.t, witness.s] - q[witness.t, mdp.setting.pair_index[witness.s, witness.a]]
    assert gap == pytest.approx(witness.gap, abs=1e-12)


def test_both_units_are_reported() -> None:
    # Rewards from -10 to 30: eta = 40 is 1 scaled, so gaps may be 20 (.5); the only gap is 30 - 10 = 20.
    mdp = FiniteMDP.from_arrays([[[1.0], [1.0]]], [[10.0, 30.0]], horizon=2, reward_range=(-10.0, 30.0))
    report = check_assumptions(mdp, eta=40.0)
    assert report.gaps.status == HOLDS
    assert "gaps at most 20 (0.5 scaled)" in report.describe()
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert (plain["eta"], plain["eta_scaled"]) == (40.0, 1.0)
    assert (plain["assumption_2_3"]["gap_upper"], plain["assumption_2_3"]["gap_upper_scaled"]) == (20.0, 0.5)
    assert check_assumptions(mdp, eta=39.0).gaps.status == FAILS


def test_a_step_bound_takes_the_place_of_half_the_budget() -> None:
    mdp = FiniteMDP.from_arrays([[[1.0], [1.0]]], [[0.25, 1.0]], horizon=3)
    assert check_assumptions(mdp, eta=0.8).gaps.status == FAILS
    assert check_assumptions(mdp, eta=0.8, step_bound=0.75).gaps.status == HOLDS


def test_report_is_plain_json_even_where_infinite() -> None:
    report = check_assumptions(two_states(slow=0.0, horizon=4), eta=math.inf)
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["eta"] is None
    assert not plain["holds"]
    assert plain["assumption_2_2"]["infinite"]
    assert plain["assumption_2_2"]["witness"]["loop"] == [0]
    assert plain["assumption_2_3"]["status"] == HOLDS


@pytest.mark.parametrize("eta", [-0.1, math.nan, "much"])
def test_a_senseless_budget_is_refused(eta: float) -> None:
    with pytest.raises(InvalidBudget, match="'eta'"):
        check_assumptions(two_states(slow=0.5, horizon=4), eta)


def test_a_senseless_step_bound_is_refused() -> None:
    with pytest.raises(InvalidBudget, match="'step_bound'"):
        check_assumptions(two_states(slow=0.5, horizon=4), 1.0, step_bound=-1.0)
