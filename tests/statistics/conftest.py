"""Seeds of the statistical tests: one range of them, ten disjoint ones where CHARY_TESTS=full."""

from __future__ import annotations

import os

import pytest

SWEEPS = 10 if os.environ.get("CHARY_TESTS") == "full" else 1


@pytest.fixture(params=range(SWEEPS))
def first_seed(request: pytest.FixtureRequest) -> int:
    """The first of a range of 100,000 seeds that no other sweep uses."""
    sweep: int = request.param
    return 100_000 * sweep
