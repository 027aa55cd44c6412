"""Experiments read from TOML, presets or the user's own; a mistake is reported in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import Any

from chary.errors import InvalidSetting, check_choice
from chary.extensions import resolved
from chary.storage.files import parse_toml, read_text
from chary.sweeps.family import AnyAlgorithm, Family, names_of, tupled
from chary.sweeps.spec import FAMILIES, Experiment, Quick, Study, Variant, family_of
from chary.texts import shown

PRESETS = ("inventory", "sepsis", "sepsis-worlds", "hiv", "cartpole", "glucose", "plane")


def preset_experiment(name: str) -> Experiment:
    """Return the experiment that `chary reproduce NAME` runs.

    Raises:
        UnknownName: if there is none of this name.

    Example:
        >>> preset_experiment("sepsis").conditions.etas
        (0.078, 0.09, 0.1, 0.119)
    """
    file = f"{check_choice('experiment', name, PRESETS)}.toml"
    packaged = resources.files("chary").joinpath("experiments", file)
    # In a wheel the presets are inside the package, in a checkout outside it.
    text = (
        packaged.read_text(encoding="utf-8")
        if packaged.is_file()
        else (Path(__file__).parents[3] / "experiments" / file).read_text(encoding="utf-8")
    )
    return parse_experiment(text)


def read_experiment(path: Path) -> Experiment:
    """Return the experiment that a TOML file describes.

    Raises:
        InvalidData: if the file cannot be read.
        CharyError: if its contents make no sense.
    """
    return parse_experiment(read_text(path, "FILE"))


def parse_experiment(text: str) -> Experiment:
    """Return the experiment that a TOML text describes.

    Raises:
        UnknownName: if it has a key that experiments do not have, with the nearest one that they have.
        InvalidSetting: if it is not TOML, lacks a key, or has one of the wrong type or out of range.
    """
    try:
        table = parse_toml(text)
    except ValueError as problem:
        raise InvalidSetting(f"an experiment must be TOML: {problem}.") from problem
    own = ("name", "title", "algorithms", "studies", "quick")
    if "problem" in table:
        problems = [problem for family in FAMILIES for problem in family.problems]
        table["problem"] = resolved("problem", table["problem"], problems)
    family = family_of(table.get("problem"))
    for key in table:
        check_choice("an experiment's key", key, (*own, *names_of(family.conditions)))
    algorithms = [_algorithm(each, family) for each in _tables("algorithms", table.get("algorithms", []))]
    known = {algorithm.label: algorithm for algorithm in algorithms}
    return Experiment(
        name=_given("an experiment", table, "name"),
        title=table.get("title", ""),
        conditions=_build(
            family.conditions, {key: table[key] for key in table if key not in own}, "an experiment"
        ),
        algorithms=tuple(algorithms),
        studies=tuple(_study(each, known, family) for each in _tables("studies", table.get("studies", []))),
        quick=_build(Quick, table.get("quick", {}), "quick"),
    )


def _study(table: Mapping[str, Any], known: Mapping[str, AnyAlgorithm], family: Family) -> Study:
    for key in table:
        check_choice("a study's key", key, names_of(Study))
    chosen = table.get("algorithms", [])
    if not isinstance(chosen, list):
        raise InvalidSetting(
            f"'algorithms' of a study must be a list of labels or tables, got {shown(chosen)}."
        )
    return Study(
        name=_given("a study", table, "name"),
        question=table.get("question", ""),
        claims=table.get("claims", False),
        # Labels of the experiment's algorithms, or tables of further ones.
        algorithms=tuple(
            _algorithm(each, family)
            if isinstance(each, dict)
            else known[check_choice("algorithms", each, known)]
            for each in chosen
        ),
        variants=tuple(
            Variant(
                label=_given("a variant", each, "label"),
                changes=tupled({key: value for key, value in each.items() if key != "label"}),
            )
            for each in _tables("variants", _given("a study", table, "variants"))
        ),
    )


def _algorithm(table: Mapping[str, Any], family: Family) -> AnyAlgorithm:
    own = [name for name in names_of(family.algorithm) if name != "options"]
    agent = family.algorithm.named(_given("an algorithm", table, "agent"))
    options = family.algorithm.options_of(agent)
    for key in table if options is not None else ():
        check_choice(f"a key of algorithm {table.get('label', agent)!r}", key, (*own, *(options or ())))
    _given("an algorithm", table, "label")
    return family.algorithm(
        **{key: value for key, value in {**table, "agent": agent}.items() if key in own},
        options={key: value for key, value in table.items() if key not in own},
    )


def _build(cls: Any, table: object, where: str) -> Any:
    if not isinstance(table, dict):
        raise InvalidSetting(f"{where!r} must be a table, got {shown(table)}.")
    for key in table:
        check_choice(f"a key of {where}", key, names_of(cls))
    for each in fields(cls):
        if each.default is MISSING and each.default_factory is MISSING:
            _given(where, table, each.name)
    return cls(**tupled(table))


def _given(where: str, table: Mapping[str, Any], key: str) -> Any:
    if key not in table:
        raise InvalidSetting(f"{key!r} must be given in {where}. Add this key.")
    return table[key]


def _tables(name: str, value: object) -> list[dict[str, Any]]:
    if not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        raise InvalidSetting(f"{name!r} must be a list of tables, [[{name}]], got {shown(value)}.")
    return value
