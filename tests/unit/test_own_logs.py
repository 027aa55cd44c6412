"""Logs as people have them: other names, texts, missing values, all mistakes at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chary
from chary.cli import main
from chary.data import Bins, Log, inspect, read_log, read_policy, read_rewards, write_log
from chary.errors import InvalidData, InvalidLog, InvalidSetting
from chary.preview import preview
from chary.standing import DROPPED

HEADER = "patient,t,state,action,cost,next_state,terminated"
ROWS = (
    "P-9,0,low,wait,1.5,high,0",
    "P-9,1,high,treat,2,low,0",
    "P-2,0,low,wait,1,high,0",
    "P-2,1,high,wait,0.5,high,0",
    "P-7,0,high,treat,0,low,0",
)
COLUMNS = {"episode": "patient", "reward": "cost"}
LABELS = {"state": ["low", "high"], "action": ["wait", "treat"]}


def write(folder: Path, *rows: str) -> Path:
    file = folder / "visits.csv"
    file.write_text("\n".join((HEADER, *rows)) + "\n")
    return file


def read(file: Path, **options: Any) -> Log:
    return read_log(file, columns=COLUMNS, labels=LABELS, **options)


def as_frame(rows: tuple[str, ...] = ROWS) -> dict[str, list[Any]]:
    cells = list(zip(*(row.split(",") for row in rows), strict=True))
    frame: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(HEADER.split(","), cells, strict=True)
    }
    frame["t"] = [int(cell) for cell in frame["t"]]
    frame["cost"] = [float(cell) for cell in frame["cost"]]
    frame["terminated"] = [cell == "1" for cell in frame["terminated"]]
    return frame


def same(one: Log, other: Log) -> None:
    for name, column in one.columns().items():
        np.testing.assert_array_equal(column, other.columns()[name])
    assert one.names == other.names


def test_own_names_and_texts_become_columns_and_numbers(tmp_path: Path) -> None:
    log = read(write(tmp_path, *ROWS))
    assert log.names == ("P-9", "P-2", "P-7")
    assert log.episode.tolist() == [0, 0, 1, 1, 2]
    assert log.state.tolist() == [0, 1, 0, 1, 1]
    assert log.next_state.tolist() == [1, 0, 1, 1, 0]
    assert log.action.tolist() == [0, 1, 0, 0, 1]
    assert log.reward.tolist() == [1.5, 2, 1, 0.5, 0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_of_episodes_are_written_and_read_back(suffix: str, tmp_path: Path) -> None:
    log = read(write(tmp_path, *ROWS))
    write_log(log, tmp_path / f"again.{suffix}")
    same(read_log(tmp_path / f"again.{suffix}"), log)


def test_a_data_frame_of_any_library_is_the_same_log(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    log = read(write(tmp_path, *ROWS))
    for frame in (as_frame(), pl.DataFrame(as_frame()), pandas.DataFrame(as_frame())):
        same(Log.from_dataframe(frame, columns=COLUMNS, labels=LABELS), log)


def test_columns_of_pandas_with_missing_values_are_explained() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(as_frame())
    for column, dtype in (("t", "Int64"), ("cost", "float64"), ("patient", "object")):
        broken = frame.astype({column: dtype})
        broken.loc[3, column] = None
        with pytest.raises(InvalidLog, match=r"got a missing value in row 4\. Fill in") as caught:
            Log.from_dataframe(broken, columns=COLUMNS, labels=LABELS)
        assert [list(fault.rows) for fault in caught.value.faults] == [[4]]


def test_whole_numbers_beyond_floats_survive_missing_ones_beside_them() -> None:
    frame = pl.DataFrame({**as_frame(), "patient": [2**53 + 1, 2**53 + 1, 2**53, None, 7]})
    with pytest.raises(InvalidLog) as caught:
        Log.from_dataframe(frame, columns=COLUMNS, labels=LABELS)
    assert [list(fault.rows) for fault in caught.value.faults] == [[4]]


def test_all_faulty_rows_are_listed_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "P-9,0,low,wait,NA,high,0",
        "P-9,1,high,operate,,low,0",
        *ROWS[2:4],
        "P-5,0,low,wait,1,high,0",
        "P-5,1,low,wait,1,high,0",
        "P-7,1,high,treat,0,low,2",
        "P-8,3,high,treat,0,low,0",
    )
    with pytest.raises(InvalidLog) as caught:
        read(file)
    found = {(fault.column, tuple(fault.rows)) for fault in caught.value.faults}
    expected = {("reward", (2, 3)), ("action", (3,)), ("terminated", (8,))}
    expected |= {("next_state", (6,)), ("t", (9,))}
    assert found == expected
    assert "Fill in missing values" in str(caught.value)
    assert "Also invalid: 'action' in row 3" in str(caught.value)


def test_bad_episodes_are_left_out_whole_and_said_so(tmp_path: Path) -> None:
    bad = ("P-1,0,low,wait,NA,high,0", "P-1,1,high,wait,1,high,0", "P-3,1,low,wait,1,high,0")
    log = read(write(tmp_path, *ROWS, *bad), drop_bad_episodes=True)
    clean = read(write(tmp_path, *ROWS))
    for name in ("t", "state", "action", "reward", "next_state", "terminated", "row"):
        np.testing.assert_array_equal(getattr(log, name), getattr(clean, name))
    assert log.dropped is not None
    assert (log.dropped.episodes, log.dropped.transitions) == (2, 3)
    assert "Left out: 2 episodes with 3 transitions. 'reward' must" in log.dropped.describe()
    assert log.with_own_ending().dropped == log.dropped
    assert clean.dropped is None
    found = preview(log, etas=[1.0])
    assert any(DROPPED in basis.standing.given for basis in found.rules)
    kept = preview(clean, etas=[1.0])
    assert not any(DROPPED in basis.standing.given for basis in kept.rules)


def test_what_contradicts_the_problem_is_never_left_out(tmp_path: Path) -> None:
    # Leaving out rewards beyond the declared range would select episodes by their outcome.
    file = write(tmp_path, *ROWS, "P-1,0,low,wait,99,high,0")
    with pytest.raises(InvalidLog, match=r"'reward' must lie in \[0, 4\], got 99.0 in row 7"):
        read(file, drop_bad_episodes=True, reward_range=(0, 4))


@pytest.mark.parametrize("rows", [("NA,0,low,wait,1,high,0",), (",1,high,wait,1,high,0",)])
def test_a_row_without_its_episode_cannot_be_left_out(rows: tuple[str, ...], tmp_path: Path) -> None:
    # The episode it belongs to would look complete without it.
    with pytest.raises(InvalidLog, match="'episode' must have a value"):
        read(write(tmp_path, *ROWS, *rows), drop_bad_episodes=True)


def test_a_log_of_bad_episodes_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidLog, match="'reward' must be a finite number, got 'x' in row 2"):
        read(write(tmp_path, "P-1,0,low,wait,x,high,0"), drop_bad_episodes=True)


@given(wrong=st.sets(st.integers(0, 19), min_size=1, max_size=20), kind=st.sampled_from(["reward", "action"]))
def test_the_faults_of_a_log_are_the_rows_that_were_spoilt(wrong: set[int], kind: str) -> None:
    frame: dict[str, Any] = {
        "episode": [f"e{k // 2}" for k in range(20)],
        "t": [k % 2 for k in range(20)],
        **{name: [0] * 20 for name in ("state", "action", "next_state")},
        "reward": [0.5] * 20,
        "terminated": [False] * 20,
    }
    frame[kind] = [None if k in wrong else value for k, value in enumerate(frame[kind])]
    with pytest.raises(InvalidLog) as caught:
        Log.from_dataframe(frame)
    assert [row - 1 for fault in caught.value.faults for row in fault.rows] == sorted(wrong)
    episodes = {k // 2 for k in wrong}
    if len(episodes) < 10:
        kept = Log.from_dataframe(frame, drop_bad_episodes=True)
        assert set(np.array(kept.names)[kept.episode]) == {f"e{k}" for k in range(10) if k not in episodes}


def test_observations_outside_the_grid_are_faults_of_their_rows(tmp_path: Path) -> None:
    file = tmp_path / "vitals.csv"
    file.write_text(
        "episode,t,state_0,action,reward,next_state_0,terminated\n"
        "a,0,1,0,0,1,0\nb,0,9,0,0,1,0\nc,0,1,0,x,1,0\nd,0,1,0,0,-3,0\n"
    )
    grid = Bins([[0, 2, 4]], outside="refuse")
    with pytest.raises(InvalidLog) as caught:
        read_log(file, discretiser=grid)
    assert {(fault.column, tuple(fault.rows)) for fault in caught.value.faults} == {
        ("reward", (4,)),
        ("state_0", (3,)),
        ("next_state_0", (5,)),
    }
    assert read_log(file, discretiser=grid, drop_bad_episodes=True).n_episodes == 1


def clocked(terminated: int) -> str:
    header = "episode,t,state,action,reward,next_state,terminated\n"
    return header + "".join(f"{k},0,0,0,1,1,0\n{k},1,1,0,1,{k % 2},{terminated}\n" for k in range(4))


def test_endings_by_the_clock_are_noticed_and_can_be_undone(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(clocked(1))
    log = read_log(tmp_path / "log.csv")
    kinds = [each.kind for each in inspect(log).suspicions]
    assert "ended_by_clock" in kinds
    assert "ending" not in kinds  # the way out of the other is the only right one
    cut = log.cut_at()
    assert not cut.terminated.any()
    assert "ended_by_clock" not in [each.kind for each in inspect(cut).suspicions]
    assert cut.checked(setting=chary.Setting.declare(n_states=2, n_actions=1, horizon=2)) is cut
    assert log.cut_at(3).terminated.sum() == 4


def test_a_true_ending_at_the_horizon_is_not_suspected() -> None:
    log = Log.from_arrays(
        episode=[0, 0, 1], t=[0, 1, 0], state=[0, 1, 0], action=[0, 0, 0], reward=[0, 1, 0],
        next_state=[1, 2, 2], terminated=[0, 1, 1],
    )  # fmt: skip
    assert inspect(log).suspicions == ()


def test_the_command_line_lists_faults_and_leaves_bad_episodes_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, *ROWS, "P-1,0,low,wait,NA,high,0")
    names = ["--column", "episode=patient", "--column", "reward=cost"]
    names += ["--label", "state=low,high", "--label", "action=wait,treat"]

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["data", *arguments])
        shown = capsys.readouterr()
        return int(stopped.value.code or 0), shown.out, shown.err

    code, out, err = run("inspect", str(file), *names, "--faults")
    assert (code, out) == (2, "row 7: 'reward' must be a finite number, got 'NA'\n")
    assert err.startswith("chary: 'reward' must be a finite number, got 'NA' in row 7.")
    code, out, _ = run("inspect", str(file), *names, "--faults", "--json")
    assert (code, json.loads(out)["faults"][0]["rows"]) == (2, [7])
    code, out, err = run("inspect", str(file), *names, "--drop-bad-episodes")
    assert code == 0
    assert "Left out: 1 episode with 1 transition." in err
    target = tmp_path / "out.csv"
    code, out, _ = run("convert", str(file), str(target), *names, "--drop-bad-episodes")
    assert (code, read_log(target).n_transitions) == (0, 5)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"columns": {"episode": "person"}}, "'columns' must name columns of .* got 'person' for 'episode'"),
        ({"columns": {"patients": "patient"}}, "'columns' must map episode, .* got 'patients'"),
        ({"columns": {"t": "cost"}}, "'columns' must leave one column for 't', got 'cost' and a column 't'"),
        ({"columns": 3}, "'columns' must map names .* got 3"),
        ({"columns": {"t": 3}}, "'columns' must map names"),
        ({"labels": {"reward": ["a"]}}, "'labels' must map state or action to lists of texts"),
        ({"labels": {"state": "ab"}}, "'labels' must list texts for 'state', got 'ab'"),
        ({"labels": {"state": ["a", "a"]}}, "'labels' must list every text of 'state' once, got 'a' twice"),
        ({"labels": {"state": ["a", ""]}}, "'labels' must list texts"),
        ({"columns": {5: "x"}}, "'columns' must map names of columns"),
        ({}, "got no 'episode', 'reward'. Is it called otherwise"),
    ],
)
def test_options_that_do_not_fit_the_file_are_refused(
    options: dict[str, Any], pattern: str, tmp_path: Path
) -> None:
    with pytest.raises(chary.CharyError, match=pattern):
        read_log(write(tmp_path, *ROWS), **options)


@pytest.mark.parametrize("frame", [3, "text", [1, 2], {}, None, {"episode": [1], "t": [0, 1]}])
def test_what_is_not_a_table_is_refused(frame: object) -> None:
    with pytest.raises(chary.CharyError, match=r"'frame' must"):
        Log.from_dataframe(frame)


def test_a_cell_that_is_no_text_is_not_a_label() -> None:
    cells = np.empty(1, dtype=object)
    cells[0] = ["wait"]
    frame = {"episode": [0], "t": [0], "state": [0], "reward": [1.0], "next_state": [1], "terminated": [True]}
    with pytest.raises(
        InvalidLog, match=r"'action' must be one of the labels 'wait', got \['wait'\] in row 1"
    ):
        Log.from_dataframe({**frame, "action": cells}, labels={"action": ["wait"]})


class Interchanged:
    """A data frame of which only the interchange protocol is known."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __dataframe__(self, **options: Any) -> Any:
        return self._frame.__dataframe__(**options)


class Streamed:
    """A data frame of which only Arrow's protocol is known."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(schema)


@pytest.mark.parametrize("wrapped", [Interchanged, Streamed])
def test_a_frame_of_another_library_is_read_by_its_protocol(wrapped: Any, tmp_path: Path) -> None:
    frame = wrapped(pl.DataFrame(as_frame()))
    same(Log.from_dataframe(frame, columns=COLUMNS, labels=LABELS), read(write(tmp_path, *ROWS)))


def test_a_pandas_frame_is_read_as_it_is_and_by_its_protocol(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(as_frame())
    expected = read(write(tmp_path, *ROWS))
    same(Log.from_dataframe(frame, columns=COLUMNS, labels=LABELS), expected)
    same(Log.from_dataframe(Interchanged(frame), columns=COLUMNS, labels=LABELS), expected)


class Broken:
    """An object that claims to be a data frame."""

    def __dataframe__(self, **options: Any) -> Any:
        raise RuntimeError("no such\nbuffer")


@pytest.mark.parametrize("frame", [Broken(), {}, 7, None, "visits.csv", [1, 2]])
def test_what_is_no_data_frame_is_refused_in_one_sentence(frame: Any) -> None:
    with pytest.raises(chary.errors.InvalidSetting, match="'frame' must be a data frame") as refused:
        Log.from_dataframe(frame, columns=COLUMNS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("empty", ["", "NA", " nan "])
def test_a_missing_label_is_called_missing(empty: str, tmp_path: Path) -> None:
    rows = list(ROWS)
    rows[1] = rows[1].replace("treat", empty)
    with pytest.raises(
        InvalidLog, match="'action' must have a value in every row, got a missing value in row 3"
    ):
        read(write(tmp_path, *rows))
    dropped = read(write(tmp_path, *rows), drop_bad_episodes=True).dropped
    assert dropped is not None
    assert "Left out: 1 episode" in dropped.describe()


def test_endings_by_the_clock_are_recognised_wherever_they_are_met() -> None:
    columns: dict[str, Any] = {
        "episode": [0, 0, 1, 1],
        "t": [0, 1, 0, 1],
        "state": [0, 1, 1, 0],
        "action": [0, 0, 0, 0],
        "reward": [1.0, 0.0, 1.0, 0.0],
        "next_state": [1, 0, 0, 1],
        "terminated": [False, True, False, True],
    }
    log = Log.from_arrays(**columns)
    way_out = r"If only the clock ended them: log\.cut_at\(\) \(--cut-at-horizon\)"
    for span in ((0.0, 1.0), (-1.0, 1.0)):
        setting = chary.Setting.declare(n_states=2, n_actions=1, horizon=2, reward_range=span)
        with pytest.raises(chary.errors.InvalidData, match=way_out):
            log.checked(setting=setting)
        log.cut_at().checked(setting=setting)
    assert any("Every full episode terminated at step 2" in each for each in preview(log, etas=[1.0]).notes)
    assert not any("the clock" in each for each in preview(log.cut_at(), etas=[1.0]).notes)


def test_yes_and_no_are_booleans_if_all_rows_have_them(tmp_path: Path) -> None:
    header = "episode,t,state,action,reward,next_state,terminated\n"
    (tmp_path / "log.csv").write_text(header + "0,0,0,0,1,1,No\n0,1,1,0,1,2,yes\n")
    assert read_log(tmp_path / "log.csv").terminated.tolist() == [False, True]
    (tmp_path / "log.csv").write_text(header + "0,0,0,0,1,1,no\n0,1,1,0,1,2,1\n")
    with pytest.raises(InvalidLog, match="the same two in all rows, got '1' in row 3"):
        read_log(tmp_path / "log.csv")


def test_steps_counted_from_one_are_said_to_be_whatever_else_is_wrong(tmp_path: Path) -> None:
    header = "episode,t,state,action,reward,next_state,terminated\n"
    (tmp_path / "log.csv").write_text(header + "0,1,0,0,,1,0\n1,1,0,0,1,1,0\n2,1,0,0,1,1,0\n")
    with pytest.raises(InvalidLog, match=r"'t' must count 0, .*No row has step 0\. .*first_step=1"):
        read_log(tmp_path / "log.csv", drop_bad_episodes=True)
    (tmp_path / "log.csv").write_text(header + "0,1,0,0,1,1,0\n1,0,0,0,1,1,0\n")
    with pytest.raises(InvalidLog) as error:
        read_log(tmp_path / "log.csv")
    assert "first_step" not in str(error.value)


LESSONS = """pupil,t,state,action,reward,next_state,left
p1,0,new,video,1,"fair, calm",no
p1,1,"fair, calm",quiz,2,new,yes
"""


def test_texts_without_labels_are_named_ready_to_list(tmp_path: Path) -> None:
    (tmp_path / "lessons.csv").write_text(LESSONS)
    columns = {"episode": "pupil", "terminated": "left"}
    with pytest.raises(InvalidLog) as error:
        read_log(tmp_path / "lessons.csv", columns=columns)
    wanted = """list them, "fair, calm", "new", by labels={'state': [...]} (--label state=...)."""
    assert wanted in str(error.value)
    many = "\n".join(f"p{k},0,s{k},0,0,s{k},no" for k in range(30))
    (tmp_path / "lessons.csv").write_text(f"{LESSONS.splitlines()[0]}\n{many}\n")
    with pytest.raises(InvalidLog, match=r"If these are texts, list them by labels=\{'state'"):
        read_log(tmp_path / "lessons.csv", columns=columns)


def test_labels_with_commas_are_quoted_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lessons.csv").write_text(LESSONS)
    names = ["--column", "episode=pupil", "--column", "terminated=left", "--label", "action=video,quiz"]
    command = ["data", "inspect", str(tmp_path / "lessons.csv"), *names, "--json"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--label", 'state=new, "fair, calm"'])
    assert json.loads(capsys.readouterr().out)["states_seen"] == 2
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--label", "state=new,fair, calm"])
    assert "must be one of the labels 'new', 'fair', 'calm'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("no", "yes"), ("False", "TRUE"), ("0", "1")])
def test_a_frame_may_say_yes_and_no_as_a_file_may(words: tuple[str, str]) -> None:
    frame: dict[str, Any] = {name: [0, 0] for name in ("episode", "state", "action", "reward", "next_state")}
    frame |= {"t": [0, 1], "terminated": list(words)}
    assert Log.from_dataframe(frame).terminated.tolist() == [False, True]
    frame["terminated"] = [words[0], "perhaps"]
    with pytest.raises(InvalidLog, match=r"'terminated' must be 0 or 1, .*got 'perhaps' in row 2"):
        Log.from_dataframe(frame)
    mixed = {"yes": "true"}.get(words[1], "yes")
    with pytest.raises(InvalidLog, match="'terminated' must"):
        Log.from_dataframe(frame | {"terminated": [words[0], mixed]})


def test_policies_and_rewards_take_the_names_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rule.csv").write_text("grade,drug\nlow,wait\nhigh,treat\n")
    (tmp_path / "pay.csv").write_text("grade,drug,reward\nlow,wait,1\nhigh,treat,0\n")
    names = {"state": "grade", "action": "drug", "episode": "patient", "reward": "cost"}
    told: dict[str, Any] = {"n_states": 2, "columns": names, "labels": LABELS}
    assert read_policy("rule.csv", **told).tolist() == [0, 1]
    assert read_rewards("pay.csv", n_actions=2, **told)[0, 0] == 1.0
    with pytest.raises(InvalidData, match=r"got 'grade', 'drug'\. Names of your own: columns=\.\.\."):
        read_policy("rule.csv", n_states=2, labels=LABELS)
    header = "patient,t,grade,drug,cost,next_state,terminated"
    (tmp_path / "visits.csv").write_text("\n".join((header, *ROWS)) + "\n")
    words = [f"--column={ours}={theirs}" for ours, theirs in names.items()]
    words += ["--label", "state=low,high", "--label", "action=wait,treat", "--worlds", "4", "--risk", "0.3"]
    with pytest.raises(SystemExit, match="0"):
        main(["plan", "visits.csv", *words, "--eta", "1", "--baseline", "rule.csv", "--out", "plan"])
    program = json.loads((tmp_path / "plan" / "plan.json").read_text())["verdict"]["python"]
    assert 'read_policy("rule.csv", n_states=2, horizon=2, columns=columns, labels=labels)' in program
    left: dict[str, Any] = {}
    exec(program, left)
    assert left["own"].table.tolist() == [[0, 1]] * 2


def test_all_missing_columns_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,t,state,action\n")
    with pytest.raises(InvalidData, match="got no 'episode', 'reward', 'next_state', 'terminated'"):
        read_log(tmp_path / "log.csv")


def test_a_summary_names_states_and_actions_by_labels_and_accepts_declared_endings() -> None:
    steps = [chary.Transition(0, 1, 1.0, 1, True), chary.Transition(1, 0, 1.0, 0, False)]
    log = Log.from_transitions([[step] for step in steps])
    assert "(0, 1) 1, (1, 0) 1 (state, action) visits" in inspect(log).describe()
    said = inspect(log).describe(LABELS)
    assert "(low; treat) 1, (high; wait) 1 (state; action) visits" in said
    assert "terminal states     high" in said
    assert any(each.kind == "ending" for each in inspect(log).suspicions)
    setting = chary.Setting.declare(n_states=2, n_actions=2, horizon=2, early_endings=True)
    assert not any(each.kind == "ending" for each in inspect(log, setting).suspicions)


@pytest.mark.parametrize("between", [";", "\t", "|"])
def test_a_file_with_another_delimiter_is_the_same_log_and_is_sent_to_the_option(
    between: str, tmp_path: Path
) -> None:
    plain = read(write(tmp_path, *ROWS))
    file = tmp_path / "other.csv"
    file.write_text("\n".join((HEADER, *ROWS)).replace(",", between) + "\n")
    same(read(file, delimiter=between), plain)
    with pytest.raises(InvalidData, match=rf"Pass delimiter={re.escape(repr(between))} \(--delimiter\)"):
        read(file)
    (tmp_path / "rule.csv").write_text(f"\ufeffstate{between}action\nlow{between}treat\nhigh{between}wait\n")
    assert read_policy(tmp_path / "rule.csv", n_states=2, labels=LABELS).tolist() == [1, 0]


@pytest.mark.parametrize("wrong", [":", "", ",,", None, 7, b";"])
def test_what_is_no_delimiter_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="'delimiter' must be one of"):
        read(write(tmp_path, *ROWS), delimiter=wrong)


def test_decimal_commas_and_numbers_as_texts_are_called_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("\n".join((HEADER, *ROWS)).replace(",", ";").replace("1.5", "1,5") + "\n")
    with pytest.raises(InvalidLog, match=r"got '1,5' in row 2\. Decimal commas are not read"):
        read(file, delimiter=";")
    frame = as_frame()
    frame["cost"] = [str(each) for each in frame["cost"]]
    with pytest.raises(InvalidLog, match=r"'1\.5' is a text: turn the column into numbers first"):
        Log.from_dataframe(frame, columns=COLUMNS, labels=LABELS)


def test_the_command_line_reads_semicolons_and_repeats_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.csv"
    file.write_text("\n".join((HEADER, *ROWS)).replace(",", ";") + "\n")
    words = [str(file), "--delimiter", ";", "--column", "episode=patient", "--column", "reward=cost"]
    words += ["--label", "state=low,high", "--label", "action=wait,treat"]
    with pytest.raises(SystemExit) as done:
        main(["plan", *words, "--eta", "1", "--worlds", "4", "--risk", "0.3", "--json"])
    assert done.value.code == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert 'delimiter=";"' in verdict["python"]
    assert "--delimiter ';'" in verdict["cli"]
    with pytest.raises(SystemExit) as done:
        main(["data", "inspect", *words[:1], *words[3:]])
    assert done.value.code == 2
    assert "--delimiter" in capsys.readouterr().err
