"""What is on the disk, for readers: a read-only connection per thread, which never blocks the writer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, final

import msgspec

from chary.errors import InvalidData, check_integer
from chary.service.deployment import Deployment
from chary.service.events import KINDS, Event
from chary.service.records import Kept, Record, Step, record_of
from chary.service.store import COLUMNS, Reader
from chary.texts import shown

# Events of one answer at most.
MOST_EVENTS = 10_000

_plain = msgspec.json.decode


@final
class Views:
    """Read-only views of a deployment; safe in any thread, with or without a running engine."""

    def __init__(self, directory: str | Path) -> None:
        self._deployment = Deployment.open(directory)
        self._readers = threading.local()
        self._opened: list[Reader] = []

    @property
    def reader(self) -> Reader:
        """The connection of this thread."""
        reader: Reader | None = getattr(self._readers, "reader", None)
        if reader is None:
            reader = self._readers.reader = Reader(self._deployment.database)
            self._opened.append(reader)
        return reader

    def close(self) -> None:
        """Close the connections of all threads, none of which may be reading."""
        while self._opened:
            self._opened.pop().close()

    def episode(self, name: str) -> dict[str, Any] | None:
        """Return an episode: its ledger, its steps, what is outstanding; None if there is none."""
        record = self._record(name)
        if record is None:
            return None
        last = record.steps[-1].decided.facts if record.steps else None
        eta = record.eta
        if eta is None:
            eta = self._deployment.declaration.agent.get("eta")
        remaining = eta if last is None else last.remaining
        if record.tightenings and last is not None:
            # It may have been tightened since.
            remaining = min(last.remaining, max(record.tightenings[-1].facts.eta - last.deficit, 0.0))
        return {
            "status": record.status,
            "begun": _answer(record.begun),
            "ended": _answer(record.ended),
            "eta": eta,
            "deficit": 0.0 if last is None else last.deficit,
            "remaining": remaining,
            "terminated": record.terminated,
            "outstanding": list(record.outstanding),
            "erased": record.erased is not None,
            "steps": [_step(step, record.correction(t)) for t, step in enumerate(record.steps)],
        }

    def decision(self, name: str, t: int) -> dict[str, Any] | None:
        """Return a decision, what was taken and what came of it; None if there is none."""
        record = self._record(name)
        if record is None or not 0 <= t < len(record.steps):
            return None
        return _step(record.steps[t], record.correction(t))

    def mode(self) -> dict[str, Any]:
        """Return the mode, the budget and the plan in force, and the plan refused last: when, and why."""
        rows = self.reader.query("SELECT name, value, policy.seq, at FROM policy JOIN event USING (seq)")
        return {name: {**_plain(value), "seq": seq, "at": at} for name, value, seq, at in rows}

    def events(
        self, *, after: int = 0, limit: int = 100, episode: str | None = None, kind: str | None = None
    ) -> list[dict[str, Any]]:
        """Return events in order; `episode` is a name.

        Raises:
            CharyError: if a value is out of range, or there is no such kind.
        """
        check_integer("after", after, minimum=0)
        check_integer("limit", limit, minimum=1, largest=MOST_EVENTS)
        if kind is not None and kind not in KINDS:
            raise InvalidData(f"'kind' must be one of {', '.join(KINDS)}, got {shown(kind)}.")
        if episode is not None:
            found = self.reader.of_episode(self._deployment.identity(episode))
            some = [event for event in found if event.seq > after and kind in (None, event.kind)]
            return [as_plain(event) for event in some[:limit]]
        where, values = "seq > ?", [after]
        if kind is not None:
            where, values = where + " AND kind = ?", [after, kind]  # type: ignore[list-item]
        rows = self.reader.query(
            f"SELECT {COLUMNS} FROM event WHERE {where} ORDER BY seq LIMIT ?", [*values, limit]
        )
        return [as_plain(Event._make(row)) for row in rows]

    def tokens(self) -> list[dict[str, Any]]:
        """Return all tokens, revoked ones too; a token itself is not kept, and its hash is not returned."""
        rows = self.reader.query(
            "SELECT id, scopes, label, expires, added.at, gone.at FROM token "
            "JOIN event AS added ON added.seq = token.added "
            "LEFT JOIN event AS gone ON gone.seq = token.revoked ORDER BY token.added"
        )
        names = ("id", "scopes", "label", "expires", "created", "revoked")
        return [{**dict(zip(names, row, strict=True)), "scopes": _plain(row[1])} for row in rows]

    def counts(self) -> dict[str, Any]:
        """Return numbers about all episodes, and the head of the chain of events."""
        query = self.reader.query
        ((episodes, unclosed, abandoned),) = query(
            "SELECT count(*), coalesce(sum(status = 'open'), 0), coalesce(sum(status = 'abandoned'), 0) "
            "FROM episode"
        )
        ((decisions, explored, outstanding, overruled, lost, most),) = query(
            "SELECT count(*), coalesce(sum(explored), 0), "
            "coalesce(sum(outcome IS NULL AND status != 'abandoned' AND (taken IS NULL "
            "OR json_extract(report.body, '$.action') IS NOT NULL)), 0), "
            "coalesce(sum(json_extract(report.body, '$.action') != decision.action), 0), "
            "coalesce(sum(outcome IS NULL AND status = 'abandoned'), 0), coalesce(max(deficit), 0) "
            "FROM decision JOIN episode USING (begun) "
            "LEFT JOIN event AS report ON report.seq = coalesce(decision.taken, decision.outcome)"
        )
        ((seq, head),) = query("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")
        return {
            "episodes": episodes,
            "open": unclosed,
            "abandoned": abandoned,
            "decisions": decisions,
            "explored": explored,
            "overrides": overruled,
            "outstanding": outstanding,
            "lost": lost,
            "largest_deficit": most,
            "events": seq,
            "head": head.hex(),
        }

    def _record(self, name: str) -> Record | None:
        return record_of(self.reader.of_episode(self._deployment.identity(name)))


def as_plain(event: Event) -> dict[str, Any]:
    """Return an event as plain values, hashes in hexadecimal digits and its body as it is."""
    kept = event._asdict()
    return {**kept, "prev": event.prev.hex(), "hash": event.hash.hex(), "body": _plain(event.body)}


def _answer(kept: Kept | None) -> dict[str, Any] | None:
    return None if kept is None else {**_plain(kept.body), "kind": kept.facts.kind, "seq": kept.seq}


def _step(step: Step, corrected: Kept | None) -> dict[str, Any]:
    return {
        "decision": _answer(step.decided),
        "taken": _answer(step.taken),
        "outcome": _answer(step.outcome),
        "correction": _answer(corrected),
    }
