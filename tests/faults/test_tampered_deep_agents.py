"""Saved deep agents that were cut off, changed or made up: refused by name, whatever they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.deep_walk import HORIZON, START, go_on, logged, new_agent, the_open

from chary import Setting, TabularAgent, make_agent
from chary.errors import InvalidData, InvalidSetting
from chary.storage.sealed import pack, unpack

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")

Arrays = dict[str, NDArray[Any]]
KIND = "deep agent"


@cache
def _recorded(decided: bool) -> tuple[Arrays, str]:
    agent = new_agent()
    agent.warm_start(logged())
    go_on(agent, HORIZON + 2)
    if decided:
        agent.act(agent.open_episode, 2, the_open(agent).state)
    arrays, about = agent._record()
    # Copies: what the agent computes in may be written again.
    return {name: np.array(array) for name, array in arrays.items()}, json.dumps(about)


def record(*, decided: bool = True) -> tuple[Arrays, dict[str, Any]]:
    """Return what a file holds: an open episode with an action outstanding, or else one to learn from."""
    arrays, about = _recorded(decided)
    return dict(arrays), json.loads(about)


def content() -> bytes:
    return pack(KIND, *record(), container="safetensors")


def refused(path: Path) -> str:
    """Assert that a file is refused by name, in one sentence, and return it."""
    with pytest.raises(InvalidData) as refusal:
        deep.DeepAgent.load(path)
    text = str(refusal.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


def sealed(folder: Path, arrays: Arrays, about: Any) -> Path:
    path = folder / "agent.safetensors"
    path.write_bytes(pack(KIND, arrays, about, container="safetensors"))
    return path


@pytest.mark.parametrize("decided", [True, False])
def test_the_file_itself_is_good(decided: bool, tmp_path: Path) -> None:
    agent = deep.DeepAgent.load(sealed(tmp_path, *record(decided=decided)))
    assert len(go_on(agent, HORIZON)) == HORIZON


@given(place=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(place: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = content()
    path = tmp_path_factory.mktemp("cut") / "agent.safetensors"
    path.write_bytes(whole[: int(place * len(whole))])
    refused(path)


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_file_with_a_byte_flipped_is_refused_or_means_the_same(
    place: float, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    changed = bytearray(content())
    changed[int(place * len(changed))] ^= flip
    path = tmp_path_factory.mktemp("flip") / "agent.safetensors"
    path.write_bytes(bytes(changed))
    try:
        agent = deep.DeepAgent.load(path)
    except InvalidData:
        refused(path)
    else:
        # The blanks of a header carry nothing.
        assert pack(KIND, *agent._record(), container="safetensors") == content()


def test_files_of_another_kind_and_no_files_are_refused(tmp_path: Path) -> None:
    assert "file that can be read" in refused(tmp_path / "nowhere")
    assert "file that can be read" in refused(tmp_path)
    foreign = tmp_path / "foreign"
    for bytes_ in (b"", b"not an agent", b"\x80\x04K\x01.", b"\xff" * 100):
        foreign.write_bytes(bytes_)
        refused(foreign)
    import safetensors.numpy

    foreign.write_bytes(safetensors.numpy.save({"weight": np.zeros(3)}))
    refused(foreign)
    tabular = TabularAgent(make_agent("ucbvi"), Setting.declare(n_states=2, n_actions=2, horizon=2))
    tabular.save(tmp_path / "tabular")
    assert "got one of kind 'agent'" in refused(tmp_path / "tabular")
    path = tmp_path / "deep"
    path.write_bytes(content())
    with pytest.raises(InvalidData, match="got one of kind 'deep agent'"):
        TabularAgent.load(path)
    for no_path in (None, "", 3):
        with pytest.raises(InvalidSetting):
            deep.DeepAgent.load(no_path)


def test_a_file_is_replaced_only_where_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    path.write_bytes(b"somebody's work")
    agent = new_agent()
    with pytest.raises(InvalidSetting, match="overwrite=True"):
        agent.save(path)
    assert path.read_bytes() == b"somebody's work"
    agent.save(path, overwrite=True)
    assert deep.DeepAgent.load(path).episodes_begun == 0
    with pytest.raises(InvalidSetting, match="can be written"):
        agent.save(tmp_path / "no such folder" / "agent")


@pytest.mark.parametrize("decided", [True, False])
def test_an_array_that_is_missing_or_of_another_shape_or_type_is_refused(
    decided: bool, tmp_path: Path
) -> None:
    arrays, about = record(decided=decided)
    for name, array in arrays.items():
        others = [np.zeros((*array.shape, 2), array.dtype), np.zeros(array.shape, np.int8)]
        for changed in (
            {other: kept for other, kept in arrays.items() if other != name},
            *({**arrays, name: other} for other in others),
        ):
            refused(sealed(tmp_path, changed, about))


@pytest.mark.parametrize("decided", [True, False])
def test_counts_draws_and_money_out_of_range_are_refused_though_the_seal_is_right(
    decided: bool, tmp_path: Path
) -> None:
    arrays, about = record(decided=decided)
    counts = [name for name, array in arrays.items() if array.dtype.kind == "i" and name[:6] == "state."]
    assert "state.replay.written" in counts
    wrong: dict[str, Any] = dict.fromkeys(counts, -1)
    for name, value in wrong.items():
        refused(sealed(tmp_path, {**arrays, name: np.full_like(arrays[name], value)}, about))
    for name in ("open.0.draws.agent", "open.0.draws.batch"):
        for value in (-0.5, 1.0, np.nan):
            refused(sealed(tmp_path, {**arrays, name: np.full_like(arrays[name], value)}, about))
    spent = float(arrays["open.0.ledger.deficit"])
    for value in (-1.0, np.nan, np.inf, spent - 0.1, spent + 0.1):
        refused(sealed(tmp_path, {**arrays, "open.0.ledger.deficit": np.array(value)}, about))
    refused(sealed(tmp_path, {**arrays, "open.0.observation": np.full(6, np.nan, np.float32)}, about))
    if not decided:
        for name, value in (
            ("action", np.int32(4)),
            ("action", np.int32(-1)),
            ("reward", np.float64(np.nan)),
            ("reached", START.astype(np.float32) + 9),
        ):
            refused(sealed(tmp_path, {**arrays, f"unlearnt.step.{name}": np.asarray(value)}, about))


def opened(about: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a description with changes of its one open episode."""
    return {**about, "open": [{**about["open"][0], **changes}]}


ABOUT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda about: {},
    "no options": lambda about: {**about, "options": None},
    "an option too many": lambda about: {**about, "options": {**about["options"], "safe": True}},
    "an unknown agent": lambda about: {**about, "options": {**about["options"], "agent": "ppo"}},
    "a wider network": lambda about: {**about, "options": {**about["options"], "width": 10**9}},
    "a larger replay": lambda about: {**about, "options": {**about["options"], "replay": 10**9}},
    "an endless budget by name": lambda about: {**about, "options": {**about["options"], "eta": "nan"}},
    "another shape": lambda about: {**about, "shape": [7]},
    "a shape of texts": lambda about: {**about, "shape": ["6"]},
    "a negative shape": lambda about: {**about, "shape": [-2, -3]},
    "more actions": lambda about: {**about, "n_actions": 5},
    "no actions": lambda about: {**about, "n_actions": 0},
    "another horizon": lambda about: {**about, "horizon": HORIZON + 1},
    "a huge horizon": lambda about: {**about, "horizon": 2**62},
    "seed text": lambda about: {**about, "seed": "0"},
    "warmed 1": lambda about: {**about, "warmed": 1},
    "open without a name": lambda about: opened(about, name=None),
    "open list": lambda about: {**about, "open": [1, 2]},
    "open of another version": lambda about: {**about, "open": about["open"][0]},
    "open twice": lambda about: {**about, "open": about["open"] * 2},
    "another number": lambda about: opened(about, number=7),
    "a chain of texts": lambda about: opened(about, chain="a"),
    "a chain below none": lambda about: opened(about, chain=-2),
    "half the flags": lambda about: opened(about, flags=[False]),
    "flags 0": lambda about: opened(about, flags=[0, 0, 0]),
    "networks that are not there": lambda about: opened(about, own=True, served=False),
    "nobody served": lambda about: opened(about, served=False),
    "unlearnt of nobody": lambda about: {**about, "unlearnt": [1, 0]},
    "unlearnt before the start": lambda about: {**about, "unlearnt": [0, -1]},
    "unlearnt of the future": lambda about: {**about, "unlearnt": [0, HORIZON]},
}


@pytest.mark.parametrize("case", ABOUT)
def test_a_description_that_no_agent_has_is_refused_though_the_seal_is_right(
    case: str, tmp_path: Path
) -> None:
    arrays, about = record()
    refused(sealed(tmp_path, arrays, ABOUT[case](about)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("decision", {0: 4.0}),
        ("decision", {0: 0.5}),
        ("decision", {1: 2.0}),
        ("decision", {2: -1.0}),
        ("decision", {3: np.inf}),
        ("decision", {5: 9.0}),
        ("decision", {6: -2.0}),
        ("state", {0: 9.0}),
        ("state", {0: np.inf}),
        ("next_state", {0: 9.0}),
        ("action", {0: -1.0}),
        ("action", {0: 4.0}),
        ("reward", {0: np.inf}),
        ("reward", {0: np.nan}),
        ("terminated", {0: True}),
    ],
)
def test_a_step_that_no_agent_makes_is_refused(name: str, change: dict[int, float], tmp_path: Path) -> None:
    arrays, about = record()
    changed = arrays[f"open.0.{name}"].copy()
    for column, value in change.items():
        changed[(1, column) if changed.ndim > 1 else 1] = value
    refused(sealed(tmp_path, {**arrays, f"open.0.{name}": changed}, about))


def test_a_file_of_version_0_1_0_is_checked_too(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "deep.safetensors"
    about, arrays = unpack(KIND, golden.read_bytes())
    assert len(go_on_from(sealed(tmp_path, arrays, about))) == 1
    now = about["open"]
    for change in (
        {"t": -1},
        {"t": 10**6},
        {"t": "1"},
        {"name": None},
        {"decision": [10**6, True, 0.0, 0]},
        {"decision": [0, True, -1.0, 0]},
        {"decision": [0, 1, 0.0, 0]},
        {"decision": [0, True]},
        {"decision": [0, True, 0.0, "a"]},
    ):
        refused(sealed(tmp_path, arrays, {**about, "open": {**now, **change}}))
    for name, value in (("open.ledger.deficit", np.nan), ("open.observation", np.inf)):
        refused(sealed(tmp_path, {**arrays, name: np.full_like(arrays[name], value)}, about))


def go_on_from(path: Path) -> tuple[Any, ...]:
    names: tuple[Any, ...] = deep.DeepAgent.load(path).open_episodes
    return names
