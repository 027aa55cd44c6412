"""Experiments: frozen values that list all runs of a sweep, each run named by the hash of its spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from chary.errors import MOST_RUNS, CharyError, InvalidSetting, check_choice, check_integer
from chary.sweeps.deep import DEEP
from chary.sweeps.family import (
    AnyAlgorithm,
    AnyConditions,
    Family,
    check_etas,
    check_label,
    check_name,
    check_text,
    check_unique,
    names_of,
    tupled,
    without_defaults,
)
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.tabular import TABULAR
from chary.texts import shown

FAMILIES = (TABULAR, DEEP)

# The runs that belong to no study.
MAIN = "main"


def family_of(problem: object) -> Family:
    """Return the family of a problem, the tabular one where there is no such problem."""
    return next((family for family in FAMILIES if problem in family.problems), TABULAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which the runs of a study differ from the others.

    Args:
        label: Its name in figures and tables.
        changes: The conditions that it changes.
    """

    label: str
    changes: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_label(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An additional question: some algorithms again, under other conditions.

    Args:
        name: Its name on the command line.
        question: The question that it answers, in a sentence.
        algorithms: The algorithms; where none are named, all of the experiment's.
        variants: The conditions that are compared.
        claims: Whether the report answers the paper's claims under the conditions of its variants as well.
    """

    name: str
    question: str = ""
    algorithms: tuple[AnyAlgorithm, ...] = ()
    variants: tuple[Variant, ...]
    claims: bool = False

    def __post_init__(self) -> None:
        if check_name(self.name) == MAIN:
            raise InvalidSetting(f"'name' of a study must be another than {MAIN!r}, got {self.name!r}.")
        check_text("question", self.question)
        if not isinstance(self.claims, bool):
            raise InvalidSetting(f"'claims' of a study must be true or false, got {shown(self.claims)}.")
        check_unique("variants", [variant.label for variant in self.variants])
        check_unique("algorithms", [algorithm.label for algorithm in self.algorithms], empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """The size to which `--quick` reduces an experiment: the same report from less data.

    Args:
        episodes: The most online episodes of a run, >= 1.
        seeds: The most seeds, >= 1.
        etas: The budgets; if empty, all of the experiment's.
        studies: The studies that are kept, by name.
    """

    episodes: int = 1000
    seeds: int = 2
    etas: tuple[float, ...] = ()
    studies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_integer("quick.episodes", self.episodes, minimum=1)
        check_integer("quick.seeds", self.seeds, minimum=1)
        if self.etas != ():
            check_etas(self.etas)
        if not (isinstance(self.studies, tuple) and all(isinstance(each, str) for each in self.studies)):
            raise InvalidSetting(f"'quick.studies' must be a list of names, got {shown(self.studies)}.")


class Planned(NamedTuple):
    """One run and its place in the experiment; several places may share a run."""

    study: str
    variant: str
    algorithm: str
    eta: float | None
    seed: int
    spec: RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """All runs of a sweep, and the questions that they answer.

    Args:
        name: Its name, also that of its folder.
        title: Its subject, in a sentence.
        conditions: The conditions of all runs, unless a study changes them.
        algorithms: The algorithms that are compared.
        studies: Additional questions.
        quick: The size to which `--quick` reduces it.
    """

    name: str
    title: str = ""
    conditions: AnyConditions
    algorithms: tuple[AnyAlgorithm, ...]
    studies: tuple[Study, ...] = ()
    quick: Quick = field(default_factory=Quick)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_text("title", self.title)
        check_unique("algorithms", [algorithm.label for algorithm in self.algorithms])
        check_unique("studies", [study.name for study in self.studies], empty=True)
        for name in self.quick.studies:
            check_choice("quick.studies", name, [study.name for study in self.studies])
        for each in (*self.algorithms, *(one for study in self.studies for one in study.algorithms)):
            if not isinstance(each, self.family.algorithm):
                raise InvalidSetting(
                    f"algorithm {each.label!r} must be one that plays problem {self.conditions.problem!r}, "
                    f"got a {type(each).__name__}."
                )
        for study in self.studies:
            for variant in study.variants:
                self.conditions_of(variant)
            if study.claims and any({"problem", "horizon", "delta"} & set(v.changes) for v in study.variants):
                raise InvalidSetting(
                    f"study {study.name!r} must leave 'problem', 'horizon' and 'delta' as they are if it has "
                    "claims: they are answered for one problem."
                )

    @property
    def family(self) -> Family:
        """The family of its problem."""
        return family_of(self.conditions.problem)

    def plan(self) -> list[Planned]:
        """Return every run, the main ones first, seed by seed, so that an unfinished sweep is balanced.

        Raises:
            CharyError: if the options of an algorithm do not fit together, or do not fit the problem.
        """
        parts: list[tuple[str, str, AnyConditions, Sequence[Any]]] = [
            (MAIN, "", self.conditions, self.algorithms)
        ]
        for study in self.studies:
            for variant in study.variants:
                conditions = self.conditions_of(variant)
                parts.append((study.name, variant.label, conditions, study.algorithms or self.algorithms))
        runs = sum(_number_of_runs(conditions, chosen) for _, _, conditions, chosen in parts)
        if runs > MOST_RUNS:
            raise InvalidSetting(
                f"an experiment must have at most {MOST_RUNS} runs, got {runs}. Use fewer seeds, budgets or "
                "studies, or several experiments."
            )
        return [planned for part in parts for planned in self._runs(*part)]

    def check(self) -> None:
        """Check every kind of run once, so that mistakes are found before hours of work.

        Raises:
            CharyError: naming the algorithm, if it cannot run.
        """
        kinds: dict[str, Planned] = {}
        for each in self.plan():
            kinds.setdefault(replace(each.spec, seed=0).id, each)
        for each in kinds.values():
            with _naming("algorithm", each.algorithm):
                self.family.check(each.spec)

    def conditions_of(self, variant: Variant) -> AnyConditions:
        """Return the conditions under which the runs of a variant are played."""
        for key in variant.changes:
            check_choice("a variant's key", key, ("label", *names_of(self.family.conditions)))
        with _naming("variant", variant.label):
            return self.conditions.changed(variant.changes)

    def shrunk(self) -> Experiment:
        """Return the experiment that `--quick` runs, all studies included."""
        return self.changed(
            episodes=min(self.quick.episodes, self.conditions.episodes),
            seeds=min(self.quick.seeds, self.conditions.seeds),
            etas=self.quick.etas or None,
        )

    def changed(
        self,
        *,
        episodes: int | None = None,
        seeds: int | None = None,
        etas: Sequence[float] | None = None,
        studies: Sequence[str] | None = None,
        patient: object = None,
    ) -> Experiment:
        """Return the experiment with the changes that the command line can make.

        Studies play at most as many episodes and seeds, and where they name budgets of their own on the same
        problem, those of the given ones.

        Raises:
            CharyError: if a value is out of range, or there is no such study.
        """
        given: dict[str, Any] = {"episodes": episodes, "seeds": seeds, "etas": etas and tuple(etas)}
        if patient is not None:
            if "patient" not in names_of(self.family.conditions):
                raise InvalidSetting(
                    f"'patient' must be left out with problem {self.conditions.problem!r}, got "
                    f"{shown(patient)}."
                )
            given["patient"] = patient
        base = self.conditions.changed({key: value for key, value in given.items() if value is not None})
        kept = self.studies
        if studies is not None:
            known = [study.name for study in self.studies]
            names = {check_choice("studies", name, known) for name in studies}
            kept = tuple(study for study in self.studies if study.name in names)
        limited = tuple(
            replace(study, variants=tuple(_limited(variant, base, given) for variant in study.variants))
            for study in kept
        )
        quick = replace(self.quick, studies=tuple(s.name for s in kept if s.name in self.quick.studies))
        return replace(self, conditions=base, studies=limited, quick=quick)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, as in experiment.json of a sweep's folder."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=dict, allow_nan=False))
        return plain

    @classmethod
    def from_json(cls, values: Any) -> Experiment:
        """Return the experiment that `to_json` described.

        Raises:
            CharyError: if the values do not describe one.
        """
        try:
            family = family_of(values["conditions"]["problem"])
            return cls(
                name=values["name"],
                title=values["title"],
                conditions=family.conditions(**{**family.conditions.earlier, **tupled(values["conditions"])}),
                algorithms=tuple(family.algorithm(**each) for each in values["algorithms"]),
                studies=tuple(
                    Study(
                        name=each["name"],
                        question=each["question"],
                        algorithms=tuple(family.algorithm(**one) for one in each["algorithms"]),
                        variants=tuple(
                            Variant(label=one["label"], changes=tupled(one["changes"]))
                            for one in each["variants"]
                        ),
                        # Folders of earlier versions do not have it.
                        claims=each.get("claims", False),
                    )
                    for each in values["studies"]
                ),
                quick=Quick(**tupled(values["quick"])),
            )
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as problem:
            if isinstance(problem, CharyError):
                raise
            raise InvalidSetting(
                f"an experiment must be complete, got a problem with {problem}."
            ) from problem

    def to_toml(self) -> str:
        """Return the file that `parse_experiment` reads back as this experiment."""
        import tomli_w

        studies = [
            {
                "name": study.name,
                "question": study.question,
                "claims": study.claims or None,
                "algorithms": [algorithm.to_table() for algorithm in study.algorithms],
                "variants": [{"label": variant.label, **variant.changes} for variant in study.variants],
            }
            for study in self.studies
        ]
        table = {
            "name": self.name,
            "title": self.title,
            **without_defaults(self.conditions),
            "quick": asdict(self.quick),
            "algorithms": [algorithm.to_table() for algorithm in self.algorithms],
            "studies": studies,
        }
        return tomli_w.dumps(_toml_values(table))

    def _runs(
        self, study: str, variant: str, conditions: AnyConditions, algorithms: Sequence[Any]
    ) -> Iterator[Planned]:
        for seed in range(conditions.first_seed, conditions.first_seed + conditions.seeds):
            for algorithm in algorithms:
                for eta in conditions.etas if algorithm.budgeted else (None,):
                    with _naming("algorithm", algorithm.label):
                        options = algorithm.resolved(conditions, eta)
                    spec = RunSpec(
                        agent=algorithm.agent, options=options, seed=seed, **conditions.of_every_run()
                    )
                    yield Planned(study, variant, algorithm.label, eta, seed, spec)


def _number_of_runs(conditions: AnyConditions, algorithms: Sequence[Any]) -> int:
    budgets = sum(len(conditions.etas) if each.budgeted else 1 for each in algorithms)
    return conditions.seeds * budgets


@contextmanager
def _naming(what: str, label: str) -> Iterator[None]:
    """Begin the message of an error raised inside with the part of the experiment that it is about."""
    try:
        yield
    except CharyError as problem:
        raise type(problem)(f"{what} {label!r}: {problem}") from problem


def _limited(variant: Variant, base: AnyConditions, given: Mapping[str, Any]) -> Variant:
    """Return a variant with at most the episodes, seeds and budgets of the command line."""
    changes = dict(variant.changes)
    for key in ("episodes", "seeds"):
        if key in changes and given[key] is not None:
            changes[key] = min(changes[key], given[key])
    if "etas" in changes and given["etas"] is not None and "problem" not in changes:
        both = tuple(eta for eta in changes["etas"] if eta in given["etas"])
        changes["etas"] = both or base.etas
    return replace(variant, changes=changes)


def _toml_values(value: Any) -> Any:
    """Return a value as TOML can express it: without None, and with lists and dictionaries alone."""
    if isinstance(value, Mapping):
        return {key: _toml_values(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, (list, tuple)):
        return [_toml_values(entry) for entry in value]
    return value
