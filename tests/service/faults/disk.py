"""A disk that forgets and fails: an SQLite VFS that records what is written and when it is synced.

`Disk` passes every call on to the system's own VFS, so a program that uses it runs as usual. What it records
is enough to compute what a computer may find after a power loss at any moment (`after_power_loss`). Bytes
that were synced are there. Of the bytes that were not, each sector holds what it held at some moment since
the last sync, whatever the order of the writes, and now and then a sector is torn in itself. `fail` makes
chosen calls fail as a full or broken disk does.
"""

# ruff: noqa: N802 - SQLite chose the names of the calls of a VFS.

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import apsw

SECTOR = 512
# What a fault may strike: the calls that change the disk.
Call = Literal["write", "sync", "truncate", "delete", "open"]
# The files whose content outlives the process; SQLite's shared memory does not.
KEPT = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


class Step(NamedTuple):
    """One thing that happened: a call on a file, or a mark of the test's own (`call` is "mark")."""

    call: str
    path: str = ""
    offset: int = 0
    data: bytes = b""
    mark: Any = None


@dataclass
class Disk:
    """A VFS by the name `name`; `steps` is everything that happened since it was made."""

    name: str
    steps: list[Step] = field(default_factory=list)
    fail: Callable[[Call, str], BaseException | None] | None = None
    # Whether a sync is passed on to the real disk, which loses nothing in these tests.
    real_sync: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _vfs: apsw.VFS | None = None

    def __enter__(self) -> Disk:
        self._vfs = _Recording(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._vfs is not None
        self._vfs.unregister()
        self._vfs = None

    def mark(self, mark: Any) -> None:
        """Record that something happened outside the disk, such as an answer that was sent."""
        with self._lock:
            self.steps.append(Step("mark", mark=mark))

    def record(self, call: Call, path: str, offset: int = 0, data: bytes = b"") -> None:
        """Record a call, unless it is one that must fail."""
        with self._lock:
            error = None if self.fail is None else self.fail(call, os.path.basename(path))
            if error is None:
                self.steps.append(Step(call, path, offset, data))
        if error is not None:
            raise error


class _Recording(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or not flags[0] & KEPT:
            return apsw.VFSFile("", name, flags)
        if not os.path.exists(path):
            self.disk.record("open", path)
        return _File(self.disk, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.disk.record("delete", filename, offset=int(syncdir))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk, self.path = disk, path
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self.disk.record("write", self.path, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self.disk.record("truncate", self.path, newsize)
        super().xTruncate(newsize)

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError as error:
            # A read-only connection that is closed last asks for a lock that it cannot have. SQLite expects
            # that, and apsw would raise it from `close`.
            raise apsw.BusyError("not for readers") from error

    def xSync(self, flags: int) -> None:
        if self.disk.real_sync:
            super().xSync(flags)
        self.disk.record("sync", self.path)


@dataclass
class _Content:
    """A file: what is surely on the disk, and the writes and truncations that may or may not be."""

    durable: bytearray
    # Whether its name is surely in the directory, or surely not any more.
    named: bool
    pending: list[Step] = field(default_factory=list)

    def current(self) -> bytearray:
        content = bytearray(self.durable)
        for step in self.pending:
            _apply(content, step)
        return content


def _apply(content: bytearray, step: Step) -> None:
    if step.call == "truncate":
        del content[step.offset :]
    else:
        end = step.offset + len(step.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[step.offset : end] = step.data


def after_power_loss(before: dict[str, bytes], steps: Sequence[Step], chance: Random) -> dict[str, bytes]:
    """Return a content of the disk that a power loss after `steps` may leave, by path.

    `before` is what the disk held when the first of `steps` was taken, all of it synced.
    """
    files = {path: _Content(bytearray(data), named=True) for path, data in before.items()}
    removed: dict[str, _Content] = {}
    for step in steps:
        if step.call == "mark":
            continue
        if step.call == "open":
            files[step.path] = _Content(bytearray(), named=False)
        elif step.call == "delete":
            gone = files.pop(step.path, None)
            if gone is not None and gone.named and not step.offset:
                # The directory was not synced: the file may come back, with all or some of what it held.
                removed[step.path] = gone
        elif step.call == "sync":
            file = files[step.path]
            file.durable, file.pending = file.current(), []
            # SQLite syncs the directory too, with the first sync of a journal or log that it made.
            file.named = True
            removed.pop(step.path, None)
        else:
            files.setdefault(step.path, _Content(bytearray(), named=False)).pending.append(step)
    for path, file in removed.items():
        if path not in files or (not files[path].named and chance.random() < 0.5):
            if chance.random() < 0.5:
                files[path] = file
    return {
        path: bytes(_settle(file, chance))
        for path, file in files.items()
        if file.named or (file.pending and chance.random() < 0.7)
    }


def _settle(file: _Content, chance: Random) -> bytearray:
    """Return what of the pending writes arrived: all, none, or each sector as it was at some moment."""
    if not file.pending:
        return file.durable
    kind = chance.random()
    if kind < 0.15:
        return file.durable
    if kind < 0.3:
        return file.current()
    content = bytearray(file.durable)
    # Truncations are changes of the directory entry: one of them arrived last, or none did.
    kept: list[Step] = []
    for step in file.pending:
        if step.call == "truncate":
            if chance.random() < 0.5:
                _apply(content, step)
                kept = [each for each in kept if each.offset < step.offset]
        else:
            kept.append(step)
    arrival = chance.choice((0.1, 0.5, 0.9, 0.99))
    versions: dict[int, list[bytes]] = {}
    current = bytearray(content)
    for step in kept:
        _apply(current, step)
        for sector in range(step.offset // SECTOR, (step.offset + len(step.data) - 1) // SECTOR + 1):
            versions.setdefault(sector, []).append(bytes(current[sector * SECTOR : (sector + 1) * SECTOR]))
    for sector, seen in versions.items():
        if chance.random() >= arrival:
            continue
        # Write-back may have taken the sector at any moment: a later write need not have arrived.
        new = seen[-1] if chance.random() < 0.7 else chance.choice(seen)
        start = sector * SECTOR
        old = bytes(content[start : start + SECTOR]).ljust(SECTOR, b"\0")
        if chance.random() < 0.02:
            cut = chance.randrange(1, SECTOR)
            new = new[:cut] + old[cut : len(new)]
        if len(content) < start + len(new):
            content.extend(bytes(start + len(new) - len(content)))
        content[start : start + len(new)] = new
    if chance.random() < 0.3 and len(content) < len(current):
        # The size arrived and the bytes did not.
        content.extend(bytes(len(current) - len(content)))
    return content


def read_folder(folder: Path, suffixes: Sequence[str] = (".db", "-wal", "-journal")) -> dict[str, bytes]:
    """Return the files of a folder that the disk keeps, by path."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name.endswith(tuple(suffixes))
    }


def restore(files: dict[str, bytes], into: Path) -> None:
    """Write `files` into a folder in which nothing else of them is left."""
    for path in into.iterdir():
        if path.name.endswith((".db", "-wal", "-journal", "-shm")):
            path.unlink()
    for name, data in files.items():
        (into / os.path.basename(name)).write_bytes(data)
