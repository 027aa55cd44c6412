"""What is on the disk, for readers: each thread has its own read-only connection and never blocks the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final


@final
class Views:
    """Read-only views of a deployment; safe in any thread, with or without a running engine."""

    def __init__(self, directory: str | Path) -> None:
        raise NotImplementedError

    def episode(self, name: str) -> dict[str, Any] | None:
        """Return an episode: its ledger, its steps, what is outstanding; None if there is none."""
        raise NotImplementedError

    def decision(self, name: str, t: int) -> dict[str, Any] | None:
        """Return a decision, what was taken and what came of it; None if there is none."""
        raise NotImplementedError

    def mode(self) -> dict[str, Any]:
        """Return the mode and the budget in force, since when, by whom and why."""
        raise NotImplementedError

    def events(
        self, *, after: int = 0, limit: int = 100, episode: str | None = None, kind: str | None = None
    ) -> list[dict[str, Any]]:
        """Return events in order; `episode` is a name."""
        raise NotImplementedError
