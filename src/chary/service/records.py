"""What is kept in memory of an episode: requests and their answers, byte for byte, built from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from chary.service.events import Event, Observed

OPEN, CLOSED, ABANDONED = "open", "closed", "abandoned"


class Kept(NamedTuple):
    """An answer: the event that it is the body of."""

    seq: int
    body: bytes
    facts: Any


@final
@dataclass(slots=True)
class Step:
    """A decided step, and what was reported of it."""

    decided: Kept
    taken: Kept | None = None
    outcome: Kept | None = None

    @property
    def awaits_outcome(self) -> bool:
        """Whether its outcome is not known and may still come: a step that was not taken has none."""
        not_taken = self.taken is not None and self.taken.facts.action is None
        return self.outcome is None and not not_taken

    @property
    def state(self) -> int:
        """The state that it was decided in."""
        state: int = self.decided.facts.state
        return state

    @property
    def action(self) -> int:
        """The action that was answered."""
        action: int = self.decided.facts.action
        return action


@final
@dataclass(slots=True)
class Record:
    """An episode: `begun` is its first event, `ended` its last one that is not a report."""

    identity: str
    begun: Kept
    steps: list[Step] = field(default_factory=list)
    status: str = OPEN
    ended: Kept | None = None
    closed: Kept | None = None
    corrections: list[Kept] = field(default_factory=list)
    tightenings: list[Kept] = field(default_factory=list)
    erased: Kept | None = None
    # The last event that was noted.
    last: int = 0
    # The salt and the text that are kept apart, where they were not read from the disk yet.
    apart: tuple[bytes, str] | None = None

    def __post_init__(self) -> None:
        self.last = self.begun.seq

    def take(self, kept: Kept, t: int | None) -> None:
        """Note an event of this episode that follows those noted before."""
        kind = kept.facts.kind
        self.last = kept.seq
        if kind == "decided":
            self.steps.append(Step(kept))
        elif kind == "observed":
            assert t is not None
            self.steps[t].outcome = kept
        elif kind == "taken":
            assert t is not None
            self.steps[t].taken = kept
        elif kind == "corrected":
            self.corrections.append(kept)
        elif kind == "tightened":
            self.tightenings.append(kept)
        elif kind == "erased":
            self.erased, self.apart = kept, None
        else:
            self.status, self.ended = kind, kept
            if kind == CLOSED:
                self.closed = kept

    @property
    def outstanding(self) -> tuple[int, ...]:
        """The steps whose outcomes are not known and may still come."""
        return tuple(t for t, step in enumerate(self.steps) if step.awaits_outcome)

    @property
    def eta(self) -> float | None:
        """Its budget, where it is not that of the specification."""
        facts = (self.tightenings[-1] if self.tightenings else self.begun).facts
        eta: float | None = facts.eta
        return eta

    def correction(self, t: int) -> Kept | None:
        """Return the last correction of a step."""
        return next((kept for kept in reversed(self.corrections) if kept.facts.t == t), None)

    @property
    def terminated(self) -> bool:
        """Whether the last step that was decided ended the episode."""
        last = self.steps[-1].outcome if self.steps else None
        if last is None:
            return False
        facts: Observed = last.facts
        return facts.terminated


def record_of(events: Iterable[Event]) -> Record | None:
    """Return the record of an episode from its events in order, None if there are none."""
    record = None
    for event in events:
        kept = Kept(event.seq, event.body.encode(), event.facts())
        if record is None:
            record = Record(event.episode or "", kept)
        else:
            record.take(kept, event.t)
    return record
