"""A disk that is full or breaks at a chosen call, under an engine and under a whole service.

Each function here runs in a process of a nursery and is expected to end with status 70: what was acknowledged
before is in `answers`, one JSON object per line, written when the answer would have left.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw
from tests.service.faults.disk import Disk
from tests.service.faults.nursery import Nursery
from tests.service.faults.patients import Attempt, Ward, answer_of
from tests.service.faults.serving import shorten
from tests.service.history import check
from tests.service.log import broken_links, facts_of, identify_by

from chary.errors import CharyError
from chary.service import hosting
from chary.service.committer import STATUS
from chary.service.engine import Engine
from chary.service.ward import ETA

# What may strike, by the calls that it strikes and the error that SQLite is told.
FAULTS: Final[dict[str, tuple[tuple[str, ...], Callable[[], apsw.Error]]]] = {
    "full": (("write", "open"), lambda: apsw.FullError("the disk is full")),
    "broken": (("write", "truncate", "delete", "open"), lambda: apsw.IOError("the disk is broken")),
    "unsynced": (("sync",), lambda: apsw.IOError("a sync failed")),
}
CALLS = 90


def struck(disk: Disk, fault: str, number: int) -> None:
    """Let the call of this number, of those that a fault may strike, fail; and all writes after it."""
    calls, error = FAULTS[fault]
    seen = 0

    def fail(call: str, path: str) -> apsw.Error | None:
        nonlocal seen
        if call not in calls:
            return None
        seen += 1
        if seen < number:
            return None
        # A disk that is full stays full; a sync that is tried again may succeed, and must not be trusted.
        return error() if fault != "unsynced" or seen == number else None

    disk.fail = fail


def play(directory: str, answers: str, fault: str, number: int, seed: int) -> int:
    """Ask an engine for things until the disk fails; every answer that may leave is written to a file."""
    shorten()
    with Disk("breaking") as disk, open(answers, "ab", buffering=0) as heard:
        struck(disk, fault, number)
        try:
            engine = Engine.open(directory, connection="apsw", vfs=disk.name)
        except CharyError as refusal:
            print(refusal, file=sys.stderr)
            return 2
        ward = Ward(Random(seed), beds=4, called=f"breaking {number}")
        steps = ward.steps()
        for _ in range(CALLS):
            request, one = next(steps)
            sent = time.monotonic()
            # Written before the call, so that the checker knows what may be in the log.
            heard.write(_line(Attempt(*_asked(request), sent, sent, None, b"")))
            status, body, seq = answer_of(engine, request)
            engine.wait(seq)
            ward.hear(request, one, sent, status, body)
            heard.write(_line(ward.attempts[-1]))
        engine.finish()
        print(len(disk.steps), file=sys.stderr)
    return 0


def serve(directory: str, port: int, fault: str, number: int) -> int:
    """Run a whole service on a disk that fails."""
    shorten()
    opened = Engine.open
    with Disk("breaking") as disk:
        struck(disk, fault, number)

        class Broken:
            @staticmethod
            def open(folder: str | Path, **_: Any) -> Engine:
                return opened(folder, connection="apsw", vfs=disk.name)

        setattr(hosting, "Engine", Broken)  # noqa: B010 - not exported
        return hosting.serve(directory, port=port)


def mute(directory: str, answers: str, fault: str, number: int, seed: int) -> int:
    """Play as `play` does, with nobody left who reads what the process has to say."""
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(reading)
    os.close(writing)
    return play(directory, answers, fault, number, seed)


def struck_once(nursery: Nursery, made: Path, folder: Path, fault: str, number: int) -> tuple[int, list[str]]:
    """Play on a copy of a deployment until the disk fails; return the exit status, and what is wrong then.

    A status of 0 says that there was no call of that number to strike.
    """
    directory, heard, output = folder / "ward", folder / "answers", folder / "output"
    shutil.copytree(made, directory)
    told = {
        "directory": str(directory),
        "answers": str(heard),
        "fault": fault,
        "number": number,
        "seed": number,
    }
    status = nursery.start("tests.service.faults.breaking:play", told, output).wait()
    said, found = output.read_text(), []
    if status not in (0, 2, STATUS):
        found.append(f"exit status {status}: {said}")
    if status and len(said.strip().splitlines()) != 1:
        found.append(f"more than one sentence: {said}")
    try:
        Engine.open(directory).finish()
    except CharyError as refusal:
        return status, [*found, f"the next start: {refusal}"]
    found += broken_links(directory)
    attempts = attempts_of(heard) if heard.exists() else []
    findings = check(attempts, facts_of(directory), identify=identify_by(directory), eta=ETA)
    return status, found + [": ".join(each) for each in findings]


def _asked(request: Any) -> tuple[str, str, bytes]:
    return request.method, request.path, json.dumps(request.body).encode()


def _line(attempt: Attempt) -> bytes:
    told = attempt._replace(body=attempt.body.decode(), reply=attempt.reply.decode())  # type: ignore[arg-type]
    return json.dumps(told).encode() + b"\n"


def attempts_of(answers: Path) -> list[Attempt]:
    """Return what `play` wrote."""
    told = [Attempt(*json.loads(line)) for line in answers.read_bytes().splitlines()]
    return [one._replace(body=str(one.body).encode(), reply=str(one.reply).encode()) for one in told]
