"""Power losses: an engine at work on a simulated disk, whose plug is pulled at random moments.

The disk records every write and sync, and the ward every request and answer, in one order. A loss at a moment
leaves one of the contents that the disk may have then; an engine must open it, hold all that was acknowledged
by that moment, and answer what is asked again with the same bytes.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.service.faults.disk import Disk, Step, after_power_loss, read_folder, restore
from tests.service.faults.patients import Attempt, Request, Stay, Ward, answer_of
from tests.service.faults.serving import shortened
from tests.service.history import Finding, check
from tests.service.log import broken_links, facts_of, identify_by

from chary.errors import CharyError
from chary.service.engine import Engine
from chary.service.store import Store

# Requests that are asked again after each loss.
AGAIN = 6


@dataclass
class Losses:
    """What came of many power losses."""

    losses: int = 0
    acknowledged: int = 0
    explored: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def work(engine: Engine, disk: Disk, chance: Random, called: str, calls: int) -> Ward:
    """Ask an engine for `calls` things, in groups as a busy loop would; answers are marked on the disk.

    The attempts that the ward notes have places in the disk's record as times.
    """
    ward = Ward(chance, called=called)
    steps = ward.steps()
    waiting: list[tuple[int, Request, Stay | None, int, bytes, int]] = []
    for number in range(calls):
        request, one = next(steps)
        disk.mark(("sent", number))
        sent = len(disk.steps)
        status, body, seq = answer_of(engine, request)
        waiting.append((sent, request, one, status, body, seq))
        if chance.random() < 0.35 or number == calls - 1:
            for sent, request, one, status, body, seq in waiting:
                engine.wait(seq)
                disk.mark(("heard", number))
                heard = len(disk.steps)
                ward.hear(request, one, sent, status, body)
                ward.attempts[-1] = ward.attempts[-1]._replace(sent=sent, done=heard)
            waiting.clear()
    return ward


def known_at(attempts: Sequence[Attempt], at: int, base: float) -> list[Attempt]:
    """Return what clients know at a moment: later answers are not heard, later requests not sent."""
    known = []
    for attempt in attempts:
        if attempt.sent <= at:
            heard = attempt.done <= at
            one = attempt if heard else attempt._replace(status=None, reply=b"")
            known.append(one._replace(sent=base + one.sent, done=base + one.done))
    return known


def damage_of(folder: Path) -> str:
    """Return what SQLite finds wrong with a database, nothing where it is whole; it is left as it is."""
    with TemporaryDirectory() as copy:
        for file in folder.glob("chary.db*"):
            shutil.copy(file, copy)
        try:
            with closing(sqlite3.connect(Path(copy) / "chary.db")) as connection:
                said = connection.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            said = str(problem)
    return "" if said == "ok" else f"SQLite found: {said}"


def after_loss(
    folder: Path, content: dict[str, bytes], attempts: Sequence[Attempt], eta: float, chance: Random
) -> Iterator[Finding]:
    """Put a content of the disk into a deployment, open it, and yield what is wrong with it."""
    restore(content, folder)
    if damage := damage_of(folder):
        yield Finding("the deployment opens after a power loss", damage)
        return
    heard = [each for each in attempts if each.status is not None and each.status < 300]
    try:
        engine = Engine.open(folder)
    except CharyError as refusal:
        yield Finding("the deployment opens after a power loss", str(refusal))
        return
    try:
        recent = heard[-AGAIN:] if len(heard) < AGAIN else [heard[-1], *chance.sample(heard, AGAIN - 1)]
        for one in recent:
            if one.path.startswith("/v1/episodes"):
                request = Request(one.method, one.path, json.loads(one.body))
                _, again, _ = answer_of(engine, request)
                if again != one.reply:
                    law = "a retry is answered with the same bytes"
                    yield Finding(law, f"{one.path} {one.body!r}: {one.reply!r}, then {again!r}")
    finally:
        engine.finish()
    try:
        broken, facts = broken_links(folder), facts_of(folder)
    except (TypeError, ValueError, AttributeError, sqlite3.Error) as problem:
        # What only the control has: a row that is not one.
        yield Finding("the log can be read", f"{type(problem).__name__}: {problem}")
        return
    for link in broken:
        yield Finding("the chain is whole", link)
    yield from check(attempts, facts, identify=identify_by(folder), eta=eta)


def pull_the_plug(
    template: Path, folder: Path, *, eta: float, rounds: int, losses: int, calls: int, seed: int
) -> Losses:
    """Play `rounds` on copies of a deployment, each with power losses at `losses` random moments.

    The last loss of a round is where the next one goes on, so that recoveries meet losses too. Every fourth
    round begins with the deployment as it was made.
    """
    chance, total = Random(seed), Losses()
    past: list[Attempt] = []
    for number in range(rounds):
        if number % 4 == 0:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(template, folder)
            past = []
        before = read_folder(folder)
        with Disk(f"losing-{seed}-{number}") as disk:
            with shortened():
                engine = Engine.open(folder, connection="apsw", vfs=disk.name)
                ward = work(engine, disk, chance, f"round {number}", calls)
                engine.finish()
        base = float(number % 4 * 10**7)
        for _ in range(losses):
            at = chance.randrange(len(disk.steps) + 1)
            known = past + known_at(ward.attempts, at, base)
            content = after_power_loss(before, disk.steps[:at], chance)
            total.losses += 1
            total.acknowledged += sum(each.status is not None for each in known)
            total.dropped.update(_dropped(disk.steps[:at], before, content))
            total.findings += after_loss(folder, content, known, eta, chance)
        past = known
        if total.findings:
            # The next round could not go on here.
            return total
        facts = facts_of(folder)
        total.explored += sum(bool(fact.body["explored"]) for fact in facts if fact.kind == "decide")
    return total


@contextmanager
def careless(wanted: bool = True) -> Iterator[None]:
    """Let no store sync anything, if wanted: the control, which must lose what was acknowledged."""
    prepare = Store.prepare

    def unsynced(store: Store, **arguments: Any) -> Any:
        done = prepare(store, **arguments)
        store._connection.execute("PRAGMA synchronous = OFF")
        return done

    setattr(Store, "prepare", unsynced if wanted else prepare)  # noqa: B010 - mypy forbids the assignment
    try:
        yield
    finally:
        setattr(Store, "prepare", prepare)  # noqa: B010


def _dropped(steps: Sequence[Step], before: dict[str, bytes], content: dict[str, bytes]) -> Iterator[str]:
    """Yield the names of the files that do not hold all that was written."""
    written = after_all(before, steps)
    for path in written:
        if content.get(path) != written[path]:
            yield Path(path).name


def after_all(before: dict[str, bytes], steps: Sequence[Step]) -> dict[str, bytes]:
    """Return what the disk would hold if everything that was written had arrived."""
    synced = [
        each
        for step in steps
        for each in (step, *([Step("sync", step.path)] if step.call in ("write", "truncate") else []))
    ]
    return after_power_loss(before, synced, Random(0))
