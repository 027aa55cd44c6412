"""A trace of the service's system calls: each reply leaves after a sync of the event that it tells of."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.service.faults import wards
from tests.service.faults.kills import answers, free_port
from tests.service.faults.nursery import ROOT
from tests.service.faults.patients import stay
from tests.service.faults.traces import ARGUMENTS, unsynced
from tests.service.log import identify_by

from chary.service.clinic import Clinic, Habits
from chary.service.line import Line
from chary.service.ward import ward

STRACE = shutil.which("strace")
REQUIRED = os.environ.get("CHARY_REQUIRE_STRACE") == "1"


def needs_strace() -> None:
    """Skip, by name, where the system's own tracer is not installed; continuous integration installs it."""
    if STRACE is None and not REQUIRED:
        pytest.skip("strace is not installed")


@contextmanager
def traced(directory: Path, port: int, trace: Path, *arguments: str) -> Iterator[str]:
    """Run a service under strace, and yield its URL; the trace is whole once this has ended."""
    assert STRACE is not None
    program = [sys.executable, "-m", "tests.service.faults.serving", str(directory), str(port), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with (directory / "service.log").open("wb") as log:
        command = [STRACE, *ARGUMENTS, "-o", str(trace), *program]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        # strace hands the signal on to nobody: its only child is the service.
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), 15)
        process.wait(60)


async def one_stay(url: str, token: str, name: str) -> int:
    """Play one stay, each request after the answer to the last one; return the number of requests."""
    line, asked, answer = Line(url, token), 0, None
    await answers(line, 120.0)
    patient = stay(name, Random(3))
    try:
        while True:
            request = next(patient) if answer is None else patient.send(answer)
            reply = await line.call(request.method, request.path, json.dumps(request.body).encode())
            assert reply.status < 300, reply
            asked, answer = asked + 1, json.loads(reply.body)
    except StopIteration:
        line.hang_up()
        return asked


def test_each_reply_leaves_after_the_sync_of_what_it_says(tmp_path: Path) -> None:
    needs_strace()
    directory, trace, port = tmp_path / "ward", tmp_path / "trace", free_port()
    token = wards.make(directory)
    with traced(directory, port, trace) as url:
        asked = asyncio.run(one_stay(url, token, "one patient"))
        habits = Habits(beds=6, pace=0.0, delay=0.0, leaving=0.0, repeated=0.0, unheard=0.0)
        clinic = Clinic(url, token, ward(), habits)
        tally = asyncio.run(clinic.run(episodes=6))
    lines = trace.read_text(errors="replace").splitlines()
    # One patient alone, so that the page of the log that a request writes holds its own event.
    replies, early = unsynced(lines, [identify_by(directory)("one patient")] * asked)
    assert early == []
    assert replies == asked + tally.counts["answers"] - sum(tally.refusals.values())


def test_a_service_that_answers_too_early_is_found(tmp_path: Path) -> None:
    needs_strace()
    directory, trace, port = tmp_path / "ward", tmp_path / "trace", free_port()
    token = wards.make(directory)
    with traced(directory, port, trace, "early") as url:
        asked = asyncio.run(one_stay(url, token, "one patient"))
    replies, early = unsynced(trace.read_text(errors="replace").splitlines())
    assert replies == asked
    assert len(early) > asked // 2
