"""The algorithms chary is compared with, section 9, and two baselines and chance.

All share the counts, the planner and the rollouts of chary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from chary.agents import _mixtures
from chary.agents.protocol import AgentSpec
from chary.errors import InvalidSetting, check_choice, check_real
from chary.mdp import Setting
from chary.standing import Grounds

BASELINE_VALUES = ("estimated", "oracle")

# The fields of a `Mixture` that persist from episode to episode; the others are working memory.
MIXTURE_MEMORY = ("starts", "baseline_starts", "promised")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixtureSpec(AgentSpec):
    """An agent that plays the warm-up's baseline up to some step and its explorer from there on.

    Args:
        baseline_value: Whether mixing agents estimate the baseline's value or get it from an oracle.
    """

    kind: ClassVar[int] = _mixtures.UCBVI

    baseline_value: Annotated[str, BASELINE_VALUES] = "estimated"

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        AgentSpec.check(self)
        check_choice("baseline_value", self.baseline_value, BASELINE_VALUES)
        if self.eta is None and self.kind in (_mixtures.STEPMIX, _mixtures.EPSMIX):
            raise InvalidSetting(f"'eta' must be given with agent {self.name!r}, got None.")

    def options(self) -> dict[str, Any]:
        """Return the options as results list them."""
        return {**AgentSpec.options(self), "baseline_value": self.baseline_value}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UCBVI(MixtureSpec):
    """Optimistic value iteration (Azar et al. 2017), with any bounds of section 5 or its own ch and bf."""

    name: ClassVar[str] = "ucbvi"
    summary: ClassVar[str] = "optimism without a budget"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CUCBVI(MixtureSpec):
    """Conservative UCBVI (Garcelon et al. 2020): whole episodes of optimism once enough was earned.

    Args:
        alpha: Share of the baseline's value, in [0, 1], that cucbvi may lose on average.
    """

    name: ClassVar[str] = "cucbvi"
    summary: ClassVar[str] = "optimistic episodes while the average stays near the baseline"
    kind: ClassVar[int] = _mixtures.CUCBVI

    alpha: float = 0.05

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        MixtureSpec.check(self)
        check_real("alpha", self.alpha, low=0.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepMix(MixtureSpec):
    """StepMix: the baseline up to a step, the explorer after it; the expected value meets V_b - eta."""

    name: ClassVar[str] = "stepmix"
    summary: ClassVar[str] = "baseline first, optimism from a step chosen to keep the expected value"
    kind: ClassVar[int] = _mixtures.STEPMIX


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpsMix(MixtureSpec):
    """EpsMix: baseline or explorer, whole episodes at random, so that the expected value meets V_b - eta."""

    name: ClassVar[str] = "epsmix"
    summary: ClassVar[str] = "baseline or optimism by a coin that keeps the expected value"
    kind: ClassVar[int] = _mixtures.EPSMIX


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline(AgentSpec):
    """The pessimistic policy, replanned before every episode and never left: z* = 0 by definition."""

    name: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "the pessimistic policy, replanned before every episode"

    def grounds(self, setting: Setting | None = None) -> Grounds:
        """Return what the promise leans on: a shield that never opens."""
        return replace(AgentSpec.grounds(self, setting), rule="closed")


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
