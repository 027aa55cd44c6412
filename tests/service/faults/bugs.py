"""Bugs planted in the real service, and the concurrent, hostile clients that the checker judges it by.

`run` is meant for a process of a nursery: it plants one bug, lets clients call an engine as its server does,
and writes what the checker finds. Clients lose answers, lose patience, ask again, contradict themselves, and
look at the disk the moment they were answered.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from tests.service.faults.patients import Request, Stay, Ward, answer_of
from tests.service.history import ONCE, check, key_of
from tests.service.log import facts_of, identify_by

from chary.agents.tabular import TabularAgent
from chary.service import events
from chary.service.answers import Answer
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.live import Live
from chary.service.modes import APPRENTICE, BUDGETED, INCUMBENTS, STOPPED
from chary.service.store import Store
from chary.service.ward import ETA, GRADES, TREATMENTS, todays_rule

CLIENTS, CALLS, PATIENCE = 5, 60, 0.003
# Bytes of the head of a write-ahead log, which has new salts whenever the log is begun again.
LOG_HEAD = 32
# Of the calls of a client: when the operator changes the mode, and when the service is stopped.
CHANGES: Final = {15: "apprentice", 30: "budgeted"}
STOP: Final = 48


def run(directory: str, findings: str, bug: str, seed: int) -> int:
    """Plant a bug (none where it is empty), play, check, and write the findings."""
    folder = Path(directory)
    if bug:
        BUGS[bug](folder)
    found = asyncio.run(_play(folder, seed))
    Path(findings).write_text(json.dumps(found), encoding="utf-8")
    return 0


async def _play(folder: Path, seed: int) -> list[Any]:
    engine = Engine.open(folder)
    images = folder.with_name(f"{folder.name}-images")
    wards = [Ward(Random(seed + number), beds=3, called=f"client {number}") for number in range(CLIENTS)]
    clients = [
        _Client(engine, each, folder, images, Random(-seed - each_)) for each_, each in enumerate(wards)
    ]
    await asyncio.gather(*(client.call(CALLS, operates=client is clients[0]) for client in clients))
    HOOK.before_the_end(engine, folder)
    await engine.durable(engine.head)
    engine.finish()
    attempts = [attempt for each in wards for attempt in each.attempts]
    identify = identify_by(folder)
    found = check(attempts, facts_of(folder), identify=identify, incumbent=_incumbent, eta=ETA)
    for client in clients:
        # What a power loss or a kill would have left at the moment of an answer.
        for moment, image in client.images:
            heard = [one for one in attempts if one.done <= moment and one.status is not None]
            found += [
                each for each in check(heard, facts_of(image), identify=identify, eta=ETA)
                if each.law == "what was acknowledged is in the log"
            ]  # fmt: skip
    return found


def _incumbent(_: str, t: int, grade: int) -> int:
    return todays_rule(grade)


class _Client:
    """One client with a few patients, who loses answers and patience, and contradicts itself."""

    def __init__(self, engine: Engine, ward: Ward, folder: Path, images: Path, chance: Random) -> None:
        self.engine, self.ward, self.folder, self.chance = engine, ward, folder, chance
        self._images = images
        self.images: list[tuple[float, Path]] = []

    async def call(self, calls: int, *, operates: bool) -> None:
        steps = self.ward.steps()
        for number in range(calls):
            if operates and number in CHANGES:
                await self.ask(
                    Request("PUT", "/v1/mode", {"mode": CHANGES[number], "reason": "a test"}), None
                )
            if operates and number == STOP:
                await self.ask(Request("POST", "/v1/stop", {"reason": "a test"}), None)
            if number % 12 == 5:
                await self.ask(self._raise(), None)
            request, stay = next(steps)
            while request.path == "/v1/mode":
                request, stay = next(steps)
            await self.ask(request, stay)
            if self.chance.random() < 0.15 and self.ward.answered:
                await self.ask(
                    _contradicting(self.chance.choice(self.ward.answered[-40:])[0], self.chance), None
                )

    def _raise(self) -> Request:
        """Return a request to raise the budget of an episode that is open, which must be refused."""
        paths = [request.path for _, request in self.ward.open if request.path.startswith("/v1/episodes/")]
        path = "/".join(paths[0].split("/")[:4]) if paths else "/v1/episodes/nobody"
        return Request("POST", f"{path}/tighten", {"eta": 1e6, "reason": "a test"})

    async def ask(self, request: Request, stay: Stay | None) -> None:
        """Ask until it is answered; each time the answer may be lost, or come too late."""
        while True:
            sent = time.monotonic()
            status, body, seq = answer_of(self.engine, request)
            fate = self.chance.random()
            if fate < 0.08:
                # Lost on the way.
                self.ward.note(request, sent, None)
                await asyncio.sleep(0)
                continue
            try:
                await asyncio.wait_for(self.engine.durable(seq), PATIENCE if fate < 0.2 else None)
            except TimeoutError:
                self.ward.note(request, sent, None)
                continue
            self.ward.hear(request, stay, sent, status, body)
            if status < 300 and self.chance.random() < 0.06:
                self._look()
            return

    def _look(self) -> None:
        """Copy the database as it is on the disk now."""
        image = self._images / f"{id(self)}-{len(self.images)}"
        image.mkdir(parents=True)
        moment = time.monotonic()
        log, copy = self.folder / "chary.db-wal", image / "chary.db-wal"
        while True:
            # The log after the database: what moved from one to the other meanwhile is in both, unless the
            # log was begun again, which gives it another head.
            head = log.read_bytes()[:LOG_HEAD]
            shutil.copyfile(self.folder / "chary.db", image / "chary.db")
            shutil.copyfile(log, copy)
            if copy.read_bytes()[:LOG_HEAD] == head:
                break
        self.images.append((moment, image))


def _contradicting(request: Request, chance: Random) -> Request:
    """Return a request like one that was answered, that must be refused."""
    method, path, body = request
    key = key_of(method, path, body)
    if key is None or key.kind not in ONCE or key.kind in ("close", "abandon"):
        return request
    changed = dict(body)
    if key.kind in ("begin", "decide"):
        changed["state"] = (body["state"] + 1) % GRADES
    else:
        changed["action"] = (body["action"] + 1) % len(TREATMENTS)
    return Request(method, path, changed)


# What some bugs do once all clients have ended.
HOOK = SimpleNamespace(before_the_end=lambda engine, folder: None)


def _early_reply(_: Path) -> None:
    write = Store.write

    def slowly(store: Store, batch: Any) -> Any:
        time.sleep(0.05)
        return write(store, batch)

    async def at_once(engine: Engine, seq: int) -> None:
        await asyncio.sleep(0)

    _patch(Store, "write", slowly)
    _patch(Engine, "durable", at_once)


def _changed_decisions(change: Callable[[events.Decided, Live, str], Mapping[str, Any]]) -> None:
    """Let every decision be changed after it was made."""
    decide = Live.decide

    def changed(live: Live, identity: str, t: int, s: int, fallback: int | None) -> events.Decided:
        made = decide(live, identity, t, s, fallback)
        return msgspec.structs.replace(made, **change(made, live, identity))

    _patch(Live, "decide", changed)


def _double_charge(_: Path) -> None:
    _changed_decisions(lambda made, *_: {"deficit": made.deficit + made.charge})


def _refund(_: Path) -> None:
    """What was charged for a step is given back once its outcome is known."""

    def refunded(made: events.Decided, live: Live, identity: str) -> Mapping[str, Any]:
        known = [step for step in live.records[identity].steps if step.outcome is not None]
        return {"deficit": made.deficit - sum(step.decided.facts.charge for step in known)}

    _changed_decisions(refunded)


def _lost_fence(folder: Path) -> None:
    """Another process takes over, and the old one, whose fence is gone, writes on behind it."""

    def overtaken(engine: Engine, _: Path) -> None:
        engine.wait(engine.head)
        store: Any = engine._committer._store
        (folder / "lock").unlink()
        other = Engine.open(folder)
        other.finish()
        epoch = store.epoch

        def unfenced(batch: Any) -> Any:
            run = store._connection.execute
            last = next(run("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1"))
            store.head = type(store.head)(*last)
            moved = [one._replace(seq=last[0] + place) for place, one in enumerate(batch, start=1)]
            run("UPDATE lease SET epoch = ?", (epoch,))
            return type(store).write(store, moved)

        engine._committer._store = _Unfenced(store, unfenced)  # type: ignore[assignment]
        engine.set_mode("frozen", author="an old process", reason="it does not know")

    HOOK.before_the_end = overtaken


class _Unfenced:
    """A store whose `write` is another one."""

    def __init__(self, store: Any, write: Callable[[Any], Any]) -> None:
        self._store, self.write = store, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _other_retry(_: Path) -> None:
    repeated = Engine._repeated

    def otherwise(engine: Engine, kept: Any) -> Answer:
        answer = repeated(engine, kept)
        return answer._replace(body=answer.body.replace(b'"explored":true', b'"explored":false'))

    _patch(Engine, "_repeated", otherwise)


def _deaf_to_stops(_: Path) -> None:
    decide = Live.decide

    def exploring(live: Live, identity: str, t: int, s: int, fallback: int | None) -> events.Decided:
        mode, live.mode = live.mode, BUDGETED if live.mode == STOPPED else live.mode
        try:
            return decide(live, identity, t, s, fallback)
        finally:
            live.mode = mode

    _patch(Live, "decide", exploring)


def _skipped_event(_: Path) -> None:
    write = Store.write

    def forgetful(store: Store, batch: Any) -> Any:
        kept = [event for event in batch if event.kind != "observed" or event.seq % 3]
        return write(store, kept) if kept else store.head

    _patch(Store, "write", forgetful)


def _reused_name(_: Path) -> None:
    """A name can be used again: it then stands for another episode."""
    again = Engine._again_begun
    plain = Deployment.identity
    used: dict[str, int] = {}

    def anew(engine: Any, now: Any, s: int, eta: float | None, content: str) -> Answer:
        if now.begun.facts.state == s:
            return again(engine, now, s, eta, content)
        name = json.loads(content)["name"]
        used[name] = used.get(name, 0) + 1
        engine._identity = lambda each: plain(engine._deployment, f"{each}{'+' * used.get(each, 0)}")
        begun: Answer = engine.begin(name, s, eta=eta)
        return begun

    _patch(Engine, "_again_begun", anew)


def _raised_eta(_: Path) -> None:
    _patch(TabularAgent, "tighten", lambda agent, episode, eta: None)


def _meddling_apprentice(_: Path) -> None:
    decide = Live.decide

    def other(live: Live, identity: str, t: int, s: int, fallback: int | None) -> events.Decided:
        if live.mode == APPRENTICE and t % 2:
            fallback = (todays_rule(s) + 1) % len(TREATMENTS)
        return decide(live, identity, t, s, fallback)

    _patch(Live, "decide", other)


def _two_decisions(_: Path) -> None:
    def whatever(engine: Engine, now: Any, t: int, s: int, fallback: int | None) -> Answer:
        return engine._repeated(now.steps[t].decided)

    _patch(Engine, "_again_decided", whatever)


def _over_budget(_: Path) -> None:
    _changed_decisions(lambda made, *_: {"charge": 4 * made.charge, "deficit": 4 * made.deficit})


def _exploring_apprentice(_: Path) -> None:
    _changed_decisions(lambda made, *_: {"explored": True} if made.mode in INCUMBENTS else {})


def _patch(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), name
    setattr(owner, name, value)


BUGS: Final[dict[str, Callable[[Path], None]]] = {
    "early reply": _early_reply,
    "double charge": _double_charge,
    "refund": _refund,
    "lost fence": _lost_fence,
    "retry answered differently": _other_retry,
    "exploring after a stop": _deaf_to_stops,
    "skipped event": _skipped_event,
    "reused name": _reused_name,
    "eta raised on an open episode": _raised_eta,
    "apprentice that changes an action": _meddling_apprentice,
    "two states for one decision": _two_decisions,
    "over budget": _over_budget,
    "apprentice that explores": _exploring_apprentice,
}
