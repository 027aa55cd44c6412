"""Traces of system calls: replies that leave before the log is synced are found."""

from __future__ import annotations

from tests.service.faults.traces import calls_of, unsynced

LOG = "9</a/chary.db-wal>"
ASKED = '7  recvfrom(5<socket:[1]>, "POST /v1/episodes HTTP/1.1\\r\\n", 4096, 0, NULL, NULL) = 26'
ANSWERED = '7  sendto(5<socket:[1]>, "HTTP/1.1 201 Created\\r\\n", 22, 0, NULL, 0) = 22'
WRITTEN = f'8  pwrite64({LOG}, "abc", 3, 0) = 3'
SYNCED = f"8  fdatasync({LOG}) = 0"
BEGUN, RESUMED = f"8  fdatasync({LOG} <unfinished ...>", "8  <... fdatasync resumed>) = 0"


def test_a_reply_after_write_and_sync_passes() -> None:
    assert unsynced([ASKED, WRITTEN, SYNCED, ANSWERED]) == (1, [])
    assert unsynced([ASKED, WRITTEN, BEGUN, RESUMED, ANSWERED], ["abc"]) == (1, [])


def test_a_reply_without_its_sync_is_found() -> None:
    for lines in (
        [ASKED, ANSWERED],
        [ASKED, WRITTEN, ANSWERED, SYNCED],
        [WRITTEN, SYNCED, ASKED, ANSWERED],
        [ASKED, SYNCED, WRITTEN, ANSWERED],
        [ASKED, WRITTEN, BEGUN, ANSWERED, RESUMED],
        [ASKED, BEGUN, WRITTEN.replace("8  ", "9  "), RESUMED, ANSWERED],
        [ASKED, WRITTEN, SYNCED.replace("= 0", "= -1 EIO (Input/output error)"), ANSWERED],
        [ASKED, WRITTEN, SYNCED.replace("-wal", ""), ANSWERED],
    ):
        replies, early = unsynced(lines)
        assert (replies, len(early)) == (1, 1), lines
    assert len(unsynced([ASKED, WRITTEN, SYNCED, ANSWERED], ["abd"])[1]) == 1


def test_calls_of_several_threads_are_told_apart() -> None:
    found = list(calls_of([BEGUN, ASKED, RESUMED]))
    assert [(call.name, call.began, call.ended) for call in found] == [
        ("recvfrom", 1, 1),
        ("fdatasync", 0, 2),
    ]
