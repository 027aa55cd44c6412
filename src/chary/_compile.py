"""The one way kernels are compiled: cached on disk, IEEE arithmetic, no reordering of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["inner", "jit"]

F = TypeVar("F", bound=Callable[..., object])

# No wrapper for C callers: nobody calls from C, and it would double the code of every signature.
OPTIONS: dict[str, Any] = {"fastmath": False, "error_model": "numpy", "no_cfunc_wrapper": True}


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
