"""A policy of yours, whatever it is, becomes one checked table; files keep it without a line of code."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, UnknownName
from chary.mdp.setting import RewardScale, Setting
from chary.policies import (
    ROLES,
    D3RLPyPolicy,
    OwnBaseline,
    SB3Policy,
    as_policy_table,
    load_policy,
    raw_value,
    save_policy,
    scaled_value,
)
from chary.storage.sealed import pack, unpack

# Three states to act in and a terminal one; action 2 is not allowed in state 0.
ALLOWED = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]], dtype=bool)
PROBLEM = Setting.declare(n_states=4, n_actions=3, horizon=2, allowed=ALLOWED, terminal=[3])
TABLE = [[1, 2, 0, 0], [0, 1, 2, 0]]


class Model:
    """A model of someone else's: it counts how often it is asked, and with what."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def predict(self, observation: Any, **options: Any) -> Any:
        self.asked.append((observation, options))
        return self.answer(observation)


def test_actions_by_state_are_played_at_every_step() -> None:
    table = as_policy_table([1, 2, 0, 2], PROBLEM)
    # The terminal state plays 0, whatever is written there.
    assert table.tolist() == [[1, 2, 0, 0]] * 2
    assert table.dtype == np.int64
    assert not table.flags.writeable


def test_actions_by_step_and_state_are_taken_as_they_are_and_copied() -> None:
    given_table = np.array(TABLE, dtype=np.uint8)
    table = as_policy_table(given_table, PROBLEM)
    given_table[:] = 0
    assert table.tolist() == TABLE


def test_probabilities_play_the_likeliest_action_and_the_lowest_of_equals() -> None:
    likely = np.array([[0.2, 0.8, 0], [0, 0.5, 0.5], [1, 0, 0], [0, 0, 0]], dtype=np.float32)
    assert as_policy_table(likely, PROBLEM).tolist() == [[1, 1, 0, 0]] * 2


def test_whole_numbers_are_actions_where_the_two_shapes_are_one() -> None:
    square = Setting.declare(n_states=2, n_actions=2, horizon=2)
    swap = np.array([[0, 1], [1, 0]])
    assert as_policy_table(swap, square).tolist() == [[0, 1], [1, 0]]
    assert as_policy_table(swap.astype(float), square).tolist() == [[1, 0], [1, 0]]


def test_rows_that_are_no_probabilities_are_not_read_as_such() -> None:
    # Actions by state and step, (S, H) with H = A: as weights they would mean something else.
    three = Setting.declare(n_states=4, n_actions=3, horizon=3, allowed=ALLOWED, terminal=[3])
    with pytest.raises(InvalidSetting, match="sum to 1 in every state, got 3 in state 0 and 2 more"):
        as_policy_table([[1, 2, 0], [2, 2, 2], [0, 1, 1], [0, 0, 0]], three)


def test_a_function_of_the_state_is_asked_once_for_every_state_that_acts() -> None:
    asked = []

    def policy(state: int, shift: int = 1) -> int:
        asked.append(state)
        return (state + shift) % 2

    assert as_policy_table(policy, PROBLEM).tolist() == [[1, 0, 1, 0]] * 2
    assert asked == [0, 1, 2]


def test_a_function_of_step_and_state_is_asked_once_for_each() -> None:
    asked = []

    def policy(t: int, state: int) -> np.int64:
        asked.append((t, state))
        return np.int64(TABLE[t][state])

    assert as_policy_table(policy, PROBLEM).tolist() == TABLE
    assert asked == [(t, s) for t in range(2) for s in range(3)]


@pytest.mark.parametrize(
    "policy",
    [lambda: 0, lambda t, s, u: 0, lambda *states: 0, lambda state, *, k: 0, type("Odd", (), {}), max],
    ids=["none", "three", "any", "keyword", "class", "builtin"],
)
def test_a_function_of_anything_else_is_refused_by_its_parameters(policy: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"'policy' must be a function .* Wrap it: lambda"):
        as_policy_table(policy, PROBLEM)


def test_what_a_function_raises_is_passed_on() -> None:
    with pytest.raises(KeyError):
        as_policy_table(lambda state: {0: 1}[state], PROBLEM)


@pytest.mark.parametrize("action", [1.0, "1", None, True, [1], -1, float("nan")])
def test_an_answer_that_is_no_action_is_refused_with_step_and_state(action: Any) -> None:
    with pytest.raises(InvalidAction, match=r"'policy' must be a whole number >= 0.*t = 1, s = 2"):
        as_policy_table(lambda t, state: action if (t, state) == (1, 2) else 0, PROBLEM)


@pytest.mark.parametrize("action", [2, 3, 10**30])
def test_an_action_that_is_not_allowed_is_refused_with_step_and_state(action: int) -> None:
    with pytest.raises(InvalidAction, match=r"in state 0 one of 0, 1, got \d+ at t = 1, s = 0 and 0 more"):
        as_policy_table(lambda t, state: action if (t, state) == (1, 0) else 0, PROBLEM)


@pytest.mark.parametrize(
    "policy",
    [
        [[0, 1], [1]],
        [0, 1, 2],
        [0.0, 1.0, 0.0, 0.0],
        [True, False, True, False],
        np.zeros((2, 3, 4), dtype=int),
        ["a", "b", "c", "d"],
        {0: 1},
        None,
        7,
        object(),
        [10**400] * 4,
        [[np.nan, 1, 0]] * 4,
        [[-1.0, 2, 0]] * 4,
        [[0.0, 0, 0]] * 4,
        [[0.0, 0.0, 1.0]] * 4,
        [2, 0, 0, 0],
        [-1, 0, 0, 0],
        np.full(4, 2**64 - 1, dtype=np.uint64),
        "",
        "no\0file",
        "no such file",
        "\ud800",
        b"bytes",
    ],
)
def test_no_table_is_refused_with_a_sentence(policy: Any) -> None:
    with pytest.raises(CharyError, match=r"^'\w+' must .*got "):
        as_policy_table(policy, PROBLEM)


def test_a_problem_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'setting' must be a Setting"):
        as_policy_table([0], None)  # type: ignore[arg-type]


def test_an_sb3_model_is_asked_for_its_best_action_state_by_state() -> None:
    model = Model(lambda state: (np.array(int(state) % 2), None))
    assert as_policy_table(SB3Policy(model), PROBLEM).tolist() == [[0, 1, 0, 0]] * 2
    assert [(int(state), options) for state, options in model.asked] == [
        (s, {"deterministic": True}) for s in range(3)
    ]


def test_an_sb3_model_sees_the_observations_it_was_trained_on() -> None:
    model = Model(lambda seen: (int(seen.argmax() == 1), None))
    assert as_policy_table(SB3Policy(model, np.eye(4)), PROBLEM).tolist() == [[0, 1, 0, 0]] * 2
    assert [seen.shape for seen, _ in model.asked] == [(4,)] * 3


def test_a_d3rlpy_model_is_asked_once_for_all_states_that_act() -> None:
    model = Model(lambda seen: seen.argmax(axis=1) % 2)
    assert as_policy_table(D3RLPyPolicy(model, np.eye(4)), PROBLEM).tolist() == [[0, 1, 0, 0]] * 2
    assert [seen.shape for seen, _ in model.asked] == [(3, 4)]


@pytest.mark.parametrize("answer", [1, [1, 0, 1], (1,), (1.5, None), (np.array([1, 0]), None)])
def test_what_an_sb3_model_must_not_answer(answer: Any) -> None:
    with pytest.raises(InvalidAction, match="'predict' must "):
        as_policy_table(SB3Policy(Model(lambda state: answer)), PROBLEM)


@pytest.mark.parametrize(
    "answer", [1, [0, 1], [0.0, 1.0, 0.0], (np.zeros(3), None), [[0], [1], [0]], ["a"] * 3]
)
def test_what_a_d3rlpy_model_must_not_answer(answer: Any) -> None:
    with pytest.raises(InvalidAction, match="'predict' must "):
        as_policy_table(D3RLPyPolicy(Model(lambda seen: answer), np.eye(4)), PROBLEM)


def test_a_model_plays_allowed_actions_only() -> None:
    with pytest.raises(InvalidAction, match="got 2 at t = 0, s = 0"):
        as_policy_table(SB3Policy(Model(lambda state: (2, None))), PROBLEM)


@pytest.mark.parametrize("wrong", [np.eye(3), 4, [[1], [2, 3]], "abcd"])
def test_every_state_needs_an_observation(wrong: Any) -> None:
    with pytest.raises(InvalidSetting, match="'observations' must "):
        as_policy_table(D3RLPyPolicy(Model(lambda seen: seen), wrong), PROBLEM)


@pytest.mark.parametrize("model", [None, "model.zip", Path("model.zip"), lambda state: 0, Model])
def test_models_are_handed_over_alive(model: Any) -> None:
    with pytest.raises(InvalidSetting, match="must be a live model"):
        SB3Policy(model)
    with pytest.raises(InvalidSetting, match="must be a live model"):
        D3RLPyPolicy(model, np.eye(4))


def test_a_policy_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    save_policy(tmp_path / "rule.npz", lambda t, state: TABLE[t][state], PROBLEM)
    for found in (
        load_policy(tmp_path / "rule.npz", PROBLEM),
        as_policy_table(tmp_path / "rule.npz", PROBLEM),
        as_policy_table(str(tmp_path / "rule.npz"), PROBLEM),
    ):
        assert found.tolist() == TABLE
        assert not found.flags.writeable


def test_a_file_that_is_there_is_left_alone_unless_told(tmp_path: Path) -> None:
    save_policy(tmp_path / "rule.npz", TABLE, PROBLEM)
    with pytest.raises(InvalidSetting, match="'path' must not exist yet"):
        save_policy(tmp_path / "rule.npz", [0, 0, 0, 0], PROBLEM)
    assert load_policy(tmp_path / "rule.npz", PROBLEM).tolist() == TABLE
    save_policy(tmp_path / "rule.npz", [0, 0, 0, 0], PROBLEM, overwrite=True)
    assert not load_policy(tmp_path / "rule.npz", PROBLEM).any()


def test_nothing_is_written_of_a_policy_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidAction, match="allowed"):
        save_policy(tmp_path / "rule.npz", [2, 0, 0, 0], PROBLEM)
    with pytest.raises(InvalidSetting, match="can be written"):
        save_policy(tmp_path / "nowhere" / "rule.npz", TABLE, PROBLEM)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Setting.declare(n_states=4, n_actions=3, horizon=3, allowed=ALLOWED, terminal=[3]), "'horizon': 3"),
        (Setting.declare(n_states=5, n_actions=3, horizon=2), "'states': 5"),
        (Setting.declare(n_states=4, n_actions=3, horizon=2, terminal=[3]), "other allowed actions"),
        (Setting.declare(n_states=4, n_actions=3, horizon=2), "other allowed actions or terminal"),
    ],
)
def test_a_policy_of_another_problem_is_refused(tmp_path: Path, other: Setting, reason: str) -> None:
    save_policy(tmp_path / "rule.npz", TABLE, PROBLEM)
    with pytest.raises(InvalidData, match="'path' must contain a policy of this problem") as refusal:
        load_policy(tmp_path / "rule.npz", other)
    assert reason in str(refusal.value)


def saved(tmp_path: Path) -> bytes:
    file = tmp_path / "rule.npz"
    if not file.exists():
        save_policy(file, TABLE, PROBLEM)
    return file.read_bytes()


def refused(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(InvalidData, match=match):
        load_policy(tmp_path / "bad.npz", PROBLEM)


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    content = saved(tmp_path)
    for size in range(0, len(content), 7):
        refused(tmp_path, content[:size], "'path' must be a saved policy")


def test_a_flipped_bit_never_gives_another_policy(tmp_path: Path) -> None:
    content, unharmed = saved(tmp_path), 0
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "bad.npz").write_bytes(changed)
        # Bits of a zip archive that mean nothing may change; what is read must not.
        with contextlib.suppress(InvalidData):
            assert load_policy(tmp_path / "bad.npz", PROBLEM).tolist() == TABLE
            unharmed += 1
    assert unharmed < len(content) / 6


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    with np.load(io.BytesIO(saved(tmp_path))) as file:
        arrays = dict(file)
    description = json.loads(str(arrays["chary"]))
    description["schema"] += 1
    target = io.BytesIO()
    np.savez(target, **{**arrays, "chary": np.array(json.dumps(description))})
    refused(tmp_path, target.getvalue(), "must have schema 1, got 2")


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    refused(tmp_path, pack("agent", {"table": np.array(TABLE)}, {}), "got one of kind 'agent'")


@pytest.mark.parametrize(
    "arrays",
    [{}, {"table": np.zeros((2, 3), dtype=int)}, {"table": np.zeros((2, 4))}],
    ids=["none", "shape", "floats"],
)
def test_a_sealed_file_without_a_table_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    about, _ = unpack("policy", saved(tmp_path))
    refused(tmp_path, pack("policy", arrays, about), r"must contain a table of shape \(2, 4\)")


def test_a_sealed_file_that_plays_what_is_not_allowed_is_refused(tmp_path: Path) -> None:
    about, _ = unpack("policy", saved(tmp_path))
    (tmp_path / "bad.npz").write_bytes(pack("policy", {"table": np.full((2, 4), 2)}, about))
    with pytest.raises(InvalidAction, match="got 2 at t = 0, s = 0"):
        load_policy(tmp_path / "bad.npz", PROBLEM)


class Bomb:
    """Whoever unpickles it, leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def test_nothing_in_a_file_can_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    bomb = Bomb(mark)
    with np.load(io.BytesIO(saved(tmp_path))) as file:
        arrays: dict[str, Any] = dict(file)
    target = io.BytesIO()
    np.savez(target, **{**arrays, "table": np.array([[bomb]], dtype=object)})
    refused(tmp_path, target.getvalue(), "'path' must be a saved policy")
    refused(tmp_path, pickle.dumps(bomb), "'path' must be a saved policy")
    assert not mark.exists()
    # The bomb is a real one.
    pickle.loads(pickle.dumps(bomb))
    assert mark.exists()


def test_a_role_that_does_not_exist_is_refused() -> None:
    for role in ROLES:
        own = OwnBaseline.declare(TABLE, PROBLEM, role=role)
        assert (own.table.tolist(), own.role) == (TABLE, role)
    with pytest.raises(UnknownName, match="Did you mean 'floor'"):
        OwnBaseline.declare(TABLE, PROBLEM, role="flor")


@pytest.mark.parametrize("role", ["only", "floor"])
def test_a_random_policy_is_not_replaced_by_its_likeliest_actions_in_silence(role: str) -> None:
    setting = Setting.declare(n_states=3, n_actions=2, horizon=2, terminal=[2])
    dice = [[1.0, 0.0], [0.4, 0.6], [0.0, 0.0]]
    with pytest.raises(
        InvalidSetting,
        match=rf"'policy' must play one action per state in role '{role}', got .* 0.6 in state 1\. .*"
        r"pass as_policy_table\(policy, setting\)",
    ):
        OwnBaseline.declare(dice, setting, role=role)
    # The way out, and a policy that is certain in every state.
    for certain in (as_policy_table(dice, setting), [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]):
        own = OwnBaseline.declare(certain, setting, role=role)
        assert own.table.tolist() == [[0, 1, 0], [0, 1, 0]]
    # A prior decides ties alone: there the likeliest action is what is documented.
    assert OwnBaseline.declare(dice, setting, role="prior").table.tolist() == [[0, 1, 0], [0, 1, 0]]


@given(
    low=st.floats(-100, 100),
    span=st.floats(0.1, 100),
    discount=st.sampled_from([1.0, 0.9, 0.5]),
    rewards=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_values_change_their_units_as_the_rewards_they_sum_do(
    low: float, span: float, discount: float, rewards: list[float]
) -> None:
    scale = RewardScale(low, low + span)
    cold = Setting.declare(n_states=1, n_actions=1, horizon=len(rewards), discount=discount, scale=scale)
    scaled = sum(discount**t * r for t, r in enumerate(rewards))
    raw = sum(discount**t * (low + r * scale.span) for t, r in enumerate(rewards))
    assert raw_value(scaled, cold) == pytest.approx(raw, abs=1e-9)
    assert scaled_value(raw, cold) == pytest.approx(scaled, abs=1e-9)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None])
def test_a_value_is_a_finite_number(value: Any) -> None:
    with pytest.raises(InvalidSetting, match="'value' must lie in"):
        raw_value(value, PROBLEM)
    with pytest.raises(InvalidSetting, match="'value' must lie in"):
        scaled_value(value, PROBLEM)


def test_a_live_dqn_plays_what_it_predicts() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    model = sb3.DQN("MlpPolicy", gymnasium.make("FrozenLake-v1"), device="cpu", seed=0)
    lake = Setting.declare(n_states=16, n_actions=4, horizon=3, terminal=[5, 7, 11, 12, 15])
    best, _ = model.predict(np.arange(16), deterministic=True)
    expected = np.where(lake.terminal, 0, best)
    assert as_policy_table(SB3Policy(model), lake).tolist() == [expected.tolist()] * 3
