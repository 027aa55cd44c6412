"""What a run is compared with: the same agent's baseline alone, and UCBVI, which keeps no budget."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from chary.agents import PSRL, UCBVI, AgentSpec, Baseline, CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.agents.worlds import WorldsSpec

SHARED = tuple(each.name for each in fields(AgentSpec))


def references(spec: AgentSpec, bounds: str, bonus_scale: float) -> dict[str, AgentSpec]:
    """Return the agents that a run is compared with, by the names `baseline` and `ucbvi`.

    The baseline is what the agent would have played and learnt without exploring: for chary the same options
    with rule `closed`, for others the agent `baseline`. UCBVI has the agent's own bounds where there are any.

    Args:
        spec: What plays.
        bounds: The family of UCBVI's bounds where the agent has worlds.
        bonus_scale: The factor on them.

    Example:
        >>> found = references(CharyUCBVI(eta=0.2, bonus="posterior"), "kl", 1.0)
        >>> found["baseline"].rule, found["ucbvi"].bonus
        ('closed', 'kl')
    """
    shared: dict[str, Any] = {name: getattr(spec, name) for name in SHARED}
    with_worlds = spec.bonus == POSTERIOR
    if isinstance(spec, CharyUCBVI):
        alone: AgentSpec = replace(spec, rule="closed", step_bound=None, calibration=None)
    elif with_worlds and isinstance(spec, WorldsSpec):
        worlds = {each.name: getattr(spec, each.name) for each in fields(PSRL) if each.name not in SHARED}
        alone = CharyUCBVI(**shared, **worlds, rule="closed")
    else:
        alone = Baseline(**{**shared, "bonus": _of_every_agent(spec.bonus)})
    bonus, scale = (bounds, bonus_scale) if with_worlds else (spec.bonus, spec.bonus_scale)
    return {"baseline": alone, "ucbvi": UCBVI(**{**shared, "bonus": bonus, "bonus_scale": scale})}


def _of_every_agent(bonus: str) -> str:
    """Return a family of bounds that every agent has: ch and bf belong to UCBVI alone."""
    return "hoeffding" if bonus in ("ch", "bf") else bonus
