"""Why steps did not explore, counted; and one warning when exploration has stalled."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Final

from chary.shield.rule import Rule

# Why a step did not explore.
BUDGET: Final = "budget"
CLOSED: Final = "closed"
POOL: Final = "pool"
TARGET: Final = "target"
REASONS = {
    BUDGET: "the budget did not afford what was proposed",
    CLOSED: "the first refusal had closed the episode",
    POOL: "the pool had no place for a new chain",
    TARGET: "no chain waited there",
}
WAYS_OUT = {
    BUDGET: "Raise eta, collect more data first, or use bonus 'posterior': `chary plan` compares them.",
    CLOSED: "Raise eta, or use after_refusal 'pause'.",
    POOL: "Set a smaller patience, or a larger pool.",
    TARGET: "Set a smaller patience, or a larger pool.",
}
# Episodes in succession without an exploring step after which exploration has stalled.
STALLED_AFTER = 200

log = logging.getLogger("chary")


@dataclass(slots=True)
class Watch:
    """What the shield of one agent has decided since it was made or loaded.

    Attributes:
        steps: Steps decided.
        explored: Steps that explored.
        reasons: The others, by what kept them from exploring.
        quiet: Episodes that have ended since the last one that explored.
        recent: The reasons of the steps since then.
        warned: Whether the warning was given.
    """

    steps: int = 0
    explored: int = 0
    reasons: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    quiet: int = 0
    recent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    warned: bool = False

    def copied(self) -> Watch:
        """Return the same counts as a value of their own."""
        return replace(self, reasons=dict(self.reasons), recent=dict(self.recent))

    def decided(self, explored: bool, reason: str | None) -> None:
        """Count one step; `reason` is why it did not explore, None where nothing was proposed."""
        self.steps += 1
        if explored:
            self.explored += 1
        elif reason is not None:
            self.reasons[reason] += 1
            self.recent[reason] += 1

    def ended(self, explored: int, rule: Rule) -> None:
        """Count the end of an episode with so many exploring steps, and warn once after a long silence."""
        if explored:
            self.quiet, self.recent = 0, dict.fromkeys(REASONS, 0)
            return
        self.quiet += 1
        if self.quiet < STALLED_AFTER or self.warned or rule.limit <= 0:
            return
        self.warned = True
        log.warning("exploration has stalled: %s", self.verdict())

    def verdict(self) -> str:
        """Return in words for how long nothing was explored, the main reason, and what to change."""
        reason = max(self.recent, key=self.recent.__getitem__)
        share = self.recent[reason] / max(sum(self.recent.values()), 1)
        return (
            f"the last {self.quiet:,} episodes explored nothing. In {share:.0%} of their steps "
            f"{REASONS[reason]}. {WAYS_OUT[reason]}"
        )
