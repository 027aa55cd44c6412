"""The schema of the database, as numbered migrations; `PRAGMA user_version` is the number of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from chary.errors import InvalidData
from chary.service.connection import Connection, Failed

# Marks a database as one of chary's: "chry".
APPLICATION = 0x63687279

_FIRST = """
CREATE TABLE event (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  schema INTEGER NOT NULL,
  episode TEXT,
  t INTEGER,
  body TEXT NOT NULL,
  prev BLOB NOT NULL,
  hash BLOB NOT NULL,
  at INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE episode (
  begun INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL,
  ended INTEGER
) STRICT;
CREATE TABLE decision (
  begun INTEGER NOT NULL,
  t INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  mode TEXT NOT NULL,
  action INTEGER NOT NULL,
  explored INTEGER NOT NULL,
  charge REAL NOT NULL,
  deficit REAL NOT NULL,
  taken INTEGER,
  outcome INTEGER,
  PRIMARY KEY (begun, t)
) STRICT, WITHOUT ROWID;
CREATE TABLE policy (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE lease (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  deployment TEXT NOT NULL,
  epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshot (
  seq INTEGER PRIMARY KEY,
  named INTEGER NOT NULL
) STRICT;
CREATE TABLE part (
  snapshot INTEGER NOT NULL,
  number INTEGER NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (snapshot, number)
) STRICT;
CREATE TABLE payload (
  begun INTEGER PRIMARY KEY,
  salt BLOB NOT NULL,
  content TEXT NOT NULL
) STRICT;
CREATE TABLE token (
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  scopes TEXT NOT NULL,
  label TEXT NOT NULL,
  expires TEXT,
  added INTEGER NOT NULL,
  revoked INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE note (
  begun INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (begun, seq)
) STRICT, WITHOUT ROWID;
"""

# What was released is never changed: a new schema is a further migration, which also fills what it adds.
MIGRATIONS: tuple[str, ...] = (_FIRST,)


def migrate(connection: Connection, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Bring a database to the schema of this version, each step whole or not at all; return that before.

    Args:
        connection: The writing connection.
        migrations: Those of this version, in order; others for tests.

    Raises:
        InvalidData: if it has a newer schema, or is of another program.
        Failed: if the disk refuses.
    """
    before = schema_of(connection, newest=len(migrations))
    for number in range(before + 1, len(migrations) + 1):
        try:
            connection.script(
                f"BEGIN IMMEDIATE; {migrations[number - 1]} PRAGMA application_id = {APPLICATION}; "
                f"PRAGMA user_version = {number}; COMMIT;"
            )
        except Failed:
            # Not as a script: sqlite3 commits before it runs one, as of Python 3.11. Where the disk refused,
            # SQLite may have rolled back already.
            with suppress(Failed):
                connection.execute("ROLLBACK")
            raise
    return before


def schema_of(connection: Connection, *, newest: int = len(MIGRATIONS)) -> int:
    """Return the number of the schema of a database, 0 for an empty one.

    Raises:
        InvalidData: if it is newer than this version, or of another program.
    """
    ((application,),) = connection.execute("PRAGMA application_id")
    ((number,),) = connection.execute("PRAGMA user_version")
    if application not in (0, APPLICATION) or (number > 0 and application == 0):
        raise InvalidData(
            f"'chary.db' must be a database of chary, got one of another program (application {application})."
        )
    if number > newest:
        raise InvalidData(
            f"'chary.db' must have schema {newest} or older, got {number}, of a newer version. Upgrade chary."
        )
    return int(number)
