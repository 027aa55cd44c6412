"""The canary: whole episodes of a candidate policy by a coin, promoted or dropped on evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from chary.agents.protocol import AgentSpec
from chary.errors import InvalidSetting, check_choice, check_real
from chary.mdp import Setting
from chary.standing import Grounds

CANDIDATES = ("posterior", "lower")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canary(AgentSpec):
    """Releases the learner's policies to a share of the episodes, docs/canary.md.

    The incumbent is the policy in `prior`, of probabilities the likeliest actions, or else the warm-up's
    baseline. Bounds by state are used to find candidates with `candidates` lower, and never for the promise.

    Args:
        candidates: Source of candidates: the best policy of posterior worlds, or of lower bounds.
        share: Largest probability, in (0, 1], with which an episode is given to the candidate. Below 1 the
            incumbent goes on being measured.
        ask_growth: Share, > 0, by which the data must grow before the learner is asked again.
        return_cap: Largest return of an episode, in the problem's reward units above the least. By default
            the declared cap on values.
    """

    name: ClassVar[str] = "canary"
    summary: ClassVar[str] = "whole episodes of a candidate by a coin, promoted or dropped on evidence"

    candidates: Annotated[str, CANDIDATES] = "posterior"
    share: float = 0.9
    ask_growth: float = 0.25
    return_cap: float | None = None

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        AgentSpec.check(self)
        if self.eta is None:
            raise InvalidSetting(f"'eta' must be given with agent {self.name!r}, got None.")
        check_choice("candidates", self.candidates, CANDIDATES)
        check_real("share", self.share, low=0.0, high=1.0, open_low=True)
        check_real("ask_growth", self.ask_growth, low=0.0, open_low=True)
        if self.return_cap is not None:
            check_real("return_cap", self.return_cap, low=0.0, open_low=True, open_high=True)

    def cap(self, setting: Setting) -> float:
        """Return the most that an episode can return, in scaled units."""
        return setting.value_cap if self.return_cap is None else self.return_cap / setting.scale.span

    def grounds(self, setting: Setting | None = None) -> Grounds:
        """Return what the promise leans on as far as options and a problem's declaration tell."""
        most = None if setting is None else self.cap(setting) * setting.scale.span
        return replace(AgentSpec.grounds(self, setting), rule="canary", return_cap=most)

    def options(self) -> dict[str, Any]:
        """Return the options as results list them."""
        own = {name: getattr(self, name) for name in ("candidates", "share", "ask_growth", "return_cap")}
        return {**AgentSpec.options(self), "rule": "canary", **own}
