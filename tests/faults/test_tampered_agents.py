"""Saved agents that were cut off, changed or made up: refused by name, whatever they hold, and never run."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chary import OwnBaseline, Setting, TabularAgent, Transition, make_agent
from chary.errors import CharyError, InvalidData, InvalidSetting
from chary.mdp.setting import RewardScale
from chary.storage.archives import npz_bytes
from chary.storage.sealed import DESCRIPTION, pack

Arrays = dict[str, NDArray[Any]]

S, A, H = 4, 3, 4
# State 3 ends episodes; in state 1 there is but one action.
ALLOWED = [[1, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0]]
LOOSE: dict[str, Any] = {"eta": 2.0, "bonus": "hoeffding", "bonus_scale": 0.01}


def problem(**options: Any) -> Setting:
    given: dict[str, Any] = {"n_states": S, "n_actions": A, "horizon": H, "terminal": [3], "allowed": ALLOWED}
    return Setting.declare(**{**given, **options})


def busy(name: str = "chary", *, own: str | None = None, **options: Any) -> TabularAgent:
    """Return an agent with old plans in use, late outcomes, chains that wait, and one that is fed."""
    spec = make_agent(name, **{**LOOSE, **options})
    told = problem()
    policy = None if own is None else OwnBaseline.declare([2, 0, 1, 0], told, role=own)
    agent = TabularAgent(
        spec,
        told,
        max_episodes=50,
        generator=np.random.default_rng(2),
        own=policy,
        oracle_value=np.full(S, 0.5) if options.get("baseline_value") == "oracle" else None,
    )
    agent.warm_start(
        [[Transition(0, a, 0.2 * a, 2, False), Transition(2, a, 0.5, 1, False)] for a in range(3)]
    )

    def step(
        k: int | str,
        t: int,
        s: int,
        x: int,
        *,
        told: bool = True,
        ends: bool = False,
        wish: int | None = None,
    ) -> None:
        decision = agent.act(k, t, s, proposal=None if agent.shield is None else wish)
        if told:
            agent.observe(k, Transition(s, decision.action, 0.25, x, ends), t=t)

    agent.begin("old", 0)
    # What the baseline would not do costs something.
    step("old", 0, 0, 2, wish=1)
    step("old", 1, 2, 1, wish=0)
    for k in range(3):
        agent.begin(k, 0)
        step(k, 0, 0, 2 if k else 1)
        agent.finish(k)
    agent.begin("late", 0)
    step("late", 0, 0, 1, told=False)
    step("late", 1, 1, 2)
    agent.begin("waits", 0)
    step("waits", 0, 0, 2, told=False)
    step("waits", 1, 2, 3, ends=True)
    agent.finish("waits")
    agent.begin("new", 2)
    agent.act("new", 0, 2)
    assert set(agent.open_episodes) == {"old", "late", "waits", "new"}
    return agent


CASES: dict[str, Callable[[], TabularAgent]] = {
    "chary": busy,
    "data meta": lambda: busy(data="meta", clock="meta"),
    "own floor": lambda: busy(own="floor"),
    "stepmix": lambda: busy("stepmix", baseline_value="oracle"),
    "ucbvi": lambda: busy("ucbvi", bonus="ch"),
    "random": lambda: busy("random"),
    "worlds": lambda: busy(bonus="posterior", worlds=3, risk=0.4, growth=0.1),
}


def record(case: str) -> tuple[Arrays, dict[str, Any]]:
    arrays, about = CASES[case]()._record()
    return {name: np.array(array) for name, array in arrays.items()}, json.loads(json.dumps(about))


def write(path: Path, arrays: Arrays, about: Any) -> Path:
    path.write_bytes(pack("agent", arrays, about))
    return path


def refused(path: Path, **options: Any) -> str:
    """Assert that a file is refused by name, in a sentence, and return it."""
    with pytest.raises(InvalidData) as refusal:
        TabularAgent.load(path, **options)
    return sentence(refusal.value)


def sentence(problem: InvalidData) -> str:
    """Assert that a message is a sentence on one line, and return it."""
    text = str(problem)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def still_works(agent: TabularAgent) -> None:
    """Play on with an agent; a kernel that was handed an index out of range would end the process here."""
    for episode in agent.open_episodes:
        agent.abandon(episode)
    for k in ("x", "y"):
        try:
            agent.begin(k, 0)
            decision = agent.act(k, 0, 0)
            agent.observe(k, Transition(0, decision.action, 0.5, 2, False))
            agent.finish(k)
        except CharyError:
            # A file may say that its episodes are used up, or that all states are terminal.
            continue
    values = agent.plan.arrays.value if agent.spec.bonus == "posterior" else agent.plan.arrays.v_lower
    assert np.isfinite(values).all()


def or_refused(path: Path) -> None:
    """Assert that a file is refused, or else holds an agent that works."""
    try:
        agent = TabularAgent.load(path)
    except InvalidData as problem:
        sentence(problem)
    else:
        still_works(agent)


@pytest.mark.parametrize("case", CASES)
def test_the_file_itself_is_good(case: str, tmp_path: Path) -> None:
    still_works(TabularAgent.load(write(tmp_path / "agent.npz", *record(case)), setting=problem()))


@given(place=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(place: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = content()
    path = tmp_path_factory.mktemp("cut") / "agent.npz"
    path.write_bytes(whole[: int(place * len(whole))])
    refused(path)


_CONTENT: list[bytes] = []


def content() -> bytes:
    if not _CONTENT:
        _CONTENT.append(pack("agent", *record("data meta")))
    return _CONTENT[0]


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_file_with_a_byte_flipped_is_refused_or_means_the_same(
    place: float, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    changed = bytearray(content())
    changed[int(place * len(changed))] ^= flip
    path = tmp_path_factory.mktemp("flip") / "agent.npz"
    path.write_bytes(bytes(changed))
    try:
        agent = TabularAgent.load(path)
    except InvalidData as problem:
        sentence(problem)
    else:
        # The dates and flags of a zip archive carry nothing.
        assert pack("agent", *agent._record()) == content()


@given(at=st.floats(0, 1), junk=st.binary(min_size=1, max_size=40), keep=st.booleans())
def test_a_file_with_bytes_put_in_is_refused_or_means_the_same(
    at: float, junk: bytes, keep: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = content()
    i = int(at * len(whole))
    path = tmp_path_factory.mktemp("junk") / "agent.npz"
    path.write_bytes(whole[:i] + junk + (whole[i:] if keep else whole[i + len(junk) :]))
    try:
        agent = TabularAgent.load(path)
    except InvalidData as problem:
        sentence(problem)
    else:
        assert pack("agent", *agent._record()) == content()


def test_a_newer_schema_another_kind_and_another_problem_are_refused_by_name(tmp_path: Path) -> None:
    arrays, about = record("chary")
    with np.load(write(tmp_path / "good.npz", arrays, about)) as file:
        told = json.loads(str(file[DESCRIPTION]))
    newer = {DESCRIPTION: np.array(json.dumps({**told, "schema": 99}))}
    (tmp_path / "newer.npz").write_bytes(npz_bytes({**newer, **arrays}, compressed=False))
    assert "schema 1, got 99" in refused(tmp_path / "newer.npz")
    (tmp_path / "policy.npz").write_bytes(pack("policy", arrays, about))
    assert "got one of kind 'policy'" in refused(tmp_path / "policy.npz")
    good = tmp_path / "good.npz"
    for other in (
        problem(horizon=H + 1),
        problem(allowed=None),
        problem(allowed=None, terminal=[]),
        problem(discount=0.9),
        problem(scale=RewardScale(0.0, 2.0)),
        problem(n_actions=A + 1, allowed=None),
    ):
        assert "an agent for this problem" in refused(good, setting=other)
    assert TabularAgent.load(good, setting=problem()).open_episodes
    assert "file that can be read" in refused(tmp_path / "nowhere.npz")
    assert "file that can be read" in refused(tmp_path)


def test_an_unsealed_change_is_refused(tmp_path: Path) -> None:
    arrays, about = record("chary")
    with np.load(write(tmp_path / "good.npz", arrays, about)) as file:
        sealed = {DESCRIPTION: file[DESCRIPTION]}
    arrays["counts.reward"] = arrays["counts.reward"] * 0.5
    (tmp_path / "changed.npz").write_bytes(npz_bytes({**sealed, **arrays}, compressed=False))
    assert "as it was written" in refused(tmp_path / "changed.npz")


def whole_arrays(case: str) -> list[str]:
    """Return the arrays of a file that hold indices or counts of them."""
    arrays, _ = record(case)
    # How much was learnt is no index: any number may be true.
    others = {name: each for name, each in arrays.items() if name != "worlds.numbers"}
    return [name for name, array in others.items() if array.dtype.kind == "i" and array.size]


INDICES = [(case, name) for case in CASES for name in whole_arrays(case)]
FULL = os.environ.get("CHARY_TESTS") == "full"
BEYOND = (-(2**40), -2, S * A + 7, 2**15 - 1, 2**40, 2**62) if FULL else (-2, S * A + 7, 2**62)


@pytest.mark.parametrize(("case", "name"), INDICES)
def test_an_index_out_of_range_is_refused_though_the_seal_is_right(
    case: str, name: str, tmp_path: Path
) -> None:
    arrays, about = record(case)
    limits = np.iinfo(arrays[name].dtype)
    for place in {0, arrays[name].size // 2, arrays[name].size - 1}:
        for beyond in BEYOND:
            changed = {**arrays, name: arrays[name].copy()}
            changed[name].reshape(-1)[place] = min(max(beyond, limits.min), limits.max)
            refused(write(tmp_path / "agent.npz", changed, about))


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_put_into_an_array_is_refused_or_works(case: str, tmp_path: Path) -> None:
    arrays, about = record(case)
    rng = np.random.default_rng(1)
    for name, array in arrays.items():
        others = [
            array[:-1] if array.ndim and len(array) else np.zeros(3),
            np.concatenate([array, array]) if array.ndim else np.zeros(3),
            np.zeros((2, 2, 2)),
            np.array("text"),
            array.astype(np.float32),
            array.astype(bool),
            np.full(array.shape, np.nan),
            np.full(array.shape, np.inf),
            np.full(array.shape, -1.0),
            np.full(array.shape, -1, dtype=array.dtype) if array.dtype.kind != "b" else ~array,
            np.full(array.shape, 3).astype(array.dtype),
        ]
        for i in range(len(others)) if FULL else rng.permutation(len(others))[:2]:
            other = others[i]
            or_refused(write(tmp_path / "agent.npz", {**arrays, name: other}, about))
        or_refused(write(tmp_path / "agent.npz", {n: a for n, a in arrays.items() if n != name}, about))


@pytest.mark.parametrize("name", ["played.decision", "played.outcome"])
def test_a_step_that_no_agent_has_played_is_refused(name: str, tmp_path: Path) -> None:
    arrays, about = record("data meta")
    for column in range(arrays[name].shape[1]):
        for value in (-2.0, 0.5, 1e9, 2.0**62, np.inf, -np.inf, np.nan):
            changed = {**arrays, name: arrays[name].copy()}
            known = np.flatnonzero(~np.isnan(arrays[name][:, 0]))
            changed[name][known[0], column] = value
            if not within_rules(name, column, value):
                refused(write(tmp_path / "agent.npz", changed, about))


def within_rules(name: str, column: int, value: float) -> bool:
    """Whether a number can stand in a column: charges, what remains, plans and chains have no upper limit."""
    if name == "played.outcome":
        return column == 2 and 0 <= value <= 1
    return (column in (2, 3, 4, 5, 6) and value >= 0 and (column < 5 or value == np.floor(value))) and (
        value < np.inf or column == 4
    )


def test_a_uniform_outside_the_unit_interval_is_refused(tmp_path: Path) -> None:
    arrays, about = record("random")
    for value in (1.0, 1e9, -0.5, np.nan):
        changed = {**arrays, "open.uniforms": np.full_like(arrays["open.uniforms"], value)}
        refused(write(tmp_path / "agent.npz", changed, about))
    refused(write(tmp_path / "agent.npz", {**arrays, "open.uniforms": arrays["open.uniforms"][1:]}, about))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the plain values of a description are."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    yield path
    for key, entry in entries:
        yield from places(entry, (*path, key))


def changed_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed_at(copy[path[0]], path[1:], new)
    return copy


ODD: tuple[Any, ...] = (None, -1, 10**9, 2**70, 0.5, "x", [], {}, True)


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_put_into_the_description_is_refused_or_works(case: str, tmp_path: Path) -> None:
    arrays, about = record(case)
    here = [path for path in places(about) if path]
    rng = np.random.default_rng(0)
    chosen = here if FULL else [here[i] for i in rng.permutation(len(here))[:12]]
    for path in chosen:
        for new in ODD:
            or_refused(write(tmp_path / "agent.npz", arrays, changed_at(about, path, new)))


@pytest.mark.parametrize("beyond", [-1, S, 10**9, 2**70, None, 1.5, "0", True, [0]])
def test_states_and_chains_of_the_shield_are_refused_where_there_are_none(
    beyond: Any, tmp_path: Path
) -> None:
    arrays, about = record("chary")
    kept = about["shield"]
    assert kept["chains"]
    paths: list[tuple[Any, ...]] = [("shield", "chains", 0, 1), ("open", 0, 3)]
    paths += [
        ("shield", "chains", i, 6, 0, j) for i, each in enumerate(kept["chains"]) if each[6] for j in (0, 2)
    ]
    paths += [
        ("shield", "episodes", i, 5, 0) for i, each in enumerate(kept["episodes"]) if each[5] is not None
    ]
    assert len(paths) > 4
    for path in paths:
        refused(write(tmp_path / "agent.npz", arrays, changed_at(about, path, beyond)))


def test_a_ledger_that_was_refilled_is_refused(tmp_path: Path) -> None:
    arrays, about = record("chary")
    spent = [i for i, each in enumerate(about["shield"]["episodes"]) if each[2][1] > 0]
    assert spent
    for deficit in (0.0, -1.0, 1e300):
        path = ("shield", "episodes", spent[0], 2, 1)
        refused(write(tmp_path / "agent.npz", arrays, changed_at(about, path, deficit)))


class Planted:
    """What creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["counts.successor", "planted", DESCRIPTION])
def test_a_pickle_in_disguise_is_refused_and_nothing_is_run(name: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    arrays, about = record("chary")
    with np.load(write(tmp_path / "good.npz", arrays, about)) as file:
        sealed = {DESCRIPTION: file[DESCRIPTION], **arrays}
    disguised = {**sealed, name: np.array([Planted(planted)], dtype=object)}
    path = tmp_path / "agent.npz"
    np.savez(path, **disguised)
    refused(path)
    assert not planted.exists()
    # The trap works, where somebody opens it.
    with np.load(path, allow_pickle=True) as file:
        file[name]
    assert planted.is_dir()


def test_a_bare_pickle_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    np.save(tmp_path / "agent.npy", np.array([Planted(planted)], dtype=object), allow_pickle=True)
    refused(tmp_path / "agent.npy")
    (tmp_path / "agent.pkl").write_bytes(b"cos\nsystem\n(S'touch planted'\ntR.")
    refused(tmp_path / "agent.pkl")
    assert not planted.exists()


def test_an_existing_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    path.write_text("kept")
    agent = busy()
    before = pack("agent", *agent._record())
    with pytest.raises(InvalidSetting, match="'path' must not exist yet"):
        agent.save(path)
    assert path.read_text() == "kept"
    agent.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["agent.npz"]


def test_a_folder_that_is_none_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    agent = busy()
    before = pack("agent", *agent._record())
    for path in (
        tmp_path / "nowhere" / "agent.npz",
        tmp_path / "file" / "agent.npz",
        Path("/proc/agent.npz"),
    ):
        with pytest.raises(InvalidSetting, match="'path' must be a file that can be written"):
            agent.save(path)
    assert os.listdir(tmp_path) == ["file"]
    assert pack("agent", *agent._record()) == before


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    agent = busy()
    old = tmp_path / "agent.npz"
    agent.save(old)
    before = old.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        for path in (old, tmp_path / "other.npz"):
            with pytest.raises(CharyError, match="'path' must be a file that can be written"):
                agent.save(path, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == ["agent.npz"]
    assert old.read_bytes() == before
