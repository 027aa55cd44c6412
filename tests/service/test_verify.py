"""The audit: whatever is changed on the disk is found and named, a cut end by the published head."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.service.log import rewrite
from tests.service.served import make
from tests.service.wandering import Wanderer

from chary.errors import InvalidData
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.live import Live
from chary.service.replay import replay
from chary.service.store import Reader
from chary.service.verify import verify
from chary.service.views import Views


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a deployment with all kinds of events, stopped."""
    directory = make(
        tmp_path_factory.mktemp("audited"), limits={"snapshot_every": 100}, planning={"every": 3}
    )
    engine = Engine.open(directory)
    engine.add_token("t1", "ab" * 32, scopes=("read",), label="ward", expires=None, author="me")
    client = Wanderer(engine, Random(3))
    while engine.head < 450:
        client.requests(50)
        engine.wait(engine.head)
        engine._snapshots.finish()
    # So that none is due at the last event.
    engine._snapshots.now(engine._live)
    engine._snapshots.finish()
    engine._snapshots.name(engine._live)
    engine.set_eta(7.0, author="me", reason="r")
    engine.finish()
    return directory


@pytest.fixture
def directory(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def sql(directory: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(directory / "chary.db", isolation_level=None)
    yield connection
    connection.close()


def test_what_was_written_is_whole_and_its_head_can_be_published(directory: Path) -> None:
    found = verify(directory)
    assert found.is_whole, found.found
    last = Views(directory).events(after=found.events - 1)
    assert [event["hash"] for event in last] == [found.head]
    assert verify(directory, head=found.head).is_whole
    assert f"the head is {found.head}" in found.describe()
    assert replay(directory).is_whole


def test_a_cut_end_is_found_by_the_published_head_alone(directory: Path, sql: sqlite3.Connection) -> None:
    head = verify(directory).head
    last = sql.execute("SELECT seq, kind FROM event ORDER BY seq DESC LIMIT 2").fetchall()
    assert [kind for _, kind in last] == ["snapshot", "eta"]
    # A thorough thief takes the traces along.
    sql.execute("DELETE FROM event WHERE seq >= ?", (last[-1][0],))
    sql.execute("DELETE FROM policy WHERE name = 'eta'")
    sql.execute("DELETE FROM snapshot WHERE seq >= ?", (last[-1][0],))
    assert verify(directory).is_whole
    found = verify(directory, head=head)
    assert [finding.where for finding in found.found] == ["head"]
    assert "its end was cut off" in found.describe()


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_byte_in_an_event_is_named(directory: Path, sql: sqlite3.Connection, seed: int) -> None:
    chance = Random(seed)
    columns = ["kind", "episode", "t", "body", "prev", "hash", "at", "epoch", "schema"]
    column = columns[seed % len(columns)]
    rows = sql.execute(f"SELECT seq, {column} FROM event WHERE {column} IS NOT NULL AND seq > 1").fetchall()
    seq, value = chance.choice(rows)
    if isinstance(value, int):
        changed: object = value ^ (1 << chance.randrange(3))
    else:
        content = bytearray(value.encode() if isinstance(value, str) else value)
        content[chance.randrange(len(content))] ^= 1
        changed = content.decode() if isinstance(value, str) else bytes(content)
    sql.execute(f"UPDATE event SET {column} = ? WHERE seq = ?", (changed, seq))
    found = verify(directory)
    assert seq in {finding.seq for finding in found.found if finding.where == "event"}
    with pytest.raises(InvalidData, match=rf"event {seq}\b"):
        replay(directory)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("chain", "DELETE FROM event WHERE seq = 50"),
        ("episode", "UPDATE episode SET status = 'open' WHERE status = 'closed'"),
        ("decision", "UPDATE decision SET charge = charge + 1e-9 WHERE t = 2"),
        ("decision", "DELETE FROM decision WHERE t = 1"),
        ("decision", "INSERT INTO decision VALUES (1, 1, 1, 'budgeted', 0, 0, 0, 0, NULL, NULL)"),
        ("policy", "UPDATE policy SET seq = seq - 1 WHERE name = 'mode'"),
        ("token", "UPDATE token SET scopes = '[\"operate\"]'"),
        ("note", "DELETE FROM note WHERE seq = (SELECT min(seq) FROM note)"),
        ("payload", "UPDATE payload SET content = replace(content, 'null', '1')"),
        ("payload", "DELETE FROM payload WHERE begun = (SELECT min(begun) FROM payload)"),
        ("payload", "INSERT INTO payload SELECT 1, salt, content FROM payload LIMIT 1"),
        ("snapshot", "UPDATE part SET content = x'09' WHERE snapshot = (SELECT max(seq) FROM snapshot)"),
        ("snapshot", "DELETE FROM part WHERE snapshot = (SELECT min(seq) FROM snapshot)"),
        ("snapshot", "UPDATE snapshot SET seq = seq + 1 WHERE seq = (SELECT min(seq) FROM snapshot)"),
    ],
)  # fmt: skip
def test_whatever_is_kept_besides_must_agree_with_the_events(
    directory: Path, sql: sqlite3.Connection, where: str, change: str
) -> None:
    assert sql.execute(change).rowcount > 0
    assert where in {finding.where for finding in verify(directory).found}


def test_a_flipped_byte_in_the_file_is_found_or_changes_nothing_that_is_read(directory: Path) -> None:
    file = directory / "chary.db"
    content = file.read_bytes()
    chance = Random(0)
    events = Views(directory).events(limit=10_000)
    noticed = 0
    for _ in range(40):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        try:
            whole = verify(directory).is_whole
        except InvalidData:
            whole = False
        noticed += not whole
        assert not whole or Views(directory).events(limit=10_000) == events
    assert noticed > 20


def test_another_decision_is_named_by_the_replay(directory: Path, sql: sqlite3.Connection) -> None:
    """A decision that was changed together with all hashes after it: only computing it again tells."""
    ((target,),) = sql.execute(
        "SELECT min(seq) FROM event WHERE kind = 'decided' AND body LIKE '%\"mode\":\"budgeted\"%'"
    ).fetchall()
    rewrite(directory, target, lambda body: body.replace('"plan":', '"plan":1'))
    found = replay(directory)
    assert ("decision", target) in {(finding.where, finding.seq) for finding in found.found}


def forged(directory: Path, sql: sqlite3.Connection) -> int:
    """Give the newest snapshot another state, whole in itself, and return its event."""
    newest = "(SELECT max(seq) FROM snapshot)"
    parts = sql.execute(f"SELECT snapshot, content FROM part WHERE snapshot = {newest} ORDER BY number")
    seqs, contents = zip(*parts.fetchall(), strict=True)
    seq, content = seqs[0], b"".join(contents)
    live = Live.unpacked(content, Deployment.open(directory).declaration.problem())
    live.eta = 1e6
    live.completed += 1
    sql.execute("DELETE FROM part WHERE snapshot = ?", (seq,))
    sql.execute("INSERT INTO part VALUES (?, 0, ?)", (seq, live.packed()))
    return int(seq)


def test_a_forged_snapshot_is_named_and_not_used(directory: Path, sql: sqlite3.Connection) -> None:
    completed = by_events(directory)
    seq = forged(directory, sql)
    assert [(each.where, each.seq) for each in verify(directory).found] == [("snapshot", seq)]
    engine = Engine.open(directory)
    told = engine.about["snapshot"], engine.counters["completed"]
    engine.finish()
    assert told[0] < seq
    assert told[1] == completed


def by_events(directory: Path) -> int:
    reader = Reader(Deployment.open(directory).database)
    live = Live.new(Deployment.open(directory).declaration)
    for event in reader.events():
        live.apply(event.seq, event.episode, event.t, event.facts(), event.body.encode())
    reader.close()
    return live.completed


def test_a_forged_snapshot_that_another_event_is_said_to_name_is_found(
    directory: Path, sql: sqlite3.Connection
) -> None:
    """Whoever forges one cannot use the event of another, nor one that names nothing."""
    seq = forged(directory, sql)
    for named in (1, seq, seq - 1):
        sql.execute("UPDATE snapshot SET named = ? WHERE seq = ?", (named, seq))
        assert ("snapshot", seq) in {(each.where, each.seq) for each in verify(directory).found}
        engine = Engine.open(directory)
        assert engine.about["snapshot"] != seq
        engine.finish()
        sql.execute("DELETE FROM snapshot WHERE seq > ?", (seq,))


def test_a_head_must_be_a_hash(directory: Path) -> None:
    for wrong in ("", "xyz", "ab" * 31):
        with pytest.raises(InvalidData, match="64 hexadecimal digits"):
            verify(directory, head=wrong)
