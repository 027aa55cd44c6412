"""A line to the service for the simulator: one connection that is kept open, one request at a time.

It is much lighter than a full client, so that the simulator does not measure itself, and it can hang up
before a reply arrives, as a network does. Programs that use the service take `chary.client`.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from chary.errors import InvalidSetting
from chary.texts import shown

# The longest head and body of a reply that is read.
LONGEST_HEAD, LONGEST_BODY = 1 << 16, 1 << 26
# Rounds of the loop after which an aborted connection is closed.
ROUNDS = 3


class LineLost(OSError):
    """The service did not answer: no connection, a broken one, or no reply in time."""


class Reply(NamedTuple):
    """What the service answered."""

    status: int
    body: bytes


class Line:
    """One connection to a service, opened when it is first needed and again after it was lost.

    Args:
        url: Where the service is, such as http://127.0.0.1:8000.
        token: What shows who is calling, empty for none.
        timeout: Seconds after which a reply is given up.
        trust: How a certificate is checked, for https; by default as the system does.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout: float = 30.0, trust: ssl.SSLContext | None = None
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise InvalidSetting(f"'url' must be like http://127.0.0.1:8000, got {shown(url)}.")
        self._host, self._port = place.hostname, place.port or (443 if place.scheme == "https" else 80)
        self._trust = (trust or ssl.create_default_context()) if place.scheme == "https" else None
        bearer = f"authorization: Bearer {token}\r\n" if token else ""
        self._head = f"host: {place.netloc}\r\n{bearer}content-type: application/json\r\n"
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send a request and return the reply.

        Raises:
            LineLost: if there is none; the service may have acted on the request or not.
        """
        try:
            async with asyncio.timeout(self._timeout):
                reader = await self._send(method, path, body)
                return await self._reply(reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as problem:
            self.hang_up()
            raise LineLost(f"{type(problem).__name__}: {problem}") from problem
        except asyncio.CancelledError:
            # The reply of a request that was given up must not be taken for that of the next.
            self.hang_up()
            raise

    async def send_and_hang_up(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request and close the connection without waiting for the reply."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(method, path, body)
        except OSError as problem:
            raise LineLost(f"{type(problem).__name__}: {problem}") from problem
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection at once; the next call opens another."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def end(self) -> None:
        """Close the connection, and return when it is closed."""
        self.hang_up()
        # What was aborted is closed in the next round of the loop, behind TLS in the one after it.
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    async def _send(self, method: str, path: str, body: bytes) -> asyncio.StreamReader:
        if self._streams is None:
            opened = asyncio.open_connection(self._host, self._port, ssl=self._trust, limit=LONGEST_HEAD)
            self._streams = await opened
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode("ascii") + body)
        await writer.drain()
        return reader

    async def _reply(self, reader: asyncio.StreamReader) -> Reply:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ", 2)[1])
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        length = int(fields.get("content-length", "0"))
        if "chunked" in fields.get("transfer-encoding", "") or not 0 <= length <= LONGEST_BODY:
            raise ValueError("a reply must have a content-length")
        body = await reader.readexactly(length)
        if fields.get("connection", "").lower() == "close":
            self.hang_up()
        return Reply(status, body)
