"""What an agent at work has done so far, as one value for logs and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from chary.shield.shield import Shield
from chary.shield.watch import REASONS, Watch
from chary.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What an agent at work has done so far, and what keeps it from exploring.

    Episodes and steps are counted since the agent was made or loaded, chains since it was made. What an agent
    does not have is None: `UCBVI` has no chains, and networks do not tell why a step did not explore.

    Args:
        episodes: Episodes begun.
        open_episodes: Episodes begun and neither complete nor abandoned.
        outstanding: Decided steps whose outcomes are not known yet.
        steps: Steps decided; those that fill an episode up after an early ending are left out.
        explored: Share of them that explored, often by the baseline's own action.
        deviating: Share of them that played another action than the baseline's; None where that is not
            known, and before the first step.
        refused: Share of them that did not explore, by reason: `budget` (a chain or a proposal was not
            afforded), `closed` (the first refusal had closed the episode), `pool` (no place for a new chain)
            and `target` (no chain waited there).
        chains_open: Chains unfinished now.
        chains_waiting: Chains that wait at their targets.
        chains_started: Chains started.
        chains_finished: Chains that became meta-rollouts.
        chains_abandoned: Chains given up because they had not advanced for `patience` episodes.
        chains_blocked: Episodes in which a chain was refused and nothing was explored.
        free_places: Chains that could be opened now.
        retreats: How often an ensemble went back to its best networks.
        unsound_members: How often a network of an ensemble had weights that are not finite and was replaced.
        standing: The standing of the promise.
    """

    episodes: int
    open_episodes: int
    outstanding: int
    steps: int
    explored: float
    deviating: float | None = None
    refused: Mapping[str, float] | None = None
    chains_open: int | None = None
    chains_waiting: int | None = None
    chains_started: int | None = None
    chains_finished: int | None = None
    chains_abandoned: int | None = None
    chains_blocked: int | None = None
    free_places: int | None = None
    retreats: int | None = None
    unsound_members: int | None = None
    standing: Standing = field(repr=False)

    def describe(self) -> str:
        """Return the main numbers and reasons, a sentence each."""
        apart = "" if self.deviating is None else f", {self.deviating:.1%} deviated from the baseline"
        said = [
            f"{self.episodes:,} episodes begun, {self.open_episodes:,} open, {self.outstanding:,} outcomes "
            f"outstanding; {self.explored:.1%} of {self.steps:,} steps explored{apart}."
        ]
        if self.chains_open is not None:
            said.append(
                f"Chains: {self.chains_open:,} open, {self.chains_finished:,} finished, "
                f"{self.chains_abandoned:,} abandoned; {self.free_places:,} places free."
            )
        if self.retreats:
            said.append(f"It went back to its best networks {self.retreats:,} times.")
        if self.unsound_members:
            said.append(f"{self.unsound_members:,} networks were not finite and were replaced.")
        for reason, share in (self.refused or {}).items():
            if share:
                said.append(f"In {share:.1%} of the steps {REASONS[reason]}.")
        return "\n".join(said)


def refused_shares(watch: Watch) -> Mapping[str, float]:
    """Return the share of all steps that did not explore, by reason."""
    steps = max(watch.steps, 1)
    return MappingProxyType({reason: count / steps for reason, count in watch.reasons.items()})


def shield_stats(shield: Shield[Any]) -> dict[str, Any]:
    """Return what a shield can tell, by the names of `Stats`."""
    return {
        "refused": refused_shares(shield.watch),
        "chains_open": shield.open_chains,
        "chains_waiting": shield.waiting_chains,
        "chains_started": shield.started,
        "chains_finished": shield.finished,
        "chains_abandoned": shield.abandoned,
        "chains_blocked": shield.blocked,
        "free_places": shield.free_places,
    }
