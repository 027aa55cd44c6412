"""Settings of all tests: how hard they search, what they compile, and which of them share a worker.

CHARY_TESTS=full takes the long profile and the slow tests too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
FULL = os.environ.get("CHARY_TESTS") == "full"

# Most of the time of the deep tests is spent in XLA's optimisers, on programs that run for milliseconds. The
# short profile does without them, in processes that tests start too; the full one compiles as users do.
QUICK_XLA = "--xla_backend_optimization_level=0"
if not FULL and util.find_spec("jaxlib") is not None:
    if metadata.version("jaxlib").startswith("0.10."):
        # XLA stops at a flag of another version.
        QUICK_XLA += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_XLA}".strip()


settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("full", deadline=None, max_examples=1000)
settings.load_profile("full" if FULL else "ci")

# What XLA compiles is kept on disk, as numba's kernels are: workers, the processes that tests start and the
# next tests share it. Set before JAX is imported; by processor, for machine code runs on no other.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "jax" / get_host_cpu_name()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Bytecode is kept wherever the tests run: they start a hundred processes that import the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Most of what numba takes is spent in optimisers too. Kernels without them have the same bits, for no
# sum may be reordered. They are kept apart from those that users run; chary/_compile.py drops them with their
# sources.
if not FULL:
    os.environ.setdefault("NUMBA_OPT", "1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / "build" / "numba"))


@cache
def group_of(path: Path) -> str:
    """Return which files run in one worker: those that use JAX, or a file by itself.

    Fixtures and compiled functions are then made once, and not once per worker.
    """
    text = path.read_text(encoding="utf-8")
    return "jax" if "jax" in text or "chary.deep" in text else str(path)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """The scheduler of `-n`: the groups of xdist 3.8 are lost with pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(ROOT / nodeid.split("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests that are marked slow to `make test-full`."""
    for item in items:
        if not FULL and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: set CHARY_TESTS=full"))


@contextmanager
def undrawn_figures() -> Iterator[None]:
    """Leave out the figures of reports, which take most of their time: the files hold the charts' names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "chary.charts.draw_files", lambda chart: {kind: chart.key.encode() for kind in ("png", "pdf")}
        )
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    with undrawn_figures():
        yield
