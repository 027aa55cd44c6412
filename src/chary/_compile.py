"""The one way kernels are compiled: cached on disk, IEEE arithmetic, no reordering of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

__all__ = ["jit"]

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile `function` with numba; NUMBA_DISABLE_JIT=1 leaves it in Python, for coverage and debugging."""
    compiled: F = numba.njit(cache=True, fastmath=False, error_model="numpy")(function)
    return compiled
