"""A copy of a deployment, taken while its service runs: whole and consistent, or not there."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from chary.errors import InvalidData, InvalidSetting
from chary.service.deployment import LOCK, Deployment
from chary.service.local import RUNNING, sync
from chary.storage.files import DRAFT, writing

# What belongs to a process and not to the deployment; the journal is part of the copied database.
LEFT_OUT = (LOCK, RUNNING)


def back_up(directory: Path, target: Path) -> int:
    """Copy a deployment to a new folder, and return the bytes of the copy.

    The database is copied by SQLite from one consistent state; the service goes on meanwhile.

    Raises:
        InvalidSetting: if the target exists or cannot be written.
        InvalidData: if there is no deployment, or it cannot be read.
    """
    deployment = Deployment.open(directory)
    if target.exists():
        raise InvalidSetting(f"'OUT' must not exist yet, got {str(target)!r}. Choose another folder.")
    database = deployment.database
    draft = target.with_name(f"{DRAFT}{secrets.token_hex(8)}")
    try:
        with writing(target, "OUT"):
            draft.mkdir(mode=0o700, parents=True)
            for file in sorted(directory.iterdir()):
                if file.is_file() and file.name not in LEFT_OUT and not file.name.startswith(database.name):
                    shutil.copy2(file, draft / file.name)
        _copy(database, draft / database.name)
        with writing(target, "OUT"):
            for path in (*draft.iterdir(), draft):
                sync(path)
            size = sum(path.stat().st_size for path in draft.iterdir())
            draft.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return size


def _copy(source: Path, target: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as read,
            closing(sqlite3.connect(target)) as written,
        ):
            # All pages in one step: a writer never makes it begin again.
            read.backup(written, pages=-1)
    except sqlite3.Error as problem:
        raise InvalidData(
            f"{str(source)!r} must be a database that can be copied, got: {problem}."
        ) from problem
