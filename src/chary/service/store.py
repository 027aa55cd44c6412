"""The database of a deployment: events and their projections, written together in one transaction.

Many rows are written by one statement: a statement is one call into SQLite, during which other threads run,
and one per row would have the writer wait for its turn as many times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, final

from chary.errors import InvalidData
from chary.service.connection import PATIENCE_MS, Connection, Failed, Row, connect, readable
from chary.service.events import NOTHING, SCHEMA, Event, Fresh, encode, hash_of
from chary.service.migrations import migrate, schema_of

DATABASE = "chary.db"
# Rows of one statement, largest first; with ten columns below SQLite's limit of variables.
CHUNKS = (64, 16, 4, 1)
# Events that a reader takes at once.
PAGE = 5000
COLUMNS = "seq, kind, schema, episode, t, body, prev, hash, at, epoch"
KEPT_SNAPSHOTS = 2
# The columns of the projections, in the order in which their rows are written.
COLUMNS_OF = {
    "episode": "begun, id, status, ended",
    "decision": "begun, t, seq, mode, action, explored, charge, deficit, taken, outcome",
    "policy": "name, value, seq",
    "token": "id, digest, scopes, label, expires, added, revoked",
    "note": "begun, seq",
}


class Head(NamedTuple):
    """The last event: its number and its hash."""

    seq: int
    hash: bytes


class Snapshot(NamedTuple):
    """A snapshot of the state after event `seq`, whose digest is in event `named`."""

    seq: int
    content: bytes
    named: int


class Statement(NamedTuple):
    """A statement that writes many rows: what comes before and after their values, and columns per row."""

    before: str
    after: str
    width: int


_INTO = "INSERT INTO {} VALUES "
_SET = "UPDATE decision SET {} = v.column3 FROM (VALUES "
_OF = ") AS v WHERE decision.begun = v.column1 AND decision.t = v.column2"

# In this order: rows are made before they are changed.
STATEMENTS = {
    "event": Statement(_INTO.format("event"), "", 10),
    "episode": Statement(_INTO.format("episode"), "", 4),
    "payload": Statement(_INTO.format("payload"), "", 3),
    "decision": Statement(_INTO.format("decision"), "", 10),
    "taken": Statement(_SET.format("taken"), _OF, 3),
    "outcome": Statement(_SET.format("outcome"), _OF, 3),
    "ended": Statement(
        "UPDATE episode SET status = v.column2, ended = v.column3 FROM (VALUES ",
        ") AS v WHERE episode.begun = v.column1",
        3,
    ),
    "note": Statement(_INTO.format("note"), "", 2),
    "policy": Statement("INSERT OR REPLACE INTO policy VALUES ", "", 3),
    "token": Statement(_INTO.format("token"), "", 7),
    "revoked": Statement(
        "UPDATE token SET revoked = v.column2 FROM (VALUES ", ") AS v WHERE token.id = v.column1", 2
    ),
    "erased": Statement("DELETE FROM payload WHERE begun IN (SELECT column1 FROM (VALUES ", "))", 1),
}
# Of several rows with the same key in one batch the last one counts.
LAST_COUNTS = ("ended", "policy")

# A process that was killed leaves parts of a snapshot that was never completed.
_FORGET_PARTS = """
DELETE FROM part WHERE rowid IN (
  SELECT rowid FROM part WHERE snapshot <> ? AND snapshot NOT IN (SELECT seq FROM snapshot) LIMIT 2
)
"""

Rows = dict[str, list[Row]]


def project(event: Fresh, rows: Rows) -> None:
    """Add the rows of the projections that an event leads to."""
    seq, kind, _, t, _, _, facts, begun, apart = event
    match kind:
        case "decided":
            f: Any = facts
            rows["decision"].append(
                (begun, t, seq, f.mode, f.action, int(f.explored), f.charge, f.deficit, None, None)
            )
        case "observed":
            rows["outcome"].append((begun, t, seq))
        case "taken":
            rows["taken"].append((begun, t, seq))
        case "begun":
            rows["episode"].append((begun, event.episode, "open", None))
            if apart is not None:
                rows["payload"].append((begun, *apart))
        case "closed" | "abandoned":
            rows["ended"].append((begun, kind, seq))
            # An episode may be closed and abandoned after that: both are found again.
            rows["note"].append((begun, seq))
        case "corrected" | "tightened":
            rows["note"].append((begun, seq))
        case "erased":
            rows["note"].append((begun, seq))
            rows["erased"].append((begun,))
        case "mode" | "eta" | "adopted" | "plan_refused":
            rows["policy"].append((kind, event.body.decode(), seq))
        case "token_added":
            added: Any = facts
            scopes = encode(added.scopes).decode()
            rows["token"].append((added.token, added.digest, scopes, added.label, added.expires, seq, None))
        case "token_revoked":
            revoked: Any = facts
            rows["revoked"].append((revoked.token, seq))


def new_rows() -> Rows:
    """Return no rows, for `project`."""
    return {name: [] for name in STATEMENTS}


def write_rows(connection: Connection, rows: Rows) -> None:
    """Write the rows of a batch, many per statement."""
    for name, given in rows.items():
        if not given:
            continue
        if name in LAST_COUNTS:
            given = list({row[0]: row for row in given}.values())
        at = 0
        for size in CHUNKS:
            while len(given) - at >= size:
                values = [value for row in given[at : at + size] for value in row]
                connection.execute(_sql(name, size), values)
                at += size


@cache
def _sql(name: str, rows: int) -> str:
    before, after, width = STATEMENTS[name]
    row = f"({', '.join('?' * width)})"
    return before + ", ".join([row] * rows) + after


class FenceLost(Exception):
    """Another process has taken the deployment over: nothing may be written any more."""


@final
class Store:
    """The one writing connection; used by one thread at a time.

    Args:
        path: The database.
        engine: One of `connection.ENGINES`.
        vfs: The name of a file system of apsw's.
    """

    def __init__(self, path: Path, *, engine: str = "sqlite3", vfs: str | None = None) -> None:
        self.path = path
        self._connection = connect(path, engine=engine, vfs=vfs)
        self.epoch = 0
        self.head = Head(0, NOTHING)

    def prepare(self, *, new: bool = False) -> None:
        """Set the connection up, and bring the schema to that of this version.

        Args:
            new: Whether the database is empty, to be filled.

        Raises:
            InvalidData: if the database is damaged, empty, of a newer schema, or of another program.
        """
        with readable(self.path):
            run = self._connection.execute
            run(f"PRAGMA busy_timeout = {PATIENCE_MS}")
            if not schema_of(self._connection) and not new:
                raise InvalidData(
                    f"{self.path.name!r} must begin with the event of a deployment, got an empty database. "
                    "Restore the last backup."
                )
            ((journal,),) = run("PRAGMA journal_mode = WAL")
            if journal != "wal":
                raise InvalidData(
                    f"{str(self.path)!r} must lie on a disk that SQLite's write-ahead log works on, got "
                    f"journal mode {journal!r}. Use a local disk."
                )
            for pragma in ("synchronous = FULL", "wal_autocheckpoint = 0", "secure_delete = ON"):
                run(f"PRAGMA {pragma}")
            # A large log is cut back when a checkpoint has emptied it.
            run(f"PRAGMA journal_size_limit = {256 * 1024 * 1024}")
            migrate(self._connection)

    def take_over(self, deployment: str) -> int:
        """Raise the epoch, so that an earlier writer writes nothing any more, and return it.

        Raises:
            InvalidData: if the database is of another deployment.
            Failed: if the disk refuses.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            found = list(run("SELECT deployment, epoch FROM lease"))
            if found and found[0][0] != deployment:
                raise InvalidData(
                    f"'chary.db' must be that of deployment {deployment!r}, got one of {found[0][0]!r}. "
                    "Put the files of one deployment together."
                )
            self.epoch = (int(found[0][1]) if found else 0) + 1
            run("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (deployment, self.epoch))
            last = list(run("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1"))
            self.head = Head(*last[0]) if last else Head(0, NOTHING)
            run("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return self.epoch

    def write(self, events: Sequence[Fresh]) -> Head:
        """Write events and their projections in one transaction; they are on the disk when this returns.

        Raises:
            FenceLost: if another process has taken over.
            Failed: if the disk refuses; whether the events are on the disk is not known then.
        """
        rows = new_rows()
        kept, epoch, prev = rows["event"], self.epoch, self.head.hash
        for event in events:
            seq, kind, episode, t, body, at = event[:6]
            digest = hash_of(prev, seq, kind, episode, t, body, at, epoch)
            kept.append((seq, kind, SCHEMA, episode, t, body.decode(), prev, digest, at, epoch))
            prev = digest
            project(event, rows)
        with self._fenced():
            write_rows(self._connection, rows)
        self.head = Head(events[-1].seq, prev)
        return self.head

    def write_part(self, seq: int, number: int, content: bytes) -> None:
        """Write a part of a snapshot, which is none before `complete_snapshot`, and delete two old parts."""
        # What is freed here need not be overwritten: names are hashed in a snapshot, and it has no payloads.
        self._connection.execute("PRAGMA secure_delete = OFF")
        with self._fenced() as run:
            run(_FORGET_PARTS, (seq,))
            run("INSERT OR REPLACE INTO part VALUES (?, ?, ?)", (seq, number, content))
        self._connection.execute("PRAGMA secure_delete = ON")

    def complete_snapshot(self, seq: int, *, named: int) -> None:
        """Keep the snapshot of event `seq`, whose parts are written, and of the others the newest ones.

        Event `named` names it. The parts of the others are deleted as the next one is written.
        """
        with self._fenced() as run:
            run("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", (seq, named))
            run(
                "DELETE FROM snapshot WHERE seq NOT IN (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT ?)",
                (KEPT_SNAPSHOTS,),
            )

    @contextmanager
    def _fenced(self) -> Iterator[Callable[..., Iterator[Row]]]:
        """Run what is inside as one transaction, unless another process has taken over.

        Raises:
            FenceLost: if it has.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        ((current,),) = run("SELECT epoch FROM lease")
        if current != self.epoch:
            self._roll_back()
            raise FenceLost(f"epoch {current} has taken over from {self.epoch}")
        yield run
        run("COMMIT")

    def checkpoint(self, *, empty: bool = False) -> bool:
        """Bring the write-ahead log into the database, and return whether all of it is there.

        `empty` also cuts the log. Where a reader holds it that is left to another time: the writer waits for
        no reader.
        """
        run = self._connection.execute
        if not empty:
            ((busy, _, _),) = run("PRAGMA wal_checkpoint(PASSIVE)")
            return not busy
        run("PRAGMA busy_timeout = 0")
        ((busy, _, _),) = run("PRAGMA wal_checkpoint(TRUNCATE)")
        run(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        return not busy

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except Failed:
            # There was no transaction left to end.
            return


@final
class Reader:
    """A read-only connection and what it finds; used by one thread at a time."""

    def __init__(self, path: Path, *, engine: str = "sqlite3", vfs: str | None = None) -> None:
        self.path = path
        with readable(path):
            self._connection = connect(path, engine=engine, readonly=True, vfs=vfs)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query.

        Raises:
            InvalidData: if the database cannot be read.
        """
        with readable(self.path):
            return list(self._connection.execute(sql, values))

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Let all queries inside see the database as it is now, whatever is written meanwhile."""
        self.query("BEGIN")
        try:
            yield
        finally:
            self.query("ROLLBACK")

    @property
    def epoch(self) -> int:
        """The epoch of the process that has the deployment, or had it last."""
        ((epoch,),) = self.query("SELECT epoch FROM lease")
        return int(epoch)

    def events(self, after: int = 0, upto: int | None = None) -> Iterator[Event]:
        """Yield the events after one, in order, up to and including another."""
        last = 2**63 - 1 if upto is None else upto
        while True:
            page = self.query(
                f"SELECT {COLUMNS} FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {PAGE}",
                (after, last),
            )
            yield from map(Event._make, page)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots, the newest first."""
        for seq, named in self.query("SELECT seq, named FROM snapshot ORDER BY seq DESC"):
            if type(named) is not int:
                continue
            parts = self.query("SELECT content FROM part WHERE snapshot = ? ORDER BY number", (seq,))
            # A changed byte in the file can turn bytes into a text; the digest tells that a part is missing.
            whole = b"".join(content for (content,) in parts if type(content) is bytes)
            yield Snapshot(seq, whole, named)

    def of_episodes(self, identities: Sequence[str]) -> list[Event]:
        """Return the events of some episodes, in order; none of those that there are not."""
        found: list[Event] = []
        for at in range(0, len(identities), PAGE):
            rows = self._of("SELECT begun, ended FROM episode WHERE id", identities[at : at + PAGE])
            begun = [number for number, _ in rows]
            rows += self._of("SELECT seq, taken, outcome FROM decision WHERE begun", begun)
            rows += self._of("SELECT seq FROM note WHERE begun", begun)
            numbers = sorted({number for row in rows for number in row if number is not None})
            for first in range(0, len(numbers), PAGE):
                page = numbers[first : first + PAGE]
                found += map(Event._make, self._of(f"SELECT {COLUMNS} FROM event WHERE seq", page))
        found.sort()
        return found

    def of_episode(self, identity: str) -> list[Event]:
        """Return the events of one episode, in order; none if there is no such episode."""
        return self.of_episodes([identity])

    def _of(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query that ends in the name of a column, for some of its values."""
        return self.query(f"{sql} IN ({', '.join('?' * len(values))})", values)

    def apart(self, identity: str) -> tuple[bytes, str] | None:
        """Return the salt and the text that are kept apart for an episode; None where they were erased."""
        rows = self.query(
            "SELECT salt, content FROM payload JOIN episode USING (begun) WHERE id = ?", (identity,)
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
