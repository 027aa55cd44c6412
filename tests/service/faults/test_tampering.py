"""Any byte of an event or a snapshot that is changed is named; a file or a tail that was cut is found."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.service.faults import wards
from tests.service.faults.patients import Ward, answer_of
from tests.service.log import rows

from chary.errors import CharyError
from chary.service.engine import Engine
from chary.service.verify import verify

FULL = os.environ.get("CHARY_TESTS") == "full"
COLUMNS = ("kind", "schema", "episode", "t", "body", "prev", "hash", "at", "epoch")
CALLS = 120
# What differs from one start to the next.
OF_THE_START = ("head", "epoch", "snapshot", "replayed", "seconds", "processor_seconds")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "ward"
    wards.make(folder)
    engine, ward = Engine.open(folder), Ward(Random(0), called="a")
    steps = ward.steps()
    for _ in range(CALLS):
        request, one = next(steps)
        status, body, seq = answer_of(engine, request)
        ward.hear(request, one, 0.0, status, body)
        engine.wait(seq)
    engine.finish()
    assert verify(folder).is_whole
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "ward"
    shutil.copytree(made, folder)
    return folder


def set_value(folder: Path, table: str, column: str, key: int, value: Any) -> None:
    with closing(sqlite3.connect(folder / "chary.db")) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, key))
        connection.commit()


def flipped(value: Any, chance: Random) -> Any:
    """Return a value of the same type with one bit of one byte changed; texts stay texts."""
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(20))
    data = bytearray(value.encode() if isinstance(value, str) else value)
    if not data:
        return "x" if isinstance(value, str) else b"x"
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(7)
    return data.decode() if isinstance(value, str) else bytes(data)


def named(folder: Path) -> set[tuple[str, int | None]]:
    """Return what `chary audit verify` names: the kind of thing, and the event."""
    return {(finding.where, finding.seq) for finding in verify(folder).found}


def test_a_changed_byte_of_an_event_is_named(copy: Path) -> None:
    chance = Random(1)
    last = rows(copy, "SELECT max(seq) FROM event")[0][0]
    for column in COLUMNS:
        for seq in range(1, last + 1) if FULL else chance.sample(range(1, last + 1), 6):
            before = rows(copy, f"SELECT {column} FROM event WHERE seq = {seq}")[0][0]
            missing = "x" if column == "episode" else 7
            after = missing if before is None else flipped(before, chance)
            set_value(copy, "event", column, seq, after)
            assert seq in {number for _, number in named(copy)}, (column, seq, before, after)
            set_value(copy, "event", column, seq, before)
    assert verify(copy).is_whole


def test_a_changed_byte_of_a_snapshot_is_named_and_another_one_is_loaded(copy: Path) -> None:
    chance = Random(2)
    kept = rows(copy, "SELECT seq, named, part.rowid, content FROM snapshot JOIN part ON snapshot = seq")
    for seq, named_by, part, content in kept:
        for table, column, key, before in (
            ("snapshot", "named", seq, named_by), ("part", "content", part, content)
        ):  # fmt: skip
            for _ in range(40 if FULL else 4):
                set_value(copy, table, column, key, flipped(before, chance))
                assert ("snapshot", seq) in named(copy)
            set_value(copy, table, column, key, before)
    whole = Engine.open(copy)
    told = {**whole.deployment(), **{name: 0 for name in OF_THE_START}}
    whole.finish()
    for part, content in rows(copy, "SELECT rowid, content FROM part"):
        set_value(copy, "part", "content", part, flipped(content, chance))
    engine = Engine.open(copy)
    assert engine.about["snapshot"] == 0
    assert {**engine.deployment(), **{name: 0 for name in OF_THE_START}} == told
    engine.finish()


def test_an_event_that_was_changed_in_the_tail_stops_the_start(copy: Path) -> None:
    seq = rows(copy, "SELECT max(seq) FROM event")[0][0]
    body = rows(copy, f"SELECT body FROM event WHERE seq = {seq}")[0][0]
    set_value(copy, "event", "body", seq, flipped(body, Random(3)))
    with pytest.raises(CharyError, match=f"event {seq}"):
        Engine.open(copy)


def test_a_tail_that_was_cut_is_found_by_the_published_head(copy: Path) -> None:
    head, last = verify(copy).head, rows(copy, "SELECT max(seq) FROM event")[0][0]
    with closing(sqlite3.connect(copy / "chary.db")) as connection:
        connection.execute("DELETE FROM event WHERE seq > ?", (last - 3,))
        connection.execute("DELETE FROM snapshot WHERE seq > ?", (last - 3,))
        connection.commit()
    assert "head" in {each.where for each in verify(copy, head=head).found}


@pytest.mark.parametrize("left", [0, 1, 99, 100, 512, 4096, 0.5, 0.9, -4096, -1])
def test_a_file_that_was_cut_is_refused_with_one_sentence(copy: Path, left: float) -> None:
    database = copy / "chary.db"
    data = database.read_bytes()
    size = int(left * len(data)) if isinstance(left, float) else left % len(data) if left < 0 else left
    database.write_bytes(data[:size])
    with pytest.raises(CharyError) as refused:
        Engine.open(copy)
    assert "\n" not in str(refused.value)
    try:
        whole = verify(copy).is_whole
    except CharyError:
        whole = False
    assert not whole


def test_changed_bytes_of_the_file_never_pass_unseen_where_they_are_read(copy: Path) -> None:
    """Bytes anywhere: either they are named or refused, or what the deployment says is as it was."""
    chance, database = Random(4), copy / "chary.db"
    data = database.read_bytes()
    query = "SELECT seq, kind, episode, t, body, prev, hash, at, epoch FROM event ORDER BY seq"
    before = rows(copy, query)
    seen = 0
    for _ in range(400 if FULL else 40):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        database.write_bytes(changed)
        try:
            whole = verify(copy).is_whole
        except CharyError:
            whole = False
        if whole:
            assert rows(copy, query) == before
        seen += not whole
    assert seen > 0
