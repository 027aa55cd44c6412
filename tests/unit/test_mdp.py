"""FiniteMDP and Setting: what they refuse, with which words, and what they keep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from chary.errors import CharyError, InvalidMDP, InvalidSetting, UnknownName
from chary.mdp import FiniteMDP, RewardScale, Setting, as_policy

# Two states, two actions: 0 stays, 1 moves to the other state with probability 1/2.
P2 = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
R2 = np.array([[0.0, 0.25], [1.0, 0.5]])


def two_states(P: Any = P2, R: Any = R2, **options: Any) -> FiniteMDP:
    return FiniteMDP.from_arrays(P, R, **{"horizon": 3, **options})


def changed(array: NDArray[np.float64], place: tuple[int, ...], value: float) -> NDArray[np.float64]:
    copy = array.copy()
    copy[place] = value
    return copy


def same(one: FiniteMDP, other: FiniteMDP) -> bool:
    fields = ("row_start", "successor", "probability", "reward", "cumulative", "start")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


BAD_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "row sum": (
        {"P": changed(P2, (1, 0, 1), 0.9)},
        r"'P' must have rows that sum to 1, got 0\.9 at state 1, action 0\.",
    ),
    "negative": (
        {"P": changed(changed(P2, (0, 1, 0), -0.5), (0, 1, 1), 1.5)},
        r"'P' must contain probabilities >= 0, got -0\.5\.",
    ),
    "nan": ({"P": changed(P2, (0, 0, 0), math.nan)}, r"'P' must be finite, got nan\."),
    "inf": ({"P": changed(P2, (0, 0, 0), math.inf)}, r"'P' must be finite, got inf\."),
    "no numbers": ({"P": "abc"}, r"'P' must be an array of numbers, got str\."),
    "shape": ({"P": P2[:, 0]}, r"'P' must have shape \(S, A, S\), got \(2, 2\)\."),
    "reward shape": (
        {"R": R2[0]},
        r"'R' must have shape \(2, 2\) or \(2, 2, 2\), got \(2,\)\.",
    ),
    "reward high": (
        {"R": changed(R2, (0, 1), 1.5)},
        r"'R' must lie in \[0, 1\], got 1\.5\. Pass reward_range=\(low, high\)",
    ),
    "reward low": ({"R": changed(R2, (0, 1), -0.5)}, r"'R' must lie in \[0, 1\], got -0\.5\."),
    "reward nan": ({"R": changed(R2, (0, 1), math.nan)}, r"'R' must be finite, got nan\."),
    "reward outside its range": (
        {"R": 10 * R2, "reward_range": (0.0, 5.0)},
        r"'R' must lie in \[0, 5\], got 10\.",
    ),
    "range order": (
        {"reward_range": (1.0, 0.0)},
        r"'reward_range' must be finite with low < high, got \(1\.0, 0\.0\)\.",
    ),
    "range nan": ({"reward_range": (0.0, math.nan)}, r"'reward_range' must be finite with low < high"),
    "horizon 0": ({"horizon": 0}, r"'horizon' must be a whole number >= 1, got 0\."),
    "horizon negative": ({"horizon": -3}, r"'horizon' must be a whole number >= 1, got -3\."),
    "horizon fraction": ({"horizon": 2.5}, r"'horizon' must be a whole number >= 1, got 2\.5\."),
    "discount": ({"discount": 0.0}, r"'discount' must lie in \(0, 1\], got 0\.0\."),
    "discount nan": ({"discount": math.nan}, r"'discount' must lie in \(0, 1\], got nan\."),
    "cap 0": ({"value_cap": 0.0}, r"'value_cap' must lie in \(0, inf\), got 0\.0\."),
    "cap inf": ({"value_cap": math.inf}, r"'value_cap' must lie in \(0, inf\), got inf\."),
    "no allowed action": (
        {"allowed": [[True, True], [False, False]]},
        r"'allowed' must leave every state an action, got 0 in state 1\. Allow one, or list the state as",
    ),
    "mask shape": ({"allowed": [True, True]}, r"'allowed' must have shape \(2, 2\), got \(2,\)\."),
    "terminal": ({"terminal": [2]}, r"'terminal' must contain states 0\.\.1, got 2\."),
    "terminal negative": ({"terminal": [-1]}, r"'terminal' must be a whole number >= 0, got -1\."),
    "terminal fraction": ({"terminal": [0.5]}, r"'terminal' must be a whole number >= 0, got 0\.5\."),
    "terminal number": ({"terminal": 1}, r"'terminal' must be a list of states, got 1\."),
    "start on terminal": (
        {"terminal": [1], "start": [0.5, 0.5]},
        r"'start' must not be a terminal state, got state 1\.",
    ),
    "start sum": (
        {"start": [0.5, 0.4]},
        r"'start' must contain probabilities that sum to 1, got a sum of 0\.9\.",
    ),
    "start negative": ({"start": [1.5, -0.5]}, r"'start' must contain probabilities"),
    "start nan": ({"start": [math.nan, 1.0]}, r"'start' must be finite, got nan\."),
    "start shape": (
        {"start": [1.0, 0.0, 0.0]},
        r"'start' must be a state or a distribution of shape \(2,\), got \(3,\)\.",
    ),
    "start state": ({"start": 2}, r"'start' must be a state 0\.\.1, got 2\."),
    "offset": (
        {"terminal": [1], "R": R2 - 1, "reward_range": (-1.0, 0.0)},
        r"'reward_range' must start at 0 where episodes can end early, got -1 with terminal states.*pad=True",
    ),
    "support low": ({"support": 0}, r"'support' must lie in 1\.\.2, got 0\."),
    "support fraction": ({"support": 1.5}, r"'support' must be a whole number or one for each pair"),
    "support below": (
        {"support": 1},
        r"'support' must be at least the number of successors, got 1 for 2 at state 0, action 1\.",
    ),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_refused_with_name_rule_and_value(case: str) -> None:
    options, message = BAD_ARRAYS[case]
    with pytest.raises(InvalidMDP, match=message) as caught:
        two_states(**options)
    assert "\n" not in str(caught.value)


def test_every_error_is_a_value_error() -> None:
    assert issubclass(CharyError, ValueError)


def test_rewards_of_impossible_transitions_are_not_checked_but_clipped() -> None:
    R = np.zeros((2, 2, 2))
    R[0, 0, 1] = 7.0  # staying in 0 never leads to 1
    mdp = two_states(R=R)
    assert mdp.reward.max() == 0.0
    assert mdp.known.reward[1] == 1.0


def test_rows_of_disallowed_pairs_are_not_looked_at() -> None:
    mdp = two_states(P=changed(P2, (1, 1, 0), -7.0), allowed=[[True, True], [True, False]])
    assert mdp.setting.n_pairs == 3
    assert mdp.restricts_actions
    assert mdp.setting.pair_index.tolist() == [[0, 1], [2, -1]]
    with pytest.raises(InvalidMDP, match=r"'a' must be allowed in state 1, got 1\."):
        mdp.row(1, 1)


BAD_ROWS: dict[str, tuple[dict[tuple[int, int], list[tuple[int, float, float]]], str]] = {
    "duplicate": (
        {(0, 0): [(0, 0.5, 0.0), (0, 0.5, 0.0)], (1, 0): [(0, 1.0, 0.0)]},
        r"'P' must list a successor once, got successor 0 twice at state 0, action 0\.",
    ),
    "row sum": (
        {(0, 0): [(0, 0.5, 0.0)], (1, 0): [(0, 1.0, 0.0)]},
        r"'P' must have rows that sum to 1, got 0\.5 at state 0, action 0\.",
    ),
    "empty row": (
        {(0, 0): [], (1, 0): [(0, 1.0, 0.0)]},
        r"'P' must have rows that sum to 1, got 0 at state 0, action 0\.",
    ),
    "nan": ({(0, 0): [(0, math.nan, 0.0)], (1, 0): [(0, 1.0, 0.0)]}, r"'P' must be finite, got nan\."),
    "reward nan": (
        {(0, 0): [(0, 1.0, math.nan)], (1, 0): [(0, 1.0, 0.0)]},
        r"'R' must lie in \[0, 1\], got nan\.",
    ),
    "successor": (
        {(0, 0): [(2, 1.0, 0.0)], (1, 0): [(0, 1.0, 0.0)]},
        r"'P' must lead to states 0\.\.1, got a successor 2\.",
    ),
    "fraction": (
        {(0, 0): [(0.5, 1.0, 0.0)], (1, 0): [(0, 1.0, 0.0)]},  # type: ignore[list-item]
        r"'rows' must lead to whole-numbered states, got 0\.5\.",
    ),
    "pair": (
        {(0, 3): [(0, 1.0, 0.0)]},
        r"'rows' must use states < 2 and actions < 1, got the pair \(0, 3\)\.",
    ),
    "missing state": (
        {(0, 0): [(0, 1.0, 0.0)]},
        r"'allowed' must leave every state an action, got 0 in state 1\.",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_successor_lists_are_refused(case: str) -> None:
    rows, message = BAD_ROWS[case]
    with pytest.raises(InvalidMDP, match=message):
        FiniteMDP.from_successors(rows, n_states=2, n_actions=1, horizon=3)


def test_duplicate_entries_of_a_sparse_matrix_are_refused_not_added_up() -> None:
    twice = sparse.coo_array(([0.5, 0.5, 1.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    with pytest.raises(InvalidMDP, match=r"'P' must list a successor once, got successor 0 twice at state 0"):
        FiniteMDP.from_sparse(twice, np.zeros((2, 1)), horizon=3)


@pytest.mark.parametrize(
    ("P", "R", "message"),
    [
        (P2, R2, r"'P' must be a SciPy sparse matrix or a sequence of them, got ndarray\."),
        (sparse.csr_array(P2.reshape(4, 2)[:3]), R2, r"'P' must have shape \(S \* A, S\), got \(3, 2\)\."),
        (
            [sparse.csr_array(np.eye(2)), sparse.csr_array(np.eye(3))],
            R2,
            r"'P' must contain matrices of shape",
        ),
        (
            sparse.csr_array(P2.reshape(4, 2)),
            np.zeros((2, 2, 2)),
            r"'R' must have shape \(S, A\) with sparse rows",
        ),
    ],
)
def test_bad_sparse_rows_are_refused(P: Any, R: NDArray[np.float64], message: str) -> None:
    with pytest.raises(InvalidMDP, match=message):
        FiniteMDP.from_sparse(P, R, horizon=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, r"'n_states' must be a whole number >= 1, got 0\."),
        ({"n_actions": -1}, r"'n_actions' must be a whole number >= 1, got -1\."),
        ({"horizon": 0}, r"'horizon' must be a whole number >= 1, got 0\."),
        ({"horizon": True}, r"'horizon' must be a whole number >= 1, got True\."),
        (
            {"allowed": np.zeros((3, 2), dtype=bool)},
            r"'allowed' must leave every state an action, got 0 in state 0",
        ),
        ({"terminal": [3]}, r"'terminal' must contain states 0\.\.2, got 3\."),
        ({"discount": 1.1}, r"'discount' must lie in \(0, 1\], got 1\.1\."),
        ({"support": 4}, r"'support' must lie in 1\.\.3, got 4\."),
        ({"scale": RewardScale(2.0, 1.0)}, r"'reward_range' must be finite with low < high"),
    ],
)
def test_a_bad_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidMDP, match=message):
        Setting.declare(**{"n_states": 3, "n_actions": 2, "horizon": 4, **options})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1], r"'prior' must play allowed actions only, got action 1 in state 1\."),
        ([0, 2], r"'prior' must play allowed actions only, got action 2 in state 1\."),
        ([0, -1], r"'prior' must play allowed actions only, got action -1 in state 1\."),
        ([[1.0, 0.0], [0.2, 0.8]], r"'prior' must play allowed actions only, got action 1 in state 1\."),
        ([[1.0, 0.0], [-0.2, 0.8]], r"'prior' must contain probabilities >= 0, got -0\.2\."),
        (
            [0.5, 0.5],
            r"'prior' must contain one action per state, shape \(2,\), or probabilities, shape \(2, 2\)",
        ),
        ([0, 0, 0], r"'prior' must contain one action per state"),
    ],
)
def test_a_policy_that_plays_a_disallowed_action_is_refused(policy: Any, message: str) -> None:
    setting = two_states(allowed=[[True, True], [True, False]]).setting
    with pytest.raises(InvalidSetting, match=message):
        as_policy("prior", policy, setting)


def test_a_stochastic_policy_becomes_its_most_probable_action_the_lowest_among_equals() -> None:
    setting = two_states().setting
    assert as_policy("prior", [[0.5, 0.5], [0.1, 0.9]], setting).tolist() == [0, 1]
    assert as_policy("prior", [1, 0], setting).tolist() == [1, 0]


def test_dense_sparse_and_successor_constructors_agree() -> None:
    dense = two_states()
    rows = sparse.csr_array(P2.reshape(4, 2))
    an_action = [sparse.csr_array(P2[:, a]) for a in range(2)]
    lists = {
        (s, a): [(x, float(P2[s, a, x]), float(R2[s, a])) for x in range(2) if P2[s, a, x] > 0]
        for s in range(2)
        for a in range(2)
    }
    assert same(dense, FiniteMDP.from_sparse(rows, R2, horizon=3))
    assert same(dense, FiniteMDP.from_sparse(an_action, R2, horizon=3))
    assert same(dense, FiniteMDP.from_successors(lists, n_states=2, n_actions=2, horizon=3))
    assert same(dense, two_states(R=np.repeat(R2[:, :, None], 2, axis=2)))
    P, R = dense.dense()
    np.testing.assert_array_equal(P, P2)
    np.testing.assert_array_equal(R, R2)


def test_entries_are_sorted_and_zeros_are_dropped() -> None:
    lists = {
        (0, 0): [(1, 0.75, 1.0), (2, 0.0, 0.0), (0, 0.25, 0.5)],
        (1, 0): [(1, 1.0, 0.0)],
        (2, 0): [(2, 1.0, 0.0)],
    }
    mdp = FiniteMDP.from_successors(lists, n_states=3, n_actions=1, horizon=2)
    x, p, r = mdp.row(0, 0)
    assert (x.tolist(), p.tolist(), r.tolist()) == ([0, 1], [0.25, 0.75], [0.5, 1.0])
    assert mdp.cumulative[:2].tolist() == [0.25, 1.0]


def test_rewards_are_scaled_and_the_scaling_is_kept() -> None:
    # (raw - low) / (high - low) with low = -10, high = 30: -10 -> 0, 0 -> 0.25, 10 -> 0.5, 30 -> 1.
    mdp = two_states(R=[[-10.0, 0.0], [10.0, 30.0]], reward_range=(-10.0, 30.0))
    assert mdp.dense()[1].tolist() == [[0.0, 0.25], [0.5, 1.0]]
    assert mdp.scale == RewardScale(-10.0, 30.0)
    assert mdp.scale.scaled_difference(4.0) == 0.1
    assert mdp.scale.raw_difference(0.1) == 4.0


def test_an_offset_without_terminal_states_is_accepted() -> None:
    assert two_states(R=R2 - 1, reward_range=(-1.0, 0.0)).dense()[1].tolist() == R2.tolist()


def test_padding_makes_terminal_states_absorbing_and_worth_a_raw_reward_of_zero() -> None:
    mdp = two_states(R=-4 * R2, reward_range=(-4.0, 0.0), terminal=[1], pad=True)
    assert not mdp.setting.terminal.any()
    x, p, r = mdp.row(1, 0)
    # A raw reward of 0 is the upper end of [-4, 0]: 1 in scaled units.
    assert (x.tolist(), p.tolist(), r.tolist()) == ([1], [1.0], [1.0])
    assert mdp.setting.allowed.tolist() == [[True, True], [True, False]]


def test_padding_keeps_declared_rewards_of_terminal_states_at_zero() -> None:
    mdp = two_states(R=np.full((2, 2, 2), -4.0), reward_range=(-4.0, 0.0), terminal=[1], pad=True)
    last = int(mdp.setting.pair_index[1, 0])
    assert mdp.known.reward[mdp.known.start[last] : mdp.known.start[last + 1]].tolist() == [1.0, 1.0]


def test_terminal_states_have_no_actions() -> None:
    mdp = two_states(terminal=[1])
    assert mdp.setting.allowed.tolist() == [[True, True], [False, False]]
    assert not mdp.restricts_actions


def test_terminal_states_may_come_from_an_iterator() -> None:
    lists = {(0, 0): [(1, 1.0, 0.0)]}
    mdp = FiniteMDP.from_successors(lists, n_states=2, n_actions=1, horizon=2, terminal=iter([1]))
    assert mdp.setting.terminal.tolist() == [False, True]
    assert two_states(terminal=iter([1])).setting.terminal.tolist() == [False, True]


def test_arrays_are_copies_and_read_only() -> None:
    P = P2.copy()
    mdp = two_states(P=P, recorded_policy=[0, 1])
    P[0, 0] = [0.0, 1.0]
    assert mdp.row(0, 0)[0].tolist() == [0]
    held = [
        getattr(mdp, name)
        for name in ("row_start", "successor", "probability", "reward", "cumulative", "start")
    ]
    held += [mdp.setting.pair_start, mdp.setting.pair_action, mdp.setting.pair_index]
    held += [mdp.setting.terminal, mdp.setting.support, mdp.recorded_policy, *mdp.known]
    for array in held:
        assert isinstance(array, np.ndarray)
        assert not array.flags.writeable


def test_values_cannot_be_reassigned() -> None:
    with pytest.raises(AttributeError):
        two_states().name = "other"  # type: ignore[misc]


def test_value_bounds_are_the_steps_left_under_the_cap() -> None:
    assert two_states().setting.value_bounds.tolist() == [3.0, 2.0, 1.0, 0.0]
    assert two_states(value_cap=1.5).setting.value_bounds.tolist() == [1.5, 1.5, 1.0, 0.0]
    # 1 + 0.5 + 0.25, 1 + 0.5, 1.
    assert two_states(discount=0.5).setting.value_bounds.tolist() == [1.75, 1.5, 1.0, 0.0]


def test_an_agent_is_told_the_reward_function_only_if_it_is_known() -> None:
    mdp = two_states()
    assert mdp.told().known is None
    told = mdp.told("known").known
    assert told is mdp.known
    assert told.other_low.tolist() == told.other_high.tolist() == R2.reshape(-1).tolist()
    with pytest.raises(
        UnknownName, match=r"'reward' must be one of estimated, known, got 'know'\. Did you mean 'known'"
    ):
        mdp.told("know")


def test_successor_lists_leave_rewards_of_unlisted_states_open() -> None:
    lists = {(0, 0): [(1, 1.0, 0.5)], (1, 0): [(0, 1.0, 0.0)]}
    known = FiniteMDP.from_successors(lists, n_states=2, n_actions=1, horizon=2).known
    assert (known.successor.tolist(), known.reward.tolist()) == ([1, 0], [0.5, 0.0])
    assert (known.other_low.tolist(), known.other_high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
