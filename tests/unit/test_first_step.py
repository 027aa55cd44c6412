"""Steps counted from 1: the same log, policy and plan as from 0, and errors in the numbers of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.cli import main
from chary.data import Bins, Log, read_log, read_policy
from chary.errors import InvalidLog, InvalidSetting
from chary.preview import preview
from chary.preview.options import Source

HEADER = "episode,t,state,action,reward,next_state,terminated\n"
RULE = "t,state,action\n1,0,0\n1,1,1\n2,0,1\n2,1,0\n"


def rows(first: int) -> str:
    """Twenty episodes of two steps in two states."""
    lines = []
    for k in range(20):
        a, x = k % 2, k % 3 % 2
        lines += [f"{k},{first},0,{a},{0.1 * a},{x},0", f"{k},{first + 1},{x},{1 - a},0.5,1,0"]
    return HEADER + "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for first in (0, 1):
        (tmp_path / f"log{first}.csv").write_text(rows(first))
    (tmp_path / "rule.csv").write_text(RULE)
    return tmp_path


def test_a_file_and_a_frame_counted_from_one_are_the_log_counted_from_zero(folder: Path) -> None:
    wanted, found = read_log(folder / "log0.csv"), read_log(folder / "log1.csv", first_step=1)
    frame: dict[str, Any] = {name: column.tolist() for name, column in wanted.columns().items()}
    frame["t"] = [t + 1 for t in frame["t"]]
    for log in (found, Log.from_dataframe(frame, first_step=1)):
        for name, column in wanted.columns().items():
            assert (getattr(log, name) == column).all()


def test_observations_are_counted_from_one_too(tmp_path: Path) -> None:
    file = tmp_path / "vitals.csv"
    file.write_text(
        "episode,t,state_0,action,reward,next_state_0,terminated\n4,1,0.5,0,0,1.5,0\n4,2,1.5,0,0,0.5,0\n"
    )
    log = read_log(file, first_step=1, discretiser=Bins([[0, 1, 2]], outside="refuse"))
    assert (log.t.tolist(), log.state.tolist()) == ([0, 1], [0, 1])


def test_a_policy_by_step_is_counted_from_one_too(folder: Path) -> None:
    table = read_policy(folder / "rule.csv", n_states=2, horizon=2, first_step=1)
    assert table.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InvalidLog, match=r"'t' must lie in 0\.\.1, got 2 in row 4"):
        read_policy(folder / "rule.csv", n_states=2, horizon=2)
    (folder / "rule.csv").write_text(RULE.replace("2,1,0", "0,1,0"))
    with pytest.raises(InvalidLog, match=r"'t' must be at least 1, the first step, got 0 in row 5"):
        read_policy(folder / "rule.csv", n_states=2, horizon=2, first_step=1)


def test_errors_name_steps_as_the_file_does(folder: Path) -> None:
    with pytest.raises(InvalidLog, match=r"'t' must be at least 1, the first step, got 0 in row 2"):
        read_log(folder / "log0.csv", first_step=1)
    (folder / "log1.csv").write_text(rows(1).replace("\n3,2,", "\n3,4,"))
    with pytest.raises(InvalidLog, match=r"'t' must count 1, 2, 3, \.\.\. .*got episode 3, t 4, after t 1,"):
        read_log(folder / "log1.csv", first_step=1)
    log = read_log(folder / "log1.csv", first_step=1, drop_bad_episodes=True)
    assert log.dropped is not None
    assert (log.n_episodes, log.dropped.episodes) == (19, 1)


@pytest.mark.parametrize("wrong", [2, -1, 0.5, "1", True, None])
def test_the_first_step_is_0_or_1(wrong: Any, folder: Path) -> None:
    for call in (
        lambda: read_log(folder / "log1.csv", first_step=wrong),
        lambda: Log.from_dataframe({"t": [1]}, first_step=wrong),
        lambda: read_policy(folder / "rule.csv", n_states=2, horizon=2, first_step=wrong),
    ):
        with pytest.raises(InvalidSetting, match="'first_step' must"):
            call()


def test_a_plan_of_such_a_log_is_the_same_and_its_program_reads_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    declared: dict[str, Any] = {
        "etas": [0.5],
        "reward_low": 0.0,
        "reward_high": 1.0,
        "worlds": 8,
        "risk": 0.1,
    }
    source = Source(name="log1.csv", reading={"first_step": 1})
    log = read_log("log1.csv", first_step=1)
    found = preview(log, **declared, baseline="rule.csv", first_step=1, source=source)
    same = preview(read_log("log0.csv"), **declared, baseline=np.array([[0, 1], [1, 0]]))
    assert found.sentences() == same.sentences()
    assert 'read_log("log1.csv", first_step=1)' in found.verdict.python
    names: dict[str, Any] = {}
    exec(found.verdict.python, names)
    assert names["own"].table.tolist() == [[0, 1], [1, 0]]


def test_the_command_line_takes_it_and_repeats_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    def run(*words: str) -> int | str | None:
        with pytest.raises(SystemExit) as exit:
            main(list(words))
        return exit.value.code

    assert run("data", "inspect", "log1.csv", "--first-step", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["transitions"] == 40
    words = ["--first-step", "1", "--eta", "0.5", "--worlds", "8", "--risk", "0.1", "--baseline", "rule.csv"]
    assert run("plan", "log1.csv", *words, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert "--first-step 1" in verdict["cli"]
    assert "first_step=1" in verdict["python"]
    assert run("data", "inspect", "log1.csv") == 2
    assert "--first-step 1" in capsys.readouterr().err
