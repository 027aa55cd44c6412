"""What all tests of the service share."""

from __future__ import annotations

import pytest

from chary.service import snapshots


@pytest.fixture(autouse=True)
def snapshots_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack snapshots at once in this process, however busy the processors are: tests wait for them."""
    monkeypatch.setattr(snapshots, "MODEST", False)
    monkeypatch.setattr(snapshots, "NICENESS", 0)
