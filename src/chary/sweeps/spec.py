"""What a sweep consists of: frozen values, read from TOML, each run named by the hash of what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from chary.errors import CharyError, InvalidSetting, check_choice, check_integer, check_real, check_seed
from chary.sweeps._checks import (
    ROLES,
    WITHOUT_BUDGET,
    check_etas,
    check_label,
    check_name,
    check_text,
    check_unique,
    names_of,
    tupled,
    without_defaults,
)
from chary.sweeps.hiv import (
    DEEP_PROBLEMS,
    DeepAlgorithm,
    DeepConditions,
    deep_options,
    deep_simulation,
    one_patient,
)

if TYPE_CHECKING:
    from chary.agents import AgentSpec
    from chary.mdp import FiniteMDP

__all__ = [
    "MAIN",
    "ROLES",
    "SCHEMA",
    "Algorithm",
    "AnyAlgorithm",
    "AnyConditions",
    "Conditions",
    "DeepAlgorithm",
    "DeepConditions",
    "Experiment",
    "Family",
    "Planned",
    "Quick",
    "RunSpec",
    "Study",
    "Variant",
    "family_of",
    "names_of",
    "tupled",
]

# A change that alters results raises this number, and with it the id of every run.
SCHEMA = 1

# The runs that belong to no study of their own.
MAIN = "main"

# Agents that keep a budget are run once a budget; the others once, and judged at every budget.
BUDGETED = ("chary", "stepmix", "epsmix")


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

    def check(self) -> None:
        """Make sure that the run can be played.

        Raises:
            CharyError: if something does not exist, or does not fit.
        """
        family_of(self.problem).check(self)

    def make(self) -> tuple[FiniteMDP, AgentSpec]:
        """Return the problem and the agent of a tabular run, checked against each other.

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
        check_etas(self.etas)
        check_choice("bonus", self.bonus, BONUSES)
        check_real("bonus_scale", self.bonus_scale, low=0.0, open_low=True, open_high=True)
        check_choice("reward", self.reward, REWARDS)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        check_choice("prior", self.prior, ("none", "recorded"))
        check_choice("coverage", self.coverage, ("played", "everywhere"))

    def changed(self, changes: Mapping[str, Any]) -> Conditions:
        """Return them with some changed."""
        return replace(self, **changes)

    def of_every_run(self) -> dict[str, Any]:
        """Return the fields of a RunSpec that all runs share."""
        names = ("problem", "actions", "horizon", "episodes", "warmup", "coverage")
        return {name: getattr(self, name) for name in names}


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
        check_label(self.label)
        check_choice("agent", self.agent, self.agents())
        check_choice("role", self.role, ROLES)
        if self.step_bound_share is not None:
            check_real("step_bound_share", self.step_bound_share, low=0.0, high=1.0, open_low=True)
        for option in self.options:
            check_choice(f"option of {self.agent}", option, self.options_of(self.agent))

    @staticmethod
    def agents() -> tuple[str, ...]:
        """Return the agents that can play."""
        from chary.agents import AGENTS

        return tuple(AGENTS)

    @staticmethod
    def options_of(agent: str) -> tuple[str, ...]:
        """Return the options that an agent may be given."""
        from chary.agents import AGENTS

        return tuple(name for name in names_of(AGENTS[agent]) if name != "eta")

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
        return without_defaults(self, {"options"}) | dict(self.options)


AnyConditions: TypeAlias = Conditions | DeepConditions
AnyAlgorithm: TypeAlias = Algorithm | DeepAlgorithm


class Family(NamedTuple):
    """What runs of a kind of problem are described by, checked with and played by.

    `simulation` returns an object with `start`, `restore`, `state`, `advance`, `done` and `result`, `arrays`
    takes that result, and `compiled` is equal for runs that share what is compiled for them. `packages` are
    those that results may depend on, and `container` is what checkpoints lie in, see `chary.storage.sealed`.
    """

    deep: bool
    conditions: type[Conditions] | type[DeepConditions]
    algorithm: type[Algorithm] | type[DeepAlgorithm]
    check: Callable[[RunSpec], None]
    simulation: Callable[[RunSpec], Any]
    arrays: Callable[[Any], dict[str, Any]]
    compiled: Callable[[RunSpec], str]
    packages: tuple[str, ...]
    container: str


def family_of(problem: object) -> Family:
    """Return how runs of a problem are described and played; this is the one place that tells them apart."""
    return _DEEP if isinstance(problem, str) and problem in DEEP_PROBLEMS else _TABULAR


def _check_tabular(spec: RunSpec) -> None:
    spec.make()


def _tabular_simulation(spec: RunSpec) -> Any:
    from chary.simulation import Simulation

    mdp, agent = spec.make()
    return Simulation(
        mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed, coverage=spec.coverage
    )


def _tabular_arrays(run: Any) -> dict[str, Any]:
    from chary.simulation.run import run_arrays

    return run_arrays(run)


def _check_deep(spec: RunSpec) -> None:
    deep_options(spec.options, agent=spec.agent, episodes=spec.episodes, warmup=spec.warmup)
    check_seed(spec.seed)


def _deep_arrays(run: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = run.arrays()
    return arrays


def _compiled_deep(spec: RunSpec) -> str:
    """Return all that compiled functions depend on: seeds and budgets are their arguments."""
    kept = {name: value for name, value in spec.options.items() if name not in ("eta", "step_bound")}
    return json.dumps([spec.problem, kept], sort_keys=True)


_TABULAR = Family(
    False,
    Conditions,
    Algorithm,
    _check_tabular,
    _tabular_simulation,
    _tabular_arrays,
    lambda spec: "",
    ("numpy", "numba", "scipy", "llvmlite"),
    "npz",
)
_DEEP = Family(
    True,
    DeepConditions,
    DeepAlgorithm,
    _check_deep,
    deep_simulation,
    _deep_arrays,
    _compiled_deep,
    ("numpy", "numba", "llvmlite", "jax", "jaxlib", "optax"),
    "safetensors",
)


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
        check_label(self.label)


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
    algorithms: tuple[AnyAlgorithm, ...] = ()
    variants: tuple[Variant, ...]

    def __post_init__(self) -> None:
        if check_name(self.name) == MAIN:
            raise InvalidSetting(f"'name' of a study must be another than {MAIN!r}, got {self.name!r}.")
        check_text("question", self.question)
        check_unique("variants", [variant.label for variant in self.variants])
        check_unique("algorithms", [algorithm.label for algorithm in self.algorithms], empty=True)


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
            check_etas(self.etas)
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

    @property
    def family(self) -> Family:
        """How its runs are described and played."""
        return family_of(self.conditions.problem)

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
                each.spec.check()
            except CharyError as problem:
                raise type(problem)(f"algorithm {each.algorithm!r}: {problem}") from problem

    def conditions_of(self, variant: Variant) -> AnyConditions:
        """Return the conditions under which the runs of a variant are played."""
        for key in variant.changes:
            check_choice("a variant's key", key, ("label", *names_of(self.family.conditions)))
        try:
            return self.conditions.changed(variant.changes)
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
        patient: object = None,
    ) -> Experiment:
        """Return the experiment as the command line changes it.

        Studies play at most as many episodes and seeds, and where they name budgets of their own on the same
        problem, those of the given ones.

        Raises:
            CharyError: if a value is out of range, or there is no such study.
        """
        given: dict[str, Any] = {"episodes": episodes, "seeds": seeds, "etas": etas and tuple(etas)}
        if patient is not None:
            if not self.family.deep:
                raise InvalidSetting(
                    f"'patient' must be left out with problem {self.conditions.problem!r}, got {patient!r}."
                )
            given["patient"] = one_patient(patient)
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
            family = family_of(values["conditions"]["problem"])
            return cls(
                name=values["name"],
                title=values["title"],
                conditions=family.conditions(**tupled(values["conditions"])),
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
        lines += _toml_lines(without_defaults(self.conditions))
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
        self, study: str, variant: str, conditions: AnyConditions, algorithms: Sequence[Any]
    ) -> Iterator[Planned]:
        for seed in range(conditions.first_seed, conditions.first_seed + conditions.seeds):
            for algorithm in algorithms:
                for eta in conditions.etas if algorithm.budgeted else (None,):
                    try:
                        options = algorithm.resolved(conditions, eta)
                    except CharyError as problem:
                        raise type(problem)(f"algorithm {algorithm.label!r}: {problem}") from problem
                    spec = RunSpec(
                        agent=algorithm.agent, options=options, seed=seed, **conditions.of_every_run()
                    )
                    yield Planned(study, variant, algorithm.label, eta, seed, spec)


def _limited(variant: Variant, base: AnyConditions, given: Mapping[str, Any]) -> Variant:
    """Return a variant that asks for no more than the command line does."""
    changes = dict(variant.changes)
    for key in ("episodes", "seeds"):
        if key in changes and given[key] is not None:
            changes[key] = min(changes[key], given[key])
    if "etas" in changes and given["etas"] is not None and "problem" not in changes:
        both = tuple(eta for eta in changes["etas"] if eta in given["etas"])
        changes["etas"] = both or base.etas
    return replace(variant, changes=changes)


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return `key = value` lines."""
    given = {key: value for key, value in values.items() if value is not None}
    return [f"{key} = {_toml_value(value)}" for key, value in given.items()]


def _toml_value(value: Any) -> str:
    """Return a value as TOML reads it: JSON writes texts, numbers, lists and booleans alike."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_toml_lines(value))} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
