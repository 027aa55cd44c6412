"""Agents that plan by posterior worlds, section 11: their options, and sampling without a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from chary.agents.protocol import POSTERIOR, AgentSpec
from chary.errors import MOST_WORLDS, InvalidSetting, check_choice, check_integer, check_real
from chary.mdp import Setting
from chary.model.beliefs import PRIORS, check_flat, flat_is_possible
from chary.standing import Grounds
from chary.texts import shown

# The priors, as the standing of a promise names them.
IN_WORDS = {
    "shrunk": "actions of a state resemble each other and the whole log, each pair to its own degree "
    "(shrunk, kappa {kappa})",
    "flat": "all states that can follow a pair are equally likely at first, and pairs are unrelated (flat)",
    "auto": "a pair resembles the other actions of its state, to its own degree (shrunk, kappa {kappa}), or "
    "nothing (flat, with many or few possible successors); the share of either among all pairs is learnt, "
    "and is 1/2 before the first data",
}
WORLD_OPTIONS = ("worlds", "world_prior", "kappa", "pessimism", "risk", "growth", "explorer")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorldsSpec(AgentSpec):
    """The options of agents that can plan by posterior worlds.

    Args:
        worlds: Number of posterior worlds that judge, >= 2.
        world_prior: Prior of posterior worlds. `shrunk` pools the actions of a state, `flat` pools nothing,
            and under `auto` each pair does one or the other, as far as the evidence says.
        kappa: Weight, in observations, of the whole log in the prior shrunk, > 0.
        pessimism: Standard deviations over worlds by which the baseline discounts an action, >= 0.
        growth: Share by which the data after log and warm-up must grow before posterior worlds are planned
            again, >= 0. With 0 that is before every episode.
    """

    has_worlds: ClassVar[bool] = True

    worlds: int = 64
    world_prior: Annotated[str, PRIORS] = "auto"
    kappa: float = 100.0
    pessimism: float = 0.0
    growth: float = 0.02

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        AgentSpec.check(self)
        check_integer("worlds", self.worlds, minimum=2, largest=MOST_WORLDS)
        check_choice("world_prior", self.world_prior, PRIORS)
        check_real("kappa", self.kappa, low=0.0, open_low=True, open_high=True)
        check_real("pessimism", self.pessimism, low=0.0, open_high=True)
        check_real("growth", self.growth, low=0.0, open_high=True)

    def options(self) -> dict[str, Any]:
        """Return the options as results list them; those of worlds only where there are any."""
        if self.bonus != POSTERIOR:
            return AgentSpec.options(self) | dict.fromkeys(WORLD_OPTIONS)
        worlds = {name: getattr(self, name, None) for name in WORLD_OPTIONS}
        return AgentSpec.options(self) | worlds | {"bonus_scale": None}

    def grounds(self, setting: Setting | None = None) -> Grounds:
        """Return what the promise of a budget leans on: the prior, where there are posterior worlds."""
        if self.bonus != POSTERIOR:
            return AgentSpec.grounds(self, setting)
        pools = self.world_prior == "auto" and setting is not None and not flat_is_possible(setting)
        prior = IN_WORDS["shrunk" if pools else self.world_prior].format(kappa=f"{self.kappa:.6g}")
        return Grounds(eta=self.eta, delta=self.delta, setting=setting, prior=prior)

    def check_problem(self, setting: Setting) -> None:
        """Raise InvalidSetting if these options cannot work on a problem of this size."""
        if self.bonus == POSTERIOR and self.world_prior == "flat":
            check_flat(setting)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PSRL(WorldsSpec):
    """Posterior sampling (Osband et al. 2013): every episode plays the optimal policy of one world."""

    name: ClassVar[str] = "psrl"
    summary: ClassVar[str] = "posterior sampling without a budget"

    bonus: Annotated[str, (POSTERIOR,)] = POSTERIOR

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        WorldsSpec.check(self)
        if self.bonus != POSTERIOR:
            raise InvalidSetting(f"'bonus' must be 'posterior' with agent 'psrl', got {shown(self.bonus)}.")
