"""A full or broken disk, or a sync that fails, at any call: the process ends, and the next start is clean."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apsw")

from tests.service.faults import wards
from tests.service.faults.breaking import FAULTS, struck_once
from tests.service.faults.kills import answers, free_port
from tests.service.faults.nursery import Nursery

from chary.service.committer import STATUS
from chary.service.engine import Engine
from chary.service.line import Line, LineLost

FULL = os.environ.get("CHARY_TESTS") == "full"
BREAKING = "tests.service.faults.breaking"
# In the reduced form a fault strikes every so many calls; there are fewer syncs than writes.
STRIDES = {"full": 149, "broken": 127, "unsynced": 23}
MOST = 2000


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.service.faults.serving:warm", BREAKING) as warm:
        yield warm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("made") / "ward"
    return folder, wards.make(folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_ends_the_process_and_loses_nothing(
    nursery: Nursery, made: tuple[Path, str], tmp_path: Path, fault: str
) -> None:
    ended = []
    for number in range(1, MOST, 1 if FULL else STRIDES[fault]):
        folder = tmp_path / str(number)
        folder.mkdir()
        status, found = struck_once(nursery, made[0], folder, fault, number)
        assert found == []
        if status == 0:
            break
        ended.append(status)
        shutil.rmtree(folder)
    assert ended.count(STATUS) >= 2


def test_a_process_whose_last_words_nobody_hears_ends_all_the_same(
    nursery: Nursery, made: tuple[Path, str], tmp_path: Path
) -> None:
    directory = tmp_path / "ward"
    shutil.copytree(made[0], directory)
    paths = {"directory": str(directory), "answers": str(tmp_path / "answers")}
    mute = {**paths, "fault": "full", "number": 60, "seed": 1}
    assert nursery.start(f"{BREAKING}:mute", mute, tmp_path / "output").wait() == STATUS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_on_a_disk_that_fails_answers_nothing_more(
    nursery: Nursery, made: tuple[Path, str], tmp_path: Path, fault: str
) -> None:
    directory, port = tmp_path / "ward", free_port()
    shutil.copytree(made[0], directory)
    number = 6 if fault == "unsynced" else 60
    asked = {"directory": str(directory), "port": port, "fault": fault, "number": number}
    child = nursery.start(f"{BREAKING}:serve", asked, tmp_path / "output")
    heard = asyncio.run(_ask_until_it_is_gone(f"http://127.0.0.1:{port}", made[1]))
    assert child.wait() == STATUS
    assert "a commit failed" in (tmp_path / "output").read_text()
    engine = Engine.open(directory)
    for name, reply in heard:
        answer = engine.begin(name, 0)
        assert (answer.status, answer.body) == (200, reply)
    engine.finish()
    assert len(heard) >= 1


async def _ask_until_it_is_gone(url: str, token: str) -> list[tuple[str, bytes]]:
    line = Line(url, token)
    heard: list[tuple[str, bytes]] = []
    await answers(line)
    for number in range(1000):
        body = json.dumps({"episode": f"patient {number}", "state": 0}).encode()
        try:
            reply = await line.call("POST", "/v1/episodes", body)
        except LineLost:
            return heard
        assert reply.status == 201
        heard.append((f"patient {number}", reply.body))
    return heard
