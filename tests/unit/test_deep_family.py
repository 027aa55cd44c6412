"""Problems of the deep learner are one family: plans, ids, tables and reports, whichever problem it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny_hiv import TINY, invented

from chary.envs import CONTINUOUS_IDS
from chary.errors import CharyError, InvalidSetting, UnknownName
from chary.presets import preset
from chary.report import write_report
from chary.results import load_results
from chary.sweeps.deep import DEEP, DeepConditions, own_options
from chary.sweeps.deep_problems import DEEP_PROBLEMS
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment, family_of
from chary.sweeps.toml import parse_experiment, preset_experiment

OTHERS = [name for name in DEEP_PROBLEMS if name != "hiv"]


def tiny(problem: str, more: str = "") -> Experiment:
    """Return the small HIV experiment on another problem."""
    return parse_experiment(TINY.replace('problem = "hiv"', f'problem = "{problem}"\n{more}'))


def test_every_problem_has_an_id_and_all_are_one_family() -> None:
    assert list(DEEP_PROBLEMS) == list(CONTINUOUS_IDS) == list(DEEP.problems)
    assert {family_of(name) for name in DEEP_PROBLEMS} == {DEEP}
    for name in DEEP_PROBLEMS:
        with pytest.raises(UnknownName, match=f"got '{name}', .* Run: chary reproduce {name}"):
            preset(name)


@pytest.mark.parametrize("name", OTHERS)
def test_the_preset_of_a_problem_can_be_played(name: str) -> None:
    experiment = preset_experiment(name)
    assert (experiment.name, experiment.conditions.problem) == (name, name)
    experiment.check()
    assert experiment.shrunk().conditions.seeds <= 2
    assert {"unconstrained", "ours"} <= {each.role for each in experiment.algorithms}


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_says_its_own_options_and_gives_them_back(name: str) -> None:
    usual, other = (tiny(name, more).plan()[0].spec for more in ("", "spread = 0.0625"))
    assert usual.options["spread"] == DEEP_PROBLEMS[name].defaults["spread"]
    assert "patient" not in usual.options
    assert usual.id != other.id
    assert own_options(RunSpec.from_json(other.canonical)) == {"spread": 0.0625}
    DEEP.check(other)


def test_random_starts_are_left_out_of_ids_where_there_are_none() -> None:
    fixed, also, spread = (tiny("hiv", more).plan()[0].spec for more in ("", "spread = 0", "spread = 0.3"))
    assert fixed.id == also.id != spread.id
    assert "spread" not in fixed.options
    assert own_options(fixed) == {"patient": 5, "spread": 0.0}
    assert spread.options["spread"] == 0.3


MISTAKES = [
    ("plane", "patient = 3", r"'patient' must be left out with problem 'plane', got 3"),
    ("plane", "spread = 0.7", r"'spread' must lie in \[0, 0\.5\], got 0\.7"),
    ("cartpole", 'spread = "far"', r"'spread' must lie in \[0, 0\.2\], got 'far'"),
    ("glucose", "spred = 0.1", r"an experiment's key.* Did you mean 'spread'\?"),
]


@pytest.mark.parametrize(("name", "more", "message"), MISTAKES, ids=[each[1] for each in MISTAKES])
def test_a_mistake_is_refused_in_a_sentence(name: str, more: str, message: str) -> None:
    with pytest.raises(CharyError, match=message):
        tiny(name, more)


def test_conditions_keep_their_problem_and_specs_their_options() -> None:
    conditions = tiny("glucose").conditions
    assert isinstance(conditions, DeepConditions)
    assert conditions.changed({"spread": 0.25}).spread == 0.25
    with pytest.raises(InvalidSetting, match="'problem' must be 'glucose' in all variants"):
        conditions.changed({"problem": "plane"})
    with pytest.raises(InvalidSetting, match="'patient' must be left out with problem 'glucose'"):
        tiny("glucose").changed(patient=3)
    spec = tiny("glucose").plan()[0].spec
    options = {name: value for name, value in spec.options.items() if name != "spread"}
    without = RunSpec.from_json(spec.canonical.replace('"spread":0.0,', ""))
    assert dict(without.options) == options
    with pytest.raises(InvalidSetting, match="'spread' must be among the options"):
        DEEP.check(without)


@pytest.fixture(scope="module")
def sweep_of_the_plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished sweep with made-up results."""
    where = tmp_path_factory.mktemp("plane") / "sweep"
    invented(SweepFolder(where), tiny("plane"))
    return where


def test_tables_have_the_actions_that_the_problem_has(sweep_of_the_plane: Path) -> None:
    runs = load_results(sweep_of_the_plane)
    assert set(runs["problem"]) == {"plane"}
    assert set(runs["spread"]) == {0.1}
    assert runs["patient"].null_count() == len(runs)
    shares = sum(runs[f"share_{action}"].to_numpy() for action in range(6))
    assert shares == pytest.approx([1.0] * len(runs))


def test_the_report_has_the_problems_units_and_nothing_of_the_paper(sweep_of_the_plane: Path) -> None:
    page = write_report(sweep_of_the_plane).read_text(encoding="utf-8")
    assert "Table 1" not in page
    assert "million" not in page
    assert "Claims of the paper" not in page
    assert "standardised reward" not in page
    assert "reatment" not in page
    assert "Actions in the last tenth" in page
    assert "brake, %" in page
    tables = {path.stem for path in (sweep_of_the_plane / "report" / "tables").iterdir()}
    assert tables == {"summary", "differences"}
