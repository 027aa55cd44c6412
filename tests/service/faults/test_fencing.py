"""A writer that was paused while another took over commits nothing and answers nothing when it goes on."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.faults import wards
from tests.service.faults.kills import SERVE, answers, free_port
from tests.service.faults.nursery import Child, Nursery
from tests.service.log import broken_links, rows

from chary.errors import CharyError
from chary.service.committer import STATUS
from chary.service.engine import Engine
from chary.service.line import Line, LineLost, Reply


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.service.faults.serving:warm") as warm:
        yield warm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("made") / "ward"
    return folder, wards.make(folder)


async def begin(line: Line, name: str) -> Reply:
    return await line.call("POST", "/v1/episodes", json.dumps({"episode": name, "state": 0}).encode())


def serving(nursery: Nursery, directory: Path, port: int) -> Child:
    return nursery.start(SERVE, {"directory": str(directory), "port": port}, directory / f"{port}.log")


@pytest.mark.parametrize("round_", range(3))
def test_a_paused_writer_commits_nothing_once_another_has_taken_over(
    nursery: Nursery, made: tuple[Path, str], tmp_path: Path, round_: int
) -> None:
    directory, ports = tmp_path / "ward", (free_port(), free_port())
    shutil.copytree(made[0], directory)

    async def story() -> tuple[Reply | None, bytes]:
        old = serving(nursery, directory, ports[0])
        first, later = (Line(f"http://127.0.0.1:{ports[0]}", made[1], timeout=20.0) for _ in range(2))
        await answers(first)
        assert (await begin(first, "before")).status == 201
        old.send(signal.SIGSTOP)
        # A request that the old one finds waiting when it goes on.
        waiting = asyncio.create_task(begin(later, "while it was paused"))
        await asyncio.sleep(0.05)
        # Nobody else may write, unless somebody breaks the lock.
        with pytest.raises(CharyError, match="locked"):
            Engine.open(directory)
        (directory / "lock").unlink()
        new = serving(nursery, directory, ports[1])
        second = Line(f"http://127.0.0.1:{ports[1]}", made[1], timeout=20.0)
        await answers(second)
        told = await begin(second, "after")
        assert told.status == 201
        head = rows(directory, "SELECT max(seq) FROM event")
        old.send(signal.SIGCONT)
        try:
            heard: Reply | None = await waiting
        except LineLost:
            heard = None
        assert await asyncio.to_thread(old.wait) == STATUS
        assert rows(directory, "SELECT max(seq) FROM event") == head
        again = await begin(second, "before")
        new.send(signal.SIGTERM)
        assert await asyncio.to_thread(new.wait) == 0
        for line in (first, second, later):
            line.hang_up()
        return heard, again.body

    heard, _ = asyncio.run(story())
    assert heard is None
    assert broken_links(directory) == []
    epochs = [epoch for (epoch,) in rows(directory, "SELECT epoch FROM event ORDER BY seq")]
    assert epochs == sorted(epochs)
    assert "has taken over" in (directory / f"{ports[0]}.log").read_text()


def test_a_writer_that_was_overtaken_ends_before_a_snapshot_too(
    nursery: Nursery, made: tuple[Path, str], tmp_path: Path
) -> None:
    directory, ports = tmp_path / "ward", (free_port(), free_port())
    shutil.copytree(made[0], directory)

    async def story() -> None:
        old = serving(nursery, directory, ports[0])
        lines = [Line(f"http://127.0.0.1:{port}", made[1]) for port in ports]
        await answers(lines[0])
        old.send(signal.SIGSTOP)
        (directory / "lock").unlink()
        new = serving(nursery, directory, ports[1])
        await answers(lines[1])
        before = rows(directory, "SELECT snapshot, number, content FROM part ORDER BY snapshot, number")
        # Told to stop, it would write a snapshot.
        old.send(signal.SIGTERM)
        old.send(signal.SIGCONT)
        assert await asyncio.to_thread(old.wait) == STATUS
        assert (
            rows(directory, "SELECT snapshot, number, content FROM part ORDER BY snapshot, number") == before
        )
        new.send(signal.SIGTERM)
        assert await asyncio.to_thread(new.wait) == 0
        for line in lines:
            line.hang_up()

    asyncio.run(story())
