"""A service that is killed at random and at named points loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.faults import wards
from tests.service.faults.kills import Kills, kill_often
from tests.service.faults.nursery import Nursery

from chary.service.ward import ETA


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.service.faults.serving:warm") as warm:
        yield warm


def killed(nursery: Nursery, folder: Path, kind: str, *, kills: int, seed: int) -> Kills:
    token = wards.make(folder / "ward", kind)
    eta = ETA if kind == "worlds" else wards.BOUNDS_ETA
    return asyncio.run(kill_often(nursery, folder / "ward", token, eta=eta, kills=kills, seed=seed))


def test_a_service_that_is_killed_loses_nothing(nursery: Nursery, tmp_path: Path) -> None:
    found = killed(nursery, tmp_path, "worlds", kills=10, seed=0)
    assert found.findings == []
    assert sum(found.kills.values()) == 10
    assert found.acknowledged > 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", wards.KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_a_service_that_is_killed_a_thousand_times_loses_nothing(
    nursery: Nursery, tmp_path: Path, kind: str, seed: int
) -> None:
    found = killed(nursery, tmp_path, kind, kills=50, seed=100 + seed)
    assert found.findings == []
    assert found.explored > 0
