"""`chary audit verify`: every event, the chain, and all that is kept besides, against the events."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, final

import msgspec

from chary.errors import CharyError, InvalidData
from chary.service.connection import Row
from chary.service.deployment import Deployment
from chary.service.events import NOTHING, Event, Fresh, Snapshotted, digest_apart, is_intact
from chary.service.findings import Findings
from chary.service.live import SNAPSHOT
from chary.service.migrations import MIGRATIONS
from chary.service.recovery import check_first
from chary.service.store import COLUMNS_OF, Reader, Rows, new_rows, project, write_rows
from chary.storage.files import UNREADABLE
from chary.storage.sealed import unpack
from chary.texts import shown

# Events whose projections are written at once.
BATCH = 1000
# The projections that events give, each with the columns that it is ordered by.
COMPARED = {
    "episode": "begun",
    "decision": "begun, t",
    "policy": "name",
    "token": "id",
    "note": "begun, seq",
}


def verify(directory: str | Path, *, head: str | None = None) -> Findings:
    """Check all that is on the disk, beside a running service or without one.

    Args:
        directory: A deployment.
        head: The hash of an event that must be in the chain, as it was published.

    Raises:
        CharyError: if the deployment or its database cannot be read at all.
    """
    deployment = Deployment.open(directory)
    wanted = None if head is None else _hash(head)
    reader = Reader(deployment.database)
    found = Findings()
    try:
        with reader.at_one_moment():
            try:
                check_first(deployment, reader)
            except InvalidData as problem:
                found.add("deployment", 1, str(problem))
            for (said,) in reader.query("PRAGMA integrity_check"):
                if said != "ok":
                    found.add("database", None, f"SQLite found in the database: {said}.")
            rebuilt = _Rebuilt()
            try:
                _check_events(reader, rebuilt, found, wanted)
                _check_projections(reader, rebuilt, found)
            except sqlite3.IntegrityError as problem:
                found.add("chain", None, f"Events contradict each other, and no table follows: {problem}.")
            _check_apart(deployment, reader, rebuilt, found)
            _check_snapshots(reader, rebuilt, found)
    finally:
        reader.close()
    return found


@final
class _Rebuilt:
    """The projections that the events give, in memory."""

    def __init__(self) -> None:
        self.connection = _Memory()
        self._rows: Rows = new_rows()
        self._waiting = 0
        # Of each episode: its first event, the hash of what is kept apart, and whether that was erased.
        self.begun: dict[str, int] = {}
        self.apart: dict[int, str] = {}
        self.erased: set[int] = set()
        # Of each snapshot that was ever taken: the event that names it, and its digest.
        self.snapshots: dict[int, tuple[int, str]] = {}

    def take(self, event: Event, facts: Any) -> None:
        """Add an event's rows."""
        number = 0
        if event.kind == Snapshotted.kind:
            self.snapshots.setdefault(facts.upto, (event.seq, facts.digest))
        if event.episode is not None:
            if event.kind == "begun":
                self.begun[event.episode] = event.seq
                self.apart[event.seq] = facts.payload
            number = self.begun.get(event.episode, 0)
            if event.kind == "erased":
                self.erased.add(number)
        fresh = Fresh(
            event.seq, event.kind, event.episode, event.t, event.body.encode(), event.at, facts, number
        )
        project(fresh, self._rows)
        self._waiting += 1
        if self._waiting >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        write_rows(self.connection, self._rows)
        self._rows, self._waiting = new_rows(), 0


@final
class _Memory:
    """A database in memory with the schema of this version."""

    def __init__(self) -> None:
        self._inner = sqlite3.connect(":memory:", isolation_level=None)
        for migration in MIGRATIONS:
            self.script(migration)

    def execute(self, sql: str, values: Any = ()) -> Iterator[Row]:
        return iter(self._inner.execute(sql, values).fetchall())

    def script(self, sql: str) -> None:
        self._inner.executescript(sql)

    def close(self) -> None:
        self._inner.close()


def _check_events(reader: Reader, rebuilt: _Rebuilt, found: Findings, wanted: bytes | None) -> None:
    seq, prev, seen = 0, NOTHING, wanted is None
    for event in reader.events():
        intact = is_intact(event, event.prev)
        if event.seq != seq + 1:
            found.add("chain", event.seq, f"Event {event.seq} follows {seq}: those between are missing.")
        elif event.prev != prev:
            found.add(
                "chain", event.seq, f"Event {event.seq} does not follow event {seq}: its 'prev' differs."
            )
        if not intact:
            found.add("event", event.seq, f"Event {event.seq} was changed: its hash does not agree.")
        seq, prev = event.seq, event.hash if type(event.hash) is bytes else NOTHING
        seen |= event.hash == wanted
        found.events += 1
        found.decisions += event.kind == "decided"
        if not intact:
            continue
        try:
            facts = event.facts()
        except InvalidData as problem:
            found.add("event", event.seq, str(problem))
            continue
        rebuilt.take(event, facts)
    found.head = prev.hex()
    rebuilt.flush()
    if not seen and wanted is not None:
        found.add(
            "head", seq,
            f"The published head {wanted.hex()} is not in the chain, which ends at event {seq}: its end was "
            "cut off, or the trail was replaced.",
        )  # fmt: skip


def _check_projections(reader: Reader, rebuilt: _Rebuilt, found: Findings) -> None:
    for table, order in COMPARED.items():
        columns = COLUMNS_OF[table]
        sql = f"SELECT {columns} FROM {table} ORDER BY {order}"
        kept, given = reader.query(sql), rebuilt.connection.execute(sql)
        for here, there in zip_longest(kept, given):
            if here != there:
                row = here if here is not None else there
                assert row is not None
                found.add(
                    table, None,
                    f"Table {table} differs from what the events give at {shown(row[:2])}: {shown(here)} in "
                    f"place of {shown(there)}.",
                )  # fmt: skip


def _check_apart(deployment: Deployment, reader: Reader, rebuilt: _Rebuilt, found: Findings) -> None:
    identities = {number: identity for identity, number in rebuilt.begun.items()}
    kept = set()
    for number, salt, content in reader.query("SELECT begun, salt, content FROM payload ORDER BY begun"):
        kept.add(number)
        typed = type(salt) is bytes and type(content) is str
        if not typed or rebuilt.apart.get(number) != digest_apart(salt, content):
            found.add("payload", number, f"What is kept apart of the episode of event {number} was changed.")
            continue
        name = msgspec.json.decode(content)["name"]
        if deployment.identity(name) != identities.get(number):
            found.add("payload", number, f"The name kept for the episode of event {number} is another one's.")
    for number in sorted(set(rebuilt.apart) - rebuilt.erased - kept):
        found.add("payload", number, f"What is kept apart of the episode of event {number} is missing.")
    for number in sorted(rebuilt.erased & kept):
        found.add("payload", number, f"What was kept apart of the episode of event {number} was not erased.")


def _check_snapshots(reader: Reader, rebuilt: _Rebuilt, found: Findings) -> None:
    for seq, content, named in reversed(list(reader.snapshots())):
        found.snapshots += 1
        if rebuilt.snapshots.get(seq) != (named, hashlib.sha256(content).hexdigest()):
            found.add(
                "snapshot", seq,
                f"The snapshot of event {seq} is not the one that event {named} names: it was changed.",
            )  # fmt: skip
            continue
        try:
            about, _ = unpack(SNAPSHOT, content)
            whole = about["seq"] == seq
        except (CharyError, *UNREADABLE) as problem:
            found.add("snapshot", seq, f"The snapshot of event {seq} cannot be read: {problem}")
            continue
        if not whole:
            found.add("snapshot", seq, f"The snapshot of event {seq} is of another event.")


def _hash(head: str) -> bytes:
    try:
        given = bytes.fromhex(head)
    except ValueError:
        given = b""
    if len(given) != len(NOTHING):
        raise InvalidData(f"'head' must be {2 * len(NOTHING)} hexadecimal digits, got {shown(head)}.")
    return given
