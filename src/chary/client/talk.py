"""How one request gets its answer: sent again with the same bytes until it is answered or its time is over.

Everything here is without input and output: a generator says what to send and how long to wait, and its
caller, which works with threads or with asyncio, tells it what was received.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any, NamedTuple, TypeVar

from chary.client.replies import Garbled, Heard, Rejected, Unavailable
from chary.errors import InvalidData, check_real

T = TypeVar("T")

# The service, or something before it, has no answer now: the same request may get one later.
_LATER = (408, 425, 429, 500, 502, 503, 504)


class Request(NamedTuple):
    """One request; `body` is sent as it is, every time."""

    method: str
    path: str
    body: bytes = b""


class Send(NamedTuple):
    """Send a request, and say what was heard within `seconds`: None for nothing."""

    request: Request
    seconds: float


class Wait(NamedTuple):
    """Wait for so many seconds."""

    seconds: float


Talk = Generator[Send | Wait, Heard | None, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client tries.

    Args:
        timeout: Seconds for one attempt, > 0.
        deadline: Seconds for a call with all its attempts, > 0.
        pause: Seconds before the second attempt, at most; every further one may wait twice as long. They
            are drawn at random, so that many clients do not come back at the same moment.
        longest_pause: The longest of these pauses.
        away: Seconds for which a service that did not answer is taken to be away, before it is tried again.
        now: The clock, in seconds.
        draw: Returns a number from 0 to its argument.
    """

    timeout: float = 10.0
    deadline: float = 30.0
    pause: float = 0.1
    longest_pause: float = 5.0
    away: float = 5.0
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    draw: Callable[[float], float] = field(default=lambda most: SystemRandom().uniform(0.0, most), repr=False)

    def __post_init__(self) -> None:
        for name in ("timeout", "deadline", "pause", "longest_pause"):
            check_real(name, getattr(self, name), low=0.0, high=86400.0, open_low=True)
        check_real("away", self.away, low=0.0, high=86400.0)


def ask(request: Request, patience: Patience, read: Callable[[Any], T], *, once: bool = False) -> Talk[T]:
    """Send a request until it is answered, and return what `read` makes of the answer.

    Args:
        request: What to send.
        patience: How long to try.
        read: Makes something of the JSON of a reply, or raises Garbled.
        once: Whether to try once only.

    Raises:
        Rejected: if the service refuses the request.
        Unavailable: if there is no answer in time.
    """
    ends = patience.now() + (patience.timeout if once else patience.deadline)
    pause = patience.pause
    while True:
        heard = yield Send(request, max(min(patience.timeout, ends - patience.now()), 0.001))
        refused: Rejected | None = None
        if heard is not None:
            try:
                return read(_whole(heard))
            except Rejected as problem:
                if problem.status not in _LATER:
                    raise
                refused = problem
            except Garbled:
                pass
        wait = patience.draw(pause)
        if heard is not None and heard.retry_after is not None and heard.status in _LATER:
            wait += heard.retry_after
        if once or patience.now() + wait >= ends:
            if refused is not None and refused.status == 429:
                raise refused
            said = "" if refused is None else f" It said last: {refused}"
            seconds = patience.timeout if once else patience.deadline
            raise Unavailable(
                f"The service did not answer within {seconds:g} seconds. The same call again is safe.{said}"
            )
        yield Wait(wait)
        pause = min(2.0 * pause, patience.longest_pause)


def encoded(fields: dict[str, Any]) -> bytes:
    """Return a body.

    Raises:
        InvalidData: if JSON cannot express it.
    """
    try:
        text = json.dumps(
            fields,
            allow_nan=False,
            separators=(",", ":"),
            ensure_ascii=False,
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidData(f"The request cannot be written as JSON: {error}.") from error


def _whole(heard: Heard) -> Any:
    """Return the JSON of a reply.

    Raises:
        Garbled: if it is none of this service.
        Rejected: if it is a refusal.
    """
    try:
        found = json.loads(heard.body)
    except (ValueError, RecursionError):
        raise Garbled from None
    if not isinstance(found, dict):
        raise Garbled
    if 200 <= heard.status < 300:
        return found
    code, message = found.get("error"), found.get("message")
    if heard.status < 400 or not isinstance(code, str) or not isinstance(message, str):
        raise Garbled
    raise Rejected(heard.status, code, message)
