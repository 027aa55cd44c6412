"""The default patience, and that whatever was played while chains waited for ever still says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from chary import CharyUCBVI, TabularAgent
from chary.errors import InvalidSetting
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment
from chary.sweeps.tabular import TABULAR, Algorithm, Conditions
from chary.sweeps.toml import PRESETS, parse_experiment, preset_experiment, read_experiment

ROOT = Path(__file__).parents[2]
HERE = Conditions(problem="riverswim", episodes=5, warmup=1, seeds=1, etas=(0.1,), bonus="kl")
PLAIN = Algorithm(label="chary", agent="chary")


@pytest.mark.parametrize(
    "name", [each for each in PRESETS if preset_experiment(each).conditions.problem in TABULAR.problems]
)
def test_experiments_of_the_paper_let_chains_wait_for_ever(name: str) -> None:
    kept = read_experiment(ROOT / "reproductions" / name / "experiment.toml")
    for experiment in (preset_experiment(name), kept):
        waiting = {each.spec.options.get("patience", "no chains") for each in experiment.plan()}
        assert waiting <= {None, "no chains"}
    assert [each.spec.id for each in kept.plan()] == [each.spec.id for each in preset_experiment(name).plan()]


def test_a_folder_of_an_earlier_version_means_chains_that_wait_for_ever() -> None:
    folder = SweepFolder(ROOT / "tests" / "golden" / "tabular-sweep")
    assert {each.spec.options.get("patience") for each in folder.experiment().plan()} == {None}
    done = {state.id for state in folder.states() if state.state == "done"}
    assert done == {each.name for each in (folder.path / "runs").iterdir()}


def test_an_agent_of_an_earlier_version_keeps_chains_that_wait_for_ever() -> None:
    agent = TabularAgent.load(ROOT / "tests" / "golden" / "chary-strict.npz")
    assert isinstance(agent.spec, CharyUCBVI)
    assert agent.spec.patience is None


def test_patience_is_a_condition_that_an_algorithm_may_change() -> None:
    assert PLAIN.resolved(HERE, 0.1)["patience"] == CharyUCBVI(eta=0.1).patience == 100
    assert PLAIN.resolved(replace(HERE, patience="none"), 0.1)["patience"] is None
    assert replace(PLAIN, options={"patience": 7}).resolved(HERE, 0.1)["patience"] == 7
    assert replace(PLAIN, options={"patience": "none"}).resolved(HERE, 0.1)["patience"] is None
    assert "patience" not in Algorithm(label="u", agent="ucbvi").resolved(HERE, None)


@pytest.mark.parametrize("patience", [0, 100, "none"])
def test_experiments_with_patience_come_back_from_their_files(patience: int | str) -> None:
    mine = Experiment(name="mine", conditions=replace(HERE, patience=patience), algorithms=(PLAIN,))
    assert parse_experiment(mine.to_toml()) == mine
    assert Experiment.from_json(mine.to_json()) == mine


@pytest.mark.parametrize("patience", ["never", -1, 2.5, True, None])
def test_a_wrong_patience_is_refused_with_the_way_out(patience: object) -> None:
    with pytest.raises(InvalidSetting, match=re.escape("Use 'none' to wait for ever.")):
        replace(HERE, patience=patience)  # type: ignore[arg-type]
