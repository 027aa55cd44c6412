"""The simulated disk itself: a plain SQLite database survives it where it syncs, and only there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

apsw = pytest.importorskip("apsw")

from tests.service.faults.disk import Disk, Step, after_power_loss, read_folder, restore  # noqa: E402

ROWS = 60


def write_rows(folder: Path, synchronous: str) -> tuple[dict[str, bytes], list[Step]]:
    """Write rows one by one and mark each as acknowledged; return the disk before and what happened to it."""
    path = folder / "plain.db"
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode=wal").fetchall()
    connection.execute("create table fact (id integer primary key, body text)")
    connection.close()
    before = read_folder(folder)
    with Disk(f"plain-{synchronous}") as disk:
        connection = apsw.Connection(str(path), vfs=disk.name)
        connection.execute(f"pragma synchronous={synchronous}")
        connection.execute("pragma wal_autocheckpoint=0")
        for row in range(ROWS):
            connection.execute("insert into fact values (?, ?)", (row, f"{row}" * 200))
            disk.mark(row)
            if row % 17 == 16:
                connection.execute("pragma wal_checkpoint(passive)").fetchall()
        connection.close()
    return before, disk.steps


def lost_after(folder: Path, synchronous: str, losses: int) -> list[str]:
    """Return what went wrong in `losses` power losses at random moments."""
    before, steps = write_rows(folder, synchronous)
    chance, wrong = Random(5), []
    for _ in range(losses):
        at = chance.randrange(len(steps) + 1)
        restore(after_power_loss(before, steps[:at], chance), folder)
        acknowledged = sum(step.call == "mark" for step in steps[:at])
        connection = apsw.Connection(str(folder / "plain.db"))
        try:
            rows = [row[0] for row in connection.execute("select id from fact order by id")]
            whole = connection.execute("pragma integrity_check").get == "ok"
        except apsw.Error as error:
            wrong.append(f"{at}: {error}")
            continue
        finally:
            connection.close()
        # One row may be there that was not acknowledged yet; more cannot be.
        if not whole or rows != list(range(len(rows))) or not acknowledged <= len(rows) <= acknowledged + 1:
            wrong.append(f"{at}: {len(rows)} rows of {acknowledged}, whole: {whole}")
    return wrong


def test_a_plain_database_that_syncs_loses_nothing_to_a_power_loss(tmp_path: Path) -> None:
    assert lost_after(tmp_path, "full", 150) == []


def test_a_plain_database_that_does_not_sync_loses_rows_to_a_power_loss(tmp_path: Path) -> None:
    assert len(lost_after(tmp_path, "off", 40)) > 20


def test_what_was_synced_stays_and_the_rest_arrives_by_sectors() -> None:
    first, second = b"a" * 1024, b"b" * 1024
    steps = [Step("write", "f", 0, first), Step("sync", "f"), Step("write", "f", 0, second)]
    seen = {after_power_loss({"f": b""}, steps, Random(seed))["f"] for seed in range(300)}
    assert {first, second, b"a" * 512 + b"b" * 512, b"b" * 512 + b"a" * 512} <= seen
    assert all(set(found) <= {ord("a"), ord("b")} and len(found) == 1024 for found in seen)


def test_a_file_that_was_never_synced_may_be_missing() -> None:
    steps = [Step("open", "f"), Step("write", "f", 0, b"a")]
    seen = [after_power_loss({}, steps, Random(seed)) for seed in range(50)]
    assert {} in seen
    assert {"f": b"a"} in seen


def test_a_deleted_file_may_come_back_unless_the_directory_was_synced() -> None:
    back = [after_power_loss({"f": b"a"}, [Step("delete", "f", 0)], Random(seed)) for seed in range(50)]
    assert {} in back
    assert {"f": b"a"} in back
    assert after_power_loss({"f": b"a"}, [Step("delete", "f", 1)], Random(0)) == {}


@pytest.mark.parametrize(
    ("error", "call"),
    [(apsw.FullError("full"), "write"), (apsw.IOError("broken"), "write"), (apsw.IOError("broken"), "sync")],
)
def test_a_call_that_must_fail_fails_once_and_changes_nothing(
    tmp_path: Path, error: Exception, call: str
) -> None:
    write_rows(tmp_path, "full")
    with Disk("failing") as disk:
        connection = apsw.Connection(str(tmp_path / "plain.db"), vfs=disk.name)
        connection.execute("pragma synchronous=full")
        left = [3]

        def fail(each: str, path: str) -> Exception | None:
            left[0] -= each == call
            return error if each == call and left[0] == 0 else None

        disk.fail = fail
        written = 0
        with pytest.raises(type(error)):  # noqa: PT012 - which of the rows fails depends on the call
            for row in range(ROWS, 2 * ROWS):
                connection.execute("insert into fact values (?, 'x')", (row,))
                written += 1
        assert left[0] == 0
        connection.close()
    connection = apsw.Connection(str(tmp_path / "plain.db"))
    assert connection.execute("select count(*) from fact").get == ROWS + written
    connection.close()
