"""When new plans are drafted, and the thread that makes them."""

from __future__ import annotations

import math
import threading
import time
from typing import Final, final

from chary.agents.draft import Draft
from chary.errors import CharyError

# The largest share of the time in which plans are made: decisions need the processors too.
SHARE: Final = 0.2
# Seconds until a plan that could not be made is tried again.
AFTER_FAILURE: Final = 30.0


@final
class Planner:
    """Makes one plan at a time beside the decisions; the engine adopts it when the next episode begins.

    Args:
        every: Episodes that must complete between two drafts; 0 has each plan made while an episode waits.
        growth: The least share of all completed episodes that must be new.
    """

    def __init__(self, *, every: int, growth: float) -> None:
        self.every, self.growth = every, growth
        # Why the last plan cannot be used, where what was learnt contradicts what was declared.
        self.problem: CharyError | None = None
        self._thread: threading.Thread | None = None
        self._draft: Draft | None = None
        # When the next plan may be begun, by the clock of `time.monotonic`.
        self._rested = 0.0

    @property
    def inline(self) -> bool:
        """Whether plans are made while an episode waits for it."""
        return self.every == 0

    def is_due(self, completed: int, drafted: int) -> bool:
        """Return whether a draft is due, `completed` episodes in all and `drafted` at the last draft."""
        new = completed - drafted
        if self.inline:
            return new > 0
        return new >= max(self.every, self.growth * completed) and time.monotonic() >= self._rested

    def is_made(self, draft: Draft) -> bool:
        """Return whether a plan is made; one that nobody makes yet is begun, in a thread.

        Raises:
            CharyError: if it cannot be used.
        """
        if self._draft is not draft or self._has_failed(draft):
            self.finish()
            self._draft, self.problem = draft, None
            self._thread = threading.Thread(
                target=self._make, args=(draft,), name="chary-planner", daemon=True
            )
            self._thread.start()
        if self.problem is not None:
            raise self.problem
        return draft.made

    def finish(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()

    def _make(self, draft: Draft) -> None:
        began = time.monotonic()
        self._rested = math.inf
        rest = AFTER_FAILURE
        try:
            draft.make()
            rest = 0.0
        except CharyError as problem:
            self.problem, rest = problem, 0.0
        finally:
            ended = time.monotonic()
            self._rested = ended + max(rest, (ended - began) * (1 / SHARE - 1))

    def _has_failed(self, draft: Draft) -> bool:
        """Return whether the thread ended without a plan, such as for want of memory, and may try again."""
        working = self._thread is not None and self._thread.is_alive()
        ended = not (working or draft.made or self.problem is not None)
        return ended and time.monotonic() >= self._rested
