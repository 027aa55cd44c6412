"""Patients of the simulated ward for fault tests: requests one by one, to an engine in process or over HTTP.

A stay is a generator of requests that is sent the answers. It decides nothing about time: whoever drives it
chooses which stay goes on, which replies are lost, and what is asked twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from chary.service.answers import Answer, Refused
from chary.service.engine import Engine
from chary.service.ward import BETTER, GRADES, TREATMENTS, VISITS, WORSE


class Request(NamedTuple):
    """A request of the service's API."""

    method: str
    path: str
    body: dict[str, Any]


class Attempt(NamedTuple):
    """A request as it was sent, and what became of it; no status where no reply was heard."""

    method: str
    path: str
    body: bytes
    sent: float
    done: float
    status: int | None
    reply: bytes


Stay = Generator[Request, dict[str, Any], None]


def stay(name: str, chance: Random) -> Stay:
    """One patient: admitted, treated at up to six visits, discharged or lost; some reports come late."""
    path = f"/v1/episodes/{quote(name, safe='')}"
    grade = chance.randrange(GRADES)
    opened = {"episode": name, "state": grade}
    if chance.random() < 0.2:
        opened["eta"] = chance.choice((0.0, 5.0, 15.0))
    yield Request("POST", "/v1/episodes", opened)
    late: list[Request] = []
    visits = VISITS if chance.random() < 0.8 else chance.randrange(1, VISITS)
    for t in range(visits):
        answer = yield Request("POST", f"{path}/decisions", {"t": t, "state": grade})
        action = answer["action"]
        kind = chance.random()
        if kind < 0.1:
            action = chance.randrange(len(TREATMENTS))
        # An overruling must be known before the next decision, an outcome may come later.
        if kind < 0.3:
            yield Request("POST", f"{path}/decisions/{t}/taken", {"action": action})
        number = TREATMENTS.index(action) if isinstance(action, str) else action
        after = _next_grade(grade, number, chance)
        reward = 100.0 - 18.0 * grade
        told = {"t": t, "action": action, "reward": reward, "next_state": after}
        report = Request("POST", f"{path}/outcomes", told)
        if chance.random() < 0.3:
            late.append(report)
        else:
            yield report
        grade = after
    chance.shuffle(late)
    if visits == VISITS or chance.random() < 0.5:
        yield Request("POST", f"{path}/close", {})
        for report in late:
            yield report
    else:
        yield Request("POST", f"{path}/abandon", {"reason": "left"})


def _next_grade(grade: int, treatment: int, chance: Random) -> int:
    fate = chance.random()
    if fate < BETTER[treatment]:
        return max(grade - 1, 0)
    return min(grade + 1, GRADES - 1) if fate < BETTER[treatment] + WORSE[treatment] else grade


def call(engine: Engine, request: Request) -> Answer:
    """Ask an engine for what a request of the API asks.

    Raises:
        Refused: if the engine refuses it.
    """
    _, path, body = request
    parts = path.split("/")[2:]
    if path == "/v1/episodes":
        return engine.begin(body["episode"], body["state"], eta=body.get("eta"))
    if path == "/v1/mode":
        return engine.set_mode(body["mode"], author="a test", reason=body["reason"])
    if path == "/v1/stop":
        return engine.stop(author="a test", reason=body["reason"])
    if path == "/v1/eta":
        return engine.set_eta(body["eta"], author="a test", reason=body["reason"])
    name, what = unquote(parts[1]), parts[2]
    if len(parts) == 5:
        return engine.taken(name, int(parts[3]), body["action"])
    if what == "decisions":
        return engine.decide(name, body["t"], body["state"])
    if what == "outcomes":
        ended = bool(body.get("terminated", False))
        return engine.outcome(name, body["t"], body["action"], body["reward"], body["next_state"], ended)
    if what == "tighten":
        return engine.tighten(name, body["eta"], author="a test", reason=body["reason"])
    return engine.close(name) if what == "close" else engine.abandon(name, reason=body["reason"])


@dataclass
class Ward:
    """Stays side by side: `ask` is the next request of one of them, and `hear` its answer.

    Now and then a request that was answered is asked again, and the mode changes.
    """

    chance: Random
    beds: int = 8
    called: str = "stay"
    admitted: int = 0
    open: list[tuple[Stay, Request]] = field(default_factory=list)
    answered: list[tuple[Request, int, bytes]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def steps(self) -> Iterator[tuple[Request, Stay | None]]:
        """Yield requests without end, each with the stay that must hear the answer (none for a retry)."""
        while True:
            what = self.chance.random()
            if self.answered and what < 0.08:
                yield self.chance.choice(self.answered[-200:])[0], None
                continue
            if what > 0.995:
                mode = self.chance.choice(("budgeted", "budgeted", "frozen", "apprentice"))
                yield Request("PUT", "/v1/mode", {"mode": mode, "reason": "a test"}), None
                continue
            while len(self.open) < self.beds:
                one = stay(f"{self.called}-{self.admitted}", Random(self.chance.random()))
                self.admitted += 1
                self.open.append((one, next(one)))
            number = self.chance.randrange(len(self.open))
            one, request = self.open.pop(number)
            yield request, one

    def hear(self, request: Request, one: Stay | None, sent: float, status: int, reply: bytes) -> None:
        """Note an answer, and go on with the stay that asked."""
        self.note(request, sent, status, reply)
        if one is None or status >= 400:
            return
        self.answered.append((request, status, reply))
        try:
            self.open.append((one, one.send(json.loads(reply))))
        except StopIteration:
            return

    def note(self, request: Request, sent: float, status: int | None, reply: bytes = b"") -> None:
        """Note what became of a request."""
        body = json.dumps(request.body).encode()
        now = time.monotonic()
        self.attempts.append(Attempt(request.method, request.path, body, sent, now, status, reply))


def answer_of(engine: Engine, request: Request) -> tuple[int, bytes, int]:
    """Return status, bytes and event of what an engine answers, refusals included."""
    try:
        answer = call(engine, request)
    except Refused as refused:
        told = {"error": refused.code, "message": str(refused)}
        return refused.status, json.dumps(told).encode(), refused.seq
    return answer.status, answer.body, answer.seq
