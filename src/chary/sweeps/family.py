"""A family of problems as a value: how its runs are described, played, tabulated and reported.

There are two: `chary.sweeps.tabular.TABULAR` and `chary.sweeps.deep.DEEP`. All that differs between them is a
field of `Family`, so that no other module needs to test which family it has.
"""

from __future__ import annotations

import json
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from chary.errors import (
    MOST_EPISODES,
    MOST_RUNS,
    InvalidSetting,
    check_choice,
    check_installed,
    check_integer,
    check_real,
)
from chary.sweeps.run_spec import RunSpec
from chary.texts import shown

# The part an algorithm plays in the paper's claims, which the report checks; empty for none of these.
ROLES = ("", "unconstrained", "conservative", "mixture", "baseline", "paper", "ours", "chosen", "naive")

# Rules that keep no budget.
WITHOUT_BUDGET = ("unlimited", "closed")

# The processors that runs may be computed on. The first computes runs of every family.
CPU = "cpu"
DEVICES = (CPU, "gpu")


class AnyConditions:
    """The conditions that compared runs share; every family has a frozen dataclass of them.

    Args:
        problem: A problem's name, see `chary problems`.
        episodes: Online episodes of every run, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seeds: How many seeds, >= 1.
        first_seed: The first of them, >= 0; the others follow it.
        etas: The budgets, each >= 0.
    """

    __slots__ = ()
    # What folders of version 0.1 mean where they do not say it.
    earlier: ClassVar[Mapping[str, Any]] = {}
    # Declared here, and fields of the subclasses in the order in which they are written to files.
    problem: str
    episodes: int
    warmup: int
    seeds: int
    first_seed: int
    etas: tuple[float, ...]

    @abstractmethod
    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return these conditions with some changed."""

    def of_every_run(self) -> dict[str, Any]:
        """Return the fields of a RunSpec that all runs share."""
        return {name: getattr(self, name) for name in names_of(RunSpec) if name in names_of(self)}

    def check_shared(self) -> None:
        """Raise InvalidSetting unless the conditions that every family has are in range."""
        check_integer("episodes", self.episodes, minimum=1, largest=MOST_EPISODES)
        check_integer("warmup", self.warmup, minimum=0, largest=MOST_EPISODES)
        check_integer("seeds", self.seeds, minimum=1, largest=MOST_RUNS)
        check_integer("first_seed", self.first_seed, minimum=0)
        check_etas(self.etas)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyAlgorithm:
    """One line of the figures: an agent and its options; every family has a subclass.

    Args:
        label: Its name in figures and tables.
        agent: An agent's name, see `chary agents`.
        role: The part it plays in the paper's claims, or nothing.
        step_bound_share: With rule capped: the step bound as a share of the budget, in (0, 1].
        group: Its line in the frontier of regret against violations: settings of one method form a group.
        point: Its setting in a few words, at its point of that line.
        keeps_budget: With an agent of your own: whether it keeps a budget, so that it is played at each.
        options: Options of the agent beyond those that all runs share.
    """

    # The agents that keep a budget, unless their rule keeps none.
    budgeted_agents: ClassVar[tuple[str, ...]]

    label: str
    agent: str
    role: str = ""
    step_bound_share: float | None = None
    group: str = ""
    point: str = ""
    keeps_budget: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_label(self.label)
        if self.named(self.agent) != self.agent:
            raise InvalidSetting(f"'agent' must be of the form 'module:name', got {shown(self.agent)}.")
        check_choice("role", self.role, ROLES)
        if self.step_bound_share is not None:
            check_real("step_bound_share", self.step_bound_share, low=0.0, high=1.0, open_low=True)
        check_text("group", self.group)
        check_text("point", self.point)
        if self.point and not self.group:
            raise InvalidSetting(
                f"'group' must be given with point {self.point!r}, got ''. Name the line that it lies on."
            )
        if not isinstance(self.keeps_budget, bool):
            raise InvalidSetting(f"'keeps_budget' must be true or false, got {shown(self.keeps_budget)}.")
        known = self.options_of(self.agent)
        if known is None:
            check_plain(self.options)
            return
        if self.keeps_budget:
            raise InvalidSetting(
                f"'keeps_budget' must be left out with agent {self.agent!r}, got true: it is for your own."
            )
        for option in self.options:
            check_choice(f"option of {self.agent}", option, known)

    @staticmethod
    @abstractmethod
    def agents() -> tuple[str, ...]:
        """Return the agents of the family, the ones with a budget included."""

    @classmethod
    def named(cls, name: str) -> str:
        """Return an agent by name as it is stored; nothing is imported.

        Raises:
            UnknownName: if there is none.
        """
        return check_choice("agent", name, cls.agents())

    @staticmethod
    @abstractmethod
    def options_of(agent: str) -> tuple[str, ...] | None:
        """Return the options that an agent may be given; None where only its own code can tell."""

    @abstractmethod
    def resolved(self, conditions: Any, eta: float | None) -> dict[str, Any]:
        """Return all options of a run at one budget, defaults included.

        Raises:
            CharyError: if they do not fit together.
        """

    @property
    def budgeted(self) -> bool:
        """Whether it keeps a budget. It is then run once per budget, and otherwise once."""
        if self.keeps_budget:
            return True
        return self.agent in self.budgeted_agents and self.options.get("rule") not in WITHOUT_BUDGET

    def with_step_bound(self, options: dict[str, Any], eta: float | None) -> dict[str, Any]:
        """Return the options with the step bound that belongs to a budget."""
        if self.step_bound_share is None or eta is None:
            return options
        return {**options, "step_bound": self.step_bound_share * eta}

    def to_table(self) -> dict[str, Any]:
        """Return it as a TOML table."""
        return without_defaults(self, {"options"}) | dict(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of problems.

    Args:
        name: `tabular` or `deep`, also of the modules in `chary.results` and `chary.report` with its columns
            of `runs` and `curves`, and its claims, charts, tables and sections of the page.
        problems: The names of its problems.
        conditions: The dataclass of its conditions.
        algorithm: The dataclass of its algorithms.
        check: Raises CharyError if a run cannot be played.
        simulation: Returns an object with `start`, `restore`, `state`, `can_be_saved`, `advance`, `done` and
            `result`.
        arrays: Takes the simulation's result and returns the arrays to be stored.
        sources: Takes a run that was played and returns the files of the user's own code in it, by what they
            are; none for chary's own.
        compiled: Returns equal texts for runs that share what is compiled for them.
        compiles_to_disk: Whether compiled code is kept on disk, so that one worker compiles for all.
        lanes: Returns many simulations of one compiled kind as one that plays them side by side on a GPU;
            None where the family cannot be played there.
        packages: The packages that results may depend on; their versions go to the provenance.
        container: The format of checkpoints, see `chary.storage.sealed`.
        needs: The packages that its runs need, each with what needs it and the extra of chary it belongs to.
    """

    name: str
    problems: tuple[str, ...]
    conditions: type[AnyConditions]
    algorithm: type[AnyAlgorithm]
    check: Callable[[RunSpec], object]
    simulation: Callable[[RunSpec], Any]
    arrays: Callable[[Any], dict[str, Any]]
    sources: Callable[[RunSpec], dict[str, dict[str, str | None]]]
    compiled: Callable[[RunSpec], str]
    compiles_to_disk: bool
    lanes: Callable[[Sequence[Any]], Any] | None
    packages: tuple[str, ...]
    container: str
    needs: tuple[tuple[str, str, str], ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The processors that its runs may be computed on."""
        return DEVICES if self.lanes is not None else DEVICES[:1]

    def check_installed(self) -> None:
        """Raise InvalidSetting, before hours of work, where a package that its runs need is missing."""
        for each in self.needs:
            check_installed(*each)


def names_of(cls: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(each.name for each in fields(cls))


def tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values with frozen tuples in place of the lists that files contain."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def without_defaults(value: Any, left_out: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.name not in left_out and getattr(value, each.name) != each.default
    }


def check_name(name: object) -> str:
    """Return a name that can be that of a folder, and of nothing outside it."""
    if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)):
        raise InvalidSetting(f"'name' must be made of letters, digits, '-', '_' and '.', got {name!r}.")
    return name


def check_label(label: object) -> None:
    """Raise InvalidSetting unless `label` is a text with something in it."""
    if not (isinstance(label, str) and label.strip()):
        raise InvalidSetting(f"'label' must be a text, got {shown(label)}.")


def check_text(what: str, text: object) -> None:
    """Raise InvalidSetting unless `text` is a text."""
    if not isinstance(text, str):
        raise InvalidSetting(f"{what!r} must be a text, got {shown(text)}.")


def check_plain(options: Mapping[str, Any]) -> None:
    """Raise InvalidSetting unless options are made of what JSON has: texts, finite numbers, lists, tables."""
    try:
        json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise InvalidSetting(
            "options of an agent of your own must be numbers, texts and lists of them, got "
            f"{shown(dict(options))}: {problem}."
        ) from problem


def check_etas(etas: object) -> None:
    """Raise InvalidSetting unless `etas` are budgets: finite, >= 0, each given once."""
    if not (isinstance(etas, tuple) and etas):
        raise InvalidSetting(f"'etas' must be a list of budgets, got {shown(etas)}.")
    for eta in etas:
        if not math.isfinite(check_real("etas", eta, low=0.0)):
            raise InvalidSetting(
                f"'etas' must be finite, got {shown(eta)}. Use rule 'unlimited' for no budget."
            )
    check_unique("etas", etas)


def check_unique(name: str, values: Sequence[object], *, empty: bool = False) -> None:
    """Raise InvalidSetting if a value is there twice, or there is none."""
    if not (values or empty):
        raise InvalidSetting(f"{name!r} must contain at least one entry, got 0.")
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise InvalidSetting(f"{name!r} must differ from each other, got {twice[0]} twice.")
