"""How a deployment is reached on this machine: through the service if it runs, through its files if not.

A service that runs leaves a note of its place beside the database, and `chary serve init` a token for the
commands on this machine: a user who may read the folder of a deployment may operate it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chary.errors import CharyError, InvalidSetting
from chary.service.deployment import Deployment
from chary.service.line import Line
from chary.service.store import Reader
from chary.service.tokens import SCOPES, mint
from chary.storage.files import DRAFT, json_line, read_json, writing

if TYPE_CHECKING:
    from chary.service.declaring import Declaration
    from chary.service.engine import Answer, Engine

# What `chary serve run` leaves beside the database while it runs, and the token of commands on this machine.
RUNNING, OPERATOR = "running.json", "operator.token"
# Whom events name that a command on this machine made.
AUTHOR = "local operator"


class Running(NamedTuple):
    """A service that says it runs: where commands on this machine reach it."""

    url: str
    pid: int
    certificate: str | None
    instance: str


class Unreachable(CharyError):
    """The service runs, and refuses or does not answer."""


@contextmanager
def announced(directory: Path) -> Iterator[Callable[[str, Path | None], None]]:
    """Yield a function that notes where the service is; the note is removed at the end.

    After a kill it stays, and nobody answers at that place, or not as this instance: then commands take the
    files.
    """
    note = directory / RUNNING

    def announce(url: str, certificate: Path | None = None) -> None:
        proof = None if certificate is None else str(certificate.resolve())
        deployment = Deployment.open(directory)
        reader = Reader(deployment.database)
        # Whoever may call this holds the lock, so that the epoch is its own.
        instance = deployment.instance(reader.epoch)
        reader.close()
        # A copy of the folder would have this note, too, and not this number.
        told = {
            "url": url, "pid": os.getpid(), "certificate": proof, "instance": instance,
            "folder": directory.stat().st_ino,
        }  # fmt: skip
        draft = note.with_name(f"{RUNNING}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(json_line(told))
        draft.replace(note)

    try:
        yield announce
    finally:
        told = read_json(note)
        if told is not None and told.get("pid") == os.getpid():
            with suppress(OSError):
                note.unlink()


def running(directory: Path) -> Running | None:
    """Return the service that answers for a deployment, None if there is none.

    After a kill something else may answer at the place of the note, such as the service of another
    deployment: only the instance that wrote the note is shown a token.
    """
    told = read_json(directory / RUNNING) or {}
    url, pid, proof, instance = (told.get(name) for name in Running._fields)
    if not isinstance(url, str) or not isinstance(pid, int) or not isinstance(proof, str | None):
        return None
    if not isinstance(instance, str) or told.get("folder") != directory.stat().st_ino or not _is_alive(pid):
        return None
    found = Running(url, pid, proof, instance)
    try:
        status, answer = _sent(found, "", "GET", "/healthz", b"")
        said = json.loads(answer)
    except (OSError, CharyError, ValueError):
        # Nobody answers, or the note was written by something else.
        return None
    is_ours = isinstance(said, dict) and said.get("instance") == instance
    return found if status == HTTPStatus.OK and is_ours else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def call(service: Running, directory: Path, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Send a request to the running service as the local operator, and return its answer.

    Raises:
        Unreachable: if it refuses or does not answer, with its sentence.
    """
    token = local_token(directory)
    content = b"" if body is None else json.dumps(body).encode()
    try:
        status, answer = _sent(service, token, method, path, content)
    except OSError as problem:
        raise Unreachable(f"the service at {service.url} must answer, and does not: {problem}.") from problem
    try:
        found = json.loads(answer or b"{}")
    except ValueError as problem:
        raise Unreachable(f"the service at {service.url} must answer JSON, got status {status}.") from problem
    if status >= HTTPStatus.BAD_REQUEST:
        raise Unreachable(str(found.get("message") or f"the service answered with status {status}."))
    return dict(found)


def local_token(directory: Path) -> str:
    """Return the token of commands on this machine, empty if there is none."""
    try:
        return (directory / OPERATOR).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


@contextmanager
def engine_of(directory: Path) -> Iterator[Engine]:
    """Yield the engine of a deployment whose service does not run; at the end all is on the disk."""
    from chary.service.engine import Engine

    engine = Engine.open(directory)
    try:
        yield engine
    finally:
        engine.finish()


def make(directory: Path, declaration: Declaration) -> str:
    """Make a deployment with the token of commands on this machine; return what it promises.

    It is made whole or not at all.

    Raises:
        InvalidSetting: if the folder exists and is not empty, or cannot be written.
        CharyError: if the declaration does not describe a deployment.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidSetting(
            f"'DIR' must be new or empty, got {str(directory)!r}. Choose another one: nothing is overwritten."
        )
    draft = directory.with_name(f"{DRAFT}{secrets.token_hex(8)}")
    try:
        Deployment.create(draft, declaration)
        standing = _make_operator(draft)
        with writing(directory, "DIR"):
            draft.rename(directory)
            sync(directory.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return standing


def _make_operator(directory: Path) -> str:
    """Make the token of commands on this machine, and return what the deployment promises."""
    made = mint(SCOPES, AUTHOR)
    with engine_of(directory) as engine:
        added = engine.add_token(
            made.id, made.digest, scopes=made.scopes, label=AUTHOR, expires=None, author=AUTHOR
        )
        settled(engine, added)
        standing = str(engine.deployment()["standing"])
    secret = directory / OPERATOR
    secret.touch(mode=0o600)
    secret.write_text(made.text + "\n", encoding="ascii")
    sync(secret)
    return standing


def sync(path: Path) -> None:
    """Return once a file or the entries of a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def settled(engine: Engine, answer: Answer) -> dict[str, Any]:
    """Return an answer once it is on the disk."""
    engine.wait(answer.seq)
    return dict(json.loads(answer.body))


def check_directory(directory: Path) -> Path:
    """Return the folder of a deployment.

    Raises:
        InvalidSetting: if there is none.
    """
    if not (directory / "chary.toml").is_file():
        raise InvalidSetting(
            f"'DIR' must be the folder of a deployment, which contains chary.toml, got {str(directory)!r}. "
            "Make one with chary serve init."
        )
    return directory


def _sent(service: Running, token: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    async def once() -> tuple[int, bytes]:
        line = Line(service.url, token, timeout=10.0, trust=_trust(service))
        try:
            return await line.call(method, path, body)
        finally:
            await line.end()

    return asyncio.run(once())


def _trust(service: Running) -> ssl.SSLContext | None:
    """Return what accepts exactly the certificate that the service was started with."""
    if service.certificate is None or not service.url.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=service.certificate)
    # The certificate is for the name that clients use; commands on this machine know the file.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
