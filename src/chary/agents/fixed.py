"""Agents that do not explore by design: two baselines and chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from chary.agents import _mixtures
from chary.agents.neighbours import MixtureSpec
from chary.agents.protocol import AgentSpec

__all__ = ["Baseline", "Frozen", "Random"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline(AgentSpec):
    """The pessimistic policy, replanned before every episode and never left: z* = 0 by definition."""

    name: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "the pessimistic policy, replanned before every episode"

    @property
    def standing(self) -> str:
        """Certified: an episode that never leaves the baseline loses nothing against it."""
        return "certified"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frozen(MixtureSpec):
    """The warm-up's baseline, never replanned."""

    name: ClassVar[str] = "frozen"
    summary: ClassVar[str] = "the warm-up's pessimistic policy, never replanned"
    kind: ClassVar[int] = _mixtures.FROZEN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Random(AgentSpec):
    """A uniformly random allowed action at every step."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "uniformly random allowed actions"
