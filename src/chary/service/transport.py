"""The protocol of one connection: uvicorn's own, with patience that ends and errors in JSON.

uvicorn waits without end for a head or a body that never becomes whole, and for a caller that does not take
its reply. Here each of them has a time, so that slow callers cannot hold all connections.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from chary.service.answers import Refused
from chary.service.limits import Limits
from chary.service.routes import problem_of

_SLOW = Refused(408, "too_slow", "The request did not arrive in time.")
_CROWDED = Refused(503, "crowded", "Too many connections are open; ask again in a moment.")
_GARBLED = {
    431: Refused(431, "head_too_large", "The head of the request is too large."),
    400: Refused(400, "malformed", "The request is not HTTP/1.1."),
}


@final
class Connection(H11Protocol):
    """One connection, with the limits of the service.

    Args:
        limits: How long each part of a request may take, and how many connections may be open.
        config: uvicorn's, as are the others.
        server_state: Which connections are open.
        app_state: What uvicorn hands to the application.
    """

    def __init__(
        self,
        limits: Limits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        # What the connection waits for, the timer of it, and that of a caller who takes no reply.
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse(_CROWDED)
        else:
            self._wait_for("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the timers go."""
        self._wait_for("")
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and see what is still missing."""
        most = self._limits.head
        if len(data) <= most:
            super().data_received(data)
        else:
            # h11 limits what is incomplete alone: a head that arrives whole is not measured.
            for start in range(0, len(data), most):
                if self.transport.is_closing():
                    return
                super().data_received(data[start : start + most])
        self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request, which may have arrived in part."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Give a caller that does not take its reply some time."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._taken()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in JSON like every refusal; called where h11 has raised."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(_GARBLED.get(hint, _GARBLED[400]))

    def _watch(self) -> None:
        """Start the timer of what is missing, if anything is."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_for("body" if self.cycle.more_body else "")
        elif self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            # Between two requests; uvicorn's own timer ends a connection that stays idle.
            if self.timeout_keep_alive_task is not None:
                self._wait_for("")
        else:
            self._wait_for("head" if self.conn.their_state is h11.IDLE else "rest")

    def _wait_for(self, what: str) -> None:
        if what == self._waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits_for = what
        if what:
            seconds = self._limits.head_seconds if what == "head" else self._limits.body_seconds
            self._timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self._waits_for == "rest" or (not self.conn.trailing_data[0] and self._waits_for == "head"):
            # Nobody waits for a reply: it has been given, or nothing was requested.
            self.transport.close()
            return
        if self.cycle is not None:
            # The application must not answer as well.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(_SLOW)

    def _refuse(self, refused: Refused) -> None:
        """Write a refusal past the application, and hang up."""
        if self.transport.is_closing():
            return
        body = problem_of(refused)
        status = refused.status
        head = (
            f"HTTP/1.1 {status} {STATUS_PHRASES[status].decode()}\r\ncontent-type: application/json\r\n"
            f"x-content-type-options: nosniff\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
