"""What a sweep consists of: frozen values, read from TOML, each run named by the hash of what it is."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from chary.errors import CharyError, InvalidSetting, check_choice, check_integer, check_real, check_seed

if TYPE_CHECKING:
    from chary.agents import AgentSpec
    from chary.mdp import FiniteMDP

__all__ = [
    "MAIN",
    "ROLES",
    "SCHEMA",
    "Algorithm",
    "Conditions",
    "Experiment",
    "Planned",
    "Quick",
    "RunSpec",
    "Study",
    "Variant",
    "names_of",
    "tupled",
]

# A change that alters results raises this number, and with it the id of every run.
SCHEMA = 1

# The runs that belong to no study of their own.
MAIN = "main"

# What an algorithm stands for when the report answers the paper's claims; empty for none of these.
ROLES = ("", "unconstrained", "conservative", "mixture", "baseline", "paper", "ours", "chosen", "naive")

# Agents that keep a budget are run once a budget; the others once, and judged at every budget.
BUDGETED = ("chary", "stepmix", "epsmix")
WITHOUT_BUDGET = ("unlimited", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, completely: with the same packages the same spec gives the same bytes, however interrupted.

    Args:
        problem: A problem's name.
        actions: Which actions may be played, or None for the problem's default.
        horizon: Steps of an episode, or None for the problem's default.
        agent: An agent's name.
        options: All options of the agent, its defaults included.
        episodes: Online episodes, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seed: A whole number >= 0.
        coverage: Where bounds are compared with the truth, `played` or `everywhere`.
    """

    problem: str
    actions: str | None = None
    horizon: int | None = None
    agent: str
    options: Mapping[str, Any]
    episodes: int
    warmup: int
    seed: int
    coverage: str = "played"

    @property
    def canonical(self) -> str:
        """The spec as one line of JSON with sorted keys: what is hashed, stored and sent to workers."""
        try:
            return json.dumps(
                {"schema": SCHEMA, **asdict(self)}, sort_keys=True, separators=(",", ":"), allow_nan=False
            )
        except ValueError as problem:
            raise InvalidSetting(
                f"'options' of a run must be finite, got {dict(self.options)!r}. "
                "Use rule 'unlimited' for no budget."
            ) from problem

    @property
    def id(self) -> str:
        """The run's name: the first 16 hexadecimal digits of the SHA-256 of its canonical form."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Return the spec with this canonical form.

        Raises:
            InvalidSetting: if it is none, or of another schema.
        """
        try:
            values = json.loads(text)
            schema = values.pop("schema")
            spec = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise InvalidSetting(f"a run's spec must be its canonical JSON, got {text[:80]!r}.") from problem
        if schema != SCHEMA:
            raise InvalidSetting(
                f"a run's spec must have schema {SCHEMA}, got {schema!r}. Use its own chary."
            )
        return spec

    def make(self) -> tuple[FiniteMDP, AgentSpec]:
        """Return the problem and the agent, checked against each other.

        Raises:
            CharyError: if something does not exist, or does not fit.
        """
        from chary.agents import CharyUCBVI, make_agent
        from chary.envs import make

        mdp = make(
            self.problem,
            actions=self.actions,
            **({} if self.horizon is None else {"horizon": self.horizon}),
        )
        agent = make_agent(self.agent, **self.options)
        if isinstance(agent, CharyUCBVI):
            agent.check_problem(mdp.setting)
        agent.prior_actions(mdp.setting, mdp)
        check_integer("episodes", self.episodes, minimum=1)
        check_integer("warmup", self.warmup, minimum=0)
        check_seed(self.seed)
        return mdp, agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What runs that are compared with each other have in common.

    Args:
        problem: A problem's name, see `chary problems`.
        actions: Which actions may be played, or None for the problem's default.
        horizon: Steps of an episode, or None for the problem's default.
        episodes: Online episodes of every run, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seeds: How many seeds, >= 1.
        first_seed: The first of them, >= 0; the others follow it.
        etas: The budgets, each >= 0, in the problem's own reward units.
        bonus: The family of bounds.
        bonus_scale: The factor on the bonus, > 0, fixed by `chary calibrate` before regret is looked at.
        reward: Whether the reward function is `known` or `estimated`.
        delta: The probability, in (0, 1), with which the bounds of a run may fail.
        prior: `recorded` where the policy that comes with the problem decides ties, else `none`.
        coverage: Where bounds are compared with the truth, `played` or `everywhere`.
    """

    problem: str
    actions: str | None = None
    horizon: int | None = None
    episodes: int
    warmup: int
    seeds: int
    first_seed: int = 0
    etas: tuple[float, ...]
    bonus: str
    bonus_scale: float = 1.0
    reward: str = "estimated"
    delta: float = 0.1
    prior: str = "none"
    coverage: str = "played"

    def __post_init__(self) -> None:
        from chary.presets import BONUSES, NAMES, REWARDS

        check_choice("problem", self.problem, NAMES)
        if self.actions is not None:
            check_choice("actions", self.actions, ("admissible", "all"))
        if self.horizon is not None:
            check_integer("horizon", self.horizon, minimum=1)
        check_integer("episodes", self.episodes, minimum=1)
        check_integer("warmup", self.warmup, minimum=0)
        check_integer("seeds", self.seeds, minimum=1)
        check_integer("first_seed", self.first_seed, minimum=0)
        _check_etas(self.etas)
        check_choice("bonus", self.bonus, BONUSES)
        check_real("bonus_scale", self.bonus_scale, low=0.0, open_low=True, open_high=True)
        check_choice("reward", self.reward, REWARDS)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        check_choice("prior", self.prior, ("none", "recorded"))
        check_choice("coverage", self.coverage, ("played", "everywhere"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One line of the figures: an agent with options of its own.

    Args:
        label: What figures and tables call it.
        agent: An agent's name, see `chary agents`.
        role: What it stands for when the paper's claims are answered, or nothing.
        step_bound_share: With rule capped: the step bound as a share of the budget, in (0, 1].
        options: Options of the agent beyond those that all runs share.
    """

    label: str
    agent: str
    role: str = ""
    step_bound_share: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from chary.agents import AGENTS

        _check_label(self.label)
        spec = AGENTS[check_choice("agent", self.agent, AGENTS)]
        check_choice("role", self.role, ROLES)
        if self.step_bound_share is not None:
            check_real("step_bound_share", self.step_bound_share, low=0.0, high=1.0, open_low=True)
        known = [each.name for each in fields(spec) if each.name != "eta"]
        for option in self.options:
            check_choice(f"option of {self.agent}", option, known)

    @property
    def budgeted(self) -> bool:
        """Whether it keeps a budget, so that it is run once for each."""
        return self.agent in BUDGETED and self.options.get("rule") not in WITHOUT_BUDGET

    def resolved(self, conditions: Conditions, eta: float | None) -> dict[str, Any]:
        """Return all options of the agent at one budget.

        Raises:
            CharyError: if they do not fit together.
        """
        from chary.agents import make_agent

        options: dict[str, Any] = {
            "eta": eta,
            "bonus": conditions.bonus,
            "bonus_scale": conditions.bonus_scale,
            "reward": conditions.reward,
            "delta": conditions.delta,
            "prior": None if conditions.prior == "none" else conditions.prior,
            **self.options,
        }
        if self.step_bound_share is not None and eta is not None:
            options["step_bound"] = self.step_bound_share * eta
        agent = make_agent(self.agent, **options)
        return {each.name: getattr(agent, each.name) for each in fields(agent)}

    def to_table(self) -> dict[str, Any]:
        """Return it as a TOML table."""
        return _without_defaults(self, {"options"}) | dict(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which the runs of a study differ from the others.

    Args:
        label: What figures and tables call it.
        changes: Conditions that it changes.
    """

    label: str
    changes: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check_label(self.label)
        for key in self.changes:
            check_choice("a variant's key", key, ("label", *names_of(Conditions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question beside the main one: some algorithms again, under other conditions.

    Args:
        name: What the command line calls it.
        question: What it answers, in a sentence.
        algorithms: Who plays; all of the experiment's algorithms where none are named.
        variants: The conditions that are compared.
    """

    name: str
    question: str = ""
    algorithms: tuple[Algorithm, ...] = ()
    variants: tuple[Variant, ...]

    def __post_init__(self) -> None:
        if _check_name(self.name) == MAIN:
            raise InvalidSetting(f"'name' of a study must be another than {MAIN!r}, got {self.name!r}.")
        _check_text("question", self.question)
        _check_unique("variants", [variant.label for variant in self.variants])
        _check_unique("algorithms", [algorithm.label for algorithm in self.algorithms], empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """What `--quick` shrinks an experiment to: the same report from less.

    Args:
        episodes: The most online episodes of a run, >= 1.
        seeds: The most seeds, >= 1.
        etas: The budgets; none stands for all of the experiment's.
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
            _check_etas(self.etas)
        if not (isinstance(self.studies, tuple) and all(isinstance(each, str) for each in self.studies)):
            raise InvalidSetting(f"'quick.studies' must be a list of names, got {self.studies!r}.")


class Planned(NamedTuple):
    """One run and the place it has in the experiment; several places may share a run."""

    study: str
    variant: str
    algorithm: str
    eta: float | None
    seed: int
    spec: RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """All runs of a sweep, and what is to be learnt from them.

    Args:
        name: What it is called.
        title: What it is about, in a sentence.
        conditions: What all runs have in common, unless a study changes it.
        algorithms: Who plays.
        studies: Questions beside the main one.
        quick: What `--quick` shrinks it to.
    """

    name: str
    title: str = ""
    conditions: Conditions
    algorithms: tuple[Algorithm, ...]
    studies: tuple[Study, ...] = ()
    quick: Quick = field(default_factory=Quick)

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_text("title", self.title)
        _check_unique("algorithms", [algorithm.label for algorithm in self.algorithms])
        _check_unique("studies", [study.name for study in self.studies], empty=True)
        for name in self.quick.studies:
            check_choice("quick.studies", name, [study.name for study in self.studies])
        for study in self.studies:
            for variant in study.variants:
                self.conditions_of(variant)

    def plan(self) -> list[Planned]:
        """Return every run, the main ones first, seed by seed, so that an unfinished sweep is balanced.

        Raises:
            CharyError: if the options of an algorithm do not fit together, or do not fit the problem.
        """
        planned = list(self._runs(MAIN, "", self.conditions, self.algorithms))
        for study in self.studies:
            for variant in study.variants:
                conditions = self.conditions_of(variant)
                chosen = study.algorithms or self.algorithms
                planned += self._runs(study.name, variant.label, conditions, chosen)
        return planned

    def check(self) -> None:
        """Make every kind of run once, so that nothing is found out an hour later.

        Raises:
            CharyError: naming the algorithm, if it cannot run.
        """
        kinds: dict[str, Planned] = {}
        for each in self.plan():
            kinds.setdefault(replace(each.spec, seed=0).id, each)
        for each in kinds.values():
            try:
                each.spec.make()
            except CharyError as problem:
                raise type(problem)(f"algorithm {each.algorithm!r}: {problem}") from problem

    def conditions_of(self, variant: Variant) -> Conditions:
        """Return the conditions under which the runs of a variant are played."""
        try:
            return replace(self.conditions, **variant.changes)
        except CharyError as problem:
            raise type(problem)(f"variant {variant.label!r}: {problem}") from problem

    def shrunk(self) -> Experiment:
        """Return what `--quick` runs, all studies included."""
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
    ) -> Experiment:
        """Return the experiment as the command line changes it.

        Studies play at most as many episodes and seeds, and where they name budgets of their own on the same
        problem, those of the given ones.

        Raises:
            CharyError: if a value is out of range, or there is no such study.
        """
        given: dict[str, Any] = {"episodes": episodes, "seeds": seeds, "etas": etas and tuple(etas)}
        base = replace(self.conditions, **{key: value for key, value in given.items() if value is not None})
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
        """Return it as plain values: what a sweep's folder says it holds."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=dict, allow_nan=False))
        return plain

    @classmethod
    def from_json(cls, values: Any) -> Experiment:
        """Return the experiment that `to_json` described.

        Raises:
            CharyError: if it is none.
        """
        try:
            return cls(
                name=values["name"],
                title=values["title"],
                conditions=Conditions(**tupled(values["conditions"])),
                algorithms=tuple(Algorithm(**each) for each in values["algorithms"]),
                studies=tuple(
                    Study(
                        name=each["name"],
                        question=each["question"],
                        algorithms=tuple(Algorithm(**one) for one in each["algorithms"]),
                        variants=tuple(
                            Variant(label=one["label"], changes=tupled(one["changes"]))
                            for one in each["variants"]
                        ),
                    )
                    for each in values["studies"]
                ),
                quick=Quick(**tupled(values["quick"])),
            )
        except (KeyError, TypeError) as problem:
            raise InvalidSetting(
                f"an experiment must be complete, got a problem with {problem}."
            ) from problem

    def to_toml(self) -> str:
        """Return the file that `parse_experiment` reads back as this experiment."""
        lines = _toml_lines({"name": self.name, "title": self.title})
        lines += _toml_lines(_without_defaults(self.conditions))
        lines += ["", "[quick]", *_toml_lines(asdict(self.quick))]
        for algorithm in self.algorithms:
            lines += ["", "[[algorithms]]", *_toml_lines(algorithm.to_table())]
        for study in self.studies:
            lines += ["", "[[studies]]", *_toml_lines({"name": study.name, "question": study.question})]
            for algorithm in study.algorithms:
                lines += ["", "[[studies.algorithms]]", *_toml_lines(algorithm.to_table())]
            for variant in study.variants:
                changes = {"label": variant.label, **variant.changes}
                lines += ["", "[[studies.variants]]", *_toml_lines(changes)]
        return "\n".join(lines) + "\n"

    def _runs(
        self, study: str, variant: str, conditions: Conditions, algorithms: Sequence[Algorithm]
    ) -> Iterator[Planned]:
        for seed in range(conditions.first_seed, conditions.first_seed + conditions.seeds):
            for algorithm in algorithms:
                for eta in conditions.etas if algorithm.budgeted else (None,):
                    try:
                        options = algorithm.resolved(conditions, eta)
                    except CharyError as problem:
                        raise type(problem)(f"algorithm {algorithm.label!r}: {problem}") from problem
                    spec = RunSpec(
                        problem=conditions.problem,
                        actions=conditions.actions,
                        horizon=conditions.horizon,
                        agent=algorithm.agent,
                        options=options,
                        episodes=conditions.episodes,
                        warmup=conditions.warmup,
                        seed=seed,
                        coverage=conditions.coverage,
                    )
                    yield Planned(study, variant, algorithm.label, eta, seed, spec)


def names_of(cls: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(each.name for each in fields(cls))


def tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values with tuples, which are frozen, in place of the lists that files have."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _without_defaults(value: Any, left_out: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    return {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.name not in left_out and getattr(value, each.name) != each.default
    }


def _limited(variant: Variant, base: Conditions, given: Mapping[str, Any]) -> Variant:
    """Return a variant that asks for no more than the command line does."""
    changes = dict(variant.changes)
    for key in ("episodes", "seeds"):
        if key in changes and given[key] is not None:
            changes[key] = min(changes[key], given[key])
    if "etas" in changes and given["etas"] is not None and "problem" not in changes:
        both = tuple(eta for eta in changes["etas"] if eta in given["etas"])
        changes["etas"] = both or base.etas
    return replace(variant, changes=changes)


def _check_name(name: object) -> str:
    """Return a name that may be that of a folder, and of nothing outside it."""
    if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)):
        raise InvalidSetting(f"'name' must be made of letters, digits, '-', '_' and '.', got {name!r}.")
    return name


def _check_label(label: object) -> None:
    if not (isinstance(label, str) and label.strip()):
        raise InvalidSetting(f"'label' must be a text, got {label!r}.")


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidSetting(f"{what!r} must be a text, got {text!r}.")


def _check_etas(etas: object) -> None:
    if not (isinstance(etas, tuple) and etas):
        raise InvalidSetting(f"'etas' must be a list of budgets, got {etas!r}.")
    for eta in etas:
        if not math.isfinite(check_real("etas", eta, low=0.0)):
            raise InvalidSetting(f"'etas' must be finite, got {eta!r}. Use rule 'unlimited' for no budget.")
    _check_unique("etas", etas)


def _check_unique(name: str, values: Sequence[object], *, empty: bool = False) -> None:
    if not (values or empty):
        raise InvalidSetting(f"{name!r} must hold at least one, got none.")
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise InvalidSetting(f"{name!r} must differ from each other, got {twice[0]} twice.")


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return `key = value` lines; JSON writes texts, numbers, lists and booleans as TOML reads them."""
    given = {key: value for key, value in values.items() if value is not None}
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()]
