"""How hard the tests search: CHARY_TESTS=full takes the long profile and the slow tests too."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

FULL = os.environ.get("CHARY_TESTS") == "full"

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("full", deadline=None, max_examples=1000)
settings.load_profile("full" if FULL else "ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests marked slow to `make test-full`."""
    if FULL:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: set CHARY_TESTS=full"))
