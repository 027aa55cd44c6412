"""A service in a process of a nursery, with short intervals, and faults where a test wants them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service.faults import wards

from chary.service import committer, hosting, points, snapshots
from chary.service.engine import Engine
from chary.service.live import Live

# So that a life of half a second meets checkpoints and snapshots.
SHORT: tuple[tuple[Any, str, int], ...] = (
    (committer, "ROWS_PER_CHECKPOINT", 20), (snapshots, "MODEST", False), (snapshots, "NICENESS", 0),
)  # fmt: skip


def serve(directory: str, port: int, point: str | None = None) -> int:
    """Run the service of a deployment; at the named point it ends by SIGKILL."""
    shorten()
    if point is not None:
        plant(point)
    return hosting.serve(Path(directory), port=port)


def plant(point: str) -> None:
    """Do what CHARY_FAULT_POINT does at the start of a process, in one that is forked."""
    before, after = points.reached, points._Ending(point)
    for module in list(sys.modules.values()):
        if getattr(module, "reached", None) is before:
            module.__dict__["reached"] = after


def shorten() -> None:
    """Do what `shortened` does until the process ends."""
    for module, name, value in SHORT:
        setattr(module, name, value)


@contextmanager
def shortened() -> Iterator[None]:
    """Write checkpoints often, and pack snapshots at once, however busy the processors are."""
    before = [(module, name, getattr(module, name)) for module, name, _ in SHORT]
    shorten()
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def warm() -> None:
    """Load and compile what a service runs, and open nothing: a nursery calls this before it forks."""
    with tempfile.TemporaryDirectory() as folder:
        Live.new(wards.declared(Path(folder), "worlds")[0])


def answer_early() -> None:
    """Plant a bug: replies do not wait for the disk."""

    async def at_once(engine: Engine, seq: int) -> None:
        pass

    setattr(Engine, "durable", at_once)  # noqa: B010 - planted


if __name__ == "__main__":
    if sys.argv[3:] == ["early"]:
        answer_early()
    sys.exit(serve(sys.argv[1], int(sys.argv[2])))
