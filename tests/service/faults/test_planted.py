"""The checker finds each bug that is planted in the real service, and nothing where none is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.faults import wards
from tests.service.faults.bugs import BUGS
from tests.service.faults.nursery import Nursery

# What each bug must be found by; it may break other laws too.
LAW = {
    "early reply": "what was acknowledged is in the log",
    "double charge": "a step is charged once",
    "refund": "nothing is refunded",
    "lost fence": "a fenced process commits nothing",
    "retry answered differently": "a retry is answered with the same bytes",
    "exploring after a stop": "nothing explores after a stop",
    "skipped event": "events are numbered without holes",
    "reused name": "one answer per key",
    "eta raised on an open episode": "the budget of an open episode is never raised",
    "apprentice that changes an action": "the incumbent's action is never changed",
    "two states for one decision": "one answer per key",
    "over budget": "the ledger stays within the budget",
    "apprentice that explores": "only budgeted explores",
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.service.faults.serving:warm", "tests.service.faults.bugs") as warm:
        yield warm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "ward"
    wards.make(folder)
    return folder


def found(nursery: Nursery, made: Path, folder: Path, bug: str, seed: int = 0) -> set[str]:
    shutil.copytree(made, folder / "ward")
    findings, output = folder / "findings", folder / "output"
    told = {"directory": str(folder / "ward"), "findings": str(findings), "bug": bug, "seed": seed}
    child = nursery.start("tests.service.faults.bugs:run", told, output)
    assert child.wait() == 0, output.read_text()
    read = json.loads(findings.read_text())
    assert bug or not read, read
    return {law for law, _ in read}


@pytest.mark.parametrize("seed", range(2))
def test_the_service_as_it_is_passes(nursery: Nursery, made: Path, tmp_path: Path, seed: int) -> None:
    assert found(nursery, made, tmp_path, "", seed) == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_the_service_as_it_is_passes_often(nursery: Nursery, made: Path, tmp_path: Path, seed: int) -> None:
    assert found(nursery, made, tmp_path, "", seed) == set()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(nursery: Nursery, made: Path, tmp_path: Path, bug: str) -> None:
    assert LAW[bug] in found(nursery, made, tmp_path, bug)
