"""The search effort of the tests: CHARY_TESTS=full takes the long profile and the slow tests too."""

from __future__ import annotations

import os
from importlib import metadata, util

import pytest
from hypothesis import settings

FULL = os.environ.get("CHARY_TESTS") == "full"

# Most of the time of the deep tests is spent in XLA's optimisers, on programs that run for milliseconds. The
# short profile does without them, in processes that tests start too; the full one compiles as users do.
QUICK_XLA = "--xla_backend_optimization_level=0"
if not FULL and util.find_spec("jaxlib") is not None:
    if metadata.version("jaxlib").startswith("0.10."):
        # XLA stops at a flag of another version.
        QUICK_XLA += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_XLA}".strip()

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
