"""The types of arrays that modules exchange, whose axes docstrings give, and arrays that nobody changes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def frozen(values: ArrayLike, dtype: Any = None) -> NDArray[Any]:
    """Return a copy of an array that cannot be written to."""
    kept = np.array(values, dtype=dtype, order="C")
    kept.setflags(write=False)
    return kept
