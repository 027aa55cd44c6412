"""Runs of the deep learner: what they have in common, who plays, and what plays them.

JAX is imported when a run is made, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from chary.deep.options import AGENTS, DeepOptions
from chary.envs.hiv.parameters import EFFICACIES, PATIENTS
from chary.errors import (
    InvalidSetting,
    UnknownName,
    check_choice,
    check_integer,
    check_real,
    check_seed,
)
from chary.sweeps._checks import (
    ROLES,
    WITHOUT_BUDGET,
    check_etas,
    check_label,
    names_of,
    without_defaults,
)

__all__ = [
    "DEEP_PROBLEMS",
    "DeepAlgorithm",
    "DeepConditions",
    "deep_options",
    "deep_simulation",
    "one_patient",
]

DEEP_PROBLEMS = ("hiv",)

# What a run's options have beside those of DeepOptions.
OWN_OPTIONS = ("patient", "audit_every")
# Options of the learner that conditions and budgets decide, and no table of options.
DECIDED = ("agent", "episodes", "discount", "eta", "warm_up")
LEARNER = tuple(name for name in names_of(DeepOptions) if name not in DECIDED)
FLOATS = tuple(each.name for each in fields(DeepOptions) if each.type in ("float", "float | None"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConditions:
    """What runs of the deep learner that are compared with each other have in common.

    Args:
        problem: `hiv`.
        patient: `base`, or 0 to 5.
        episodes: Online episodes of every run, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seeds: How many seeds, >= 1.
        first_seed: The first of them, >= 0; the others follow it.
        etas: The budgets, each >= 0, in standardised reward units.
        discount: gamma, in [0, 1].
        audit_every: One episode in so many is compared with the truth, >= 1.
        learner: Options of the learner that all algorithms share, see `chary.deep.DeepOptions`.
    """

    problem: str
    patient: str | int = 5
    episodes: int
    warmup: int
    seeds: int
    first_seed: int = 0
    etas: tuple[float, ...]
    discount: float = 0.99
    audit_every: int = 10
    learner: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("problem", self.problem, DEEP_PROBLEMS)
        object.__setattr__(self, "patient", one_patient(self.patient))
        check_integer("episodes", self.episodes, minimum=1)
        check_integer("warmup", self.warmup, minimum=0)
        check_integer("seeds", self.seeds, minimum=1)
        check_integer("first_seed", self.first_seed, minimum=0)
        check_etas(self.etas)
        # 40 and 40.0 are one budget: they must not name two runs.
        object.__setattr__(self, "etas", tuple(float(eta) for eta in self.etas))
        check_real("discount", self.discount, low=0.0, high=1.0)
        if check_integer("audit_every", self.audit_every, minimum=1) > self.episodes:
            raise InvalidSetting(
                f"'audit_every' must be at most 'episodes', {self.episodes}, got {self.audit_every!r}. "
                "Play more episodes, or judge more of them."
            )
        if not isinstance(self.learner, Mapping):
            raise InvalidSetting(f"'learner' must be a table of options, got {self.learner!r}.")
        for option in self.learner:
            check_choice("an option of 'learner'", option, LEARNER)

    def changed(self, changes: Mapping[str, Any]) -> DeepConditions:
        """Return them with some changed; options of the learner that are not named stay."""
        given = dict(changes)
        if isinstance(given.get("learner"), Mapping):
            given["learner"] = {**self.learner, **given["learner"]}
        return replace(self, **given)

    def of_every_run(self) -> dict[str, Any]:
        """Return the fields of a RunSpec that all runs share."""
        return {"problem": self.problem, "episodes": self.episodes, "warmup": self.warmup}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepAlgorithm:
    """One line of the figures: a deep agent with options of its own.

    Args:
        label: What figures and tables call it.
        agent: One of `chary.deep.AGENTS`.
        role: What it stands for when the paper's claims are answered, or nothing.
        step_bound_share: With rule capped: the step bound as a share of the budget, in (0, 1].
        options: Options of `chary.deep.DeepOptions` beyond those that all runs share.
    """

    label: str
    agent: str
    role: str = ""
    step_bound_share: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_label(self.label)
        check_choice("agent", self.agent, AGENTS)
        check_choice("role", self.role, ROLES)
        if self.step_bound_share is not None:
            check_real("step_bound_share", self.step_bound_share, low=0.0, high=1.0, open_low=True)
        for option in self.options:
            check_choice(f"option of {self.agent}", option, LEARNER)

    @staticmethod
    def agents() -> tuple[str, ...]:
        """Return the agents that can play."""
        return AGENTS

    @staticmethod
    def options_of(agent: str) -> tuple[str, ...]:
        """Return the options that an agent may be given."""
        return LEARNER

    @property
    def budgeted(self) -> bool:
        """Whether it keeps a budget, so that it is run once for each."""
        return self.agent == "chary" and self.options.get("rule") not in WITHOUT_BUDGET

    def resolved(self, conditions: DeepConditions, eta: float | None) -> dict[str, Any]:
        """Return all options of the learner at one budget, and how it is judged.

        Raises:
            CharyError: if they do not fit together.
        """
        options: dict[str, Any] = {
            **conditions.learner,
            **self.options,
            "agent": self.agent,
            "episodes": conditions.episodes,
            "discount": conditions.discount,
            "warm_up": conditions.warmup,
        }
        if eta is not None:
            options["eta"] = eta
        if self.step_bound_share is not None and eta is not None:
            options["step_bound"] = self.step_bound_share * eta
        # 1 and 1.0 are one number: they must not name two runs.
        for name in FLOATS:
            if isinstance(options.get(name), int) and not isinstance(options[name], bool):
                options[name] = float(options[name])
        learner = DeepOptions(**options)
        return {
            **{name: getattr(learner, name) for name in names_of(DeepOptions)},
            "patient": conditions.patient,
            "audit_every": conditions.audit_every,
        }

    def to_table(self) -> dict[str, Any]:
        """Return it as a TOML table."""
        return without_defaults(self, {"options"}) | dict(self.options)


def one_patient(name: object) -> str | int:
    """Return a patient's name, a number where it is one.

    Raises:
        UnknownName: if there is no such patient.

    Example:
        >>> one_patient("5"), one_patient("base")
        (5, 'base')
    """
    known: str | int | None = None
    if isinstance(name, (str, int)) and not isinstance(name, bool):
        known = next((each for each in PATIENTS if str(each) == str(name)), None)
    if known is None:
        raise UnknownName(
            f"'patient' must be 'base' or a whole number in 0..{len(PATIENTS) - 2}, got {name!r}."
        )
    return known


def deep_options(options: Mapping[str, Any], *, agent: str, episodes: int, warmup: int) -> DeepOptions:
    """Return the learner that a run's options describe.

    Raises:
        CharyError: if something is missing, out of range or not what the run says elsewhere.
    """
    known = (*names_of(DeepOptions), *OWN_OPTIONS)
    for name in options:
        check_choice("option of a deep run", name, known)
    missing = [name for name in known if name not in options]
    if missing:
        raise InvalidSetting(f"{missing[0]!r} must be among the options of a deep run, got none.")
    learner = DeepOptions(**{name: options[name] for name in names_of(DeepOptions)})
    told = {"agent": agent, "episodes": episodes, "warm_up": warmup}
    for name, value in told.items():
        if getattr(learner, name) != value:
            raise InvalidSetting(
                f"{name!r} among the options of a deep run must be {value!r} as the run says, "
                f"got {getattr(learner, name)!r}."
            )
    if learner.action >= len(EFFICACIES):
        raise InvalidSetting(f"'action' must be at most {len(EFFICACIES) - 1}, got {learner.action!r}.")
    one_patient(options["patient"])
    check_integer("audit_every", options["audit_every"], minimum=1)
    return learner


def deep_simulation(spec: Any) -> Any:
    """Return what plays the run that a RunSpec describes.

    Raises:
        InvalidSetting: if JAX is not installed, or something is out of range.
    """
    from chary.deep.simulation import DeepSimulation

    learner = deep_options(spec.options, agent=spec.agent, episodes=spec.episodes, warmup=spec.warmup)
    return DeepSimulation(
        learner,
        patient=spec.options["patient"],
        audit_every=spec.options["audit_every"],
        seed=check_seed(spec.seed),
    )
