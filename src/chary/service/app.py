"""The application: a request is checked, answered by the engine, and the reply waits for the disk.

The path of a decision is kept thin: one look-up in the table of routes, one hash for the token, one decoding,
one call of the engine, and one wait. Nothing here blocks the loop: views run on threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from chary.errors import CharyError
from chary.service import metrics, wire
from chary.service.answers import Refused
from chary.service.bodies import Body
from chary.service.engine import Engine
from chary.service.limits import Limits
from chary.service.logs import SERVICE, Refusals, place_of
from chary.service.openapi import document
from chary.service.routes import ROUTES, Call, Route, problem_of
from chary.service.tokens import Caller, Gate
from chary.service.views import Views
from chary.texts import clipped, visible

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_COMMON = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_READY = b'{"status":"ok"}'
_NAME = re.compile(rf"(?!\.\.?\Z)[^\x00-\x1f\x7f]{{1,{wire.LONGEST_NAME}}}\Z")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
# Threads that answer views; SQLite reads on several connections at once.
_READERS = 4
_NOBODY = Caller("", "", frozenset())
# Refusals of the caller.
_CALLERS = (401, 403)
# How long a caller should wait before it asks again, in seconds.
_AGAIN = {429: b"5", 503: b"1"}


class _Served(NamedTuple):
    """A route, what reads its body, and what stands for a body that is not there."""

    route: Route
    body: Body[Any] | None
    absent: bytes


class _NotAllowed(Refused):
    """The path exists, but not with this method."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__(405, "method", f"This path takes {' or '.join(allowed)} alone.")
        self.allowed = ", ".join(allowed).encode()


@final
class Api:
    """Answers requests, as ASGI prescribes.

    Args:
        engine: The engine; all its calls are made on the thread of the loop that runs this.
        views: Read-only views of the same deployment.
        limits: What one caller can ask.
    """

    def __init__(self, engine: Engine, views: Views, limits: Limits) -> None:
        self._engine, self._views, self._limits = engine, views, limits
        self._gate = Gate(lambda: engine.tokens)
        self._meters = metrics.Meters()
        self._registry = metrics.registry(self._meters, engine)
        self._log = logging.getLogger(SERVICE)
        self._refusals = Refusals(self._log)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="chary-view")
        self._views_running = 0
        self.stopping = False
        # By number of segments: which of them are names, and the routes by method and path without them.
        self._named: dict[int, tuple[int, ...]] = {}
        self._table: dict[bytes, dict[str, _Served]] = {}
        for route in ROUTES:
            self._add(route)
        healthy = wire.encode(wire.Health("ok", engine.instance))
        self._own: Mapping[str, tuple[bytes, Callable[[], bytes]]] = {
            "/healthz": (b"application/json", lambda: healthy),
            "/readyz": (b"application/json", self._ready),
            "/openapi.json": (b"application/json", document),
            "/metrics": (metrics.CONTENT_TYPE, partial(metrics.page, self._registry)),
        }

    def _add(self, route: Route) -> None:
        segments = route.path.encode().split(b"/")
        names = tuple(place for place, segment in enumerate(segments) if segment.startswith(b"{"))
        known = self._named.get(len(segments), ())
        for place in names:
            segments[place] = b"*"
        self._named[len(segments)] = tuple(sorted({*known, *names}))
        body, absent = None, b""
        if route.takes is not None:
            body = Body(route.takes, self._limits.depth)
            # Where nothing must be said, nothing need be sent.
            if not any(field.required for field in msgspec.structs.fields(route.takes)):
                absent = b"{}"
        self._table.setdefault(b"/".join(segments), {})[route.method] = _Served(route, body, absent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = perf_counter()
        method: str = scope["method"]
        path, code = "other", None
        extra: tuple[tuple[bytes, bytes], ...] = ()
        self._meters.in_flight += 1
        try:
            served, names = self._find(method, scope["raw_path"])
            route = served.route
            path = route.path
            answer = await self._answer(served, names, scope, receive)
            if answer is None:
                return
            status, content, body = answer
        except Refused as refused:
            status, content, body, code = refused.status, _JSON, problem_of(refused), refused.code
            extra = _extra(refused)
            # Who may do what rests on events of tokens: a refusal must not be taken back by a crash.
            await self._durable(max(refused.seq, self._engine.head if status in _CALLERS else 0))
        except CharyError as error:
            status, content, code = 422, _JSON, "invalid"
            body = problem_of(Refused(422, code, str(error)))
            await self._durable(self._engine.head)
        except Exception:
            # The boundary of one request: an error of ours is logged and answered, and the others go on.
            status, content, code = 500, _JSON, "internal"
            body = problem_of(
                Refused(500, code, "The service could not answer; its log says where it failed.")
            )
            kind, _, trace = sys.exc_info()
            assert kind is not None
            self._log.error("failed", extra={"fields": {"path": path, **place_of(kind, trace)}})
        finally:
            self._meters.in_flight -= 1
        head = [content, (b"content-length", str(len(body)).encode()), *_COMMON, *extra]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})
        if method not in _METHODS:
            method = "other"
        self._meters.note(method, path, status, perf_counter() - began, code)
        if code is not None:
            self._refusals.note(method, path, status, code)

    async def close(self) -> None:
        """Wait for the views that run, and let their threads and connections go."""
        await asyncio.to_thread(self._readers.shutdown)
        self._views.close()

    def _find(self, method: str, raw_path: bytes) -> tuple[_Served, list[bytes]]:
        """Return the route of a path and the names in it, as they were sent."""
        segments = raw_path.split(b"/")
        places = self._named.get(len(segments), ())
        names = [segments[place] for place in places]
        for place in places:
            segments[place] = b"*"
        methods = self._table.get(b"/".join(segments))
        if methods is None or b"" in names:
            raise Refused(404, "no_path", "There is no such path; /openapi.json lists all of them.")
        served = methods.get(method)
        if served is None:
            raise _NotAllowed(sorted(methods))
        return served, names

    async def _answer(
        self, served: _Served, names: list[bytes], scope: Scope, receive: Receive
    ) -> tuple[int, tuple[bytes, bytes], bytes] | None:
        """Return status, type and body of a reply that may leave; None where the caller has gone."""
        route, engine = served.route, self._engine
        headers = _headers(scope["headers"])
        caller = _NOBODY
        if route.scope is not None:
            if self.stopping:
                raise Refused(503, "stopping", "The service is stopping; ask again in a moment.")
            caller = self._gate.caller(headers.get(b"authorization"))
            if route.scope not in caller.scopes:
                raise Refused(403, "scope", f"This path needs a token with the scope {route.scope!r}.")
        query = _query(route, scope["query_string"])
        body = None
        if served.body is not None:
            text = await self._read(served, headers, receive)
            if text is None:
                return None
            body = served.body.read(text)
        own = self._own.get(route.path)
        if own is not None:
            status = 503 if self.stopping and route.path == "/readyz" else 200
            return status, (b"content-type", own[0]), own[1]()
        call = _call(route, names, body, query, caller)
        if route.write is not None:
            answer = route.write(engine, call)
            await self._durable(answer.seq)
            return answer.status, _JSON, answer.body
        found = None
        if route.memory is not None:
            found = route.memory(engine, call)
            await self._durable(engine.head)
        if route.view is not None:
            found = await self._view(partial(route.view, self._views, call, found))
        return 200, _JSON, wire.encode(found)

    async def _durable(self, seq: int) -> None:
        if seq > self._engine.durable_seq:
            await self._engine.durable(seq)

    async def _view(self, view: Callable[[], Any]) -> Any:
        """Answer a view on another thread."""
        if self._views_running >= self._limits.views:
            raise Refused(
                503, "busy", "Too many questions to the database are waiting; ask again in a moment."
            )
        self._views_running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, view)
        finally:
            self._views_running -= 1

    async def _read(self, served: _Served, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body of a request; None where the caller has gone."""
        most = self._limits.body
        if int(headers.get(b"content-length", b"0")) > most:
            raise _too_large(most)
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            # A request as it should be comes in one part, which is not copied.
            body = body + part if body else part
            more = message.get("more_body", False)
            if len(body) > most:
                raise _too_large(most)
        if not body and served.absent:
            return served.absent
        kind = headers.get(b"content-type", b"").lower()
        if kind.partition(b";")[0].strip() != b"application/json" or b"content-encoding" in headers:
            raise Refused(
                415,
                "media_type",
                "A body must be plain JSON, with the header 'Content-Type: application/json'.",
            )
        return body

    def _ready(self) -> bytes:
        return b'{"status":"stopping"}' if self.stopping else _READY


def _headers(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by name.

    Raises:
        Refused: if the one that says who calls is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs) and sum(name == b"authorization" for name, _ in pairs) > 1:
        raise Refused(400, "malformed", "The header 'Authorization' is there twice.")
    return found


def _call(route: Route, names: list[bytes], body: Any, query: Any, caller: Caller) -> Call:
    """Return a request with the names of its path decoded."""
    episode, t, token = "", 0, ""
    if names:
        first = _name(names[0])
        if route.path.startswith("/v1/tokens"):
            token = first
        else:
            episode = first
        if len(names) > 1:
            t = _step(names[1])
    return Call(episode, t, token, body, query, caller)


def _name(raw: bytes) -> str:
    try:
        name = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Refused(400, "malformed", "The path is not UTF-8.") from None
    if _NAME.match(name) is None:
        raise Refused(
            422,
            "invalid",
            f"A name in a path must have 1 to {wire.LONGEST_NAME} characters, and none to control.",
        )
    return name


def _step(raw: bytes) -> int:
    if not raw.isdigit() or len(raw) > 10 or int(raw) > wire.LARGEST_INDEX:
        raise Refused(
            422, "invalid", f"A step in a path must be a whole number from 0 to {wire.LARGEST_INDEX}."
        )
    return int(raw)


def _query(route: Route, text: bytes) -> Any:
    """Return what follows the question mark, checked like a body."""
    if route.query is None:
        if text:
            raise Refused(422, "invalid", "This path takes nothing after a question mark.")
        return None
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=20,
        )
    except ValueError:
        raise Refused(
            400, "malformed", "What follows the question mark is not of the form name=value."
        ) from None
    if len(dict(pairs)) < len(pairs):
        raise Refused(400, "malformed", "A name after the question mark is there twice.")
    try:
        return msgspec.convert(dict(pairs), route.query, strict=False)
    except msgspec.ValidationError as error:
        words = clipped(visible(str(error)), 200)
        raise Refused(
            422, "invalid", f"What follows the question mark is not what this path takes: {words}."
        ) from None


def _too_large(most: int) -> Refused:
    return Refused(413, "too_large", f"The body is larger than {most} bytes.")


def _extra(refused: Refused) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that go with a refusal."""
    if isinstance(refused, _NotAllowed):
        return ((b"allow", refused.allowed),)
    if refused.status == 401:
        return ((b"www-authenticate", b"Bearer"),)
    if refused.status in _AGAIN:
        return ((b"retry-after", _AGAIN[refused.status]),)
    return ()
