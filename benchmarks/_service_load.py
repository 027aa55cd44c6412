"""Clients that cost next to nothing: raw sockets that are kept open, driven by one loop in one process.

A client is a generator: it yields a request and is sent the status and body of the reply. A `Fleet` drives
many of them side by side, each with one request under way, and returns how long every request took.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

# A request with the name under which its time is counted; an empty name leaves it out.
Request = tuple[str, bytes]
Client = Generator[Request, tuple[int, bytes], None]


class Took(NamedTuple):
    """One answered request: its name, when it was sent, seconds until the reply was read, and the status."""

    name: str
    sent: float
    seconds: float
    status: int


class Caller:
    """The text of requests to one service with one token."""

    def __init__(self, host: str, token: str = "") -> None:
        bearer = f"authorization: Bearer {token}\r\n" if token else ""
        self.head = f"host: {host}\r\n{bearer}content-type: application/json\r\n"

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return a request as it is sent."""
        return f"{method} {path} HTTP/1.1\r\n{self.head}content-length: {len(body)}\r\n\r\n".encode() + body


class _Line:
    """A client, and its connection while it is driven."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answer: tuple[int, bytes] | None = None
        self.name, self.sent, self.heard = "", 0.0, b""

    def open(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def go_on(self) -> bool:
        """Send the client's next request; False if it has none."""
        try:
            self.name, text = next(self.client) if self.answer is None else self.client.send(self.answer)
        except StopIteration:
            return False
        self.answer = None
        self.sent = time.perf_counter()
        # Requests are far smaller than the buffer of a socket, so this does not block.
        self.socket.sendall(text)
        return True

    def read(self) -> bool:
        """Read what has come; True once the reply is whole, and then it is in `answer`."""
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionError("the service closed a connection")
        self.heard += part
        head, found, rest = self.heard.partition(b"\r\n\r\n")
        if not found:
            return False
        lower = head.lower()
        at = lower.index(b"content-length:") + len(b"content-length:")
        length = int(lower[at:].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return False
        self.heard, self.answer = b"", (int(head[9:12]), rest[:length])
        return True


class Fleet:
    """Clients that are driven for a while, wait, and go on where they were."""

    def __init__(self, address: tuple[str, int], clients: Sequence[Client]) -> None:
        self.address, self.lines = address, [_Line(client) for client in clients]

    def drive(self, seconds: float = math.inf) -> list[Took]:
        """Run all clients until they have ended or `seconds` have passed, and return what was answered.

        The replies to the last requests are waited for and not counted.

        Raises:
            ConnectionError: if the service closes a connection.
        """
        took: list[Took] = []
        end = time.perf_counter() + seconds
        with selectors.DefaultSelector() as ready:

            def start(line: _Line) -> None:
                line.open(self.address)
                if line.go_on():
                    ready.register(line.socket, selectors.EVENT_READ, line)
                else:
                    line.socket.close()

            for line in self.lines:
                start(line)
            while ready.get_map():
                for key, _ in ready.select():
                    line = key.data
                    if not line.read():
                        continue
                    now = time.perf_counter()
                    if line.name and now <= end:
                        took.append(Took(line.name, line.sent, now - line.sent, line.answer[0]))
                    if now > end or not line.go_on():
                        ready.unregister(line.socket)
                        line.socket.close()
        return took
