"""A checker of histories: what clients asked and heard, against the log of events and a sequential model.

Clients note every attempt with the moments it was sent and answered; an attempt without an answer may have
happened or not. `check` compares them with the events that the service holds in the end, and plays the
events, one by one, through a model of one episode that knows nothing of the service's code. What it returns
is a list of findings, each named by the law that is broken; an empty list means that the history is one that
a single careful clerk could have produced.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

# Kinds of requests that may happen once for their key (kind, episode, step); the others may be repeated.
ONCE = frozenset({"begin", "decide", "outcome", "taken", "close", "abandon"})
ENDS = frozenset({"close", "abandon"})
# The mode of steps that a client played by itself while the service was away.
ALONE = "fallback"
# Sums of charges are compared up to the rounding of units.
ROUNDING = 1e-9
# A status after which it is unknown whether the request was carried out.
UNKNOWN = frozenset({500, 502, 503, 504})
# A status that says nothing about the request but that it was not carried out.
BUSY = 429

_PATH = re.compile(r"/v1/episodes/(?P<episode>[^/]+)/(?P<call>[a-z]+)(?:/(?P<t>\d+)/taken)?$")
_CALLS = {
    "outcomes": "outcome",
    "corrections": "correct",
    "close": "close",
    "abandon": "abandon",
    "fallbacks": "fallback",
    "tighten": "tighten",
}


class Attempted(Protocol):
    """One request as a client sent it, and what became of it; no status where no reply was heard."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def sent(self) -> float: ...
    @property
    def done(self) -> float: ...
    @property
    def status(self) -> int | None: ...
    @property
    def reply(self) -> bytes: ...


class Fact(NamedTuple):
    """One event of the log; `body` is what was decided or reported, in the words of the replies."""

    seq: int
    kind: str
    episode: str
    t: int | None
    body: Mapping[str, Any]
    epoch: int = 1


class Finding(NamedTuple):
    """A broken law, and where."""

    law: str
    what: str


class Key(NamedTuple):
    """What a request is about."""

    kind: str
    episode: str = ""
    t: int | None = None


@dataclass(slots=True)
class _Asked:
    """All attempts of one request: the same key and the same content."""

    key: Key
    content: str
    first_sent: float = math.inf
    first_heard: float = math.inf
    replies: set[bytes] = field(default_factory=set)
    last_refused: float = -math.inf
    unheard: int = 0

    @property
    def acknowledged(self) -> bool:
        return bool(self.replies)


def key_of(method: str, path: str, body: Mapping[str, Any]) -> Key | None:
    """Return what a request is about; None if it changes nothing that is checked here."""
    if (method, path) == ("POST", "/v1/episodes"):
        return Key("begin", str(body["episode"]))
    if path in ("/v1/mode", "/v1/eta") and method == "PUT":
        return Key(path.removeprefix("/v1/"))
    if path == "/v1/stop":
        return Key("stop")
    found = _PATH.match(path)
    if method != "POST" or found is None:
        return None
    episode = unquote(found["episode"])
    if found["t"] is not None:
        return Key("taken", episode, int(found["t"]))
    if found["call"] == "decisions":
        return Key("decide", episode, int(body["t"]))
    kind = _CALLS[found["call"]]
    return Key(kind, episode, int(body["t"]) if kind in ("outcome", "correct") else None)


def rows_of(attempt: Attempted) -> Iterable[tuple[Key, str, int | None, bytes]]:
    """Yield key, content, status and reply of each request in an attempt; a batch has several."""
    asked = json.loads(attempt.body) if attempt.body else {}
    if attempt.path == "/v1/decisions":
        rows = asked["decisions"]
        heard = attempt.status == 200
        replies = json.loads(attempt.reply)["decisions"] if heard else [None] * len(rows)
        for row, reply in zip(rows, replies, strict=True):
            about = Key("decide", str(row["episode"]), int(row["t"]))
            content = _canonical({name: row[name] for name in row if name != "episode"})
            if not heard:
                yield about, content, attempt.status, b""
            elif "error" in reply:
                yield about, content, 409, b""
            else:
                yield about, content, 200, _canonical(reply).encode()
        return
    key = key_of(attempt.method, attempt.path, asked)
    if key is not None:
        reply = attempt.reply
        if key.kind == "decide" and attempt.status == 200:
            # A batch and a single call are answered by the same row, written by the same encoder.
            reply = _canonical(json.loads(reply)).encode()
        yield key, _canonical(asked), attempt.status, reply


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(slots=True)
class Episode:
    """The sequential model of one episode: what one careful clerk with one ledger would accept."""

    eta: float = math.inf
    begun: bool = False
    ended: bool = False
    spent: float = 0.0
    decided: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    taken: dict[int, Any] = field(default_factory=dict)

    def take(self, fact: Fact) -> Iterable[Finding]:
        """Yield what is wrong with a fact, and apply it."""
        where = f"event {fact.seq} ({fact.kind}, episode {fact.episode}, t {fact.t})"
        if fact.kind == "begin":
            if self.begun:
                yield Finding("names are never reused", where)
            self.begun = True
            if fact.body.get("eta") is not None:
                self.eta = float(fact.body["eta"])
            return
        if not self.begun:
            yield Finding("an episode begins first", where)
        if fact.kind == "decide":
            yield from self._decide(fact, where)
        elif fact.kind in ("outcome", "taken"):
            if fact.t not in self.decided:
                yield Finding("reports are about decided steps", where)
        elif fact.kind == "tighten":
            eta = _eta(fact.body.get("eta"))
            if eta > self.eta:
                yield Finding(
                    "the budget of an open episode is never raised", f"{where}: {self.eta} to {eta}"
                )
            self.eta = eta
        elif fact.kind in ENDS:
            self.ended = True

    def _decide(self, fact: Fact, where: str) -> Iterable[Finding]:
        assert fact.t is not None
        if fact.t in self.decided:
            yield Finding("one decision per step", where)
        elif fact.t != len(self.decided):
            yield Finding("steps are decided in order", f"{where}: {len(self.decided)} is next")
        if self.ended:
            yield Finding("nothing is decided after the end", where)
        body = fact.body
        charge, deficit = float(body["charge"]), float(body["deficit"])
        if charge < 0 or deficit < self.spent - ROUNDING:
            yield Finding("nothing is refunded", f"{where}: {self.spent} spent, then {deficit}")
        elif abs(deficit - (self.spent + charge)) > ROUNDING * max(1.0, abs(deficit)):
            told = f"{where}: {self.spent} spent and {charge} charged, then {deficit}"
            yield Finding("a step is charged once", told)
        if deficit > max(self.eta, self.spent) + ROUNDING * max(1.0, abs(deficit)):
            yield Finding("the ledger stays within the budget", f"{where}: {deficit} of {self.eta}")
        if body.get("remaining") is not None:
            left = max(self.eta - deficit, 0.0)
            if abs(float(body["remaining"]) - left) > ROUNDING * max(1.0, left):
                found = f"{where}: {body['remaining']} left, not {left}"
                yield Finding("the budget of an open episode is never raised", found)
        if not body["explored"] and charge != 0:
            yield Finding("only exploring is charged", where)
        self.spent = max(self.spent, deficit)
        self.decided[fact.t] = body


def _eta(value: Any) -> float:
    return math.inf if value is None else float(value)


def check(
    attempts: Iterable[Attempted],
    facts: Sequence[Fact],
    *,
    identify: Callable[[str], str] = str,
    incumbent: Callable[[str, int, Any], Any] | None = None,
    mode: str = "apprentice",
    eta: float | None = None,
) -> list[Finding]:
    """Return what is wrong with a history.

    Args:
        attempts: What all clients asked and heard.
        facts: All events of the service, in the order in which it keeps them.
        identify: Turns the name of an episode into the one that the events hold.
        incumbent: The incumbent's action for (name of the episode, t, state); None if it is not known.
        mode: The mode at the beginning of the log.
        eta: The budget of an episode that does not name its own; None for none.
    """
    asked = _gather(attempts)
    return [
        *_the_log(facts),
        *_the_episodes(facts, mode, _eta(eta)),
        *_the_answers(asked, facts, identify),
        *_the_clock(asked, facts, identify),
        *_the_incumbent(asked, facts, identify, incumbent, mode),
    ]


def _gather(attempts: Iterable[Attempted]) -> list[_Asked]:
    asked: dict[tuple[Key, str], _Asked] = {}
    for attempt in attempts:
        for key, content, status, reply in rows_of(attempt):
            one = asked.setdefault((key, content), _Asked(key, content))
            one.first_sent = min(one.first_sent, attempt.sent)
            if status is None or status in UNKNOWN:
                one.unheard += 1
            elif status == BUSY:
                continue
            elif status < 300:
                one.replies.add(reply)
                one.first_heard = min(one.first_heard, attempt.done)
            else:
                one.last_refused = max(one.last_refused, attempt.sent)
    return list(asked.values())


def _the_log(facts: Sequence[Fact]) -> Iterable[Finding]:
    """Events are numbered from 1 without a hole, and no older process writes after a newer one."""
    epoch = 0
    for number, fact in enumerate(facts, start=1):
        if fact.seq != number:
            yield Finding("events are numbered without holes", f"{fact.seq} stands at {number}")
            break
    for fact in facts:
        if fact.epoch < epoch:
            yield Finding(
                "a fenced process commits nothing", f"event {fact.seq}: epoch {fact.epoch} < {epoch}"
            )
        epoch = max(epoch, fact.epoch)


def _the_episodes(facts: Sequence[Fact], mode: str, eta: float) -> Iterable[Finding]:
    """Each episode, alone, is one that the sequential model accepts; modes hold for all of them."""
    episodes: dict[str, Episode] = defaultdict(lambda: Episode(eta))
    for fact in facts:
        if fact.kind == "mode":
            mode = str(fact.body["mode"])
        if not fact.episode:
            continue
        yield from episodes[fact.episode].take(fact)
        if fact.kind == "decide":
            if fact.body["mode"] not in (mode, ALONE):
                told = f"event {fact.seq}: {fact.body['mode']}, in force {mode}"
                yield Finding("a decision has the mode in force", told)
            if fact.body["explored"] and mode != "budgeted":
                law = "nothing explores after a stop" if mode == "stopped" else "only budgeted explores"
                yield Finding(law, f"event {fact.seq} in mode {mode}")


def _the_answers(
    asked: Sequence[_Asked], facts: Sequence[Fact], identify: Callable[[str], str]
) -> Iterable[Finding]:
    """What was acknowledged is in the log, once, as it was answered; what was refused is not."""
    held: dict[Key, list[Fact]] = defaultdict(list)
    for fact in facts:
        held[Key(fact.kind, fact.episode, fact.t)].append(fact)
        if fact.kind == "mode" and fact.body["mode"] == "stopped":
            held[Key("stop")].append(fact)
    contents: dict[Key, list[_Asked]] = defaultdict(list)
    for one in asked:
        contents[Key(one.key.kind, identify(one.key.episode) if one.key.episode else "", one.key.t)].append(
            one
        )
    for key, ones in contents.items():
        there = held.get(key, [])
        acknowledged = [one for one in ones if one.acknowledged]
        name = f"{ones[0].key}"
        for one in acknowledged:
            if key.kind in ONCE and len(one.replies) > 1:
                yield Finding("a retry is answered with the same bytes", f"{name}: {sorted(one.replies)}")
            if key.kind in ONCE and one.last_refused > one.first_heard:
                yield Finding("a retry is answered with the same bytes", f"{name}: answered, then refused")
        if key.kind in ONCE:
            if len(acknowledged) > 1:
                yield Finding("one answer per key", f"{name}: {[one.content for one in acknowledged]}")
            if len(there) > 1:
                yield Finding("one event per key", f"{name}: events {[fact.seq for fact in there]}")
        if acknowledged and not there:
            yield Finding("what was acknowledged is in the log", name)
        if there and not acknowledged and not any(one.unheard for one in ones):
            yield Finding("what was refused is not in the log", name)
        if key.kind in ONCE and there:
            for reply in {reply for one in acknowledged for reply in one.replies}:
                if json.loads(reply) != there[0].body:
                    told = f"{name}: {reply!r}, in the log {_canonical(there[0].body)}"
                    yield Finding("an answer is what the log holds", told)
    for key, there in held.items():
        if key.kind in ONCE and key not in contents:
            yield Finding("nothing is in the log that nobody asked for", f"{key}: event {there[0].seq}")


def _the_clock(
    asked: Sequence[_Asked], facts: Sequence[Fact], identify: Callable[[str], str]
) -> Iterable[Finding]:
    """What was acknowledged before something else was asked for comes before it in the log."""
    times: dict[Key, tuple[float, float]] = {}
    for one in asked:
        if one.key.kind in ONCE:
            key = Key(one.key.kind, identify(one.key.episode), one.key.t)
            sent, heard = times.get(key, (math.inf, math.inf))
            times[key] = (min(sent, one.first_sent), min(heard, one.first_heard))
    latest, by = -math.inf, 0
    for fact in facts:
        sent, heard = times.get(Key(fact.kind, fact.episode, fact.t), (-math.inf, math.inf))
        if heard < latest:
            told = f"event {fact.seq} was acknowledged before event {by}, earlier in the log, was asked for"
            yield Finding("the log keeps the order of real time", told)
        if sent > latest:
            latest, by = sent, fact.seq


def _the_incumbent(
    asked: Sequence[_Asked],
    facts: Sequence[Fact],
    identify: Callable[[str], str],
    incumbent: Callable[[str, int, Any], Any] | None,
    mode: str,
) -> Iterable[Finding]:
    """Apprentice and stopped never change an action; after an acknowledged stop nobody hears of exploring."""
    stops = [one.first_heard for one in asked if one.key.kind == "stop" and one.acknowledged]
    changes = [one.first_sent for one in asked if one.key.kind == "mode"]
    for one in asked:
        if one.key.kind != "decide":
            continue
        for reply in one.replies:
            answer = json.loads(reply)
            if answer["explored"] and _is_stopped(one, stops, changes):
                yield Finding("nothing explores after a stop", f"{one.key}, asked once it was acknowledged")
            if incumbent is not None and answer["mode"] in ("apprentice", "stopped"):
                told = json.loads(one.content)
                usual = incumbent(one.key.episode, told["t"], told["state"])
                if usual is not None and answer["action"] != usual:
                    found = f"{one.key}: {answer['action']!r}, the incumbent plays {usual!r}"
                    yield Finding("the incumbent's action is never changed", found)


def _is_stopped(one: _Asked, stops: Sequence[float], changes: Sequence[float]) -> bool:
    """Whether a request was asked and answered between a stop and the next change of mode."""
    return any(
        stop < one.first_sent and not any(stop < change < one.first_heard for change in changes)
        for stop in stops
    )


def laws(findings: Iterable[Finding]) -> set[str]:
    """Return the names of the laws that are broken."""
    return {finding.law for finding in findings}
