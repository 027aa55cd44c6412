"""A deployment: a directory with a declaration, a database, a lock and a secret."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

from chary.errors import InvalidData, InvalidSetting, Unwritable
from chary.service.connection import Failed
from chary.service.declaring import FILE, Declaration
from chary.service.store import DATABASE, Store
from chary.storage.files import parse_toml, read_text, write_file, writing

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ModuleNotFoundError:
    # Windows.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

SECRET: Final = "secret.key"
LOCK: Final = "lock"
SECRET_BYTES: Final = 32
# Hexadecimal digits of a number that stands for an episode's name.
IDENTITY_DIGITS: Final = 32


@final
@dataclass(frozen=True, slots=True)
class Deployment:
    """A directory with `chary.toml`, `chary.db`, `lock`, `secret.key` and the files that were declared."""

    directory: Path
    declaration: Declaration
    number: str
    secret: bytes

    @classmethod
    def create(cls, directory: str | Path, declaration: Declaration) -> Deployment:
        """Make a new deployment; the files that the declaration names are copied into it.

        Raises:
            CharyError: if the directory is not empty, or the declaration does not describe a deployment; then
                nothing was made.
        """
        # Imported late: it needs the agent and its kernels.
        from chary.service.recovery import found

        target = Path(directory)
        declaration.check()
        declaration.problem()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidSetting(
                f"'directory' must be new or empty, got {str(target)!r}. Choose another one: nothing that "
                "exists is overwritten."
            )
        with writing(target, "directory"):
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            with writing(target, "directory"):
                for name in declaration.files:
                    write_file(draft / Path(name).name, (declaration.folder / name).read_bytes())
                number = secrets.token_hex(8)
                inside = declaration.beside(draft)
                write_file(draft / FILE, inside.to_toml(number))
                secret = secrets.token_bytes(SECRET_BYTES)
                _write_secret(draft / SECRET, secret)
                (draft / LOCK).touch()
                (draft / DATABASE).touch()
                draft.chmod(0o700)
            made = cls(draft, inside, number, secret)
            try:
                found(made)
            except Failed as problem:
                raise Unwritable(
                    f"'directory' must be a folder that can be written to, got {str(target)!r}: {problem}."
                ) from problem
            with writing(target, "directory"):
                if target.exists():
                    target.rmdir()
                _sync(draft)
                draft.rename(target)
                _sync(target.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return cls.open(target)

    @classmethod
    def open(cls, directory: str | Path) -> Deployment:
        """Return a deployment that was made.

        Raises:
            CharyError: if there is none, or it is not as it was declared.
        """
        folder = Path(directory)
        if not folder.is_dir() or not (folder / FILE).is_file():
            raise InvalidData(
                f"'directory' must be a deployment, got {str(folder)!r} without {FILE}. Make one: "
                "chary serve init."
            )
        text = read_text(folder / FILE, FILE)
        declaration = Declaration.parse(text, folder)
        number = parse_toml(text).get("deployment")
        if not isinstance(number, str) or not number:
            raise InvalidData(f"'deployment' must be the number that {FILE} was made with, got nothing.")
        for name in (DATABASE, SECRET):
            if not (folder / name).is_file():
                raise InvalidData(
                    f"'directory' must be a whole deployment, got {str(folder)!r} without {name}. Restore it "
                    "from a backup."
                )
        secret = _read_secret(folder / SECRET)
        return cls(folder, declaration, number, secret)

    @property
    def database(self) -> Path:
        """The file of the database."""
        return self.directory / DATABASE

    def identity(self, name: str) -> str:
        """Return what stands for an episode's name wherever it could be read: HMAC-SHA256, half of it."""
        inner, outer = (half.copy() for half in _keyed(self.secret))
        inner.update(name.encode("utf-8", "surrogatepass"))
        outer.update(inner.digest())
        digits: str = outer.hexdigest()
        return digits[:IDENTITY_DIGITS]

    def instance(self, epoch: int) -> str:
        """Return what the process of an epoch calls itself: nobody else can say it without the secret."""
        return hashlib.sha256(self.secret + f"instance {epoch}".encode()).hexdigest()[:IDENTITY_DIGITS]

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock while inside; see `take_lock`."""
        lock = self.take_lock()
        try:
            yield lock
        finally:
            os.close(lock)

    def take_lock(self) -> int:
        """Take the lock and return its descriptor; it is given back when that is closed.

        Raises:
            InvalidSetting: if another process holds it, or the system has no locks.
        """
        if not HAS_LOCKS:
            raise InvalidSetting(
                "the service needs file locks, the Python module 'fcntl', which this system lacks. Run it on "
                "Linux, macOS or WSL."
            )
        with writing(self.directory, "directory"):
            lock = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError as problem:
            os.close(lock)
            raise InvalidSetting(
                f"'directory' must not be in use, got {str(self.directory)!r}, which another process "
                "of chary has locked. Stop that one first."
            ) from problem
        return lock


@lru_cache(maxsize=8)
def _keyed(secret: bytes) -> tuple[Any, Any]:
    """Return the two hashes of HMAC-SHA256 with the key taken in.

    `hmac.digest` lets other threads run for the time of every name: with a busy writer that took 57 us in
    place of 2, as of Python 3.11.
    """
    key = secret.ljust(hashlib.sha256().block_size, b"\0")
    return hashlib.sha256(bytes(each ^ 0x36 for each in key)), hashlib.sha256(
        bytes(each ^ 0x5C for each in key)
    )


def open_store(
    deployment: Deployment, *, connection: str = "sqlite3", vfs: str | None = None, new: bool = False
) -> Store:
    """Return the store of a deployment, its schema brought up to date.

    Raises:
        CharyError: if it is damaged, of a newer schema, or of another program; empty, unless it is `new`.
    """
    try:
        store = Store(deployment.database, engine=connection, vfs=vfs)
    except Failed as problem:
        raise InvalidData(f"{str(deployment.database)!r} must be readable, got {problem}.") from problem
    try:
        store.prepare(new=new)
    except BaseException:
        store.close()
        raise
    return store


def _sync(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _write_secret(path: Path, secret: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, secret.hex().encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


def _read_secret(path: Path) -> bytes:
    try:
        secret = bytes.fromhex(read_text(path, SECRET).strip())
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        # The text itself must not be printed.
        raise InvalidData(
            f"{SECRET!r} must contain {2 * SECRET_BYTES} hexadecimal digits, got something else. Restore it "
            "from a backup."
        )
    return secret
