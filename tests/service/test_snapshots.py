"""Snapshots are packed by a copy of the process: what it holds, and what happens without one."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any, NoReturn, cast

import pytest
from tests.service.served import make
from tests.service.wandering import Wanderer

from chary.service import snapshots
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.live import Live
from chary.service.store import Reader
from chary.service.verify import verify


def test_a_snapshot_is_the_state_of_one_moment_while_decisions_go_on(tmp_path: Path) -> None:
    directory = make(tmp_path)
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(0))
    client.requests(50)
    at, then = engine.head, engine._live.packed()
    engine._snapshots.now(engine._live)
    client.requests(50)
    engine.finish()
    reader = Reader(Deployment.open(directory).database)
    assert [each.content for each in reader.snapshots() if each.seq == at] == [then]
    reader.close()
    assert verify(directory).is_whole


@pytest.mark.parametrize("fails", ["copying", "packing"])
def test_without_a_snapshot_the_service_goes_on_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    directory = make(tmp_path, limits={"snapshot_every": 20})
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(0))

    def no_memory() -> NoReturn:
        raise OSError(12, "Cannot allocate memory")

    def ended(live: Live, pipe: int, *, modest: bool) -> NoReturn:
        os.write(pipe, b"half of it")
        os._exit(3)

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(*((os, "fork", no_memory) if fails == "copying" else (snapshots, "_pack", ended)))
        client.requests(60)
        engine._snapshots.finish()
        client.requests(1)
    assert engine._snapshots._packed is None
    assert "no snapshot" in caplog.messages
    assert engine.counters["snapshots"] == 0
    client.requests(60)
    engine.finish()
    again = Engine.open(directory)
    assert again.about["snapshot"] > 0
    again.finish()
    assert verify(directory).is_whole


def test_a_copy_that_finds_no_processor_is_followed_by_one_that_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make(tmp_path, limits={"snapshot_every": 20})
    monkeypatch.setattr(snapshots, "MODEST", True)
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(0))
    pack = snapshots._pack

    def starved(live: Live, pipe: int, *, modest: bool) -> NoReturn:
        if modest:
            time.sleep(60)
        pack(live, pipe, modest=modest)

    monkeypatch.setattr(snapshots, "PATIENT_SECONDS", 0.1)
    monkeypatch.setattr(snapshots, "_pack", starved)
    while engine._snapshots._modest:
        client.requests(10)
    # Not every request is a decision, after which a snapshot may begin.
    for _ in range(100):
        engine._snapshots.finish()
        if engine._snapshots._packed is not None:
            break
        client.requests(1)
    assert engine._snapshots._packed is not None
    engine.finish()
    assert verify(directory).is_whole


def test_a_copy_holds_neither_the_lock_nor_anything_else_of_the_service(tmp_path: Path) -> None:
    """A service that is killed while it packs can be started again at once."""
    deployment = Deployment.open(make(tmp_path))
    lock = deployment.take_lock()

    class Slow:
        def packed(self) -> bytes:
            time.sleep(60)
            return b""

    process, pipe = snapshots._copied(cast(Any, Slow()), modest=True)
    try:
        os.close(lock)
        deadline = time.monotonic() + 5
        while set(os.listdir(f"/proc/{process}/fd")) - {"0", "1", "2"} != _only_its_pipe(process):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.close(deployment.take_lock())
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(pipe)


def _only_its_pipe(process: int) -> set[str]:
    places = {name: os.readlink(f"/proc/{process}/fd/{name}") for name in os.listdir(f"/proc/{process}/fd")}
    pipes = {name for name, place in places.items() if place.startswith("pipe:") and int(name) > 2}
    return pipes if len(pipes) == 1 else set()
