"""The judge on problems small enough to work by hand, and the identities its sums must satisfy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary.arrays import Floats, Ints
from chary.audit import Truth, audit_episode, baseline_over_time, check_value_cap, gap_bound, violates
from chary.errors import InvalidAction, InvalidData, InvalidMDP, InvalidSetting
from chary.mdp import FiniteMDP

WAIT, GO = 0, 1
STAY, BACK = 0, 1


def two_states() -> FiniteMDP:
    """State 0: wait earns .2, go leads to 1 for nothing. State 1: stay earns 1, back leads to 0 for .5.

    With H = 2 and gamma = .5 the best values are
        t = 1: Q(0,wait) = .2  Q(0,go) = 0   V(0) = .2   Q(1,stay) = 1    Q(1,back) = .5  V(1) = 1
        t = 0: Q(0,wait) = .3  Q(0,go) = .5  V(0) = .5   Q(1,stay) = 1.5  Q(1,back) = .6  V(1) = 1.5
    and those of the baseline that waits and stays differ in V_0(0) = .3 only.
    """
    P = np.zeros((2, 2, 2))
    P[0, WAIT, 0] = P[0, GO, 1] = P[1, STAY, 1] = P[1, BACK, 0] = 1.0
    return FiniteMDP.from_arrays(P, [[0.2, 0.0], [1.0, 0.5]], horizon=2, discount=0.5)


BASELINE = np.array([[WAIT, STAY], [WAIT, STAY]])


def random_mdp(seed: int, *, terminal: bool) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    S, A = 3, 2
    return FiniteMDP.from_arrays(
        rng.dirichlet(np.ones(S), size=(S, A)),
        rng.random((S, A, S)),
        horizon=3,
        discount=0.9,
        start=np.array([0.6, 0.4, 0.0]),
        terminal=[2] if terminal else [],
    )


def test_optimum_of_two_states() -> None:
    truth = Truth(two_states())
    np.testing.assert_allclose(truth.optimal_value, [[0.5, 1.5], [0.2, 1.0], [0.0, 0.0]], rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        truth.optimal_q, [[0.3, 0.5, 1.5, 0.6], [0.2, 0.0, 1.0, 0.5]], rtol=0, atol=1e-15
    )
    np.testing.assert_array_equal(truth.optimal_policy, [[GO, STAY], [WAIT, STAY]])
    assert truth.value_of_start(truth.optimal_value) == 0.5


def test_worst_policy_of_two_states() -> None:
    # t = 1: 0 in state 0 (go), .5 in state 1 (back). t = 0: wait .2, go .25; stay 1.25, back .5.
    policy, value, _ = Truth(two_states()).solve(worst=True)
    np.testing.assert_allclose(value, [[0.2, 0.5], [0.0, 0.5], [0.0, 0.0]], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(policy, [[WAIT, BACK], [GO, BACK]])


def test_baseline_of_two_states() -> None:
    truth = Truth(two_states())
    value, q = truth.evaluate(BASELINE)
    np.testing.assert_allclose(value, [[0.3, 1.5], [0.2, 1.0], [0.0, 0.0]], rtol=0, atol=1e-15)
    np.testing.assert_allclose(q, truth.optimal_q, rtol=0, atol=1e-15)


def test_episode_of_two_states() -> None:
    # go: V* - Q* = 0, V - Q = .3 - .5 = -.2; back: V* - Q* = V - Q = 1 - .5 = .5.
    audit = audit_episode(Truth(two_states()), [0, 1, 0], [GO, BACK], BASELINE)
    assert audit.regret == pytest.approx(0.25, abs=1e-15)  # 0 + .5 * .5
    assert audit.true_deficit == pytest.approx(0.5, abs=1e-15)  # max(-.2, 0) + .5
    assert audit.signed_deficit == pytest.approx(0.05, abs=1e-15)  # -.2 + .5 * .5
    assert audit.largest_gap == pytest.approx(0.5, abs=1e-15)


def test_largest_gap_of_two_states() -> None:
    # Largest: leaving state 1 at t = 0, 1.5 - .6; in state 0 at t = 0 the baseline itself is the worse.
    truth = Truth(two_states())
    assert gap_bound(truth, BASELINE) == pytest.approx(0.9, abs=1e-15)
    np.testing.assert_allclose(
        truth.gaps(BASELINE), [[0.0, -0.2, 0.0, 0.9], [0.0, 0.2, 0.0, 0.5]], rtol=0, atol=1e-15
    )


def test_a_stationary_policy_is_the_same_policy_at_every_step() -> None:
    truth = Truth(two_states())
    np.testing.assert_array_equal(truth.evaluate(BASELINE[0]).value, truth.evaluate(BASELINE).value)


@given(seed=st.integers(0, 10_000), terminal=st.booleans())
def test_the_baseline_alone_has_no_deficit_at_all(seed: int, terminal: bool) -> None:
    truth, rng = Truth(random_mdp(seed, terminal=terminal)), np.random.default_rng(seed)
    policy = rng.integers(0, 2, size=(3, 3))
    states, actions = [0], []
    for t in range(3):
        if truth.mdp.setting.terminal[states[-1]]:
            break
        actions.append(int(policy[t, states[-1]]))
        successors, probability, _ = truth.mdp.row(states[-1], actions[-1])
        states.append(int(rng.choice(successors, p=probability)))
    audit = audit_episode(truth, states, actions, policy)
    assert audit.true_deficit == audit.signed_deficit == audit.largest_gap == 0.0


@given(seed=st.integers(0, 10_000), terminal=st.booleans())
def test_the_optimal_policy_has_no_regret_and_no_negative_gap(seed: int, terminal: bool) -> None:
    truth = Truth(random_mdp(seed, terminal=terminal))
    assert audit_episode(truth, [0, 1], [int(truth.optimal_policy[0, 0])], truth.optimal_policy).regret == 0.0
    np.testing.assert_allclose(truth.evaluate(truth.optimal_policy).value, truth.optimal_value, atol=1e-14)
    assert truth.gaps(truth.optimal_policy).min() >= 0.0


def enumerate_episodes(mdp: FiniteMDP, choose: Floats) -> list[tuple[float, float, list[int], list[int]]]:
    """List (probability, discounted reward, states, actions) of every episode of a history-dependent policy.

    The policy plays action 1 where `choose`, (3, 3, 3), at (first state, last action + 1, present state)
    is above a half.
    """
    done: list[tuple[float, float, list[int], list[int]]] = []
    open_: list[tuple[float, float, list[int], list[int]]] = [
        (float(mdp.start[s]), 0.0, [int(s)], []) for s in np.flatnonzero(mdp.start)
    ]
    while open_:
        probability, earned, states, actions = open_.pop()
        s, t = states[-1], len(actions)
        if t == mdp.horizon or mdp.setting.terminal[s]:
            done.append((probability, earned, states, actions))
            continue
        last = actions[-1] + 1 if actions else 0
        a = int(choose[states[0], last, s] > 0.5)
        for x, p, r in zip(*mdp.row(s, a), strict=True):
            reward = earned + mdp.setting.discount**t * float(r)
            open_.append((probability * float(p), reward, [*states, int(x)], [*actions, a]))
    return done


@given(seed=st.integers(0, 10_000), terminal=st.booleans())
def test_expected_sums_telescope_to_differences_of_values(seed: int, terminal: bool) -> None:
    """E[signed deficit] = V_bar - V_pi, eq. (2), and E[regret] = V* - V_pi, for any policy with a memory."""
    mdp, rng = random_mdp(seed, terminal=terminal), np.random.default_rng(seed)
    truth = Truth(mdp)
    baseline = rng.integers(0, 2, size=(3, 3))
    episodes = enumerate_episodes(mdp, rng.random((3, 3, 3)))
    audits = [audit_episode(truth, states, actions, baseline) for _, _, states, actions in episodes]
    chances = [probability for probability, _, _, _ in episodes]
    value = sum(probability * earned for probability, earned, _, _ in episodes)
    assert sum(chances) == pytest.approx(1.0, abs=1e-12)
    signed = sum(p * audit.signed_deficit for p, audit in zip(chances, audits, strict=True))
    regret = sum(p * audit.regret for p, audit in zip(chances, audits, strict=True))
    assert signed == pytest.approx(truth.value_of_start(truth.evaluate(baseline).value) - value, abs=1e-12)
    assert regret == pytest.approx(truth.value_of_start(truth.optimal_value) - value, abs=1e-12)


@given(seed=st.integers(0, 10_000), terminal=st.booleans())
def test_evaluation_agrees_with_dense_matrices(seed: int, terminal: bool) -> None:
    mdp, rng = random_mdp(seed, terminal=terminal), np.random.default_rng(seed)
    P, R = mdp.dense()
    policy = rng.integers(0, 2, size=(3, 3))
    expected = np.zeros((4, 3))
    for t in (2, 1, 0):
        q = R + mdp.setting.discount * P @ expected[t + 1]
        expected[t] = np.where(mdp.setting.terminal, 0.0, q[np.arange(3), policy[t]])
    np.testing.assert_allclose(Truth(mdp).evaluate(policy).value, expected, atol=1e-14)


def test_no_step_costs_nothing() -> None:
    assert audit_episode(Truth(two_states()), [0], [], BASELINE)[:4] == (0.0, 0.0, 0.0, 0.0)


def test_the_baseline_falls_where_its_value_is_lower_than_before() -> None:
    value = np.array([np.nan, 0.5, 0.5 - 1e-12, 0.7, 0.4, 0.6, 0.5])
    found = baseline_over_time(value, 0.45, 1.0)
    assert found.pop("baseline_below_incumbent") == pytest.approx(0.05)
    assert found == {
        "incumbent_value": 0.45,
        "baseline_value_first": 0.5,
        "baseline_value_last": 0.5,
        "baseline_value_lowest": 0.4,
        "baseline_falls": 2,
    }
    assert baseline_over_time(value, 0.3, 1.0)["baseline_below_incumbent"] == 0.0
    assert set(baseline_over_time(np.full(3, np.nan), 0.3, 1.0).values()) == {None}


def test_violation_has_a_tolerance() -> None:
    assert not violates(0.1 + 5e-13, 0.1)
    assert violates(0.1 + 2e-12, 0.1)
    assert not violates(1e9, float("inf"))


def test_a_value_cap_below_the_optimum_is_refused() -> None:
    chain = [[[1.0]]]
    largest = float(Truth(FiniteMDP.from_arrays(chain, [[1.0]], horizon=3)).optimal_value.max())
    check_value_cap(largest, 3.0)
    with pytest.raises(InvalidMDP, match="'value_cap' must bound the optimal value, which reaches 3, got 2"):
        check_value_cap(largest, 2.0)


@pytest.mark.parametrize(
    ("states", "actions", "error", "message"),
    [
        ([0, 1], [GO, BACK], InvalidData, "shapes"),
        ([0, 1, 0, 1], [GO, BACK, GO], InvalidData, "T <= 2"),
        ([0, 2, 0], [GO, BACK], InvalidData, "'states' must lie in 0..1, got 2"),
        ([0, 1, 0], [GO, 7], InvalidData, "'actions' must lie in 0..1, got 7"),
        ([0.0, 1.0], [GO], InvalidData, "'states' must contain whole numbers"),
    ],
)
def test_what_is_no_episode_is_refused(
    states: list[int], actions: list[int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        audit_episode(Truth(two_states()), states, actions, BASELINE)


def test_acting_in_a_terminal_state_is_refused() -> None:
    truth = Truth(random_mdp(0, terminal=True))
    with pytest.raises(InvalidAction, match="got 0 in state 2 at step 1"):
        audit_episode(truth, [0, 2, 0], [0, 0], np.zeros((3, 3), dtype=int))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.zeros((3, 2), dtype=int), r"shape \(2, 2\) or \(2,\)"),
        (np.zeros((2, 2)), "whole numbers"),
        (np.array([[0, 0], [0, 2]]), "got action 2 in state 1 at step 1"),
        (np.array([[-1, 0], [0, 0]]), "got action -1 in state 0 at step 0"),
    ],
)
def test_what_is_no_policy_is_refused(policy: Ints, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Truth(two_states()).evaluate(policy)


def test_the_truth_is_read_only() -> None:
    truth = Truth(two_states())
    with pytest.raises(ValueError, match="read-only"):
        truth.optimal_value[0, 0] = 1.0
