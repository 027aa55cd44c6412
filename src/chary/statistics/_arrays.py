"""Checked arrays of numbers, for the statistics of this package."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats
from chary.errors import InvalidData


def matrix_of(name: str, values: ArrayLike) -> Floats:
    """Return numbers as an array of shape (seeds, points); the error names the argument."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or 0 in array.shape or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite and of shape (seeds, points), got shape {array.shape}.")
    return array


def vector_of(name: str, values: ArrayLike) -> Floats:
    """Return numbers as an array of one dimension; the error names the argument."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite and of shape (numbers,), got shape {array.shape}.")
    return array
