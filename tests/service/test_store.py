"""The store: one transaction for events and projections, the fence, checkpoints, and the migrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chary.errors import InvalidData, InvalidSetting
from chary.service.connection import ENGINES, Failed, connect, sqlite_version
from chary.service.events import NOTHING, Begun, Closed, Fresh, ModeSet, encode, is_intact
from chary.service.migrations import APPLICATION, MIGRATIONS, migrate
from chary.service.store import CHUNKS, FenceLost, Reader, Store


def begun(seq: int, name: str = "") -> Fresh:
    facts = Begun(payload="00", state=0)
    return Fresh(
        seq, "begun", name or f"e{seq}", None, encode(facts), 1000 + seq, facts, seq, (b"salt", f"text {seq}")
    )


def mode(seq: int, wanted: str) -> Fresh:
    facts = ModeSet(author="a", before="frozen", mode=wanted, reason="r")
    return Fresh(seq, "mode", None, None, encode(facts), 1000 + seq, facts)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "apsw":
        pytest.importorskip("apsw")
    return str(request.param)


@pytest.fixture(autouse=True)
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all connections: newer versions of Python warn of those that are left open."""
    made: list[Any] = []
    for kind in (Store, Reader):
        plain = kind.__init__

        def noted(self: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> None:
            plain(self, *args, **kwargs)
            made.append(self)

        monkeypatch.setattr(kind, "__init__", noted)
    yield
    for each in made:
        each.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "chary.db"
    file.touch()
    return file


def opened(path: Path, engine: str = "sqlite3") -> Store:
    store = Store(path, engine=engine)
    store.prepare(new=True)
    store.take_over("here")
    return store


def test_events_and_projections_are_written_together(path: Path, engine: str) -> None:
    store = opened(path, engine)
    # More than the largest chunk, and not a multiple of the others.
    n = CHUNKS[0] + CHUNKS[1] + CHUNKS[2] + 3
    store.write([begun(seq) for seq in range(1, n + 1)])
    store.write([mode(n + 1, "frozen"), mode(n + 2, "stopped")])
    reader = Reader(path, engine=engine)
    prev = NOTHING
    events = list(reader.events())
    assert [event.seq for event in events] == list(range(1, n + 3))
    for event in events:
        assert is_intact(event, prev)
        prev = event.hash
    assert store.head == (n + 2, prev)
    assert reader.query("SELECT count(*), max(id) FROM episode") == [(n, "e9")]
    assert reader.apart("e5") == (b"salt", "text 5")
    # Of two changes in one batch the last one counts.
    assert [seq for _, _, seq in reader.query("SELECT * FROM policy")] == [n + 2]
    assert [event.seq for event in reader.of_episode("e7")] == [7]
    assert reader.of_episode("nobody") == []


def test_a_closed_and_abandoned_episode_is_found_with_both_events(path: Path) -> None:
    store = opened(path)
    closed = Closed(steps=0)
    rows = [Fresh(seq, "closed", "e1", None, encode(closed), 5, closed, 1) for seq in (2, 3)]
    store.write([begun(1), *rows])
    assert [event.seq for event in Reader(path).of_episode("e1")] == [1, 2, 3]
    assert Reader(path).query("SELECT status, ended FROM episode") == [("closed", 3)]


def test_an_old_writer_writes_nothing_once_another_has_taken_over(path: Path, engine: str) -> None:
    old = opened(path, engine)
    old.write([begun(1)])
    new = opened(path, engine)
    assert (old.epoch, new.epoch) == (1, 2)
    attempts = (
        lambda: old.write([begun(2)]),
        lambda: old.write_part(1, 0, b""),
        lambda: old.complete_snapshot(1, named=2),
    )
    for attempt in attempts:
        with pytest.raises(FenceLost, match="epoch 2"):
            attempt()
    assert new.head.seq == 1
    new.write([begun(2, "theirs")])
    events = list(Reader(path).events())
    assert [(event.seq, event.episode, event.epoch) for event in events] == [(1, "e1", 1), (2, "theirs", 2)]


def test_a_number_that_is_taken_is_never_written_twice(path: Path) -> None:
    store = opened(path)
    store.write([begun(1)])
    with pytest.raises(Failed, match="UNIQUE"):
        store.write([begun(1, "other")])


def test_two_snapshots_are_kept_and_what_was_not_completed_is_none(path: Path) -> None:
    store = opened(path)
    for seq in (1, 5, 7, 9):
        for number in range(3):
            store.write_part(seq, number, b"%d-%d " % (seq, number))
        if seq != 7:
            store.complete_snapshot(seq, named=seq + 1)
        assert 7 not in [each.seq for each in Reader(path).snapshots()]
    assert list(Reader(path).snapshots()) == [(9, b"9-0 9-1 9-2 ", 10), (5, b"5-0 5-1 5-2 ", 6)]
    for number in range(3):
        store.write_part(11, number, b"")
    # Parts of others go two at a time, so that no commit waits for all of them.
    assert Reader(path).query("SELECT DISTINCT snapshot FROM part ORDER BY 1") == [(5,), (9,), (11,)]


def test_a_checkpoint_waits_for_no_reader_and_says_so(path: Path, engine: str) -> None:
    store = opened(path, engine)
    store.write([begun(1)])
    reader = Reader(path, engine=engine)
    with reader.at_one_moment():
        assert len(list(reader.events())) == 1
        store.write([begun(2)])
        assert not store.checkpoint(empty=True)
        assert len(list(reader.events())) == 1
    assert store.checkpoint(empty=True)
    assert path.with_name("chary.db-wal").stat().st_size == 0
    assert len(list(reader.events())) == 2


# A schema of some later version: a table that is filled from what was there, and a column.
LATER = (
    *MIGRATIONS,
    "CREATE TABLE length (name TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT; "
    "INSERT INTO length SELECT id, length(id) FROM episode;",
    "ALTER TABLE lease ADD COLUMN host TEXT NOT NULL DEFAULT 'unknown';",
)


def test_an_older_schema_is_brought_up_to_date_with_what_is_in_it(path: Path, engine: str) -> None:
    store = opened(path, engine)
    store.write([begun(1, "a"), begun(2, "bcd")])
    store.close()
    inner = connect(path, engine=engine)
    assert migrate(inner, LATER) == len(MIGRATIONS)
    assert migrate(inner, LATER) == len(LATER)
    assert list(inner.execute("PRAGMA user_version")) == [(len(LATER),)]
    assert list(inner.execute("SELECT name, size FROM length ORDER BY name")) == [("a", 1), ("bcd", 3)]
    assert list(inner.execute("SELECT deployment, epoch, host FROM lease")) == [("here", 1, "unknown")]
    inner.close()
    assert [event.episode for event in Reader(path, engine=engine).events()] == ["a", "bcd"]
    # This version leaves a newer database alone.
    with pytest.raises(InvalidData, match=rf"schema {len(MIGRATIONS)} or older, got {len(LATER)}"):
        opened(path, engine)


def test_a_migration_that_fails_leaves_the_database_as_the_one_before_left_it(
    path: Path, engine: str
) -> None:
    store = opened(path, engine)
    store.write([begun(1, "a")])
    store.close()
    inner = connect(path, engine=engine)
    broken = "CREATE TABLE half (x); INSERT INTO half VALUES (1); INSERT INTO nowhere VALUES (1);"
    with pytest.raises(Failed):
        migrate(inner, (*LATER[:-1], broken))
    assert list(inner.execute("PRAGMA user_version")) == [(len(LATER) - 1,)]
    assert list(inner.execute("SELECT name FROM length")) == [("a",)]
    assert list(inner.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'")) == [(0,)]
    assert migrate(inner, LATER) == len(LATER) - 1
    inner.close()


def test_a_newer_schema_and_another_program_are_refused_and_left_alone(path: Path) -> None:
    inner = sqlite3.connect(path)
    inner.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 99;")
    inner.close()
    before = path.read_bytes()
    with pytest.raises(InvalidData, match=r"got 99, of a newer version\. Upgrade chary"):
        opened(path)
    assert path.read_bytes() == before
    inner = sqlite3.connect(path)
    inner.executescript("PRAGMA application_id = 5; PRAGMA user_version = 1; CREATE TABLE theirs (x);")
    inner.close()
    with pytest.raises(InvalidData, match="another program"):
        opened(path)


def test_another_deployment_is_refused(path: Path) -> None:
    opened(path)
    store = Store(path)
    store.prepare(new=True)
    with pytest.raises(InvalidData, match="'there', got one of 'here'"):
        store.take_over("there")


def test_a_file_that_is_no_database_is_refused_in_one_sentence(path: Path, engine: str) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(InvalidData, match="Restore the last backup"):
        opened(path, engine)


def test_connections_are_of_known_engines_and_versions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'connection' must be one of sqlite3, apsw"):
        connect(path, engine="duck")
    with pytest.raises(InvalidSetting, match="'vfs' needs connection 'apsw'"):
        connect(path, vfs="mine")
    assert sqlite_version("sqlite3") == sqlite3.sqlite_version
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.31.1")
    with pytest.raises(InvalidSetting, match=r"at least 3\.37\.0, got 3\.31\.1"):
        connect(path)
