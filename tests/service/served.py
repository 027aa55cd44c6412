"""Small deployments for tests of the service over HTTP: called as ASGI prescribes, or through sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from chary.service.app import Api
from chary.service.declaring import Declaration
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.hosting import listening_at, run
from chary.service.limits import Limits
from chary.service.tokens import SCOPES, Token, mint
from chary.service.views import Views

HORIZON, ETA = 3, 50.0
STATES, ACTIONS = ("calm", "tense", "ill", "home"), ("wait", "treat")
# Names that no log, metric or message may hold; the second needs escapes in a path.
PERSON, PERSON_2 = "Ada-Lovelace-0815", "Grace Hopper/100%?"


def declaration(folder: Path, **changed: Any) -> Declaration:
    """Return what a small clinic declares, in mode budgeted and able to explore at once."""
    told: dict[str, Any] = {
        "name": "clinic",
        "setting": {
            "states": list(STATES),
            "actions": list(ACTIONS),
            "horizon": HORIZON,
            "reward_range": [0.0, 10.0],
        },
        "agent": {"name": "chary", "eta": ETA, "bonus": "kl"},
        "mode": "budgeted",
        "planning": {"every": 5},
        "limits": {"snapshot_every": 10_000, "open_episodes": 100_000},
    }
    return Declaration(**{**told, **changed}, folder=folder)


@cache
def _template() -> Path:
    """Return a deployment that is made once per process, to be copied."""
    folder = Path(mkdtemp(prefix="chary-clinic-"))
    Deployment.create(folder / "clinic", declaration(folder))
    return folder / "clinic"


def make(folder: Path, **changed: Any) -> Path:
    """Return the directory of a new deployment in `folder`."""
    directory = folder / "clinic"
    if changed:
        Deployment.create(directory, declaration(folder, **changed))
    else:
        shutil.copytree(_template(), directory)
    return directory


def token(engine: Engine, scopes: Sequence[str] = SCOPES, **made: Any) -> Token:
    """Make a token that the engine knows and keeps."""
    fresh = mint(scopes, made.pop("label", "tests"), **made)
    added = engine.add_token(
        fresh.id,
        fresh.digest,
        scopes=fresh.scopes,
        label=fresh.label,
        expires=fresh.expires,
        author="tests",
    )
    engine.wait(added.seq)
    return fresh


@dataclass(frozen=True)
class Reply:
    """A reply as it left."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Direct:
    """The application of an engine, called without a network.

    `parts` of a body arrive one by one, and `None` among them stands for a caller who hangs up.
    """

    directory: Path
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = Engine.open(self.directory)
        self.api = Api(self.engine, Views(self.directory), self.limits)
        self.token = token(self.engine).text

    def call(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        bearer: str | None = "",
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes | None] | None = None,
    ) -> Reply:
        """Send a request: a body that is not bytes as JSON, with all scopes unless `bearer` is given."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: dict[str, str] = {}
        if bearer is not None:
            sent["authorization"] = f"Bearer {bearer or self.token}"
        if content or parts:
            sent["content-type"] = "application/json"
        if parts is None:
            sent["content-length"] = str(len(content))
        sent |= headers or {}
        raw, _, query = path.encode().partition(b"?")
        scope = {
            "type": "http",
            "method": method,
            "raw_path": raw,
            "query_string": query,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value],
        }
        left = [content] if parts is None else list(parts)
        heard: list[Any] = []

        async def receive() -> dict[str, Any]:
            part = left.pop(0) if left else None
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        async def send(message: Any) -> None:
            heard.append(message)

        self.loop.run_until_complete(self.api(scope, receive, send))
        if not heard:
            return Reply(0, {}, b"")
        start, *rest = heard
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], found, b"".join(message["body"] for message in rest))

    def close(self) -> None:
        self.loop.run_until_complete(self.api.close())
        self.engine.finish()
        self.loop.close()


@contextmanager
def direct(directory: Path, limits: Limits | None = None) -> Iterator[Direct]:
    """Yield the application of a deployment."""
    made = Direct(directory, limits or Limits())
    try:
        yield made
    finally:
        made.close()


@dataclass
class Served:
    """A service that runs in a thread of this process."""

    url: str
    port: int
    token: str
    engine: Engine
    _stop: Any
    _thread: threading.Thread
    failure: list[BaseException]

    def stop(self) -> None:
        """Stop it as SIGTERM does, and wait until it has ended."""
        self._stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure:
            raise self.failure[0]


@contextmanager
def served(
    directory: Path, *, limits: Limits | None = None, trust: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Served]:
    """Run a service on a free port, and stop it at the end."""
    listening = listening_at("127.0.0.1", port, guarded=trust is not None)
    number = listening.getsockname()[1]
    url = f"{'http' if trust is None else 'https'}://127.0.0.1:{number}"
    ready = threading.Event()
    failure: list[BaseException] = []
    told: dict[str, Any] = {}

    def work() -> None:
        try:
            engine = Engine.open(directory)
            try:
                told["token"] = token(engine).text
                told["engine"] = engine
                asyncio.run(main(engine))
            finally:
                engine.finish()
        except BaseException as error:
            failure.append(error)
        finally:
            ready.set()

    async def main(engine: Engine) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            # It may have been told before, and have ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)

        told["stop"] = end
        await run(
            engine,
            directory,
            listening,
            url,
            trust=trust,
            limits=limits or Limits(),
            on_ready=lambda _: ready.set(),
            stop=stop,
        )

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(60)
    if failure:
        thread.join()
        listening.close()
        raise failure[0]
    running = Served(url, number, told["token"], told["engine"], told["stop"], thread, failure)
    try:
        yield running
    finally:
        if thread.is_alive():
            running.stop()
        listening.close()
