"""What one caller can ask of the service, so that nobody keeps it from the others."""

from __future__ import annotations

from dataclasses import dataclass

from chary.errors import check_integer, check_real


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the service; what goes beyond one is refused, and changes nothing.

    Args:
        body: Bytes of a body, >= 1024.
        depth: Levels of lists and objects in a body, >= 4.
        head: Bytes of the request line and all headers, >= 1024.
        connections: Connections open at once, >= 1.
        views: Questions to the database that wait or run at once, >= 1.
        head_seconds: Seconds for the head of a request, from its first byte, > 0.
        body_seconds: Seconds for the body of a request, > 0.
        idle_seconds: Seconds for which a connection may wait for its next request, whole and >= 1.
        write_seconds: Seconds for which a caller may refuse to take a reply, > 0.
        grace_seconds: Seconds that running requests have when the service is stopped, whole and >= 1.
    """

    body: int = 1 << 20
    depth: int = 32
    head: int = 16 << 10
    connections: int = 1024
    views: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    idle_seconds: int = 60
    write_seconds: float = 20.0
    grace_seconds: int = 30

    def __post_init__(self) -> None:
        for name, minimum in (("body", 1024), ("depth", 4), ("head", 1024), ("connections", 1), ("views", 1)):
            check_integer(name, getattr(self, name), minimum=minimum)
        for name in ("idle_seconds", "grace_seconds"):
            check_integer(name, getattr(self, name), minimum=1)
        for name in ("head_seconds", "body_seconds", "write_seconds"):
            check_real(name, getattr(self, name), low=0.0, high=3600.0, open_low=True)
