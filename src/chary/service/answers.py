"""What a call of the engine returns or raises; every reply of the service is one of the two."""

from __future__ import annotations

from typing import NamedTuple

from chary.errors import CharyError


class Answer(NamedTuple):
    """A reply: it may leave once all events up to `seq` are on the disk.

    `body` is JSON. It is the body of the event `seq` itself, so that the same request gets the same bytes
    again, and the audit trail holds every answer as it was sent. No body contains the name of an episode.
    """

    status: int
    body: bytes
    seq: int


class Refused(CharyError):
    """A request that was refused: nothing changed.

    It may rest on events that are not on the disk yet, so it too may leave only once those up to `seq` are.

    Args:
        status: The status of HTTP.
        code: A short word for programs, such as `unknown_episode`.
        message: One sentence for people.
        seq: The last event that was known when it was refused.
    """

    def __init__(self, status: int, code: str, message: str, seq: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.seq = status, code, seq
