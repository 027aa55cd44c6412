"""Agents: specifications that both drivers can play."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from chary.agents._stats import Stats
from chary.agents.canary import Canary
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.comparison import CUCBVI, UCBVI, Baseline, EpsMix, Frozen, Random, StepMix
from chary.agents.protocol import Agent, AgentSpec, Transition
from chary.agents.worlds import PSRL, WorldsSpec
from chary.errors import InvalidSetting, check_choice
from chary.texts import shown

__all__ = [
    "AGENTS",
    "CUCBVI",
    "PSRL",
    "UCBVI",
    "Agent",
    "AgentSpec",
    "Baseline",
    "Canary",
    "CharyUCBVI",
    "EpsMix",
    "Frozen",
    "Random",
    "Stats",
    "StepMix",
    "Transition",
    "WorldsSpec",
    "make_agent",
]

AGENTS: dict[str, type[AgentSpec]] = {
    spec.name: spec
    for spec in (CharyUCBVI, UCBVI, PSRL, CUCBVI, StepMix, EpsMix, Canary, Baseline, Frozen, Random)
}


def make_agent(name: str, **options: Any) -> AgentSpec:
    """Return the specification of the agent called `name`.

    Raises:
        UnknownName: if there is no such agent.
        InvalidSetting: if it has no such option.

    Example:
        >>> make_agent("chary", eta=0.2).eta
        0.2
    """
    spec = AGENTS[check_choice("agent", name, AGENTS)]
    known = [field.name for field in fields(spec)]
    for option, value in options.items():
        if option not in known:
            raise InvalidSetting(
                f"{option!r} is not an option of agent {name!r}, got {shown(value)}. It takes: "
                f"{', '.join(known)}."
            )
    return spec(**options)
