"""Visits in the order of their decisions: which outcomes may be counted, docs/algorithm.md section 10.

Counting outcomes as they arrive is biased: those that arrive early may be the bad ones, however many there
are. Per pair (s, a), visits are ordered by decision instead. In that order the outcomes are independent draws
of P(. | s, a), whatever the delays. So the longest prefix whose outcomes are all known is an honest sample,
and bounds that hold for every n at once hold for it. Outcomes behind a missing one wait. An outcome that is
declared lost counts as a separate successor, and nothing waits for it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import final

from chary.agents._episodes import Played, Transition
from chary.model.rows import LOST

Pair = tuple[int, int]
# A step and its place among all decisions; a plain tuple, since every decision makes one.
Visit = tuple[int, Played[int]]


def lesson(step: Played[int]) -> Transition:
    """Return the outcome of a step, or one that stands for it where it is lost."""
    if step.outcome is None:
        return Transition(step.state, step.played, 0.0, LOST, terminated=False)
    return step.outcome


@final
class Visits:
    """The visits that are not counted yet: per pair (s, a), in the order of their decisions.

    Memory grows with the outcomes that are missing and with those that wait behind them.
    """

    __slots__ = ("_decisions", "_ready", "_waiting")

    def __init__(self) -> None:
        self._decisions = 0
        self._waiting: dict[Pair, deque[Visit]] = {}
        # Pairs whose first visit may have become known.
        self._ready: set[Pair] = set()

    def decided(self, step: Played[int]) -> None:
        """Note a decision; steps must be noted in the order in which they are decided."""
        self._append(step, step.decision.action)

    def overruled(self, step: Played[int]) -> None:
        """Note that a step is to count for the action played in place of the one decided.

        Its place is that of the moment at which this became known, behind all visits of that pair.
        """
        self._append(step, step.played)
        self._ready.add((step.state, step.played))

    def resolved(self, step: Played[int]) -> None:
        """Note that the outcome of a step is known, or known to be lost, or which action was played."""
        self._ready.add((step.state, step.decision.action))
        if step.taken is not None:
            self._ready.add((step.state, step.taken))

    def release(self) -> list[Played[int]]:
        """Return the steps that may be counted now, in the order of their places, and forget them.

        A step under another action than the one decided is not a visit of the pair decided: it is forgotten
        there without being returned.
        """
        known: list[Visit] = []
        for s, a in self._ready:
            visits = self._waiting.get((s, a))
            while visits and _settled(visits[0][1], a):
                visit = visits.popleft()
                if visit[1].played == a:
                    known.append(visit)
            if visits is not None and not visits:
                del self._waiting[s, a]
        self._ready.clear()
        known.sort(key=lambda visit: visit[0])
        return [step for _, step in known]

    def pending(self) -> list[tuple[Played[int], int]]:
        """Return the steps that are not counted yet and the action each counts for, in order."""
        waiting = [(visit, a) for (_, a), visits in self._waiting.items() for visit in visits]
        return [(step, a) for (_, step), a in sorted(waiting, key=lambda each: each[0][0])]

    def restore(self, pending: Iterable[tuple[Played[int], int]]) -> None:
        """Take on what `pending` returned."""
        for step, a in pending:
            self._append(step, a)
            self._ready.add((step.state, a))

    def _append(self, step: Played[int], a: int) -> None:
        visits = self._waiting.get((step.state, a))
        if visits is None:
            visits = self._waiting[step.state, a] = deque()
        visits.append((self._decisions, step))
        self._decisions += 1


def _settled(step: Played[int], a: int) -> bool:
    """Return whether it is known what a step counts for as a visit under `a`."""
    return step.lost or step.outcome is not None or (step.taken is not None and step.taken != a)
