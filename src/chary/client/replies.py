"""What the client returns and raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chary.errors import CharyError


class Unavailable(CharyError):
    """The service did not answer in time; it may have acted on the request. The same call again is safe."""


class Rejected(CharyError):
    """The service refused a request: nothing was changed by it.

    Args:
        status: The status of HTTP.
        code: A short word, such as `unknown_episode`.
        message: One sentence.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Garbled(Exception):
    """What was heard is no reply of the service: a proxy's page, half a reply, or one to another request."""


class Heard(NamedTuple):
    """A reply as it was heard."""

    status: int
    body: bytes
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """An episode that has begun.

    Args:
        episode: Its name.
        offline: Whether the service is away and does not know it yet.
        reply: All that the service answered.
    """

    episode: str
    offline: bool = False
    reply: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """The action to play at one step.

    Args:
        episode: The episode.
        t: The step.
        action: The number of the action to play.
        label: The label of the action, where the setting declares labels.
        explored: Whether it explores.
        charge: What was booked for it, in the user's units.
        deficit: The ledger of the episode after it; None where the service is away.
        remaining: What is left of the budget; None where the budget is unlimited or the service is away.
        plan: The number of the plan.
        mode: The mode in which it was made; `fallback` where the client played its cached baseline.
        reply: All that the service answered.
    """

    episode: str
    t: int
    action: int
    label: str = ""
    explored: bool = False
    charge: float = 0.0
    deficit: float | None = None
    remaining: float | None = None
    plan: int = 0
    mode: str = "fallback"
    reply: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fallback(self) -> bool:
        """Whether the client decided, because the service was away."""
        return self.mode == "fallback"

    @classmethod
    def of(cls, episode: str, t: int, reply: Mapping[str, Any]) -> Decided:
        """Return what the service decided.

        Raises:
            Garbled: if the reply is not a decision of this step.
        """
        action, remaining = reply.get("action"), reply.get("remaining")
        numbers = [reply.get("charge"), reply.get("deficit"), 0.0 if remaining is None else remaining]
        whole = [action, reply.get("plan"), reply.get("t")]
        if (
            any(type(number) is not int for number in whole)
            or any(type(number) not in (int, float) for number in numbers)
            or reply["t"] != t
            or not isinstance(reply.get("mode"), str)
        ):
            raise Garbled
        return cls(
            episode,
            t,
            reply["action"],
            str(reply.get("label", "")),
            reply.get("explored") is True,
            float(reply["charge"]),
            float(reply["deficit"]),
            None if remaining is None else float(remaining),
            reply["plan"],
            reply["mode"],
            reply,
        )
