"""Settings of all tests: how hard they search, what they compile, and which of them share a worker.

CHARY_TESTS=full takes the long profile and the slow tests too.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from importlib import metadata, util
from pathlib import Path

import pytest
from hypothesis import settings
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]

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


def digest_of_kernels() -> str:
    """Return a digest of the modules that compiled code comes from, and a few more."""
    texts = {path: path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py"))}
    compiled = re.compile(rb"^(from|import) (chary\._compile|numba)\b", re.MULTILINE)
    kernels = [text for path, text in texts.items() if path.parent.name == "shield" or compiled.search(text)]
    return hashlib.sha256(b"".join(kernels)).hexdigest()[:16]


settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("full", deadline=None, max_examples=1000)
settings.load_profile("full" if FULL else "ci")

# What XLA compiles is kept on disk, as numba's kernels are: workers, the processes that tests start and the
# next tests share it. Set before JAX is imported; by processor, for machine code runs on no other.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "jax" / get_host_cpu_name()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Most of what numba takes is spent in optimisers too. Kernels without them have the same bits, for no
# sum may be reordered. They are kept apart from those that users run, in a folder per state of the sources:
# numba does not see a change in a kernel that another one calls.
if not FULL:
    os.environ.setdefault("NUMBA_OPT", "1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / "build" / "numba" / digest_of_kernels()))


@cache
def group_of(path: Path) -> str:
    """Return which files run in one worker, for `--dist loadgroup`: those that use JAX, or a file by itself.

    Fixtures and compiled functions are then made once, and not once per worker.
    """
    text = path.read_text(encoding="utf-8")
    return "jax" if "jax" in text or "chary.deep" in text else str(path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests into groups, and leave those marked slow to `make test-full`."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
        if not FULL and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: set CHARY_TESTS=full"))
