"""Names of the user's own code: "module:name", entry points, experiments, and folders that import nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sweeps import chary, small_experiment

from chary.agents import AGENTS, make_agent
from chary.agents.own import OwnAgent
from chary.envs import make, sibling
from chary.errors import CharyError
from chary.extensions import installed, is_reference, load, resolved
from chary.presets import preset
from chary.results.tabular import TabularRun
from chary.simulation._calibration import differences_from
from chary.sweeps.folder import StoredRun, SweepFolder
from chary.sweeps.toml import parse_experiment

CODE = """
import numpy as np
import chary

def clinic(*, horizon=3, scale=1.0):
    P = np.full((3, 2, 3), 1 / 3)
    return chary.FiniteMDP.from_arrays(P, [[0.0, scale / 2]] * 3, horizon=horizon)

def number():
    return 3

class Lowest:
    def __init__(self, setting, *, eta=None, action=0):
        if eta is not None and eta > 9:
            raise ValueError("far too much")
        self.action = action
    def begin(self, episode, state): ...
    def act(self, episode, t, state): return self.action
    def observe(self, episode, transition): ...
    def finish(self, episode): ...
"""

SWEEP = """
name = "mine"
problem = "my_clinic:clinic"
episodes = 6
warmup = 0
seeds = 2
etas = [0.2, 0.4]
bonus = "hoeffding"

[[algorithms]]
label = "mine"
agent = "my_clinic:Lowest"
keeps_budget = true
action = 1

[[algorithms]]
label = "mine again"
agent = "my_clinic:Lowest"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's, from which chary is started."""
    (tmp_path / "my_clinic.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import chary\n1 / 0\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "half.py").write_text("def f(:\n")
    (tmp_path / "needs.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    for name in ("my_clinic", "broken", "leaves", "half", "needs"):
        sys.modules.pop(name, None)


@given(st.text(max_size=30) | st.from_regex(r"[a-z.:]{0,12}", fullmatch=True))
def test_a_name_is_known_a_reference_or_refused_in_one_sentence(name: str) -> None:
    if name in AGENTS or is_reference(name):
        assert resolved("agent", name, AGENTS) == name
    else:
        with pytest.raises(CharyError, match=r"^'agent' must be one of chary, "):
            resolved("agent", name, AGENTS)


def test_the_current_folder_is_searched_last(here: Path) -> None:
    (here / "json.py").write_text("1 / 0\n")
    assert load("agent", "my_clinic:Lowest").__module__ == "my_clinic"
    assert sys.path[-1] == str(here)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "my_clinc:clinic",
            r"'problem' must name a module that can be imported, got 'my_clinc:clinic': No module",
        ),
        (
            "my_clinic:clinc",
            r"'problem' must name something in module 'my_clinic', .*Did you mean 'clinic'\?",
        ),
        ("my_clinic:np", r"'problem' must name a function or a class, got 'my_clinic:np', which is a module"),
        ("my_clinic:number", r"'my_clinic:number' must be a function that returns a FiniteMDP, got int"),
        ("my_clinic:Lowest", r"'setting' must be given for 'my_clinic:Lowest', which has no default"),
        ("broken:f", r"problem 'broken:f' raised ZeroDivisionError: division by zero \(broken.py, line 2\)"),
        ("leaves:f", r"problem 'leaves:f' must not end the program, got SystemExit\(0\)"),
        ("half:f", r"problem 'half:f' raised SyntaxError"),
        (
            "needs:f",
            r"'problem' must name a module that can be imported, got 'needs:f': No module named 'a_pack",
        ),
        ("inventroy", r"'problem' must be one of inventory, .* Did you mean 'inventory'\?"),
        ("my_clinic:", r"'problem' must be one of inventory, .* or your own as 'module:name'"),
    ],
)
def test_a_wrong_name_is_one_sentence_and_exit_code_2(here: Path, name: str, message: str) -> None:
    with pytest.raises(CharyError, match=message):
        make(name)
    answer = chary("run", name, "--eta", 0.1, "--episodes", 1)
    assert answer.returncode == 2
    assert re.search(message, answer.stderr)
    assert len(answer.stderr.splitlines()) == 1


def test_a_problem_of_ones_own_takes_its_options_and_has_no_siblings(here: Path) -> None:
    assert make("my_clinic:clinic", horizon=5).horizon == 5
    assert make("my_clinic:clinic", actions="all").name == "my_clinic:clinic"
    with pytest.raises(CharyError, match=r"'horizn' must be an option of 'my_clinic:clinic' .*Did you mean"):
        make("my_clinic:clinic", horizn=5)
    with pytest.raises(CharyError, match="'problem' must be one of inventory"):
        sibling("my_clinic:clinic", 0)
    assert "eta" not in preset("my_clinic:clinic").of_agent()


def test_the_command_line_plays_ones_own(here: Path) -> None:
    typed = ("run", "my_clinic:clinic", "--agent", "my_clinic:Lowest", "--episodes", 4, "--json")
    answer = chary(*typed, "--argument", "action=1", "--horizon", 2)
    assert answer.returncode == 0, answer.stderr
    assert '"agent": "my_clinic:Lowest"' in answer.stdout
    assert '"arguments": {"action": 1}' in answer.stdout
    for argument, message in (
        ("action", "'argument' must be NAME=VALUE"),
        ("acton=1", "'acton' must be an option of agent 'my_clinic:Lowest'"),
        ("action=7", "'action' must be "),
        ("action=text", "'act' must be a whole number >= 0, got 'text'"),
    ):
        refused = chary(*typed, "--argument", argument)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert message in refused.stderr
    refused = chary("run", "riverswim", "--argument", "action=1")
    assert (refused.returncode, "'arguments' is not an option" in refused.stderr) == (2, True)


def test_entry_points_are_names_too(here: Path) -> None:
    about = here / "someones-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: someones\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[chary.agents]\nlowest = my_clinic:Lowest\nchary = my_clinic:Lowest\n"
        "[chary.problems]\nclinic = my_clinic:clinic\n"
    )
    sys.path.append(str(here))
    assert installed("problem") == {"clinic": "my_clinic:clinic"}
    assert make("clinic").name == "my_clinic:clinic"
    named = make_agent("lowest")
    assert isinstance(named, OwnAgent)
    assert named.agent == "my_clinic:Lowest"
    # One of chary's own names stays chary's.
    assert not isinstance(make_agent("chary", eta=0.1), OwnAgent)
    text = SWEEP.replace("my_clinic:clinic", "clinic").replace("my_clinic:Lowest", "lowest")
    # In files and ids there is the name of the code, which means the same wherever they are read.
    assert parse_experiment(text).to_json() == parse_experiment(SWEEP).to_json()
    with pytest.raises(CharyError, match=r"'agent' must be one of chary, .*lowest.* Did you mean 'lowest'"):
        make_agent("lowst")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("my_clinic:Lowest", "my_clinic", "'agent' must be one of chary"),
        ("my_clinic:Lowest", "nowhere:Lowest", "algorithm 'mine': 'agent' must name a module"),
        ("my_clinic:clinic", "nowhere:clinic", "algorithm 'mine': 'problem' must name a module"),
        ("action = 1", "acton = 1", "'acton' must be an option of agent 'my_clinic:Lowest'"),
        ("action = 1", "action = inf", "options of an agent of your own must be numbers"),
        ("action = 1", "action = 2020-01-01", "options of an agent of your own must be numbers"),
        ("keeps_budget = true", "keeps_budget = 1", "'keeps_budget' must be true or false, got 1"),
        ("etas = [0.2, 0.4]", "etas = [0.2, 12]", "agent 'my_clinic:Lowest' raised ValueError: far too much"),
        ("warmup = 0", "warmup = 5", "'warmup' must be 0 with agent 'my_clinic:Lowest'"),
        (
            'agent = "my_clinic:Lowest"\nkeeps_budget = true\naction = 1',
            'agent = "ucbvi"\nkeeps_budget = true',
            "'keeps_budget' must be left out",
        ),
    ],
)
def test_a_wrong_experiment_is_one_sentence_and_leaves_no_folder(
    here: Path, old: str, new: str, message: str
) -> None:
    (here / "mine.toml").write_text(SWEEP.replace(old, new, 1))
    answer = chary("sweep", "mine.toml", "--no-report", "--out", "out")
    assert answer.returncode == 2
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not (here / "out" / "runs").exists()


def test_ids_cover_the_name_and_the_options_and_need_no_code() -> None:
    plan = parse_experiment(SWEEP).plan()
    assert len({each.spec.id for each in plan}) == len(plan) == 6
    assert [each.eta for each in plan[:3]] == [0.2, 0.4, None]
    assert plan[0].spec.options["arguments"] == {"action": 1}
    assert [each.spec.id for each in parse_experiment(SWEEP).plan()] == [each.spec.id for each in plan]
    other = parse_experiment(SWEEP.replace("action = 1", "action = 0")).plan()
    assert (other[0].spec.id == plan[0].spec.id, other[2].spec.id == plan[2].spec.id) == (False, True)
    assert "my_clinic" not in sys.modules
    assert parse_experiment(parse_experiment(SWEEP).to_toml()).to_json() == parse_experiment(SWEEP).to_json()


def test_folders_are_read_without_the_code_and_a_sweep_notices_that_it_changed(
    here: Path, undrawn: None
) -> None:
    (here / "mine.toml").write_text(SWEEP)
    typed = ("sweep", "mine.toml", "--workers", 1, "--out", "out")
    answer = chary(*typed, "--no-report")
    assert (answer.returncode, "6 were played" in answer.stdout) == (0, True), answer.stderr
    folder = SweepFolder(Path("out"))
    states = {state.id: state.sha256 for state in folder.states()}
    assert set(states.values()) != {None}
    kept = folder.sources(next(iter(states)))
    assert {what: found["reference"] for what, found in kept.items()} == {
        "agent": "my_clinic:Lowest",
        "problem": "my_clinic:clinic",
    }

    # Whoever reads a folder runs none of what it names.
    sys.modules.pop("my_clinic")
    (here / "my_clinic.py").write_text("open('ran', 'w').close()\n" + CODE)
    for command in ("status", "report"):
        read = chary(command, "out")
        assert read.returncode == 0, read.stderr
    from chary.results import load_results

    assert set(load_results("out")["agent"]) == {"my_clinic:Lowest"}
    assert "my_clinic" not in sys.modules
    assert not (here / "ran").exists()
    page = (here / "out" / "report" / "index.html").read_text(encoding="utf-8")
    assert "mine again" in page
    assert "worst-case diameter" not in page

    answer = chary(*typed, "--no-report")
    assert (answer.returncode, "got another for 6 of them" in answer.stderr) == (2, True)
    answer = chary(*typed, "--no-report", "--recompute")
    assert (answer.returncode, "6 were played" in answer.stdout) == (0, True), answer.stderr
    assert {state.id: state.sha256 for state in folder.states()} == states
    assert chary(*typed, "--no-report").stdout.startswith("6 runs existed, 0 were played")


def test_neither_calibrations_nor_tampered_runs_get_code_imported(here: Path) -> None:
    record = replace(preset("riverswim").calibration[0], problem="my_clinic:clinic")
    assert differences_from(record, make("riverswim"), {}) == (
        "calibrated on siblings of my_clinic:clinic, which chary does not know",
    )
    # A folder of version 0.1 stored one word, from which the standing is derived with the problem.
    spec = parse_experiment(SWEEP).plan()[0].spec
    with pytest.raises(CharyError, match="'standing' must have level"):
        _ = TabularRun(StoredRun(spec, {"standing": "certified"}, {}, {}), 0.2).standing
    assert "my_clinic" not in sys.modules


def test_runs_of_chary_alone_have_no_sources(tmp_path: Path) -> None:
    experiment = small_experiment()
    assert all(experiment.family.sources(each.spec) == {} for each in experiment.plan())
    assert SweepFolder(tmp_path).sources("none") == {}
