"""`chary audit replay`: every decision computed again by a fresh agent, and compared with the record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from chary.errors import CharyError, InvalidData
from chary.service.deployment import Deployment
from chary.service.events import NOTHING, Decided, Event, PlanRefused, Snapshotted, encode
from chary.service.findings import MOST, Findings
from chary.service.live import Live
from chary.service.modes import FALLBACK
from chary.service.recovery import chained, check_first, take_in
from chary.service.store import Head, Reader
from chary.texts import shown


def replay(
    directory: str | Path, *, upto: int | None = None, progress: Callable[[int], None] | None = None
) -> Findings:
    """Decide again all that was decided, from the first event on, and say where something else results.

    Decisions are compared byte for byte, and so is the state at each event that a snapshot was taken of.
    After a difference the replay goes on from what was recorded.

    Args:
        directory: A deployment.
        upto: The last event to look at.
        progress: Called with the number of events so far, now and then.

    Raises:
        CharyError: if the deployment cannot be read, or an event was changed: verify it first.
    """
    deployment = Deployment.open(directory)
    reader = Reader(deployment.database)
    found = Findings()
    try:
        check_first(deployment, reader)
        kept = {seq for (seq,) in reader.query("SELECT seq FROM snapshot")}
        digests: dict[int, str] = {}
        live = Live.new(deployment.declaration)
        for event in chained(reader.events(upto=upto), Head(0, NOTHING)):
            if event.kind == Decided.kind and event.facts().mode != FALLBACK:
                if not _decided_again(live, event, found):
                    if len(found.found) >= MOST:
                        break
                    try:
                        live = _recorded(deployment, reader, event.seq)
                    except InvalidData as problem:
                        found.add("decision", event.seq, f"The replay ends here: {problem}")
                        break
            else:
                if event.kind == PlanRefused.kind:
                    _refused_again(live, event, found)
                take_in(live, event)
            live.prune(event.seq)
            found.events, found.head = event.seq, event.hash.hex()
            if event.seq in kept:
                digests[event.seq] = hashlib.sha256(live.packed()).hexdigest()
            if event.kind == Snapshotted.kind and (taken := event.facts().upto) in digests:
                found.snapshots += 1
                if event.facts().digest != digests[taken]:
                    found.add(
                        "snapshot", taken,
                        f"The snapshot of event {taken} is not the state that the events give.",
                    )  # fmt: skip
            if progress is not None and event.seq % 1000 == 0:
                progress(event.seq)
    finally:
        reader.close()
    return found


def _decided_again(live: Live, event: Event, found: Findings) -> bool:
    """Decide a step again, and return whether the same came out."""
    facts: Decided = event.facts()
    assert event.episode is not None
    found.decisions += 1
    if live.mode != facts.mode:
        found.add(
            "mode", event.seq,
            f"Event {event.seq} was decided in mode {facts.mode!r}, while the mode was {live.mode!r}.",
        )  # fmt: skip
        return False
    fallback = facts.action if facts.requested else None
    try:
        again = live.decide(event.episode, facts.t, facts.state, fallback)
    except CharyError as problem:
        found.add("decision", event.seq, f"Event {event.seq} cannot have been decided: {problem}")
        return False
    body = encode(again)
    if body != event.body.encode():
        found.add(
            "decision", event.seq,
            f"Event {event.seq} was {shown(event.body)}, and comes out as {shown(body.decode())}.",
        )  # fmt: skip
        return False
    live.note(event.seq, event.episode, event.t, again, body)
    return True


def _refused_again(live: Live, event: Event, found: Findings) -> None:
    """Make a plan that was refused again, and note where it is refused no more, or for another reason."""
    facts: PlanRefused = event.facts()
    reason = "nothing"
    try:
        if live.agent.drafted is not None:
            live.agent.drafted.make()
    except CharyError as problem:
        reason = str(problem)
    if reason != facts.reason:
        found.add(
            "plan", event.seq,
            f"Event {event.seq} refused a plan for {shown(facts.reason)}; what is found is {shown(reason)}.",
        )  # fmt: skip


def _recorded(deployment: Deployment, reader: Reader, upto: int) -> Live:
    """Return the state that the events give up to one, with the decisions as they were made."""
    live = Live.new(deployment.declaration)
    for event in reader.events(upto=upto):
        take_in(live, event)
        live.prune(event.seq)
    return live
