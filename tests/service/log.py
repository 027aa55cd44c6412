"""The log of a deployment as the checker of histories takes it, read with SQL alone.

The chain of hashes is checked here by its description, not with the service's code.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.service.history import Fact

from chary.service.deployment import Deployment
from chary.service.events import NOTHING, hash_of

# The kinds of events by the names of the requests that lead to them.
KINDS = {
    "begun": "begin",
    "decided": "decide",
    "observed": "outcome",
    "corrected": "correct",
    "closed": "close",
    "abandoned": "abandon",
    "tightened": "tighten",
}


def rows(directory: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the database of a deployment whose service does not run."""
    with closing(sqlite3.connect(directory / "chary.db")) as connection:
        return connection.execute(sql).fetchall()


def facts_of(directory: Path) -> list[Fact]:
    """Return all events in the order in which the database numbers them."""
    found = rows(directory, "SELECT seq, kind, episode, t, body, epoch FROM event ORDER BY seq")
    return [
        Fact(seq, KINDS.get(kind, kind), episode or "", t, json.loads(body), epoch)
        for seq, kind, episode, t, body, epoch in found
    ]


def identify_by(directory: Path) -> Callable[[str], str]:
    """Return what turns names of episodes into those of the log."""
    return Deployment.open(directory).identity


def broken_links(directory: Path) -> list[str]:
    """Return what is wrong with the numbers and hashes of the events."""
    found, prev, number = [], bytes(32), 0
    columns = "seq, kind, schema, episode, t, at, epoch, body, prev, hash"
    for *about, body, before, digest in rows(directory, f"SELECT {columns} FROM event ORDER BY seq"):
        number += 1
        told = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
        right = hashlib.sha256(prev + told + b"\n" + body.encode()).digest()
        if (about[0], before, digest) != (number, prev, right):
            found.append(f"event {about[0]}, number {number}")
        prev = digest
    return found


def rewrite(directory: Path, seq: int, change: Callable[[str], str]) -> None:
    """Change the body of an event, and give it and all events after it new hashes, as a forger would."""
    with closing(sqlite3.connect(directory / "chary.db")) as connection:
        columns = "seq, kind, episode, t, body, at, epoch"
        events = connection.execute(f"SELECT {columns} FROM event ORDER BY seq").fetchall()
        prev = NOTHING
        for number, kind, episode, t, body, at, epoch in events:
            told = change(body) if number == seq else body
            digest = hash_of(prev, number, kind, episode, t, told.encode(), at, epoch)
            connection.execute(
                "UPDATE event SET body = ?, prev = ?, hash = ? WHERE seq = ?", (told, prev, digest, number)
            )
            prev = digest
        connection.commit()
