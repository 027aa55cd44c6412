"""Calls about many episodes at once, as rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from chary.errors import InvalidData


def batch(nested: Collection[str] = (), **columns: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a batch, one per episode; a column that is None is one of None.

    Args:
        nested: The columns whose entries may be arrays.
        columns: Lists or arrays by name, `episodes` among them.

    Raises:
        InvalidData: if a column is not a list, or not as long as `episodes`.
    """
    given = {
        name: _listed(name, column, nested=name in nested)
        for name, column in columns.items()
        if column is not None or name == "episodes"
    }
    n = len(given["episodes"])
    for name, column in given.items():
        if len(column) != n:
            raise InvalidData(f"{name!r} must be as long as 'episodes', {n}, got {len(column)}.")
    return list(zip(*(given.get(name, [None] * n) for name in columns), strict=True))


def _listed(name: str, column: Any, *, nested: bool) -> list[Any]:
    if isinstance(column, np.ndarray) and (column.ndim == 1 or (nested and column.ndim > 1)):
        return list(column) if nested else list(column.tolist())
    if isinstance(column, Sequence) and not isinstance(column, (str, bytes)):
        return [value.item() if isinstance(value, np.generic) else value for value in column]
    shape = "" if nested else " or an array of one dimension"
    raise InvalidData(f"{name!r} must be a list{shape}, got {type(column).__name__}.")
