"""Every way a log can be broken: one sentence that names the row, and nothing half-written."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chary
from chary import CharyError, Setting, Transition
from chary.cli import main
from chary.data import (
    Bins,
    Codebook,
    Log,
    discretiser_from_arrays,
    inspect,
    load_discretiser,
    read_log,
    read_minari,
    read_observations,
    save_discretiser,
    write_log,
)
from chary.mdp import RewardScale
from chary.storage.sealed import pack

HEADER = "episode,t,state,action,reward,next_state,terminated\n"
# Row 1 is the header; rows 2 to 4 are episode 0, rows 5 and 6 episode 1.
ROWS = ["0,0,0,1,0.5,1,0", "0,1,1,0,0.25,2,0", "0,2,2,1,1.0,3,1", "1,0,0,0,0.0,2,0", "1,1,2,0,0.75,0,0"]
SETTING = Setting.declare(n_states=4, n_actions=2, horizon=3)


def text(*changes: tuple[int, str | None], extra: str = "") -> str:
    """The good file with rows replaced, by their number in the file; None leaves one out."""
    replaced = dict(changes)
    rows = [replaced.get(number, row) for number, row in enumerate(ROWS, start=2)]
    return HEADER + "".join(f"{row}\n" for row in rows if row is not None) + extra


def test_the_good_file_is_good(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text())
    assert read_log(tmp_path / "log.csv", setting=SETTING).n_transitions == len(ROWS)


BROKEN: list[tuple[str, str | bytes, str]] = [
    ("nothing", "", r"must contain at least one row, got an empty file"),
    ("blank", "\n\n", r"must start with the names of its columns, got an empty row 1"),
    ("header only", HEADER, r"must contain at least one row below its header, got 0"),
    ("no header", "".join(f"{row}\n" for row in ROWS), r"must have the columns episode, .* got no 'episode'"),
    ("missing", text().replace("action", "acton"), r"got no 'action'\. Did you mean 'acton'\?"),
    ("missing next", text().replace("next_state", "after"), r"got no 'next_state'"),
    ("twice", text().replace("next_state", "state"), r"must have every column once, got 'state' twice"),
    ("semicolons", text().replace(",", ";"), r"got ';' in row 1\. Pass delimiter=';' \(--delimiter\)"),
    ("tabs", text().replace(",", "\t"), r"must have commas between its cells, got '\\t' in row 1"),
    (
        "extra",
        HEADER.replace("reward", "reward,rewards") + "0,0,0,0,1,2,1,0\n",
        r"alone, got 'rewards' too\. Did you mean 'reward'\? Pass ignore_extra=True \(--ignore-extra\)",
    ),
    ("short row", text((4, "0,2,2,1,1.0,3")), r"must have 7 cells in every row.* got 6 in row 4\."),
    ("long rows", text((3, ROWS[1] + ",9"), (6, "1")), r"got 8 in row 3 and 1 more row\."),
    ("blank inside", text((5, "")), r"must have 7 cells in every row.* got 0 in row 5\."),
    ("open quote", text((3, '0,1,1,0,"0.25,2,0')), r"must be CSV, got unreadable text in row 3: un"),
    ("empty cell", text((5, "1,0,,0,0.0,2,0")), r"'state' must be .* got an empty cell in row 5\."),
    ("words", text((3, "0,1,one,0,0.25,2,0")), r"'state' must be a whole number >= 0, got 'one' in row 3\."),
    ("negative", text((5, "1,0,-1,0,0.0,2,0")), r"'state' must be a whole number >= 0, got '-1' in row 5\."),
    (
        "fraction",
        text((3, "0,1,1,0.5,0.25,2,0")),
        r"'action' must be a whole number >= 0, got '0\.5' in row 3",
    ),
    ("huge", text((3, f"0,1,1,{2**63},0.25,2,0")), r"'action' must be a whole number .* in row 3"),
    ("underscores", text((3, "0,1,1,1_0,0.25,2,0")), r"'action' must be .* got '1_0' in row 3"),
    ("other digits", text((3, "0,1,1,\u0663,0.25,2,0")), r"'action' must be .* in row 3"),
    ("named", text((3, "Ann" + ROWS[1][1:])), r"'episode' must be .* got 'Ann' in row 3\. Episodes are num"),
    (
        "nameless",
        text((2, "Ann" + ROWS[0][1:]), (3, ROWS[1][1:])),
        r"'episode' must have .* missing .* in row 3",
    ),
    ("two headers", text(extra=HEADER), r"got 'episode' in row 7\. Join files without the headers"),
    ("nan", text((4, "0,2,2,1,nan,3,1")), r"'reward' must be a finite number, got 'nan' in row 4\."),
    ("inf", text((4, "0,2,2,1,-inf,3,1")), r"'reward' must be a finite number, got '-inf' in row 4\."),
    ("overflow", text((4, "0,2,2,1,1e999,3,1")), r"'reward' must be a finite number, got '1e999' in row 4"),
    (
        "mixed",
        text((2, "0,0,0,1,high,1,0"), (6, "1,1,2,0,n/a,0,0")),
        r"'reward' must be a finite number, got 'high' in row 2 and 1 more row\.",
    ),
    (
        "the first column",
        text((2, "0,0,0,1,high,1,0"), (3, "0,1,x,0,0.25,2,0")),
        r"'reward' .* 'high' in row 2\.",
    ),
    ("truth", text((4, "0,2,2,1,1.0,3,si")), r"'terminated' must be 0 and 1, true .* got 'si' in row 4"),
    (
        "two kinds of truth",
        text((4, "0,2,2,1,1.0,3,True")),
        r"'terminated' must be 0 and 1, .*, the same two in all rows, got 'True' in row 4\.",
    ),
    (
        "mark inside",
        text((5, "\ufeff1,0,0,0,0.0,2,0")),
        r"'episode' must .* got a byte-order mark in row 5\. It be",
    ),
    ("UTF-16", text().encode("utf-16"), r"must be text in UTF-8, got the byte-order mark of UTF-16 in row 1"),
    ("UTF-32", text().encode("utf-32"), r"must be text in UTF-8, got the byte-order mark of UTF-32 in row 1"),
    ("Latin-1", text((3, "é")).encode("latin-1"), r"must be text in UTF-8, got the byte 0xe9 in row 3"),
    ("NUL", text((3, "0,1,1,0,0.25\0,2,0")), r"'reward' must be .* in row 3|must be CSV"),
    (
        "duplicate",
        text(extra="0,1,1,0,0.25,2,0\n"),
        r"'t' must be different .* got episode 0, t 1, as in row 3, in row 7\.",
    ),
    (
        "duplicates",
        text(extra="0,1,1,0,0.25,2,0\n" * 3),
        r"as in row 3, in row 7 and 2 more rows\.",
    ),
    ("gap", text((3, None)), r"'t' must count .* got episode 0, t 2, after t 0, in row 3\."),
    ("late start", text((5, None)), r"'t' must count .* got episode 1, t 1, as its first step in row 5\."),
    (
        "after the end",
        text((3, "0,1,1,0,0.25,2,1")),
        r"'terminated' must be the last .* got episode 0, t 2, after the end in row 3, in row 4\.",
    ),
    (
        "broken chain",
        text((3, "0,1,1,0,0.25,3,0")),
        r"'next_state' must be the state in which .* got 3, and then 2 in row 4, in row 3\.",
    ),
]


@pytest.mark.parametrize(("content", "pattern"), [each[1:] for each in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_file_is_refused_by_the_api_and_the_command_line(
    content: str | bytes, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CharyError, match=pattern) as refusal:
        read_log(file)
    assert "\n" not in str(refusal.value)
    out = tmp_path / "out.parquet"
    refused(("data", "inspect", str(file)), pattern, capsys)
    refused(("data", "convert", str(file), str(out)), pattern, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def refused(arguments: tuple[str, ...], pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    assert left.value.code == 2, err
    assert out == ""
    assert err.startswith("chary: ")
    assert err.count("\n") == 1
    assert re.search(pattern, err), err


ENDED = Setting.declare(n_states=4, n_actions=2, horizon=3, terminal=[2])
MASKED = Setting.declare(n_states=4, n_actions=2, horizon=3, allowed=[[1, 1], [0, 1], [1, 1], [1, 1]])
OFFSET = Setting.declare(n_states=4, n_actions=2, horizon=3, scale=RewardScale(-1.0, 1.0))
NO_SETTING: Any = "inventory"
NO_LOG: Any = [1, 2]
NO_PATH: Any = None

AGAINST_A_SETTING: list[tuple[str, dict[str, Any], str, str]] = [
    ("states", {"n_states": 3}, text(), r"'next_state' must lie in 0\.\.2, got 3 in row 4\."),
    ("actions", {"n_actions": 1}, text(), r"'action' must lie in 0\.\.0, got 1 in row 2 and 1 more row\."),
    (
        "range",
        {"reward_range": (0, 0.5)},
        text(),
        r"'reward' must lie in \[0, 0\.5\], got 1\.0 in row 4 and 1 more",
    ),
    (
        "scale",
        {"setting": SETTING},
        text((3, "0,1,1,0,1.5,2,0")),
        r"'reward' must lie in \[0, 1\], got 1\.5 in row 3",
    ),
    (
        "terminal",
        {"setting": ENDED},
        text(),
        r"'state' must not be terminal .* got 2 in row 4 and 1 more row",
    ),
    (
        "allowed",
        {"setting": MASKED},
        text(),
        r"'action' must be allowed in its state, got 0 in state 1 in row 3\.",
    ),
    (
        "horizon",
        {"setting": Setting.declare(n_states=4, n_actions=2, horizon=2)},
        text(),
        r"'t' must be less than the horizon, 2, got 2 in row 4\. Declare a horizon of 3 or more",
    ),
    (
        "endings",
        {"setting": SETTING},
        text((6, "1,1,2,0,0.75,3,0")),
        r"'terminated' must be true .* got a step to such a state, 3, in row 6\. Give .*with_own_ending",
    ),
    ("offset", {"setting": OFFSET}, text(), r"'terminated' must be false .* got true in row 4\. Use"),
    ("both", {"setting": SETTING, "n_states": 4}, text(), r"'setting' must be given alone"),
    ("no setting", {"setting": NO_SETTING}, text(), r"'setting' must be a Setting, got str"),
    ("no states", {"n_states": 0}, text(), r"'n_states' must be a whole number >= 1, got 0"),
    ("no range", {"reward_range": (1, 0)}, text(), r"'reward_range' must be finite with low < high"),
    (
        "no observations",
        {"discretiser": Bins([[0, 1]])},
        text(),
        r"must have columns 'state_0', .* to be discr",
    ),
]


@pytest.mark.parametrize(
    ("options", "content", "pattern"),
    [each[1:] for each in AGAINST_A_SETTING],
    ids=[each[0] for each in AGAINST_A_SETTING],
)
def test_a_log_that_contradicts_what_is_known_is_refused(
    options: dict[str, Any], content: str, pattern: str, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(CharyError, match=pattern):
        read_log(tmp_path / "log.csv", **options)


def test_a_reward_that_contradicts_the_declared_one_is_refused() -> None:
    mdp = chary.FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.25], [1.0]], horizon=2)
    columns: dict[str, Any] = {"episode": [0, 0], "t": [0, 1], "state": [0, 1], "action": [0, 0]}
    columns |= {"next_state": [1, 0], "terminated": [0, 0]}
    known = mdp.told("known")
    assert len(Log.from_arrays(**columns, reward=[0.25, 1.0], setting=known)) == 2
    with pytest.raises(
        CharyError, match=r"'reward' must be the one the setting declares, got 0\.5.* entry 1\."
    ):
        Log.from_arrays(**columns, reward=[0.25, 0.5], setting=known)


CONTINUOUS = "episode,t,state_0,state_1,action,reward,next_state_0,next_state_1,terminated\n"


@pytest.mark.parametrize(
    ("content", "options", "pattern"),
    [
        ("0,0,1,2,0,0,3,4,0\n", {}, r"must have a column 'state', or be read with a discretiser"),
        (
            "0,0,1,2,0,0,3,4,0\n0,1,3,4,0,0,9,4,0\n",
            {"discretiser": Bins([[0, 5], [0, 5]], outside="refuse")},
            r"'next_state_0' must lie in \[0, 5\], got 9\.0 in row 3\. Use wider edges",
        ),
        (
            "0,0,1,nan,0,0,3,4,0\n",
            {"discretiser": Bins([[0, 5], [0, 5]])},
            r"'state_1' must be a finite number, got 'nan' in row 2",
        ),
        (
            "0,0,1,2,0,0,3,4,0\n",
            {"discretiser": Bins([[0, 5]])},
            r"'observations' must have shape \(N, 1\), got",
        ),
        ("0,0,1,2,0,0,3,4,0\n", {"discretiser": len}, r"'discretiser' must have n_states and be callable"),
    ],
)
def test_continuous_observations_are_held_against_the_discretiser(
    content: str, options: dict[str, Any], pattern: str, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(CONTINUOUS + content)
    with pytest.raises(CharyError, match=pattern):
        read_log(tmp_path / "log.csv", **options)


def columns(**changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"episode": [0, 0], "t": [0, 1], "state": [0, 1], "action": [0, 0]}
    return good | {"reward": [0.0, 1.0], "next_state": [1, 2], "terminated": [False, True]} | changes


@pytest.mark.parametrize(
    ("build", "pattern"),
    [
        (
            lambda: Log(**columns(state=[0, 1.5])),
            r"'state' must be a whole number >= 0, got 1\.5 in entry 1\.",
        ),
        (
            lambda: Log(**columns(state=[0, "x"])),
            r"'state' must be a whole number >= 0, got 'x' in entry 1\.",
        ),
        (lambda: Log(**columns(state=[0, None])), r"'state' must have .* got a missing value in entry 1"),
        (lambda: Log(**columns(state=[True, False])), r"'state' must contain whole numbers, got bool"),
        (lambda: Log(**columns(state=[0, 2**64])), r"'state' must be a whole number .* in entry 1"),
        (lambda: Log(**columns(state=[0, 2**63])), r"'state' must be a whole number .* in entry 1"),
        (lambda: Log(**columns(state=[0])), r"'state' must be as long as 'episode', 2, got 1"),
        (
            lambda: Log(**columns(state=[[0], [1]])),
            r"'state' must be one column of values.* got shape \(2, 1\)",
        ),
        (lambda: Log(**columns(state=3)), r"'state' must be one column of values.* got shape \(\)"),
        (lambda: Log(**columns(state=[[0], [1, 2]])), r"'state' must be one column of values"),
        (lambda: Log(**columns(reward=[0, np.inf])), r"'reward' must be a finite number, got inf in entry 1"),
        (lambda: Log(**columns(reward=[0, 1j])), r"'reward' must contain numbers, got complex"),
        (lambda: Log(**columns(reward=[0, 10**400])), r"'reward' must be a finite number"),
        (lambda: Log(**columns(terminated=[0, 2])), r"'terminated' must be 0 or 1.* got 2 in entry 1"),
        (
            lambda: Log(**columns(terminated=["no", "yes"])),
            r"'terminated' must .* got 'no' in entry 0 and 1 more",
        ),
        (
            lambda: Log(**columns(**dict.fromkeys(columns(), ()))),
            r"'episode' must contain at least one transition",
        ),
        (lambda: Log(**columns(), row=[1]), r"'row' must be as long as 'episode', 2, got 1"),
        (lambda: Log.from_transitions([]), r"'episodes' must contain at least one transition, got 0"),
        (lambda: Log.from_transitions(NO_LOG), r"'episodes' must be lists of transitions"),
        (
            lambda: Log.from_transitions([[Transition(0, 0, 0.0, 1, False), NO_LOG]]),
            r"'episodes' must be lists of transitions, got \[1, 2\] in episode 0, t 1",
        ),
        (
            lambda: Log.from_transitions(
                [[Transition(0, 0, 0.0, 1, False), Transition(2, 0, 0.0, 1, False)]]
            ),
            r"'next_state' must be .* got 1, and then 2 in transition 1, in transition 0",
        ),
        (
            lambda: Log(**columns()).with_own_ending(1),
            r"'state' must not be used by other steps, got 1, used",
        ),
        (lambda: inspect(NO_LOG), r"'log' must be a Log, got list"),
        (lambda: inspect(Log(**columns()), NO_SETTING), r"'setting' must be a Setting, got str"),
        (lambda: write_log(NO_LOG, "x.csv"), r"'log' must be a Log, got list"),
        (
            lambda: write_log(Log(**columns()), "x.txt"),
            r"'path' must end in \.csv or \.parquet, got 'x\.txt'",
        ),
        (
            lambda: write_log(Log(**columns()), "/proc/chary/x.csv"),
            r"'path' must be a file that can be written",
        ),
        (lambda: read_log(NO_PATH), r"'path' must be the path of a file, got None"),
        (lambda: read_log("a\0.csv"), r"'path' must be the path of a file"),
        (
            lambda: read_log("nowhere.csv"),
            r"'path' must be a file that can be read, got 'nowhere\.csv': No such",
        ),
        (lambda: read_log("/proc.csv"), r"'path' must be a file that can be read"),
        (lambda: read_log("log.txt"), r"'path' must end in \.csv or \.parquet, got 'log\.txt'"),
        (lambda: read_minari(3), r"'dataset' must be a Minari dataset or its id, got int 3"),
        (lambda: Bins([]), r"'edges' must describe at least one dimension"),
        (
            lambda: Bins([[1, 0]]),
            r"'edges' must be two ascending numbers .* got \[1\.0, 0\.0\] in dimension 0",
        ),
        (lambda: Bins([[0, np.nan]]), r"'edges' must be two ascending numbers"),
        (lambda: Bins([["a"]]), r"'edges' must be one list of numbers per dimension"),
        (lambda: Bins([[0, 1]], outside="wrap"), r"'outside' must be one of clamp, refuse, got 'wrap'"),
        (
            lambda: Bins.uniform([0], [1, 2], [3]),
            r"'low', 'high' and 'counts' must contain one finite number",
        ),
        (lambda: Bins.uniform([0] * 9, [1] * 9, [99] * 9), r"'counts' must make no more than"),
        (lambda: Bins.uniform([0], [1], [0]), r"'counts' must be a whole number >= 1, got 0"),
        (lambda: Bins([[0, 1]])([[0.5, 1.0]]), r"'observations' must have shape \(N, 1\), got \(1, 2\)"),
        (lambda: Bins([[0, 1]])([[np.nan]]), r"'observations' must be finite, got \[nan\] in observation 0"),
        (
            lambda: Bins([[0, 1]], outside="refuse")([[2.0]]),
            r"'observations' must lie in \[0, 1\] in dimension 0",
        ),
        (lambda: Codebook([1, 2]), r"'centres' must be finite numbers, shape \(K, D\)"),
        (lambda: Codebook([[1, 2]], scale=[1, 0]), r"'scale' must be one finite number > 0 per dimension, 2"),
        (
            lambda: Codebook.fit([[0.0], [1.0]], 3, generator=np.random.default_rng(0)),
            r"'n_states' must not exceed the number of different observations, got 3 for 2",
        ),
        (
            lambda: Codebook.fit([[0.0]], 1, generator=NO_LOG),
            r"'generator' must be a numpy Generator, got list",
        ),
        (lambda: discretiser_from_arrays({"kind": np.array("tree")}), r"'kind' must be one of .* got 'tree'"),
        (lambda: discretiser_from_arrays({"kind": np.array("bins")}), r"'arrays' must be those of Bins"),
        (lambda: save_discretiser(NO_LOG, "x.npz"), r"'discretiser' must be Bins or a Codebook to be saved"),
        (
            lambda: load_discretiser("nowhere.npz"),
            r"'path' must be a saved discretiser, got 'nowhere\.npz': .*No such",
        ),
    ],
)
def test_what_python_passes_wrongly_is_refused(build: Callable[[], object], pattern: str) -> None:
    with pytest.raises(CharyError, match=pattern) as refusal:
        build()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ("inspect log.csv --horizon 2", r"'t' must be less than the horizon, 2, got 2 in row 4"),
        ("inspect log.csv --horizon 0", r"'horizon' must be a whole number >= 1, got 0"),
        ("inspect log.csv --states 3", r"'next_state' must lie in 0\.\.2, got 3 in row 4"),
        ("inspect log.csv --states few", r"'--states': must be a whole number, got 'few'"),
        ("inspect log.csv --actions 1", r"'action' must lie in 0\.\.0, got 1 in row 2 and 1 more row"),
        ("inspect log.csv --states 1000000000", r"'states' times 'actions' must not exceed"),
        ("inspect log.csv --discretiser log.csv", r"'path' must be a saved discretiser, got 'log\.csv'"),
        ("inspect nowhere.csv", r"'path' must be a file that can be read, got 'nowhere\.csv'"),
        ("inspect", r"Missing argument '?(FILE|file)'?"),
        ("convert log.csv", r"Missing argument '?OUT'?"),
        ("convert log.csv log.txt", r"'path' must end in \.csv or \.parquet, got 'log\.txt'"),
        ("convert log.csv log.csv", r"'path' must not exist yet, got 'log\.csv'.*--overwrite"),
        ("convert log.csv below/log.csv", r"'path' must be a file that can be written.*No such file"),
        ("inspekt log.csv", r"[Nn]o such command '?inspekt'?"),
    ],
)
def test_a_wrong_command_is_refused_and_nothing_written(
    options: str,
    pattern: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(text())
    refused(("data", *options.split()), pattern, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    assert (tmp_path / "log.csv").read_text() == text()


def parquet(**changes: Any) -> bytes:
    target = io.BytesIO()
    pl.DataFrame(columns(**changes), strict=False).write_parquet(target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (b"PAR1", r"must be a complete Parquet file"),
        (text().encode(), r"must be a complete Parquet file"),
        (parquet()[:-9], r"must be a complete Parquet file"),
        (parquet(state=[0, None]), r"'state' must have a value in every row, got a missing value in row 2\."),
        (
            parquet(state=["0", "1"]),
            r"'state' must be .* got '0' in row 1 and 1 more row\. '0' is a text: turn .* If .* list them",
        ),
        (parquet(state=[0.0, 0.5]), r"'state' must be a whole number >= 0, got 0\.5 in row 2"),
        (parquet(reward=[[1], [2]]), r"'reward' must be a finite number, got array"),
        (parquet(terminated=[0, 3]), r"'terminated' must be 0 or 1.* got 3 in row 2"),
        (parquet(next_state=[2, 2]), r"'next_state' must be .* got 2, and then 1 in row 2, in row 1\."),
        (parquet(mood=[0, 0]), r"got 'mood' too"),
        (parquet(**{name: [] for name in columns()}), r"must contain at least one row, got 0"),
    ],
)
def test_a_broken_parquet_file_is_refused(content: bytes, pattern: str, tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(content)
    with pytest.raises(CharyError, match=pattern) as refusal:
        read_log(tmp_path / "log.parquet")
    assert "\n" not in str(refusal.value)


def test_a_saved_discretiser_is_refused_when_it_was_truncated_changed_or_is_something_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "grid.npz"
    grid = Bins([[0.0, 1.0, 2.0]])
    save_discretiser(grid, file)
    with pytest.raises(CharyError, match="must not exist yet"):
        save_discretiser(grid, file)
    whole = file.read_bytes()
    other = {**grid.to_arrays(), "edges_0": np.array([0.0, 1.0, 3.0])}
    arrays = np.load(io.BytesIO(whole))
    moved = io.BytesIO()
    np.savez(moved, **{**other, "chary": arrays["chary"]})
    plain = io.BytesIO()
    np.save(plain, np.arange(3))
    for content, pattern in [
        (whole[:-40], "must be whole"),
        (moved.getvalue(), "must be as it was written, got one that was changed"),
        (pack("run", grid.to_arrays(), {}), "of kind 'discretiser' was expected, got one of kind 'run'"),
        (pack("discretiser", {"kind": np.array("tree")}, {}), "'kind' must be one of bins, codebook"),
        (pack("discretiser", {**other, "edges_0": np.array([3.0, 1.0])}, {}), "must be two ascending"),
        (plain.getvalue(), "'path' must be a saved discretiser"),
        (b"", "'path' must be a saved discretiser"),
    ]:
        file.write_bytes(content)
        with pytest.raises(CharyError, match=pattern) as refusal:
            load_discretiser(file)
        assert str(file) in str(refusal.value)


# Anything at all: a log, or a CharyError, and no other exception.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def answer(call: Callable[[], object]) -> None:
    said = ""
    try:
        call()
    except CharyError as refusal:
        said = str(refusal)
    assert "\n" not in said


cells = st.one_of(
    st.integers(-2, 5).map(str),
    st.sampled_from(
        ["", " ", "1.0", "0.5", "nan", "inf", "1e400", "-0", "true", "FALSE", '"', "\ufeff", "1e3"]
    ),
    st.text(max_size=4),
)
lines = st.lists(st.lists(cells, max_size=9).map(",".join), max_size=8).map("\n".join)


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda s: s.encode("utf-8"))))
def test_random_bytes_give_a_log_or_a_sentence(content: bytes, folder: Path) -> None:
    for name in ("a.csv", "a.parquet"):
        (folder / name).write_bytes(content)
        answer(lambda name=name: read_log(folder / name))  # type: ignore[misc]
    answer(lambda: read_observations(folder / "a.csv"))


@given(body=lines)
def test_random_cells_give_a_log_or_a_sentence(body: str, folder: Path) -> None:
    (folder / "b.csv").write_bytes((HEADER + body).encode())
    answer(lambda: read_log(folder / "b.csv", setting=SETTING))
    answer(lambda: inspect(read_log(folder / "b.csv")))
    (folder / "c.csv").write_bytes((CONTINUOUS + body).encode())
    answer(lambda: read_log(folder / "c.csv", discretiser=Bins([[0, 1], [0, 1]])))


@given(
    place=st.integers(0, len(text()) - 1),
    length=st.integers(0, 4),
    new=st.one_of(
        st.sampled_from([",", "\n", '"', "-", "9", "\0", "\r", "\ufeff", "e"]), st.text(max_size=3)
    ),
)
def test_a_mutated_file_gives_a_log_or_a_sentence(place: int, length: int, new: str, folder: Path) -> None:
    good = text()
    (folder / "d.csv").write_bytes((good[:place] + new + good[place + length :]).encode())
    answer(lambda: inspect(read_log(folder / "d.csv")))


@settings(max_examples=settings().max_examples // 6)
@given(data=st.data())
def test_a_mutated_parquet_file_gives_a_log_or_a_sentence(data: st.DataObject, folder: Path) -> None:
    (folder / "e.parquet").write_bytes(mutated(parquet(), data))
    answer(lambda: read_log(folder / "e.parquet"))


@given(data=st.data())
def test_a_mutated_discretiser_gives_one_or_a_sentence(data: st.DataObject, folder: Path) -> None:
    saved = pack("discretiser", Codebook([[0.0, 1.0], [2.0, 3.0]]).to_arrays(), {})
    (folder / "f.npz").write_bytes(mutated(saved, data))
    answer(lambda: load_discretiser(folder / "f.npz"))


def mutated(whole: bytes, data: st.DataObject) -> bytes:
    """Some bytes changed, and now and then a part left out."""
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    begin = data.draw(st.one_of(st.none(), st.integers(4, len(content) - 4)))
    if begin is not None:
        del content[begin : begin + data.draw(st.integers(1, 40))]
    return bytes(content)


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from([*columns(), "row"]), value=anything)
def test_any_python_value_as_a_column_gives_a_log_or_a_sentence(name: str, value: Any) -> None:
    answer(lambda: Log(**columns(**{name: value})))


@given(value=anything)
def test_any_python_value_as_edges_or_observations_gives_a_value_or_a_sentence(value: Any) -> None:
    answer(lambda: Bins(value))
    answer(lambda: Codebook(value))
    answer(lambda: Bins([[0, 1]])(value))
    answer(lambda: Codebook([[0.0]])(value))
    answer(lambda: Codebook.fit(value, 2, generator=np.random.default_rng(0)))
    answer(lambda: Log.from_transitions(value))
