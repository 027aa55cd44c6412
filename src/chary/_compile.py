"""The one way kernels are compiled: cached on disk, IEEE arithmetic, no reordering of sums."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = ["bare", "folded", "inner", "jit", "kernel_of"]

F = TypeVar("F", bound=Callable[..., object])

# No wrapper for C callers: nobody calls from C, and it would double the code of every signature.
# `_nrt` is said outright, since a kernel compiled on the way to another takes over what that one has.
OPTIONS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": True,
}

PACKAGE = Path(__file__).parent
# Where compiled code comes from: these files, and what they compile of the shield.
KERNELS = (
    "_audit_kernels.py",
    "_chains.py",
    "_compile.py",
    "_episode.py",
    "_episode_log.py",
    "_guess.py",
    "_loop.py",
    "_plan_check.py",
    "agents/_mixtures.py",
    "model/counts.py",
    "model/radii.py",
    "model/rows.py",
    "planner/_backup.py",
    "planner/_kernels.py",
    "planner/_lane_plans.py",
    "planner/_lanes.py",
    "planner/_versions.py",
    "planner/incremental.py",
    "shield/ledger.py",
    "shield/rule.py",
)


def jit(function: F) -> F:
    """Compile a kernel that Python calls; NUMBA_DISABLE_JIT=1 leaves it in Python, to debug it."""
    compiled: F = numba.njit(**OPTIONS, cache=True)(function)
    return compiled


def inner(function: F) -> F:
    """Compile a kernel that only other kernels call: no Python wrapper, and no cache entry of its own.

    Unpacking the big tuples for Python is most of what compiling a small kernel costs.
    """
    compiled: F = numba.njit(**{**OPTIONS, "no_cpython_wrapper": True})(function)
    return compiled


def kernel_of(function: F) -> F:
    """Return a kernel that Python calls as one for other kernels, without the wrapper that takes so long."""
    return inner(getattr(function, "py_func", function))


def bare(function: F) -> F:
    """Compile a kernel that only other kernels call and that makes no array: references are not counted.

    Counting is what most of a short kernel's time goes into where it is handed tuples of many arrays. numba
    spells the option with an underscore (as of 0.68) and refuses to compile what would allocate.
    """
    compiled: F = numba.njit(**{**OPTIONS, "no_cpython_wrapper": True, "_nrt": False})(function)
    return compiled


def folded(function: F) -> F:
    """Compile a bare kernel into its callers: handing over tuples of many arrays costs more than a step."""
    options = {**OPTIONS, "no_cpython_wrapper": True, "_nrt": False, "forceinline": True}
    compiled: F = numba.njit(**options)(function)
    return compiled


def drop_stale_cache(package: Path = PACKAGE) -> bool:
    """Delete compiled code older than its sources, and say whether there was any.

    numba looks at the file of the function it loads and not at those of the functions inside it (as of
    0.68), so a change in one kernel would leave its callers as they were.
    """
    stamp = package / "__pycache__" / "kernels.sha256"
    # Where the package cannot be read or written, numba caches elsewhere: there is nothing of ours to delete.
    with contextlib.suppress(OSError):
        digest = hashlib.sha256(b"".join((package / name).read_bytes() for name in KERNELS)).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            return False
        for name in KERNELS:
            place = (package / name).parent / "__pycache__"
            for compiled in [*place.glob("*.nbi"), *place.glob("*.nbc")]:
                compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
        return True
    return False


drop_stale_cache()
