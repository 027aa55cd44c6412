"""Experiments as values: what they plan, how they are named, and what is wrong with a file in a sentence."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.sweeps import SMALL, small_experiment

from chary.agents import AGENTS
from chary.agents.protocol import POSTERIOR
from chary.agents.worlds import WORLD_OPTIONS
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment
from chary.sweeps.tabular import Conditions
from chary.sweeps.toml import PRESETS, parse_experiment, preset_experiment, read_experiment


def test_a_plan_has_one_run_a_budget_where_there_is_one_to_keep() -> None:
    planned = small_experiment().plan()
    # By hand: 2 seeds of UCBVI once and chary at two budgets, then 2 variants of chary at one budget.
    assert len(planned) == 2 * (1 + 2) + 2 * 2
    assert [(p.algorithm, p.eta) for p in planned[:3]] == [("UCBVI", None), ("chary", 0.2), ("chary", 0.4)]


def test_runs_that_are_the_same_share_an_id_wherever_they_are_planned() -> None:
    planned = small_experiment().plan()
    same = [p for p in planned if p.variant == "the same"]
    main = {p.spec.id for p in planned if p.study == "main"}
    assert {p.spec.id for p in same} < main
    assert not {p.spec.id for p in planned if p.variant == "ten times"} & main


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_what_they_are_written_as(name: str) -> None:
    experiment = preset_experiment(name)
    experiment.check()
    assert parse_experiment(experiment.to_toml()) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment
    experiment.shrunk().check()


@pytest.mark.parametrize("character", ["\x7f", "\x00", "\x1b", '"', "\\", "\n", "é", "\U0001f600"])
def test_a_title_with_any_character_is_read_back(character: str) -> None:
    experiment = replace(small_experiment(), title=f"A{character}B")
    assert parse_experiment(experiment.to_toml()) == experiment


@pytest.mark.parametrize(("name", "seeds"), [("inventory", 20), ("sepsis", 10)])
def test_presets_are_as_large_as_the_paper_and_larger(name: str, seeds: int) -> None:
    conditions = preset_experiment(name).conditions
    assert conditions.episodes == 50_000
    assert conditions.seeds >= seeds
    assert len(conditions.etas) >= 4


def test_an_id_is_the_hash_of_all_that_a_run_depends_on() -> None:
    spec = small_experiment().plan()[1].spec
    assert RunSpec.from_json(spec.canonical) == spec
    assert spec.id == RunSpec.from_json(spec.canonical).id
    changed = [
        replace(spec, seed=7),
        replace(spec, episodes=61),
        replace(spec, warmup=21),
        replace(spec, problem="corridor"),
        replace(spec, coverage="everywhere"),
        replace(spec, options={**spec.options, "pool": 3}),
    ]
    assert len({spec.id, *(each.id for each in changed)}) == 1 + len(changed)


def test_a_spec_says_every_option_so_that_a_new_default_is_a_new_run() -> None:
    for planned in small_experiment().plan():
        # A calibration changes no run, and options of worlds change none without worlds.
        apart = {"calibration", *WORLD_OPTIONS} if planned.spec.options["bonus"] != POSTERIOR else set()
        every = {each.name for each in fields(AGENTS[planned.spec.agent])}
        assert set(planned.spec.options) == every - apart


def test_a_spec_without_end_is_refused() -> None:
    spec = small_experiment().plan()[1].spec
    with pytest.raises(InvalidSetting, match=r"must be finite"):
        _ = replace(spec, options={**spec.options, "eta": float("inf")}).canonical


def test_the_command_line_changes_studies_too() -> None:
    planned = small_experiment(episodes=5, seeds=1, etas=[0.4]).plan()
    assert {p.spec.episodes for p in planned} == {5}
    assert {p.seed for p in planned} == {0}
    assert {p.eta for p in planned} == {None, 0.4}
    assert {p.study for p in small_experiment(studies=[]).plan()} == {"main"}


def test_quick_is_smaller() -> None:
    quick = small_experiment().shrunk()
    assert (quick.conditions.episodes, quick.conditions.seeds) == (20, 1)
    assert {p.spec.episodes for p in quick.plan()} == {20}


def test_a_step_bound_may_be_a_share_of_the_budget() -> None:
    text = SMALL.replace('role = "ours"', 'role = "ours"\nrule = "capped"\nstep_bound_share = 0.5')
    bounds = {p.eta: p.spec.options["step_bound"] for p in parse_experiment(text).plan() if p.eta}
    assert bounds == {0.2: 0.1, 0.4: 0.2}


# A replacement in SMALL, and what the sentence must say.
MISTAKES: list[tuple[str, str, str]] = [
    ("episodes = 60", "episods = 60", r"got 'episods'\. Did you mean 'episodes'\?"),
    ("episodes = 60", 'episodes = "60"', r"'episodes' must be a whole number >= 1, got '60'"),
    ("episodes = 60", "episodes = 0", r"'episodes' must be a whole number >= 1, got 0"),
    ("episodes = 60", "", r"'episodes' must be given in an experiment\. Add"),
    ("etas = [0.2, 0.4]\nbonus", "etas = 0.2\nbonus", r"'etas' must be a list of budgets, got 0\.2"),
    ("etas = [0.2, 0.4]\nbonus", "etas = [0.2, -1]\nbonus", r"'etas' must lie in \[0, inf\], got -1"),
    ("etas = [0.2, 0.4]\nbonus", "etas = [0.2, inf]\nbonus", r"'etas' must be finite, got inf"),
    ("etas = [0.2, 0.4]\nbonus", "etas = [0.2, 0.2]\nbonus", r"'etas' must differ .* got 0\.2 twice"),
    ("etas = [0.2, 0.4]\nbonus", 'etas = ["a"]\nbonus', r"'etas' must lie in \[0, inf\], got 'a'"),
    ('problem = "riverswim"', 'problem = "rivrswim"', r"Did you mean 'riverswim'\?"),
    ('agent = "ucbvi"', 'agent = "ucbv"', r"'agent' must be one of .* Did you mean 'ucbvi'\?"),
    ('agent = "ucbvi"', 'agent = "ucbvi"\npool = 3', r"a key of algorithm 'UCBVI'.* got 'pool'"),
    ('agent = "chary"', 'agent = "chary"\nrul = "paper"', r"got 'rul'\. Did you mean 'rule'\?"),
    (
        'agent = "chary"',
        'agent = "chary"\nrule = "papr"',
        r"algorithm 'chary': 'rule' .* Did you mean 'paper'\?",
    ),
    ('role = "ours"', 'role = "our"', r"'role' must be one of .* Did you mean 'ours'\?"),
    ('label = "UCBVI"', 'label = "chary"', r"'algorithms' must differ from each other, got chary twice"),
    ("[quick]\nepisodes = 20", "[quick]\nstudies = 3", r"'quick.studies' must be a list of names, got 3"),
    ("[quick]\nepisodes = 20", '[quick]\netas = ""', r"'etas' must be a list of budgets, got ''"),
    ('title = "A sweep for the tests"', "title = 3", r"'title' must be a text, got 3"),
    ('question = "How do results move with the scale?"', "question = 3", r"'question' must be a text, got 3"),
    (
        'label = "ten times"',
        'label = "ten times"\nepisodes = "x"',
        r"'ten times': 'episodes' must be",
    ),
    ('label = "ten times"', 'label = "ten times"\nseeds = 2.5', r"'ten times': 'seeds' must be"),
    ('algorithms = ["chary"]', 'algorithms = ["chari"]', r"'algorithms' must be .* Did you mean 'chary'\?"),
    ('algorithms = ["chary"]', "algorithms = 3", r"'algorithms' of a study must be a list"),
    ('label = "ten times"', 'label = "ten times"\nbonus_scal = 3', r"Did you mean 'bonus_scale'\?"),
    ("bonus_scale = 0.02", "bonus_scale = 0", r"variant 'ten times': 'bonus_scale' must lie in \(0, inf\)"),
    ('question = "How', 'questio = "How', r"Did you mean 'question'\?"),
    ("[quick]\nepisodes", "[quick]\nepisode", r"a key of quick.* Did you mean 'episodes'\?"),
    ('name = "small"', "name = 3", r"'name' must be made of letters, digits, .* got 3"),
    ('name = "small"', 'name = "../out"', r"'name' must be made of letters, digits, .* got '../out'"),
    ('name = "small"', "name = ", r"an experiment must be TOML"),
]


@pytest.mark.parametrize(("old", "new", "says"), MISTAKES, ids=[new or old for old, new, _ in MISTAKES])
def test_a_mistake_in_a_file_is_one_sentence(old: str, new: str, says: str) -> None:
    assert old in SMALL
    with pytest.raises(CharyError, match=says) as caught:
        parse_experiment(SMALL.replace(old, new, 1)).check()
    assert "\n" not in str(caught.value)


def test_an_experiment_that_does_not_fit_its_problem_is_refused_before_it_starts() -> None:
    text = SMALL.replace('problem = "riverswim"', 'problem = "sepsis"').replace(
        'agent = "chary"', 'agent = "chary"\ncharge = "difference"'
    )
    with pytest.raises(InvalidSetting, match=r"^algorithm 'chary': 'charge' can be 'difference' up to"):
        parse_experiment(text).check()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"^'FILE' must be a file .*no\.toml': No such file"):
        read_experiment(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidData, match=r"must be text in UTF-8"):
        read_experiment(tmp_path / "binary.toml")


def test_a_preset_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'sepsis'\?"):
        preset_experiment("sepsi")


def test_every_condition_can_be_changed_by_a_variant() -> None:
    experiment = small_experiment()
    variant = experiment.studies[0].variants[1]
    for name in (each.name for each in fields(Conditions)):
        changes = {name: getattr(experiment.conditions, name)}
        assert experiment.conditions_of(replace(variant, changes=changes)) == experiment.conditions
