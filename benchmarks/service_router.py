"""What a web framework's router would add to each request of the service, in processor time.

    pip install 'starlette>=1,<2'
    python benchmarks/service_router.py

The application is called as the server calls it, without sockets, in two forms: as it is, and behind
Starlette with one route per row of the same table, whose endpoints are plain ASGI. Both answer GET /healthz,
and the repetition of a decision, which is read, checked and answered as a new one is, but needs neither agent
nor disk. The figure is processor time of the thread, which other work on the machine hardly changes; blocks
are taken in turns. Writes benchmarks/results/service-router.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from _jobs import RESULTS
from chary.service.app import Api
from chary.service.demo import declaration
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.limits import Limits
from chary.service.routes import ROUTES
from chary.service.tokens import SCOPES, mint
from chary.service.views import Views

# Blocks of each form, and requests per block.
BLOCKS, REQUESTS = 30, 1000

App = Callable[[Any, Any, Any], Awaitable[None]]


class Endpoint:
    """An endpoint in plain ASGI: Starlette hands such a one the request as it is."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on."""
        await self._app(scope, receive, send)


def main() -> None:
    """Measure both forms and write them down."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "ward"
        Deployment.create(directory, declaration(Path(folder) / "files"))
        engine = Engine.open(directory)
        token = mint(SCOPES, "benchmark")
        added = engine.add_token(
            token.id, token.digest, scopes=token.scopes, label=token.label, expires=None, author="benchmark"
        )
        engine.wait(added.seq)
        try:
            found = asyncio.run(measure(Api(engine, Views(directory), Limits()), token.text))
        finally:
            engine.finish()
    out = RESULTS / "service-router.json"
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


async def measure(api: Api, token: str) -> dict[str, Any]:
    """Return the microseconds of processor time per request, by form and request."""
    routes = [Route(route.path, Endpoint(api), methods=[route.method]) for route in ROUTES]
    forms: dict[str, App] = {"own dispatcher": api, "Starlette": Starlette(routes=routes)}
    decide = request("POST", "/v1/episodes/a/decisions", b'{"t":0,"state":0}', token)
    requests = {"GET /healthz": request("GET", "/healthz", b"", token), "repeated decision": decide}
    await ask(api, *request("POST", "/v1/episodes", b'{"episode":"a","state":0}', token))
    taken: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in requests}
    for _ in range(BLOCKS):
        for name, one in requests.items():
            for form, app in forms.items():
                began = time.thread_time()
                for _ in range(REQUESTS):
                    await ask(app, *one)
                taken[name][form].append((time.thread_time() - began) / REQUESTS * 1e6)
    return {
        "command": "python benchmarks/service_router.py",
        "starlette": version("starlette"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "loadavg": os.getloadavg(),
        "blocks": BLOCKS,
        "requests per block": REQUESTS,
        "microseconds per request": {
            name: {
                form: {"median": statistics.median(blocks), "least": min(blocks), "most": max(blocks)}
                for form, blocks in each.items()
            }
            for name, each in taken.items()
        },
    }


def request(method: str, path: str, body: bytes, token: str) -> tuple[dict[str, Any], bytes]:
    """Return a request as a server hands it over, and its body."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {token}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    return scope, body


async def ask(app: App, scope: dict[str, Any], body: bytes) -> None:
    """Send a request, and check that it is answered."""
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        statuses.append(message.get("status"))

    # A copy: Starlette writes into it.
    await app(dict(scope), receive, send)
    assert statuses[0] in (200, 201), statuses


if __name__ == "__main__":
    main()
