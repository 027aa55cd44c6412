"""The problems of the deep learner as a family: conditions, algorithms, and the way a run is played.

JAX is imported when a run is made, and not before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from chary.deep.options import AGENTS, LEARNERS, SHIELDED, DeepOptions
from chary.errors import InvalidSetting, check_choice, check_integer, check_real, check_seed
from chary.sweeps.deep_problems import DEEP_PROBLEMS, OWN_OPTIONS, DeepProblem
from chary.sweeps.family import AnyAlgorithm, AnyConditions, Family, names_of
from chary.sweeps.run_spec import RunSpec
from chary.texts import shown

# Options that are left out where three networks learn: runs from before there were others keep their ids.
LEARNERS_OWN = ("learner", "ensemble", "linear")
# Options of the learner that conditions and budgets set, and tables of options cannot.
DECIDED = ("agent", "episodes", "discount", "eta", "warm_up")
LEARNER = tuple(name for name in names_of(DeepOptions) if name not in DECIDED)
FLOATS = tuple(each.name for each in fields(DeepOptions) if each.type in ("float", "float | None"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConditions(AnyConditions):
    """The conditions that compared runs of the deep learner share.

    Args:
        problem: `hiv`, `cartpole`, `glucose` or `plane`.
        patient: Of hiv alone: `base`, or 0 to 5.
        spread: How far starts vary, in the problem's own sense; 0 gives every episode the same start.
        episodes: Online episodes of every run, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seeds: How many seeds, >= 1.
        first_seed: The first of them, >= 0; the others follow it.
        etas: The budgets, each >= 0, in the rewards that the learner receives.
        discount: gamma, in [0, 1].
        audit_every: One in this many episodes is compared with the truth, >= 1.
        learner: Options of the learner that all algorithms share, see `chary.deep.DeepOptions`.
        baseline: How the baseline is learnt that plays, prices and judges, as `DeepOptions.learner`; the
            agent `paper` has its own way.
    """

    # Experiments from before there was a choice.
    earlier: ClassVar[Mapping[str, Any]] = {"baseline": "networks"}

    problem: str
    patient: str | int | None = None
    spread: float | None = None
    episodes: int
    warmup: int
    seeds: int
    first_seed: int = 0
    etas: tuple[float, ...]
    discount: float = 0.99
    audit_every: int = 10
    learner: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = "ensemble"

    def __post_init__(self) -> None:
        check_choice("problem", self.problem, DEEP_PROBLEMS)
        given = {name: getattr(self, name) for name in OWN_OPTIONS}
        for name, value in self.about.own(given).items():
            object.__setattr__(self, name, value)
        self.check_shared()
        # 40 and 40.0 are one budget and must give one run id.
        object.__setattr__(self, "etas", tuple(float(eta) for eta in self.etas))
        check_real("discount", self.discount, low=0.0, high=1.0)
        if check_integer("audit_every", self.audit_every, minimum=1) > self.episodes:
            raise InvalidSetting(
                f"'audit_every' must be at most 'episodes', {self.episodes}, got {shown(self.audit_every)}. "
                "Play more episodes, or audit more of them."
            )
        if not isinstance(self.learner, Mapping):
            raise InvalidSetting(f"'learner' must be a table of options, got {shown(self.learner)}.")
        check_choice("baseline", self.baseline, LEARNERS)
        for option in self.learner:
            check_choice("an option of 'learner'", option, LEARNER)

    @property
    def about(self) -> DeepProblem:
        """The problem as a value."""
        return DEEP_PROBLEMS[self.problem]

    @property
    def own(self) -> dict[str, Any]:
        """The options of the problem itself, by name."""
        return {name: getattr(self, name) for name in self.about.defaults}

    def changed(self, changes: Mapping[str, Any]) -> DeepConditions:
        """Return these conditions with some changed; options of the learner that are not named stay."""
        given = dict(changes)
        if given.get("problem", self.problem) != self.problem:
            raise InvalidSetting(
                f"'problem' must be {self.problem!r} in all variants of the experiment, got "
                f"{shown(given['problem'])}. Make an experiment of its own."
            )
        if isinstance(given.get("learner"), Mapping):
            given["learner"] = merged(self.learner, given["learner"])
        return replace(self, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepAlgorithm(AnyAlgorithm):
    """One line of the figures: a deep agent and its options, see `AnyAlgorithm`."""

    budgeted_agents = SHIELDED

    @staticmethod
    def agents() -> tuple[str, ...]:
        """Return the agents of `chary.deep`."""
        return AGENTS

    @staticmethod
    def options_of(agent: str) -> tuple[str, ...]:
        """Return the options that an agent may be given."""
        return LEARNER

    def resolved(self, conditions: DeepConditions, eta: float | None) -> dict[str, Any]:
        """Return all options of the learner at one budget, those of the problem, and the share of audits.

        Raises:
            CharyError: if they do not fit together.
        """
        options: dict[str, Any] = {
            "learner": None if self.agent == "paper" else conditions.baseline,
            **merged(conditions.learner, self.options),
            "agent": self.agent,
            "episodes": conditions.episodes,
            "discount": conditions.discount,
            "warm_up": conditions.warmup,
        }
        if eta is not None:
            options["eta"] = eta
        options = self.with_step_bound(options, eta)
        # 1 and 1.0 are one number and must give one run id.
        for name in FLOATS:
            if isinstance(options.get(name), int) and not isinstance(options[name], bool):
                options[name] = float(options[name])
        return {
            **resolved_options(DeepOptions(**options)),
            **conditions.about.stored(conditions.own),
            "audit_every": conditions.audit_every,
        }


def merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options over shared ones; of the ensemble's those that are not named stay.

    Example:
        >>> merged({"beta": 1.0, "ensemble": {"z": 3.0}}, {"ensemble": {"members": 5}})
        {'beta': 1.0, 'ensemble': {'z': 3.0, 'members': 5}}
    """
    options = {**shared, **own}
    tables = [each["ensemble"] for each in (shared, own) if isinstance(each.get("ensemble"), Mapping)]
    if len(tables) == 2:
        options["ensemble"] = {**tables[0], **tables[1]}
    return options


def resolved_options(learner: DeepOptions) -> dict[str, Any]:
    """Return all options of a learner as plain values, what depends on the agent included."""
    options = {name: getattr(learner, name) for name in names_of(DeepOptions)}
    options["chains"] = learner.chained
    if learner.learns_by == "networks":
        return {name: value for name, value in options.items() if name not in LEARNERS_OWN}
    if learner.linear is not None:
        options["linear"] = asdict(learner.linear)
    else:
        del options["linear"]
    ensemble = asdict(learner.ensemble)
    # They change nothing of a run.
    del ensemble["constants"]
    return {**options, "learner": learner.learns_by, "ensemble": ensemble}


def own_options(spec: RunSpec) -> dict[str, Any]:
    """Return the options of the problem itself that a run's options describe.

    Raises:
        CharyError: if one is missing or out of range.
    """
    problem = DEEP_PROBLEMS[check_choice("problem", spec.problem, DEEP_PROBLEMS)]
    for name in problem.defaults:
        if name not in spec.options and name not in problem.unnamed:
            raise InvalidSetting(f"{name!r} must be among the options of a deep run. Add it.")
    return problem.own({name: spec.options[name] for name in problem.defaults if name in spec.options})


def learner_options(spec: RunSpec) -> DeepOptions:
    """Return the learner that a run's options describe.

    Raises:
        CharyError: if something is missing, out of range or contradicts the run's other fields.
    """
    own, options = own_options(spec), spec.options
    needed = (*names_of(DeepOptions), "audit_every")
    for name in options:
        check_choice("option of a deep run", name, (*needed, *own))
    missing = [name for name in needed if name not in options and name not in LEARNERS_OWN]
    if missing:
        raise InvalidSetting(f"{missing[0]!r} must be among the options of a deep run. Add it.")
    given = {name: options[name] for name in names_of(DeepOptions) if name in options}
    learner = DeepOptions(**{"learner": "networks", **given})
    stated = {"agent": spec.agent, "episodes": spec.episodes, "warm_up": spec.warmup}
    for name, value in stated.items():
        if getattr(learner, name) != value:
            raise InvalidSetting(
                f"{name!r} among the options of a deep run must be {value!r} as in the run's spec, "
                f"got {shown(getattr(learner, name))}."
            )
    largest = len(DEEP_PROBLEMS[spec.problem].actions) - 1
    if learner.action > largest:
        raise InvalidSetting(f"'action' must be at most {largest}, got {shown(learner.action)}.")
    check_integer("audit_every", options["audit_every"], minimum=1)
    check_seed(spec.seed)
    return learner


def _simulation(spec: RunSpec) -> Any:
    from chary.deep.simulation import DeepSimulation

    environment = DEEP_PROBLEMS[spec.problem].environment(own_options(spec))
    learner, audit_every = learner_options(spec), spec.options["audit_every"]
    return DeepSimulation(environment, learner, audit_every=audit_every, seed=spec.seed)


def _compiled(spec: RunSpec) -> str:
    """Return all that compiled functions depend on: seeds and budgets are their arguments."""
    kept = {name: value for name, value in spec.options.items() if name not in ("eta", "step_bound")}
    return json.dumps([spec.problem, kept], sort_keys=True)


def _lanes(simulations: Sequence[Any]) -> Any:
    from chary.deep.simulation.lanes import DeepLanes

    return DeepLanes(simulations)


DEEP = Family(
    name="deep",
    problems=tuple(DEEP_PROBLEMS),
    conditions=DeepConditions,
    algorithm=DeepAlgorithm,
    check=learner_options,
    simulation=_simulation,
    arrays=lambda run: run.arrays(),
    sources=lambda spec: {},
    compiled=_compiled,
    # What JAX compiles stays in the process.
    compiles_to_disk=False,
    lanes=_lanes,
    packages=("numpy", "numba", "llvmlite", "jax", "jaxlib", "optax"),
    container="safetensors",
    needs=tuple((package, "The deep learner", "deep") for package in ("jax", "optax")),
)
