"""A deployment in numbers, from its database: for a person at a terminal, whether the service runs or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chary.errors import InvalidData, check_choice
from chary.service.deployment import Deployment
from chary.service.events import KINDS, Event, ModeSet
from chary.service.store import Reader
from chary.service.views import Views
from chary.texts import shown

_REPORTS = """
SELECT count(outcome), coalesce(sum(taken IS NOT NULL AND json_extract(body, '$.action') IS NULL), 0)
FROM decision LEFT JOIN event ON event.seq = decision.taken
"""
# The ledger of an episode is that of its last decision; its budget is in the event with which it began.
_LEDGERS = """
SELECT count(*) FILTER (WHERE deficit > eta), max(deficit / nullif(eta, 0)) FROM (
  SELECT max(decision.deficit) AS deficit, coalesce(json_extract(body, '$.eta'), :eta) AS eta
  FROM decision JOIN event ON event.seq = decision.begun GROUP BY decision.begun
)
"""
# What became of the plan that was drafted last.
_LAST_PLAN = """
SELECT name, json_extract(value, '$.reason') FROM policy WHERE name IN ('adopted', 'plan_refused')
ORDER BY seq DESC LIMIT 1
"""


def summary(directory: Path) -> dict[str, Any]:
    """Return the numbers of a deployment.

    Raises:
        CharyError: if there is none, or its database cannot be read.
    """
    if last_event(directory) == 0:
        raise InvalidData(
            f"'chary.db' must contain the events of the deployment, got none in {str(directory)!r}. "
            "Restore it from a backup."
        )
    declared = Deployment.open(directory).declaration.agent.get("eta")
    views = Views(directory)
    query = views.reader.query
    changed = query("SELECT json_extract(value, '$.eta') FROM policy WHERE name = 'eta'")
    ((outcomes, untaken),) = query(_REPORTS)
    ((above, share),) = query(_LEDGERS, [declared])
    ((name, reason),) = query(_LAST_PLAN) or [(None, None)]
    modes = query(
        "SELECT mode, count(*), sum(explored), sum(charge) FROM decision GROUP BY mode ORDER BY mode"
    )
    return {
        **views.counts(),
        "outcomes": outcomes,
        "not_taken": untaken,
        "eta": changed[0][0] if changed else declared,
        "plan_refused": reason if name == "plan_refused" else None,
        "highest_share_of_a_budget": share or 0.0,
        "ledgers_above_their_budget": above,
        "by_mode": {
            mode: {"decisions": count, "explored": explored, "charged": charged}
            for mode, count, explored, charged in modes
        },
    }


def last_event(directory: Path) -> int:
    """Return the number of the last event."""
    ((last,),) = Reader(Deployment.open(directory).database).query("SELECT coalesce(max(seq), 0) FROM event")
    return int(last)


def mode_now(directory: Path) -> dict[str, Any]:
    """Return the mode in force, since when, by whom and why; `since` is None for that of the declaration."""
    deployment = Deployment.open(directory)
    rows = Reader(deployment.database).query(
        "SELECT value, at FROM policy JOIN event USING (seq) WHERE name = 'mode'"
    )
    if not rows:
        return {"mode": deployment.declaration.mode, "since": None, "author": None, "reason": None}
    value, at = rows[0]
    try:
        told = ModeSet(**json.loads(value))
    except (ValueError, TypeError) as problem:
        raise InvalidData(
            f"'chary.db' must say the mode, got something else in {str(directory)!r}. See chary audit verify."
        ) from problem
    return {"mode": told.mode, "since": _time(at), "author": told.author, "reason": told.reason}


def tokens(directory: Path) -> list[dict[str, Any]]:
    """Return the tokens that were made, with times as people read them: ids and labels, no secrets."""
    times = ("created", "revoked")
    return [
        {**each, **{name: None if each[name] is None else _time(each[name]) for name in times}}
        for each in Views(directory).tokens()
    ]


def exported(
    directory: Path, *, after: int = 0, kind: str | None = None, episode: str | None = None
) -> Iterator[str]:
    """Yield the events of a deployment in order, as lines of JSON, perhaps of one kind or episode alone.

    The body of an event is the last entry of its line, in exactly the bytes that its hash is made of.

    Raises:
        CharyError: if there is no such kind or episode.
    """
    deployment = Deployment.open(directory)
    reader = Reader(deployment.database)
    if kind is not None:
        check_choice("kind", kind, KINDS)
    if episode is None:
        events: Iterable[Event] = reader.events(after)
    else:
        events = reader.of_episode(deployment.identity(episode))
        if not events:
            raise InvalidData(f"'episode' must have begun, got {shown(episode)}, a name that was never used.")
    for event in events:
        if event.seq > after and kind in (None, event.kind):
            told = {**event._asdict(), "prev": event.prev.hex(), "hash": event.hash.hex()}
            del told["body"]
            yield f'{json.dumps(told)[:-1]}, "body": {event.body}}}'


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")
