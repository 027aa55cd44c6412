"""The lock of a sweep's folder: held by a sweep and its workers, released when the last of them ends."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from chary.errors import InvalidSetting
from chary.storage.files import json_line, read_json

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
except ModuleNotFoundError:
    # Windows.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

# Workers of a killed sweep may be inside a compiler for a while; `status` holds the lock for an instant.
ORPHANS_SECONDS, LOOKS_SECONDS = 90.0, 0.5


def check_locks() -> None:
    """Raise InvalidSetting where the system has no file locks that processes share."""
    if not HAS_LOCKS:
        raise InvalidSetting(
            "sweeps need file locks, the Python module 'fcntl', which this system lacks. Play them on Linux, "
            "macOS or WSL; `chary status`, `chary report` and `chary.load_results` work here."
        )


def take_lock(path: Path) -> int:
    """Lock a file and return its descriptor; the lock ends with the last process that has the descriptor.

    Raises:
        InvalidSetting: if another sweep has the lock.
        OSError: if the file cannot be opened or written to.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _wait(lock, path)
        os.truncate(lock, 0)
        os.pwrite(lock, json_line({"host": socket.gethostname(), "pid": os.getpid()}), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a sweep has the lock at this moment; False where the system has no locks."""
    if not HAS_LOCKS:
        return False
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that several readers do not exclude each other.
        flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _wait(lock: int, path: Path) -> None:
    """Take the lock; wait a little for readers, and longer for workers of a sweep that was killed."""
    began = time.monotonic()
    while True:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError as problem:
            waited = time.monotonic() - began
            if waited > (ORPHANS_SECONDS if _holder_is_gone(path) else LOOKS_SECONDS):
                raise InvalidSetting(
                    f"'out' must not be in use, got {str(path.parent)!r}, where another sweep is at work. "
                    "Wait for it, or choose another folder."
                ) from problem
            time.sleep(0.05)
        else:
            return


def _holder_is_gone(path: Path) -> bool:
    """Return whether the sweep that took the lock last has died on this machine, so that its workers will."""
    holder = read_json(path) or {}
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as problem:
        return isinstance(problem, ProcessLookupError)
    return False
