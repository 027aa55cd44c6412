"""A deployment's first events, and loading it again: the newest good snapshot, and the events since."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import chary
from chary.errors import CharyError, InvalidData
from chary.service.declaring import Problem
from chary.service.deployment import Deployment, open_store
from chary.service.events import (
    NOTHING,
    Body,
    Deployed,
    Event,
    Fresh,
    ModeSet,
    Opened,
    Snapshotted,
    decoded,
    encode,
    is_intact,
)
from chary.service.live import Live, table_digest
from chary.service.memory import uncollected
from chary.service.records import record_of
from chary.service.store import Head, Reader
from chary.storage.files import UNREADABLE

# Who set the mode that a deployment starts with.
DECLARED = "declaration"


class Loaded(NamedTuple):
    """A deployment as it is on the disk: where it started from, and how many events came after."""

    live: Live
    head: Head
    snapshot: int
    tail: int


def found(deployment: Deployment) -> None:
    """Write the first events of a new deployment, and a snapshot, so that no start needs the log.

    Raises:
        Failed: if the disk refuses.
    """
    store = open_store(deployment, new=True)
    try:
        live = Live.new(deployment.declaration)
        store.take_over(deployment.number)
        mode = deployment.declaration.mode
        started = ModeSet(author=DECLARED, before=mode, mode=mode, reason="as declared")
        bodies: list[Body] = [first_body(deployment, live), started]
        now = time.time_ns() // 1000
        fresh = [
            Fresh(seq, body.kind, None, None, encode(body), now, body)
            for seq, body in enumerate(bodies, start=1)
        ]
        for event in fresh:
            live.apply(event.seq, None, None, event.facts, event.body)
        content, upto = live.packed(), live.seq
        named = Snapshotted(digest=hashlib.sha256(content).hexdigest(), upto=upto)
        fresh.append(Fresh(upto + 1, named.kind, None, None, encode(named), now, named))
        store.write(fresh)
        store.write_part(upto, 0, content)
        store.complete_snapshot(upto, named=upto + 1)
        store.checkpoint(empty=True)
    finally:
        store.close()


def first_body(deployment: Deployment, live: Live) -> Deployed:
    """Return the body of the first event of a deployment."""
    declared = deployment.declaration
    return Deployed(
        declaration=declared.fixed,
        deployment=deployment.number,
        incumbent=table_digest(live.incumbent),
        log=declared.digest_of(declared.log["file"]) if declared.log else "",
        name=declared.name,
        problem=live.setting.digest,
        version=chary.__version__,
    )


def load(deployment: Deployment, reader: Reader, problem: Problem) -> Loaded:
    """Return the state of a deployment: the newest snapshot that is good, and the events since applied.

    Args:
        deployment: The deployment.
        reader: Its events.
        problem: What `check_first` returned.

    Raises:
        InvalidData: if an event that is read was changed.
    """
    with uncollected():
        try:
            return _load(deployment, reader, problem)
        except CharyError:
            raise
        except UNREADABLE as wrong:
            raise InvalidData(
                f"{deployment.database.name!r} must have the rows that were written, got others "
                f"({type(wrong).__name__}). Restore the last backup."
            ) from wrong


def _load(deployment: Deployment, reader: Reader, problem: Problem) -> Loaded:
    live, start = _start(deployment, reader, problem)
    restore_records(live, reader)
    seq, tail = live.seq, 0
    head = start
    for event in chained(reader.events(after=seq), start):
        try:
            take_in(live, event)
        except InvalidData as problem:
            raise InvalidData(f"{problem}{_way_out(reader, event.seq)}") from problem
        live.prune(event.seq)
        head, tail = Head(event.seq, event.hash), tail + 1
    return Loaded(live, head, seq, tail)


def _way_out(reader: Reader, seq: int) -> str:
    """Return what helps where events of another version lead to something else in this one."""
    rows = reader.query(
        "SELECT kind, body FROM event WHERE kind IN (?, ?) AND seq <= ? ORDER BY seq DESC LIMIT 1",
        (Opened.kind, Deployed.kind, seq),
    )
    version = chary.__version__
    for kind, body in rows:
        version = decoded(kind, body, seq).version
    if version == chary.__version__:
        return ""
    return (
        f" It was written by chary {version}: start the service once with that version, and stop it, so that "
        f"chary {chary.__version__} goes on from its last snapshot."
    )


def take_in(live: Live, event: Event) -> None:
    """Apply an event as it was recorded.

    Raises:
        InvalidData: if it cannot have happened after those before it.
    """
    facts = event.facts()
    try:
        live.apply(event.seq, event.episode, event.t, facts, event.body.encode())
    except CharyError as problem:
        raise InvalidData(
            f"event {event.seq} must be one that can have happened after those before it: {problem}"
        ) from problem


def check_first(deployment: Deployment, reader: Reader) -> Problem:
    """Check that the database is that of this deployment, with the declaration it began with.

    Raises:
        InvalidData: if it is not.
    """
    ((pages,),), ((size,),) = reader.query("PRAGMA page_count"), reader.query("PRAGMA page_size")
    journal = deployment.database.with_name(deployment.database.name + "-wal")
    present = deployment.database.stat().st_size
    if present < pages * size and not (journal.exists() and journal.stat().st_size):
        raise InvalidData(
            f"{deployment.database.name!r} must have {pages * size} bytes, got {present}: it was truncated. "
            "Restore the last backup."
        )
    first = next(iter(reader.events(upto=1)), None)
    if first is None or first.kind != Deployed.kind:
        raise InvalidData(
            f"{deployment.database.name!r} must begin with the event of a deployment, got none. Restore the "
            "last backup."
        )
    check_event(first, NOTHING)
    body: Deployed = first.facts()
    if body.deployment != deployment.number:
        raise InvalidData(
            f"{deployment.database.name!r} must be that of deployment {deployment.number!r}, got one of "
            f"{body.deployment!r}. Put the files of one deployment together."
        )
    declared = deployment.declaration
    if body.declaration != declared.fixed:
        raise InvalidData(
            "'chary.toml' must declare the same setting, agent, policy, log, seed and first mode as when the "
            "deployment was made, got others. Undo the change, or make a new deployment."
        )
    if declared.log and body.log != declared.digest_of(declared.log["file"]):
        raise InvalidData(
            f"{declared.log['file']!r} must be the log that the deployment was made with, got another one. "
            "Restore it from a backup."
        )
    problem = declared.problem(with_log=False)
    if body.problem != problem.setting.digest:
        raise InvalidData(
            "'setting' must be the one that the deployment was made with, got another one: a file of known "
            "rewards has changed. Restore it from a backup."
        )
    if problem.incumbent is not None and body.incumbent != table_digest(problem.incumbent):
        raise InvalidData(
            f"{declared.policy['file']!r} must be the policy that the deployment was made with, got another "
            "one. Restore it from a backup."
        )
    return problem


def check_event(event: Event, prev: bytes) -> None:
    """Check that an event is as it was written, and follows the one whose hash is `prev`.

    Raises:
        InvalidData: if it does not.
    """
    if not is_intact(event, prev):
        raise InvalidData(
            f"event {event.seq} must be as it was written, got one that was changed: hashes do not agree. "
            "Restore the last backup; `chary audit verify` says what else was changed."
        )


def chained(events: Iterator[Event], start: Head) -> Iterator[Event]:
    """Yield events, once each is the one after the last, as it was written.

    Raises:
        InvalidData: if one is missing or was changed.
    """
    seq, prev = start
    for event in events:
        if event.seq != seq + 1:
            raise InvalidData(
                f"events must be numbered without a gap, got {event.seq} after {seq}. Restore the last "
                "backup."
            )
        check_event(event, prev)
        seq, prev = event.seq, event.hash
        yield event


def restore_records(live: Live, reader: Reader) -> None:
    """Read the records of open episodes, as they were when the state was saved.

    Raises:
        InvalidData: if one of their events was changed.
    """
    identities = [str(name) for name in live.agent.open_episodes]
    events: dict[str, list[Event]] = {identity: [] for identity in identities}
    for event in reader.of_episodes(identities):
        if event.seq <= live.seq:
            check_event(event, event.prev)
            events[event.episode or ""].append(event)
    for identity, some in events.items():
        record = record_of(some)
        if record is None:
            raise InvalidData(
                "'snapshot' must contain episodes that have begun, got another one. Restore the last backup."
            )
        live.records[identity] = record


def _start(deployment: Deployment, reader: Reader, problem: Problem) -> tuple[Live, Head]:
    """Return the state of the newest good snapshot, or that before the first event."""
    for seq, content, named in reader.snapshots():
        last, naming = (next(iter(reader.events(each - 1, each)), None) for each in (seq, named))
        if last is None or naming is None:
            continue
        check_event(last, last.prev)
        check_event(naming, naming.prev)
        if naming.facts() != Snapshotted(digest=hashlib.sha256(content).hexdigest(), upto=seq):
            continue
        try:
            return Live.unpacked(content, problem), Head(seq, last.hash)
        except (CharyError, *UNREADABLE):
            # Of another version, or not one: the events give the same state.
            continue
    return Live.new(deployment.declaration), Head(0, NOTHING)
