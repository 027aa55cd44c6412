"""Logs in words of the user's own, malformed: names, labels, frames, first steps and early endings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.test_bad_logs import answer
from tests.faults.test_fuzzed_calls import CALLS, SOME, Call, Tally, from_folder, fuzzed, listing, sentence

import chary
from chary.cli import main
from chary.data import Log, read_log, read_policy, read_rewards
from chary.errors import CharyError
from chary.mdp import Setting

STATES, ACTIONS, H = ["new, calm", "old, calm", "gone"], ["wait", "call"], 3
LABELS = {"state": STATES, "action": ACTIONS}
COLUMNS = {"episode": "who", "t": "visit", "reward": "pay", "terminated": "left"}
HEAD = "who,visit,state,action,pay,next_state,left\n"
ROWS = (
    'a,1,"new, calm",wait,-1,"old, calm",no',
    'a,2,"old, calm",call,0.5,gone,yes',
    'b,1,"new, calm",call,-0.25,"new, calm",no',
    'c,1,"old, calm",wait,0,"new, calm",yes',
)
FRAME: dict[str, list[Any]] = {
    "who": ["a", "a", "b", "c"],
    "visit": [1, 2, 1, 1],
    "state": [STATES[0], STATES[1], STATES[0], STATES[1]],
    "action": ["wait", "call", "call", "wait"],
    "pay": [-1.0, 0.5, -0.25, 0.0],
    "next_state": [STATES[1], STATES[2], STATES[0], STATES[0]],
    "left": ["no", "yes", "no", "yes"],
}
READ: dict[str, Any] = {
    "columns": COLUMNS,
    "labels": LABELS,
    "first_step": 1,
    "ignore_extra": False,
    "drop_bad_episodes": False,
}
DECLARED: dict[str, Any] = {
    "n_states": 3,
    "n_actions": 2,
    "horizon": H,
    "reward_range": (-2.0, 1.0),
    "early_endings": True,
    "allowed": np.ones((3, 2), dtype=bool),
    "support": 3,
    "discount": 0.9,
    "reward": None,
}
SETTING = Setting.declare(n_states=3, n_actions=2, horizon=H, reward_range=(-2.0, 1.0), early_endings=True)


def written(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content)
    return folder / name


def reading(folder: Path) -> Call:
    path = written(folder, "log.csv", HEAD + "\n".join(ROWS))
    return Call(read_log, {"path": path, "delimiter": ",", **READ}, listing(folder))


def policy(folder: Path) -> Call:
    content = 't,state,action\n1,"new, calm",wait\n2,"old, calm",call\n'
    told = {"path": written(folder, "rule.csv", content), "n_states": 3, "horizon": H, "labels": LABELS}
    return Call(read_policy, {**told, "first_step": 1})


def rewards(folder: Path) -> Call:
    content = 'state,action,reward\n"new, calm",wait,-1\ngone,call,0\n'
    told = {"path": written(folder, "pay.csv", content), "n_states": 3, "n_actions": 2, "labels": LABELS}
    return Call(read_rewards, told)


def live() -> chary.TabularAgent:
    agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), SETTING)
    agent.begin("a", 0)
    agent.act("a", 0, 0)
    return agent


def ending(state: Any, action: Any, reward: Any, next_state: Any, terminated: Any, t: Any) -> Call:
    agent = live()

    def observe(**told: Any) -> None:
        place = told.pop("t")
        agent.observe("a", chary.Transition(**told), t=place)

    arguments = {"state": state, "action": action, "reward": reward, "next_state": next_state}
    return Call(observe, {**arguments, "terminated": terminated, "t": t}, lambda: agent._record())


AREA: list[Callable[[], Call]] = [
    from_folder(reading),
    from_folder(policy),
    from_folder(rewards),
    lambda: Call(Log.from_dataframe, {"frame": FRAME, **READ}),
    lambda: Call(Log.from_dataframe, {"frame": pl.DataFrame(FRAME), **READ}),
    lambda: Call(Setting.declare, DECLARED),
    lambda: Call(Setting.from_arrays, {"arrays": SETTING.to_arrays()}),
    lambda: Call(lambda **arrays: Setting.from_arrays(arrays), SETTING.to_arrays()),
    lambda: Call(Log.from_dataframe(FRAME, **READ).with_endings_of, {"setting": SETTING}),
    lambda: Call(chary.OwnBaseline.declare, {"policy": [0, 1, 0], "setting": SETTING, "role": "floor"}),
    lambda: ending(0, live().act("a", 0, 0).action, -1.0, 1, True, 0),
]


def test_malformed_calls_are_refused_in_a_sentence_and_change_nothing() -> None:
    tally = Tally()

    @SOME
    @given(st.data())
    def search(data: st.DataObject) -> None:
        fuzzed(data, AREA, tally)

    search()
    assert tally.made >= CALLS
    assert tally.refused >= tally.made // 2, tally


@pytest.mark.parametrize("wrong", [np.array([1, 2, 3]), np.zeros((2, 2)), [[]], 0, ""])
@pytest.mark.parametrize("option", ["columns", "labels"])
def test_what_is_no_mapping_of_texts_is_refused_whatever_its_truth(
    option: str, wrong: Any, tmp_path: Path
) -> None:
    path = written(tmp_path, "log.csv", HEAD + "\n".join(ROWS))
    for call in (
        lambda: read_log(path, **{**READ, option: wrong}),
        lambda: Log.from_dataframe(FRAME, **{**READ, option: wrong}),
        lambda: read_policy(path, n_states=3, **{option: wrong}),
        lambda: read_rewards(path, n_states=3, n_actions=2, **{option: wrong}),
    ):
        with pytest.raises(CharyError, match=f"'{option}' must") as problem:
            call()
        sentence(problem.value)


# What a cell of a frame may contain: all kinds that data frames mix, and values that are nearly right.
CELLS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["a", "b", "wait", "call", "no", "yes", "", "NA", "nan", " wait ", *STATES]),
    st.sampled_from([0, 1, 2, -1, 1.0, 0.5, float("nan"), float("inf"), None, True, 2**63, 10**30, b"a"]),
    st.text(max_size=3),
    st.dates(),
    st.lists(st.integers(), max_size=2),
)


def as_pandas(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def as_polars(columns: dict[str, list[Any]]) -> Any:
    try:
        return pl.DataFrame(columns, strict=False)
    except (TypeError, pl.exceptions.PolarsError):
        # Polars itself has no frame of these.
        return columns


@pytest.mark.parametrize("make", [dict, as_pandas, as_polars])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_cells_in_a_frame_give_a_log_that_an_agent_learns_or_a_sentence(make: Callable[..., Any]) -> None:
    @settings(SOME)
    @given(st.data())
    def search(data: st.DataObject) -> None:
        columns = {name: list(cells) for name, cells in FRAME.items()}
        for _ in range(data.draw(st.integers(0, 3))):
            name = data.draw(st.sampled_from(sorted(columns)))
            columns[name][data.draw(st.integers(0, 3))] = data.draw(CELLS)
        drop = data.draw(st.booleans())
        try:
            log = Log.from_dataframe(make(columns), **{**READ, "drop_bad_episodes": drop})
        except CharyError as problem:
            sentence(problem)
            return
        left_out = 0 if log.dropped is None else log.dropped.episodes
        assert left_out == 0 or drop
        # A text that was changed may name another episode, and make five of them.
        assert 3 <= log.n_episodes + left_out <= 4 or columns != FRAME
        if log.n_states <= 3:
            agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), SETTING)
            answer(lambda: agent.warm_start(log.episodes()))
            assert agent.episodes_begun == 0

    search()


WORDS = st.one_of(
    st.sampled_from(["episode", "who", "t", "visit", "state", "action", "pay", "left", "next_state"]),
    st.sampled_from(
        ["wait,call", '"new, calm","old, calm",gone', '"', "a,,b", "wait,wait", "x" * 400, "ü", "é=è"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
OPTIONS = st.one_of(
    st.tuples(st.sampled_from(["--column", "--label"]), st.tuples(WORDS, WORDS).map("=".join)),
    st.tuples(st.sampled_from(["--column", "--label", "--first-step", "--discretiser"]), WORDS),
    st.tuples(st.just("--first-step"), st.sampled_from(["0", "1", "2", "-1", "1.5", "9" * 30])),
    st.sampled_from([("--drop-bad-episodes",), ("--ignore-extra",), ("--cut-at-horizon",), ("--faults",)]),
)
GOOD = (
    *(
        "--column",
        "episode=who",
        "--column",
        "t=visit",
        "--column",
        "reward=pay",
        "--column",
        "terminated=left",
    ),
    *("--label", 'state="new, calm","old, calm",gone', "--label", "action=wait,call", "--first-step", "1"),
)


def test_any_options_of_a_reading_command_give_a_result_or_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "log.csv", HEAD + "\n".join(ROWS))

    @settings(SOME, max_examples=CALLS // 2)
    @given(st.lists(OPTIONS, max_size=4), st.booleans())
    def search(options: list[tuple[str, ...]], good: bool) -> None:
        words = [word for each in options for word in each] + list(GOOD if good else ())
        # Typer writes its own usage texts, several lines long, of what is no option at all.
        with pytest.raises(SystemExit) as ended:
            main(["data", "inspect", str(file), *words])
        printed = capsys.readouterr()
        told = shlex.join(words)
        assert ended.value.code in (0, 2), told
        assert "Traceback" not in printed.err, told
        assert "defect" not in printed.err, told
        if ended.value.code == 2:
            assert printed.err.startswith("chary: "), told
            assert len(printed.err) < 1200, told

    with pytest.raises(SystemExit, match="0"):
        main(["data", "inspect", str(file), *GOOD])
    search()


@given(name=st.one_of(WORDS, st.tuples(WORDS, WORDS).map(":".join)), agent=st.booleans())
def test_any_name_of_a_problem_or_an_agent_is_refused_in_a_sentence(name: str, agent: bool) -> None:
    words = ["run", "riverswim", "--agent", name] if agent else ["run", "--", name]
    with pytest.raises(SystemExit) as ended:
        main([*words[:-1], words[-1]] if not agent else [*words, "--episodes", "1"])
    assert ended.value.code == 2
