"""The problems of the deep learner as values: their own options, their units, and the names of their actions.

All that differs between them is a field of `DeepProblem`, so that conditions, tables, figures and the page
of a report need not know which problem they are about. JAX is imported when an environment is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from chary.envs.continuous import CartPole, Equations, Glucose, Plane
from chary.envs.hiv.parameters import CONCENTRATIONS, EFFICACIES, HORIZON, PATIENTS, check_spread
from chary.errors import InvalidSetting, check_choice
from chary.texts import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepProblem:
    """A problem of the deep learner.

    Args:
        name: Its name, see `chary problems`.
        description: What is decided, in a few words.
        actions: The names of its actions, as figures show them.
        observations: The length of an observation.
        horizon: The most steps of an episode.
        defaults: Its own options with their defaults.
        unnamed: Own options that are left out of a run's spec at their default: runs from before there were
            such options keep their ids.
        checked: Takes its own options and returns them in one form, or raises CharyError.
        environment: Takes its own options and returns the environment.
        decision: The word for an action in figures and tables.
        legend: A sentence that explains the names of actions, with a space after it, or nothing.
        unit: The unit of returns in figures and tables, empty for plain numbers.
        factor: Returns are multiplied by it in figures and tables.
        rewards: The unit of deficits and budgets.
        of_paper: Whether the paper has results for it, which the report compares: Table 1 and the claims.
    """

    name: str
    description: str
    actions: tuple[str, ...]
    observations: int
    horizon: int
    defaults: Mapping[str, Any]
    unnamed: tuple[str, ...] = ()
    checked: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    environment: Callable[[Mapping[str, Any]], Any]
    decision: str = "action"
    legend: str = ""
    unit: str = ""
    factor: float = 1.0
    rewards: str = "reward"
    of_paper: bool = False

    def own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all own options from those that are given, which may be None for the default.

        Raises:
            InvalidSetting: if one is given that the problem does not have, or out of range.
            UnknownName: if a name is unknown.
        """
        options = dict(self.defaults)
        for name, value in given.items():
            if value is None:
                continue
            if name not in options:
                raise InvalidSetting(
                    f"{name!r} must be left out with problem {self.name!r}, got {shown(value)}."
                )
            options[name] = value
        return dict(self.checked(options))

    def stored(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the own options that belong into the spec of a run."""
        return {
            name: own[name]
            for name, default in self.defaults.items()
            if name not in self.unnamed or own[name] != default
        }

    def with_unit(self, what: str) -> str:
        """Return the heading of a column of returns.

        Example:
            >>> DEEP_PROBLEMS["hiv"].with_unit("maximum return")
            'maximum return, millions'
        """
        return f"{what}, {self.unit}" if self.unit else what


def one_patient(name: object) -> str | int:
    """Return a patient's name: `base`, or a number from 0 on.

    Raises:
        UnknownName: if there is no such patient.

    Example:
        >>> one_patient("5"), one_patient("base")
        (5, 'base')
    """
    known = {str(each): each for each in PATIENTS}
    return known[check_choice("patient", str(name), known)]


def _of_hiv(own: Mapping[str, Any]) -> dict[str, Any]:
    return {"patient": one_patient(own["patient"]), "spread": check_spread(own["spread"])}


def _hiv(own: Mapping[str, Any]) -> Any:
    from chary.deep.simulation.hiv import hiv

    return hiv(own["patient"], spread=own["spread"])


def _continuous(kind: type[CartPole | Glucose | Plane], description: str) -> DeepProblem:
    usual: Equations = kind()

    def checked(own: Mapping[str, Any]) -> dict[str, Any]:
        return {"spread": float(kind(spread=own["spread"]).spread)}

    def environment(own: Mapping[str, Any]) -> Any:
        from chary.deep.simulation.continuous import environment_of

        return environment_of(kind(spread=own["spread"]))

    return DeepProblem(
        name=usual.name,
        description=description,
        actions=usual.actions,
        observations=len(usual.low),
        horizon=usual.horizon,
        defaults=MappingProxyType({"spread": usual.spread}),
        checked=checked,
        environment=environment,
    )


_HIV = DeepProblem(
    name="hiv",
    description="treatments of a simulated patient",
    actions=("nothing", "RTI", "PI", "RTI and PI"),
    observations=len(CONCENTRATIONS),
    horizon=HORIZON,
    defaults=MappingProxyType({"patient": 5, "spread": 0.0}),
    unnamed=("spread",),
    checked=_of_hiv,
    environment=_hiv,
    decision="treatment",
    legend="RTI: reverse transcriptase inhibitor, PI: protease inhibitor. ",
    unit="millions",
    factor=1e-6,
    rewards="standardised reward",
    of_paper=True,
)
assert len(_HIV.actions) == len(EFFICACIES)

DEEP_PROBLEMS: Mapping[str, DeepProblem] = {
    each.name: each
    for each in (
        _HIV,
        _continuous(CartPole, "pushes of a cart that carries a pole"),
        _continuous(Glucose, "doses of insulin over a day"),
        _continuous(Plane, "moves down a corridor to a cliff"),
    )
}
# The own options of all of them, in the order in which experiments write them.
OWN_OPTIONS = ("patient", "spread")
