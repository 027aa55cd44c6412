"""System calls of a service, as strace writes them down: which reply left before its event was synced.

A request is read from a socket, its event written to the write-ahead log, the log synced, and the reply sent.
`unsynced` looks at each reply that acknowledges something new, and returns those with no write and no sync of
the log, in this order, between their request and them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# What strace is told to write down, and how much of each text.
CALLS = "recvfrom,sendto,sendmsg,write,writev,pwrite64,pwritev,fsync,fdatasync,sync_file_range"
ARGUMENTS = ("-f", "-y", "-s", "4200", "-e", f"trace={CALLS}")
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<rest>.*)$")
_RESUMED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_CALL = re.compile(r"^(?P<name>\w+)\((?P<file>\d+<[^>]*>)(?P<arguments>.*)$", re.DOTALL)
_UNFINISHED = " <unfinished ...>"


class Called(NamedTuple):
    """A system call: the lines of the trace where it began and ended, its file, and its arguments."""

    began: int
    ended: int
    name: str
    file: str
    arguments: str


def calls_of(lines: Iterable[str]) -> Iterator[Called]:
    """Yield the calls of a trace as they end; those of several threads are told apart."""
    begun: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line.rstrip("\n"))
        if found is None:
            continue
        pid, rest = found["pid"], found["rest"]
        resumed = _RESUMED.match(rest)
        if rest.endswith(_UNFINISHED):
            begun[pid] = number, rest.removesuffix(_UNFINISHED)
            continue
        start = number
        if resumed is not None:
            if pid not in begun:
                continue
            start, first = begun.pop(pid)
            rest = first + resumed["rest"]
        call = _CALL.match(rest)
        if call is not None:
            yield Called(start, number, call["name"], call["file"], call["arguments"])


def unsynced(lines: Iterable[str], markers: Iterable[str] = ()) -> tuple[int, list[str]]:
    """Return how many new acknowledgements there are, and those that left too early.

    Args:
        lines: A trace that strace wrote with `ARGUMENTS`.
        markers: Texts of which one must be in what is written to the log, per request in order; without them
            any write counts.
    """
    asked: dict[str, tuple[int, str]] = {}
    writes: list[Called] = []
    syncs: list[Called] = []
    early: list[str] = []
    wanted, replies = iter(markers), 0
    for call in calls_of(lines):
        text = call.arguments
        is_log = "-wal>" in call.file
        if is_log and call.name.startswith("pwrite"):
            writes.append(call)
        elif is_log and call.name in ("fsync", "fdatasync") and text.rstrip().endswith("= 0"):
            syncs.append(call)
        elif call.name == "recvfrom" and '"POST /v1/' in text:
            asked[call.file] = call.ended, text[:120]
        elif call.name in ("sendto", "sendmsg") and '"HTTP/1.1 20' in text and call.file in asked:
            since, request = asked.pop(call.file)
            marker = next(wanted, "")
            replies += 1
            between = [each for each in writes + syncs if each.began > since and each.ended < call.began]
            written = [each.ended for each in between if each in writes and marker in each.arguments]
            if not written or not any(each.began > written[0] for each in between if each in syncs):
                early.append(f"line {call.began}: {request}")
    return replies, early
