"""When new plans are drafted, and the thread that makes them."""

from __future__ import annotations

import threading
from typing import final

from chary.service.live import Draft


@final
class Planner:
    """Makes one plan at a time beside the decisions; the engine adopts it when the next episode begins.

    Args:
        every: Episodes that must complete between two drafts; 0 has each plan made while an episode waits.
        growth: The least share of all completed episodes that must be new.
    """

    def __init__(self, *, every: int, growth: float) -> None:
        self.every, self.growth = every, growth
        self.failures = 0
        self._thread: threading.Thread | None = None
        self._made: Draft | None = None

    @property
    def inline(self) -> bool:
        """Whether plans are made while an episode waits for it."""
        return self.every == 0

    def is_due(self, completed: int, drafted: int) -> bool:
        """Return whether a draft is due, `completed` episodes in all and `drafted` at the last draft."""
        new = completed - drafted
        return new >= max(self.every, 1) and new >= self.growth * completed * (not self.inline)

    def start(self, draft: Draft) -> None:
        """Make a plan in a thread."""
        self._made = None
        self._thread = threading.Thread(target=self._make, args=(draft,), name="chary-planner", daemon=True)
        self._thread.start()

    def is_made(self, draft: Draft) -> bool:
        """Return whether a plan that was started is made; where making it failed, it is tried again."""
        if self._made is draft:
            return True
        if self._thread is None or not self._thread.is_alive():
            # It may have ended just now.
            if self._made is draft:
                return True
            self.failures += 1
            self.start(draft)
        return False

    def finish(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()

    def _make(self, draft: Draft) -> None:
        draft.make()
        self._made = draft
