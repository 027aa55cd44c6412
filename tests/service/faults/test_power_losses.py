"""What was acknowledged survives a power loss at any moment, and does not where nothing is synced."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("apsw")

from tests.service.faults import wards
from tests.service.faults.losses import Losses, careless, pull_the_plug
from tests.service.history import laws

from chary.service.ward import ETA

LOST = {
    "what was acknowledged is in the log",
    "the deployment opens after a power loss",
    "the log can be read",
}


def losses_of(folder: Path, kind: str, *, rounds: int, losses: int, calls: int, seed: int) -> Losses:
    wards.make(folder / "made", kind)
    eta = ETA if kind == "worlds" else wards.BOUNDS_ETA
    made, work = folder / "made", folder / "work"
    return pull_the_plug(made, work, eta=eta, rounds=rounds, losses=losses, calls=calls, seed=seed)


def test_nothing_acknowledged_is_lost_to_a_power_loss(tmp_path: Path) -> None:
    found = losses_of(tmp_path, "worlds", rounds=2, losses=12, calls=150, seed=0)
    assert found.findings == []
    assert found.losses == 24
    # The losses are real: the log that was being written lost sectors in many of them.
    assert found.dropped["chary.db-wal"] >= 6
    assert found.acknowledged > 500
    assert found.explored > 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", wards.KINDS)
def test_nothing_acknowledged_is_lost_to_a_thousand_power_losses(tmp_path: Path, kind: str) -> None:
    found = losses_of(tmp_path, kind, rounds=20, losses=25, calls=300, seed=1)
    assert found.findings == []
    assert found.losses == 500
    assert found.dropped["chary.db-wal"] > 100


def test_without_syncs_power_losses_lose_what_was_acknowledged(tmp_path: Path) -> None:
    with careless():
        found = losses_of(tmp_path, "worlds", rounds=1, losses=12, calls=100, seed=2)
    assert laws(found.findings) & LOST
