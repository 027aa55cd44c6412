"""Why a step was decided as it was: every action's value and price, and what the budget allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from chary.agents._episodes import EpisodeId
from chary.shield import Decision
from chary.shield.worlds import Vote


class ActionView(NamedTuple):
    """One allowed action at a step, in the user's units.

    Args:
        action: The action.
        baseline: Whether the baseline plays it.
        lower: A lower bound on what playing it and then the baseline is worth; None with worlds.
        upper: An upper bound on the same; None with worlds.
        mean: The mean over worlds of what it is worth; None with bounds.
        sd: The standard deviation over worlds; None with bounds.
        charge: What would be booked if it was played as exploration.
        vote: The vote of the worlds on it, where they vote.
        affordable: Whether the budget affords it.
        why_not: `budget` or `closed` where it does not.
    """

    action: int
    baseline: bool
    lower: float | None
    upper: float | None
    mean: float | None
    sd: float | None
    charge: float
    vote: Vote | None
    affordable: bool
    why_not: str | None

    def describe(self, span: float = 1.0) -> str:
        """Return the action in a sentence; a scaled unit is worth `span` of the user's."""
        worth = (
            f"worth {self.lower:.4g} to {self.upper:.4g}"
            if self.mean is None
            else f"worth {self.mean:.4g} (sd {self.sd:.3g})"
        )
        reasons = {"budget": "not affordable", "closed": "exploration is closed"}
        afforded = "affordable" if self.why_not is None else reasons[self.why_not]
        voted = "" if self.vote is None else f" {self.vote.describe(span)}"
        mine = " (baseline)" if self.baseline else ""
        return f"Action {self.action}{mine}: {worth}, charge {self.charge:.4g}, {afforded}.{voted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A step with everything that its decision depends on, in the user's units.

    A step decided before is explained with the plan that its episode is pinned to, and with what was booked
    before it.

    Args:
        episode: The episode.
        t: The step.
        state: The state it is decided in.
        plan: The number of the plan.
        baseline: The baseline's action.
        deficit: What was booked before this step.
        remaining: The room under the budget before this step.
        actions: All actions allowed in the state.
        proposals: The actions that chains propose here, in the order in which they are put to the budget; of
            a step decided before, the one that explored.
        decision: The decision, where it was made before.
        span: The number of the user's units of reward per scaled one.
    """

    episode: EpisodeId
    t: int
    state: int
    plan: int
    baseline: int
    deficit: float
    remaining: float
    actions: tuple[ActionView, ...]
    proposals: tuple[int, ...]
    decision: Decision | None
    span: float = 1.0

    def describe(self) -> str:
        """Return the explanation as sentences, one per line."""
        said = [
            f"Step {self.t} of episode {self.episode!r} in state {self.state}: deficit {self.deficit:.4g}, "
            f"remaining {self.remaining:.4g}, plan {self.plan}."
        ]
        said += [action.describe(self.span) for action in self.actions]
        if self.proposals:
            said.append(f"Exploration proposes {', '.join(map(str, self.proposals))}.")
        if self.decision is not None:
            said.append(f"Decided: {self.decision.describe()}")
        return "\n".join(said)


def worth_in_units(scaled: float, left: float, low: float, span: float) -> float:
    """Return a value in the user's units; rewards begin at `low`, and `left` is the discounted time left."""
    return scaled * span + low * left


def moments(values: Any) -> tuple[float, float]:
    """Return mean and standard deviation of values, one per world."""
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan
