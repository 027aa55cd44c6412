"""Agents: specifications that both drivers can play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from chary.agents._stats import Stats
from chary.agents.canary import Canary
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.comparison import CUCBVI, UCBVI, Baseline, EpsMix, Frozen, Random, StepMix
from chary.agents.draft import Draft
from chary.agents.explanation import ActionView, Explanation
from chary.agents.own import OwnAgent
from chary.agents.protocol import Agent, AgentSpec, Transition
from chary.agents.worlds import PSRL, WorldsSpec
from chary.errors import InvalidSetting, check_type
from chary.extensions import is_reference, resolved
from chary.texts import shown

__all__ = [
    "AGENTS",
    "CUCBVI",
    "PSRL",
    "UCBVI",
    "ActionView",
    "Agent",
    "AgentSpec",
    "Baseline",
    "Canary",
    "CharyUCBVI",
    "Draft",
    "EpsMix",
    "Explanation",
    "Frozen",
    "OwnAgent",
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
    """Return the specification of the agent called `name`, one of chary's or your own as "module:name".

    Nothing is imported for a name; of your own agent, options that not all agents have are its `arguments`.

    Raises:
        UnknownName: if there is no such agent.
        InvalidSetting: if it has no such option.

    Example:
        >>> make_agent("chary", eta=0.2).eta
        0.2
        >>> make_agent("clinic:Mine", eta=0.2, count=3).arguments
        {'count': 3}
    """
    name = resolved("agent", name, AGENTS)
    if is_reference(name):
        shared = {field.name for field in fields(AgentSpec)}
        own = {option: value for option, value in options.items() if option not in (*shared, "arguments")}
        given = {option: value for option, value in options.items() if option in shared}
        arguments = options.get("arguments", {})
        check_type("arguments", arguments, Mapping, "a dictionary by name")
        return OwnAgent(name, **given, arguments={**arguments, **own})
    spec = AGENTS[name]
    known = [field.name for field in fields(spec)]
    for option, value in options.items():
        if option not in known:
            raise InvalidSetting(
                f"{option!r} is not an option of agent {name!r}, got {shown(value)}. It takes: "
                f"{', '.join(known)}."
            )
    return spec(**options)
