"""Decided steps in the order of their decisions, per action: which outcomes may be learnt.

As in `agents/_visits.py`, with actions in place of pairs, since states never repeat and every action has a
regression of its own: the longest prefix whose outcomes are known or lost is learnt, and those behind a
missing one wait. So what is learnt does not depend on which outcomes come early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias, final

from chary.agents._episodes import Played
from chary.arrays import Floats

# A decided step and its time.
Timed: TypeAlias = tuple[int, Played[Floats]]


@final
class Order:
    """The steps that are not learnt yet, per action decided, in the order of their decisions."""

    __slots__ = ("_waiting",)

    def __init__(self, n_actions: int) -> None:
        self._waiting: list[deque[Timed]] = [deque() for _ in range(n_actions)]

    def decided(self, t: int, step: Played[Floats]) -> None:
        """Note a decision."""
        self._waiting[step.decision.action].append((t, step))

    def release(self) -> list[Timed]:
        """Return the steps that may be learnt now, and forget them; those overruled are forgotten alone."""
        known: list[Timed] = []
        for steps in self._waiting:
            while steps and (steps[0][1].lost or not steps[0][1].missing or steps[0][1].overruled):
                t, step = steps.popleft()
                if not step.overruled:
                    known.append((t, step))
        return known

    def pending(self) -> list[Timed]:
        """Return the steps that are not learnt yet, action by action."""
        return [each for steps in self._waiting for each in steps]

    def restore(self, pending: Iterable[Timed]) -> None:
        """Take on what `pending` returned."""
        for t, step in pending:
            self.decided(t, step)
