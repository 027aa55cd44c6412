"""Sweeps of the deep learner: what they plan, what they refuse, and that runs go on where they were left."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sweeps import Silence, small_experiment
from tests.tiny_hiv import OTHERS, TINY, tiny_experiment

from chary.cli import main
from chary.deep.options import DeepOptions
from chary.errors import CharyError, InvalidSetting, UnknownName
from chary.storage.archives import npz_arrays
from chary.storage.sealed import pack
from chary.sweeps import SweepResult, sweep
from chary.sweeps.deep import DeepConditions
from chary.sweeps.engines.gpu import DeviceEngine
from chary.sweeps.engines.local import LocalEngine
from chary.sweeps.folder import RESULT_FILES, SweepFolder
from chary.sweeps.perform import perform, prepare
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment, family_of
from chary.sweeps.toml import parse_experiment, preset_experiment


def test_the_preset_is_as_large_as_the_paper() -> None:
    experiment = preset_experiment("hiv")
    conditions = experiment.conditions
    assert isinstance(conditions, DeepConditions)
    assert (conditions.patient, conditions.discount) == (5, 0.99)
    # 10,000 random transitions are 50 episodes of 200 steps.
    assert (conditions.episodes, 200 * conditions.warmup) == (1000, 10_000)
    assert conditions.seeds >= 9
    assert {40.0, 60.0, 100.0} <= set(conditions.etas)
    assert {"unconstrained", "conservative", "ours"} <= {each.role for each in experiment.algorithms}
    quick = experiment.shrunk()
    assert (quick.conditions.seeds, quick.conditions.episodes, quick.conditions.etas) == (
        2,
        60,
        (40.0, 100.0),
    )


def test_an_agent_without_a_budget_is_run_once_and_a_spec_says_every_option() -> None:
    planned = tiny_experiment().plan()
    assert [(each.algorithm, each.eta, each.seed) for each in planned[:3]] == [
        ("DQN", None, 0),
        ("chary", 40.0, 0),
        ("chary", 100.0, 0),
    ]
    # A table of linear worlds is named where they learn.
    own = {each.name for each in fields(DeepOptions)} - {"linear"}
    tiny = tiny_experiment()
    changes = {"baseline": "ensemble", "learner": {"ensemble": {"z": 2}}}
    for each in replace(tiny, conditions=tiny.conditions.changed(changes)).plan():
        assert set(each.spec.options) == own | {"patient", "audit_every"}
        assert each.spec.options["ensemble"]["z"] == 2.0
        family_of("hiv").check(each.spec)
        assert RunSpec.from_json(each.spec.canonical) == each.spec
    table = {"low": -10, "high": 30, "features": 8}
    changes = {"baseline": "linear", "learner": {"linear": table}}
    shielded = replace(tiny, algorithms=tiny.algorithms[1:2], conditions=tiny.conditions.changed(changes))
    for each in shielded.plan():
        assert set(each.spec.options) == own | {"linear", "patient", "audit_every"}
        assert each.spec.options["linear"]["high"] == 30.0
        family_of("hiv").check(each.spec)
        assert RunSpec.from_json(each.spec.canonical) == each.spec
    # Runs from before there was a choice keep their ids.
    own -= {"learner", "ensemble"}
    for each in planned:
        assert set(each.spec.options) == own | {"patient", "audit_every"}
        family_of("hiv").check(each.spec)
        assert RunSpec.from_json(each.spec.canonical) == each.spec
    assert planned[1].spec.options["eta"] == 40.0
    assert planned[1].spec.options["width"] == 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("etas = [40, 100]\naudit", "etas = [40.0, 100.0]\naudit"),
        ("[learner]", "[learner]\nridge = 1"),
        ('problem = "hiv"', 'problem = "hiv"\npatient = "5"'),
        ('problem = "hiv"', 'problem = "hiv"\ndiscount = 0.99'),
    ],
    ids=["budget", "option", "patient", "default"],
)
def test_the_same_in_other_words_is_the_same_run(old: str, new: str) -> None:
    other = parse_experiment(TINY.replace(old, new))
    assert [each.spec.id for each in other.plan()] == [each.spec.id for each in tiny_experiment().plan()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("audit_every = 1", "audit_every = 2"),
        ("width = 8", "width = 9"),
        ('problem = "hiv"', 'problem = "hiv"\npatient = "base"'),
        ("warmup = 1", "warmup = 2"),
    ],
    ids=["audits", "option", "patient", "warm-up"],
)
def test_what_changes_results_changes_the_name_of_a_run(old: str, new: str) -> None:
    other = {each.spec.id for each in parse_experiment(TINY.replace(old, new)).plan()}
    assert not other & {each.spec.id for each in tiny_experiment().plan()}


def test_a_variant_changes_the_options_it_names_and_no_others() -> None:
    experiment = tiny_experiment(others=True)
    betas = {
        each.variant: (each.spec.options["beta"], each.spec.options["width"])
        for each in experiment.plan()
        if each.study == "beta"
    }
    assert betas == {"half": (0.5, 8), "twice": (2.0, 8)}
    assert parse_experiment(experiment.to_toml()) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment


MISTAKES: list[tuple[str, str, str, str]] = [
    ("problem", 'problem = "hiv"', 'problem = "hvi"', r"Did you mean 'hiv'\?"),
    ("patient", "warmup = 1", "warmup = 1\npatient = 6", r"'patient' must be one of .*5, got '6'"),
    ("spread", "warmup = 1", "warmup = 1\nspread = 2", r"'spread' must lie in \[0, 1\], got 2"),
    (
        "no patient",
        'problem = "hiv"',
        'problem = "plane"\npatient = 3',
        r"'patient' must be left out with problem 'plane', got 3",
    ),
    ("tabular", "warmup = 1", 'warmup = 1\nbonus = "kl"', r"an experiment's key.* got 'bonus'"),
    ("audits", "audit_every = 1", "audit_every = 0", r"'audit_every' must be a whole number >= 1, got 0"),
    ("none", "audit_every = 1", "audit_every = 4", r"'audit_every' must be at most 'episodes', 3, got 4"),
    ("discount", "warmup = 1", "warmup = 1\ndiscount = 2", r"'discount' must lie in \[0, 1\], got 2"),
    ("etas", "etas = [40, 100]\na", "etas = [-1]\na", r"'etas' must lie in \[0, inf\], got -1"),
    ("learner", "width = 8", "widht = 8", r"an option of 'learner'.* Did you mean 'width'\?"),
    ("decided", "width = 8", "eta = 8", r"an option of 'learner'.* got 'eta'"),
    ("width", "width = 8", "width = 0", r"algorithm 'DQN': 'width' must be a whole number >= 1, got 0"),
    ("agent", 'agent = "dqn"', 'agent = "dnq"', r"'agent' must be one of .* Did you mean 'dqn'\?"),
    ("tabular agent", 'agent = "dqn"', 'agent = "ucbvi"', r"'agent' must be one of chary, .*'ucbvi'"),
    ("option", 'agent = "dqn"', 'agent = "dqn"\npool = 3', r"a key of algorithm 'DQN'.* got 'pool'"),
    (
        "action",
        'agent = "dqn"',
        'agent = "constant"\naction = 4',
        r"'DQN': 'action' must be at most 3, got 4",
    ),
    ("endless", "width = 8", "huber = inf", r"'options' of a run must be finite"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), [each[1:] for each in MISTAKES], ids=[e[0] for e in MISTAKES]
)
def test_a_mistake_is_refused_in_a_sentence(old: str, new: str, message: str) -> None:
    assert old in TINY
    with pytest.raises(CharyError, match=message):
        parse_experiment(TINY.replace(old, new)).check()


def test_a_variant_must_have_keys_of_its_problem() -> None:
    with pytest.raises(UnknownName, match=r"a variant's key.* got 'bonus_scale'"):
        parse_experiment(TINY + OTHERS.replace("learner = { beta = 0.5 }", "bonus_scale = 0.5"))
    with pytest.raises(CharyError, match=r"'problem' must be 'hiv' in all variants .* got 'inventory'"):
        parse_experiment(TINY + OTHERS.replace("learner = { beta = 0.5 }", 'problem = "inventory"'))


def test_algorithms_of_another_family_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="must be one that plays problem 'hiv'"):
        replace(tiny_experiment(), algorithms=small_experiment().algorithms)


def test_only_a_patient_can_be_changed_for_another() -> None:
    changed = tiny_experiment(patient="base").conditions
    assert isinstance(changed, DeepConditions)
    assert changed.patient == "base"
    with pytest.raises(UnknownName, match="'patient' must be one of base"):
        tiny_experiment(patient="7")
    with pytest.raises(InvalidSetting, match="'patient' must be left out with problem 'riverswim', got '3'"):
        small_experiment(patient="3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "inventory", "--device", "gpu"], "'device' must be 'cpu' with problem 'inventory'"),
        (["reproduce", "inventory", "--patient", "3"], "'patient' must be left out"),
        (["reproduce", "hiv", "--patient", "9"], "'patient' must be one of base, 0, 1, 2, 3, 4, 5, got '9'"),
        (["reproduce", "hiv", "--device", "tpu"], "'device' must be one of cpu, gpu"),
        (["reproduce", "hiv", "--etas", "a"], "'etas' must be numbers"),
        (["reproduce", "hiv", "--episodes", "5"], "'audit_every' must be at most 'episodes', 5, got 10"),
    ],
    ids=["device", "patient", "unknown patient", "unknown device", "etas", "episodes"],
)
def test_the_command_line_refuses_in_a_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import jax

    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is one")
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "hiv", "--quick", "--device", "gpu", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "'device' gpu needs a GPU that JAX finds" in capsys.readouterr().err


class Noting(Silence):
    """A watcher that keeps who finished what."""

    def __init__(self) -> None:
        self.finished_by: dict[int, list[str]] = {}

    def finished(self, worker: int, run: str, *, failed: bool) -> None:
        assert not failed
        self.finished_by.setdefault(worker, []).append(run)


@pytest.fixture
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]))


@pytest.mark.usefixtures("_workers_find_the_tests")
def test_a_worker_plays_all_that_it_has_compiled_for_before_anything_else(tmp_path: Path) -> None:
    experiment, noting = tiny_experiment(others=True, seeds=4), Noting()
    engine = LocalEngine(2, module="tests.invented_worker")
    result = sweep(experiment, tmp_path / "sweep", engine, noting)
    specs = {each.spec.id: each.spec for each in experiment.plan()}
    assert result == SweepResult(0, len(specs), [])
    for runs in noting.finished_by.values():
        kinds = [family_of("hiv").compiled(specs[run]) for run in runs]
        changes = sum(one != two for one, two in pairwise(kinds))
        assert changes == len(set(kinds)) - 1
    # Seeds and budgets share what is compiled: DQN, chary, CQL, random, constant and two variants of a study.
    assert len({family_of("hiv").compiled(spec) for spec in specs.values()}) == 7
    # Once more with a third budget.
    more = experiment.changed(etas=[40, 60, 100])
    again = sweep(more, tmp_path / "sweep", engine, noting, extend=True)
    assert (again.found, again.played) == (len(specs), 4)


# With the learner itself; compiling takes a dozen seconds, so that all tests share one kind of run.


@pytest.fixture(scope="module")
def runs() -> dict[float, RunSpec]:
    planned = tiny_experiment(seeds=1).plan()
    return {each.eta: each.spec for each in planned if each.eta is not None}


@pytest.fixture(scope="module")
def played(runs: dict[float, RunSpec]) -> dict[str, bytes]:
    return perform(runs[40.0], None)


def same_results(one: dict[str, bytes], two: dict[str, bytes]) -> bool:
    return all(one[name] == two[name] for name in RESULT_FILES)


def test_a_result_keeps_its_budget_and_says_what_it_was_made_with(
    runs: dict[float, RunSpec], played: dict[str, bytes]
) -> None:
    summary = json.loads(played["result.json"])
    assert (summary["episodes"], summary["steps"], summary["audited"]) == (3, 600, 3)
    assert 0 < summary["max_deficit"] <= 40.0
    assert "seconds" not in summary
    assert json.loads(played["spec.json"])["options"]["patient"] == 5
    assert {"jax", "jaxlib", "optax"} <= set(json.loads(played["provenance.json"])["packages"])


class Interrupted(Exception):
    pass


def after(episodes: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done == episodes:
            raise Interrupted

    return report


@pytest.mark.parametrize("episodes", [1, 2])
def test_a_run_goes_on_where_it_was_left(
    episodes: int, runs: dict[float, RunSpec], played: dict[str, bytes], tmp_path: Path
) -> None:
    folder = SweepFolder(tmp_path)
    # The checkpoint of an episode is written before the next one is reported.
    with pytest.raises(Interrupted):
        perform(runs[40.0], folder, checkpoint_seconds=0.0, report=after(episodes + 1))
    assert folder.checkpoint(runs[40.0].id) is not None
    resumed = perform(runs[40.0], folder)
    assert json.loads(resumed["provenance.json"])["resumed"] == 1
    assert same_results(resumed, played)


def test_a_checkpoint_that_is_of_no_use_is_left_alone(
    runs: dict[float, RunSpec], played: dict[str, bytes], tmp_path: Path
) -> None:
    folder = SweepFolder(tmp_path)
    spent: dict[str, Any] = {"wall": 0.0, "cpu": 0.0, "resumed": 0}
    with pytest.raises(Interrupted):
        perform(runs[100.0], folder, checkpoint_seconds=0.0, report=after(2))
    other = folder.checkpoint(runs[100.0].id)
    assert other is not None
    half = pack("run", {}, {"run": runs[40.0].id, **spent})
    for content in (b"", half, other[:-100], other):
        folder.write_checkpoint(runs[40.0].id, content)
        assert prepare(runs[40.0], folder)[0].learner is None
    assert prepare(runs[100.0], folder)[0].done == 1
    restarted = perform(runs[40.0], folder, checkpoint_seconds=1e9)
    assert json.loads(restarted["provenance.json"])["resumed"] == 0
    assert same_results(restarted, played)


# Side by side, as on a GPU; where there is none, lanes of this machine's CPU.


class Stopping(Silence):
    """A watcher that ends everything once a run has come so far."""

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        if done == 2:
            raise Interrupted


def in_lanes(specs: list[RunSpec], where: Path, watcher: Silence) -> SweepFolder:
    folder = SweepFolder(where)
    folder.claim(tiny_experiment(seeds=1), "")
    assert DeviceEngine(2, checkpoint_seconds=0.0).play(specs, folder, -1, watcher) == []
    return folder


def test_lanes_agree_with_single_runs_but_for_rounding_and_go_on_where_they_were_left(
    runs: dict[float, RunSpec], played: dict[str, bytes], tmp_path: Path
) -> None:
    specs = list(runs.values())
    whole = in_lanes(specs, tmp_path / "whole", Silence())
    side, alone = whole.read(specs[0].id), npz_arrays(played["result.npz"])
    assert side.provenance["lanes"] == 2
    assert set(side.arrays) == set(alone)
    for name, array in alone.items():
        found = np.asarray(side.arrays[name], dtype=float)
        close = 2e-6 if array.dtype == np.float32 else 1e-7
        np.testing.assert_allclose(found, array, rtol=close, atol=close, err_msg=name)
    # The first checkpoint is written before the second episode is told of.
    with pytest.raises(Interrupted):
        in_lanes(specs, tmp_path / "left", Stopping())
    left = in_lanes(specs, tmp_path / "left", Silence())
    for spec in specs:
        assert left.state(spec.id).sha256 == whole.state(spec.id).sha256
        assert left.read(spec.id).provenance["resumed"] == 1
