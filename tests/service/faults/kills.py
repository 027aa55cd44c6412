"""A service that is killed again and again while clients call it, and is started again each time.

Clients go on as clients do: they ask again until they are answered. At the end the service is stopped, and
the whole history is checked against the log.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.service.faults.nursery import Child, Nursery
from tests.service.history import Finding, check
from tests.service.log import broken_links, facts_of, identify_by

from chary.service import clinic as clinic_module
from chary.service.clinic import Attempt, Clinic, Habits
from chary.service.line import Line, LineLost
from chary.service.points import POINTS
from chary.service.ward import ward

SERVE = "tests.service.faults.serving:serve"
# Seconds after which a service that did not reach its point is killed all the same.
LONGEST = 3.0
# Answers that are asked for again at the end.
AGAIN = 200


@dataclass
class Kills:
    """What came of many kills."""

    kills: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    acknowledged: int = 0
    events: int = 0
    explored: int = 0
    starts: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def answers(line: Line, seconds: float = 30.0) -> float:
    """Wait until the service answers, and return how many seconds that took.

    Raises:
        TimeoutError: if it does not.
    """
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            if (await line.call("GET", "/healthz")).status == 200:
                return time.monotonic() - began
        except LineLost:
            await asyncio.sleep(0.01)
    raise TimeoutError(f"the service did not answer within {seconds} s")


async def kill_often(
    nursery: Nursery, directory: Path, token: str, *, eta: float, kills: int, seed: int
) -> Kills:
    """Kill the service of one deployment so many times under load, then stop it and check everything."""
    chance, found = Random(seed), Kills()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    attempts: list[Attempt] = []
    habits = Habits(
        beds=6, pace=0.0, late=0.3, delay=0.1, lost=0.02, leaving=0.01, repeated=0.05, unheard=0.05,
        patience=120.0, seed=seed,
    )  # fmt: skip
    clinic = Clinic(url, token, ward(), habits, watch=attempts.append, called=f"kills {seed}")
    # Without long pauses, so that many requests are under way at each kill.
    clinic_module.LONGEST_PAUSE = clinic_module.PAUSE
    operator = asyncio.create_task(_operate(url, token, chance, attempts))
    patients = asyncio.create_task(clinic.run())
    line = Line(url, token, timeout=5.0)
    for number in range(kills):
        point = chance.choice((None, *POINTS)) if number % 2 else None
        times = chance.randrange(1, 30) if point in ("before-commit", "after-commit", "before-reply") else 1
        told = None if point is None else f"{point}:{times}"
        arguments = {"directory": str(directory), "port": port, "point": told}
        child = nursery.start(SERVE, arguments, directory / "service.log")
        if point is None:
            # From the very start on: recoveries are killed too.
            await asyncio.sleep(chance.uniform(0.0, 0.9))
            reached = "at a random time"
        else:
            await _ended(child, LONGEST)
            reached = point if not child.running() else f"{point} (not reached, at a random time)"
        await asyncio.to_thread(child.kill)
        if child.wait() != -signal.SIGKILL:
            found.findings.append(Finding("a service ends by the kill alone", f"exit status {child.wait()}"))
        found.kills[reached] += 1
    child = nursery.start(SERVE, {"directory": str(directory), "port": port}, directory / "service.log")
    found.starts.append(await answers(line))
    await asyncio.sleep(1.0)
    clinic.stop()
    operator.cancel()
    await patients
    found.findings += [Finding(*each) async for each in _ask_again(line, attempts, chance)]
    line.hang_up()
    child.send(signal.SIGTERM)
    status = await asyncio.to_thread(child.wait)
    if status:
        found.findings.append(Finding("a service that is stopped ends with status 0", str(status)))
    facts = facts_of(directory)
    found.findings += [Finding("the chain is whole", problem) for problem in broken_links(directory)]
    found.findings += check(attempts, facts, identify=identify_by(directory), eta=eta)
    found.attempts = len(attempts)
    found.acknowledged = sum(each.status is not None and each.status < 300 for each in attempts)
    found.events = len(facts)
    found.explored = sum(bool(fact.body["explored"]) for fact in facts if fact.kind == "decide")
    return found


async def _ended(child: Child, seconds: float) -> None:
    until = time.monotonic() + seconds
    while child.running() and time.monotonic() < until:
        await asyncio.sleep(0.01)


async def _operate(url: str, token: str, chance: Random, attempts: list[Attempt]) -> None:
    """Change the mode now and then; a change that is not answered may have happened."""
    line = Line(url, token, timeout=5.0)
    first = True
    try:
        while True:
            mode = "budgeted" if first else chance.choice(("budgeted", "budgeted", "frozen", "apprentice"))
            body = json.dumps({"mode": mode, "reason": "a test"}).encode()
            sent = time.monotonic()
            try:
                reply = await line.call("PUT", "/v1/mode", body)
            except LineLost:
                attempts.append(Attempt("PUT", "/v1/mode", body, sent, time.monotonic(), None, b""))
                await asyncio.sleep(0.05)
                continue
            attempts.append(Attempt("PUT", "/v1/mode", body, sent, time.monotonic(), *reply))
            first = first and reply.status != 200
            await asyncio.sleep(chance.uniform(0.5, 3.0))
    finally:
        line.hang_up()


async def _ask_again(line: Line, attempts: list[Attempt], chance: Random) -> AsyncIterator[tuple[str, str]]:
    """Ask again, after all kills, for some of what was ever answered."""
    heard = [one for one in attempts if one.status is not None and one.status < 300 and one.method == "POST"]
    for one in chance.sample(heard, min(AGAIN, len(heard))):
        reply = await line.call(one.method, one.path, one.body)
        if reply.body != one.reply:
            told = f"{one.path} {one.body!r}: {one.reply!r}, then {reply.body!r}"
            yield "a retry is answered with the same bytes", told
