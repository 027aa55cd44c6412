"""A connection to SQLite: the standard library's `sqlite3`, or `apsw`, which bundles a current SQLite."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast, final

from chary.errors import InvalidData, InvalidSetting, check_choice, check_installed

ENGINES = ("sqlite3", "apsw")
# The first version with STRICT tables.
OLDEST = (3, 37, 0)
# Milliseconds that a reader waits where a checkpoint holds a lock.
PATIENCE_MS = 5000
CACHED_STATEMENTS = 256

Row = tuple[Any, ...]


class Connection(Protocol):
    """The part of a connection that the store uses. Outside `begin` each statement is its own transaction."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Run one statement and return its rows."""

    def script(self, sql: str) -> None:
        """Run several statements without values."""

    def close(self) -> None:
        """Close it."""


class Failed(Exception):
    """SQLite refused: the disk is full, cannot be read or written, or the file is damaged."""


@final
class _Standard:
    """A connection of the standard library."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        with _translated():
            self._inner = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rw'}",
                uri=True,
                isolation_level=None,
                timeout=PATIENCE_MS / 1000,
                cached_statements=CACHED_STATEMENTS,
                check_same_thread=False,
            )

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with _translated():
            return iter(self._inner.execute(sql, values).fetchall())

    def script(self, sql: str) -> None:
        with _translated():
            self._inner.executescript(sql)

    def close(self) -> None:
        with _translated():
            self._inner.close()


@final
class _Apsw:
    """A connection of apsw."""

    def __init__(self, path: Path, *, readonly: bool, vfs: str | None) -> None:
        check_installed("apsw", "Connection 'apsw'", "serve-apsw")
        import apsw

        flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
        with _translated():
            self._inner = apsw.Connection(
                str(path.absolute()), flags=flags, vfs=vfs, statementcachesize=CACHED_STATEMENTS
            )
            self._inner.set_busy_timeout(PATIENCE_MS)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with _translated():
            return iter(cast("list[Row]", self._inner.execute(sql, tuple(values)).fetchall()))

    def script(self, sql: str) -> None:
        with _translated():
            for _ in self._inner.execute(sql):
                pass

    def close(self) -> None:
        with _translated():
            self._inner.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the errors of either library into `Failed`."""
    try:
        yield
    except _errors() as problem:
        raise Failed(f"{type(problem).__name__}: {problem}") from problem


def _errors() -> tuple[type[Exception], ...]:
    apsw = sys.modules.get("apsw")
    return (sqlite3.Error,) if apsw is None else (sqlite3.Error, apsw.Error)


def connect(
    path: Path, *, engine: str = "sqlite3", readonly: bool = False, vfs: str | None = None
) -> Connection:
    """Return a connection to an existing database.

    Args:
        path: The file.
        engine: One of `ENGINES`.
        readonly: Whether nothing may be written.
        vfs: The name of a file system of apsw's.

    Raises:
        Failed: if it cannot be opened.
        InvalidSetting: if the engine is not installed or too old.
    """
    check_choice("connection", engine, ENGINES)
    version = sqlite_version(engine)
    if tuple(map(int, version.split("."))) < OLDEST:
        raise InvalidSetting(
            f"SQLite must be at least {'.'.join(map(str, OLDEST))}, got {version} with {engine!r}. Use "
            "connection 'apsw', which bundles a current one."
        )
    if vfs is not None and engine != "apsw":
        raise InvalidSetting(f"'vfs' needs connection 'apsw', got {vfs!r} with {engine!r}.")
    opened: Connection
    if engine == "apsw":
        opened = _Apsw(path, readonly=readonly, vfs=vfs)
    else:
        opened = _Standard(path, readonly=readonly)
    return opened


def sqlite_version(engine: str) -> str:
    """Return the version of SQLite that an engine runs."""
    if engine == "apsw":
        check_installed("apsw", "Connection 'apsw'", "serve-apsw")
        import apsw

        return str(apsw.sqlite_lib_version())
    return sqlite3.sqlite_version


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn `Failed` into one sentence about a database that cannot be read.

    Raises:
        InvalidData: in its place.
    """
    try:
        yield
    except Failed as problem:
        raise InvalidData(
            f"{str(path)!r} must be the database of a deployment, whole and readable, got one that SQLite "
            f"refuses: {problem}. Restore the last backup."
        ) from problem
