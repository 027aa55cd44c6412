"""Every call of the client, once: what is sent, what is made of the answer, and what is done without one.

The calls are generators, see `talk`; `clients` drives them with threads and with asyncio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, final
from urllib.parse import quote, urlencode

from chary.client.away import Outbox
from chary.client.replies import Begun, Decided, Garbled, Rejected, Unavailable
from chary.client.talk import Patience, Request, Talk, ask, encoded
from chary.errors import InvalidData, as_float, as_whole, check_integer, check_type
from chary.texts import shown

T = TypeVar("T")
Named = int | str
Reply = Mapping[str, Any]
# A number of seconds after which the baseline's table is requested again when an episode begins.
_FRESH = 300.0
# Refusals that say nothing about a report: of the token that it was sent with, and for want of room.
_CALLERS, _FULL = (401, 403), 429


def _reply(found: Any) -> Mapping[str, Any]:
    """Take any JSON object as it is."""
    if not isinstance(found, Mapping):
        raise Garbled
    return found


@final
class Flows:
    """The calls of a client.

    Args:
        patience: How long each call tries.
        outbox: What waits while the service is away.
        fallback: Whether to play the baseline while it is away; otherwise calls raise Unavailable.
    """

    def __init__(self, patience: Patience, outbox: Outbox, *, fallback: bool) -> None:
        self._patience, self._outbox, self._fallback = patience, outbox, fallback
        # Until when the service is taken to be away, and when the baseline was last received.
        self._away_until = float("-inf")
        self._fresh_until = float("-inf")

    def begin(
        self, episode: str, state: Named, eta: float | None, payload: Mapping[str, Any] | None
    ) -> Talk[Begun]:
        """Begin an episode."""
        fields: dict[str, Any] = {"episode": _name(episode), "state": _named("state", state)}
        if eta is not None:
            fields["eta"] = _real("eta", eta)
        if payload is not None:
            fields["payload"] = dict(payload)
        request = Request("POST", "/v1/episodes", encoded(fields))
        if self._fallback and self._patience.now() >= self._fresh_until:
            yield from self._refresh()
        reply = yield from self._deliver(episode, request, all_first=True)
        return Begun(episode, offline=True) if reply is None else Begun(episode, reply=reply)

    def decide(self, episode: str, t: int, state: Named, fallback_action: Named | None) -> Talk[Decided]:
        """Return the decision of a step."""
        row = _row(episode, t, state, fallback_action)
        path = episode_path(row.pop("episode"), "decisions")
        played = self._outbox.played(episode, row["t"], row["state"])
        if played is not None:
            # It was played already; what the service would decide now comes too late.
            return played
        request = Request("POST", path, encoded(row))
        try:
            yield from self._catch_up(episode)
            answer: Decided = yield from self._ask(
                request, lambda found: Decided.of(episode, row["t"], found)
            )
            self._outbox.hear(episode, row["state"], answer)
            return answer
        except Unavailable:
            decided = self._play(episode, row["t"], row["state"])
            if decided is None:
                raise
            return decided

    def decide_many(self, rows: Sequence[tuple[str, int, Named]]) -> Talk[list[Decided | Rejected]]:
        """Return the decisions of steps of several episodes."""
        fields = [_row(episode, t, state, None) for episode, t, state in rows]
        keys = [(row["episode"], row["t"]) for row in fields]
        answers: dict[int, Decided | Rejected] = {}
        for place, (episode, t) in enumerate(keys):
            played = self._outbox.played(episode, t, fields[place]["state"])
            if played is not None:
                answers[place] = played
        left = [place for place in range(len(fields)) if place not in answers]

        def read(found: Any) -> list[Decided | Rejected]:
            lines = _reply(found).get("decisions")
            if not isinstance(lines, list) or len(lines) != len(left):
                raise Garbled
            return [_answered(*keys[place], line) for place, line in zip(left, lines, strict=True)]

        if left:
            request = Request(
                "POST", "/v1/decisions", encoded({"decisions": [fields[place] for place in left]})
            )
            try:
                for episode in {keys[place][0] for place in left}:
                    yield from self._catch_up(episode)
                answered = yield from self._ask(request, read)
                answers.update(zip(left, answered, strict=True))
                for place, each in zip(left, answered, strict=True):
                    if isinstance(each, Decided):
                        self._outbox.hear(each.episode, fields[place]["state"], each)
            except Unavailable:
                for place in left:
                    decided = self._play(*keys[place], fields[place]["state"])
                    if decided is None:
                        raise
                    answers[place] = decided
        return [answers[place] for place in range(len(fields))]

    def taken(self, episode: str, t: int, action: Named | None) -> Talk[Reply | None]:
        """Report what was played."""
        step = check_integer("t", t, minimum=0, error=InvalidData)
        body = encoded({"action": None if action is None else _named("action", action)})
        return (yield from self._deliver(episode, _post(episode, f"decisions/{step}/taken", body)))

    def outcome(
        self, episode: str, t: int, action: Named, reward: float, next_state: Named, terminated: bool
    ) -> Talk[Reply | None]:
        """Report what came of a step."""
        fields = _outcome(t, action, reward, next_state, terminated)
        return (yield from self._deliver(episode, _post(episode, "outcomes", encoded(fields))))

    def correct(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        terminated: bool,
        reason: str,
    ) -> Talk[Reply | None]:
        """Report what an outcome should have said."""
        fields = {**_outcome(t, action, reward, next_state, terminated), "reason": reason}
        return (yield from self._deliver(episode, _post(episode, "corrections", encoded(fields))))

    def close(self, episode: str) -> Talk[Reply | None]:
        """Request no more decisions."""
        reply = yield from self._deliver(episode, _post(episode, "close", b"{}"))
        self._outbox.forget(episode)
        return reply

    def abandon(self, episode: str, reason: str) -> Talk[Reply | None]:
        """Give an episode up."""
        body = encoded({"reason": reason})
        reply = yield from self._deliver(episode, _post(episode, "abandon", body))
        self._outbox.forget(episode)
        return reply

    def view(self, path: str, **query: Named | None) -> Talk[Reply]:
        """Return what the service answers at a path."""
        given = {name: value for name, value in query.items() if value is not None}
        request = Request("GET", path + (f"?{urlencode(given)}" if given else ""))
        return (yield from ask(request, self._patience, _reply))

    def operate(self, method: str, path: str, fields: Mapping[str, Any]) -> Talk[Reply]:
        """Send a call of an operator once; it never waits in the outbox.

        A late repetition could undo what somebody else has changed meanwhile. Stopping alone is repeated:
        nothing is lost by stopping twice.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        if method == "DELETE":
            request = Request(method, f"{path}?{urlencode(given)}")
        else:
            request = Request(method, path, encoded(given))
        return (yield from ask(request, self._patience, _reply, once=path != "/v1/stop"))

    def flush(self) -> Talk[int]:
        """Deliver all reports that wait, and return how many still do."""
        self._away_until = float("-inf")
        try:
            yield from self._catch_up(None)
        except (Unavailable, Rejected):
            pass
        return len(self._outbox)

    def _ask(self, request: Request, read: Any) -> Talk[Any]:
        """Send a request, unless the service is known to be away, and note whether it is."""
        now = self._patience.now()
        if now < self._away_until:
            raise Unavailable("The service is away; it is tried again in a moment.")
        # After it was away, one attempt shows whether it is back.
        once = self._away_until > float("-inf")
        try:
            answer = yield from ask(request, self._patience, read, once=once)
        except Unavailable:
            if self._fallback:
                self._away_until = self._patience.now() + self._patience.away
            raise
        except Rejected:
            self._away_until = float("-inf")
            raise
        self._away_until = float("-inf")
        return answer

    def _deliver(self, episode: str, request: Request, *, all_first: bool = False) -> Talk[Reply | None]:
        """Send a report after those of its episode that wait, or all; None where it now waits, too."""
        try:
            yield from self._catch_up(None if all_first else episode)
            reply: Reply = yield from self._ask(request, _reply)
            return reply
        except Unavailable:
            if not self._fallback:
                raise
            self._outbox.add(episode, request)
            return None

    def _catch_up(self, episode: str | None) -> Talk[None]:
        """Deliver what waits of an episode, or of all, in order.

        Raises:
            Unavailable: if the service is away.
            Rejected: if it takes no report now, for a reason that is not the report's; then it waits on.
        """
        later: dict[str, Rejected] = {}
        for report in self._outbox.of(episode):
            if report.episode in later:
                continue
            try:
                yield from self._ask(report.request, _reply)
            except Rejected as refused:
                if refused.status in _CALLERS:
                    raise
                if refused.status == _FULL:
                    # Reports of other episodes may make room.
                    later[report.episode] = refused
                else:
                    self._outbox.delivered(report, refused)
            else:
                self._outbox.delivered(report)
        for first in later.values():
            raise first

    def _play(self, episode: str, t: int, state: Named) -> Decided | None:
        """Play the baseline and report it later; None where that is not wanted or not possible.

        What the service has decided is played in its place: the caller may have acted on it already.
        """
        if not self._fallback:
            return None
        heard = self._outbox.heard(episode, t, state)
        if heard is not None:
            return heard
        decided = self._outbox.play(episode, t, state)
        if decided is not None:
            step = {"t": t, "state": state, "action": decided.action}
            self._outbox.add(episode, _post(episode, "fallbacks", encoded({"steps": [step]})))
        return decided

    def _refresh(self) -> Talk[None]:
        """Receive the baseline's table; without an answer the old one stays."""
        try:
            reply = yield from self._ask(Request("GET", "/v1/baseline"), _reply)
            self._outbox.keep(reply)
        except (Unavailable, Garbled):
            return
        self._fresh_until = self._patience.now() + _FRESH


def episode_path(episode: str, rest: str = "") -> str:
    """Return the path of an episode, or of what belongs to it."""
    name = quote(_name(episode), safe="")
    return f"/v1/episodes/{name}/{rest}" if rest else f"/v1/episodes/{name}"


def _post(episode: str, rest: str, body: bytes) -> Request:
    return Request("POST", episode_path(episode, rest), body)


def _name(episode: object) -> str:
    check_type("episode", episode, str, "a text", error=InvalidData)
    return str(episode)


def _named(name: str, value: object) -> Named:
    """Return a state or an action as JSON can express it, also where it is a number of NumPy."""
    if isinstance(value, str):
        return value
    whole = as_whole(value)
    if whole is None:
        raise InvalidData(f"{name!r} must be a whole number or a label, got {shown(value)}.")
    return whole


def _real(name: str, value: object) -> float:
    number = as_float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise InvalidData(f"{name!r} must be a finite number, got {shown(value)}.")
    return number


def _row(episode: str, t: int, state: Named, fallback_action: Named | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "episode": _name(episode),
        "t": check_integer("t", t, minimum=0, error=InvalidData),
        "state": _named("state", state),
    }
    if fallback_action is not None:
        row["fallback_action"] = _named("fallback_action", fallback_action)
    return row


def _outcome(t: int, action: Named, reward: float, next_state: Named, terminated: bool) -> dict[str, Any]:
    return {
        "t": check_integer("t", t, minimum=0, error=InvalidData),
        "action": _named("action", action),
        "reward": _real("reward", reward),
        "next_state": _named("next_state", next_state),
        "terminated": bool(terminated),
    }


def _answered(episode: str, t: int, line: Any) -> Decided | Rejected:
    """Return one row of the answer to a batch."""
    if not isinstance(line, Mapping):
        raise Garbled
    if isinstance(line.get("error"), str):
        return Rejected(200, line["error"], str(line.get("message", "")))
    return Decided.of(episode, t, line)
