"""The one format in which unfinished work is kept: an npz file of arrays with a sealed description."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.errors import InvalidData
from chary.files import npz_arrays, npz_bytes

__all__ = ["CHECKPOINT_SCHEMA", "kind_of", "pack", "unpack"]

CHECKPOINT_SCHEMA = 1

# The member of the file that says what the others are.
DESCRIPTION = "chary"

Arrays = dict[str, NDArray[Any]]


def pack(kind: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """Return arrays and what is to be known about them as one file; nothing in it is pickled.

    Args:
        kind: What is kept, so that nothing else is taken for it.
        arrays: Numbers and texts by name.
        about: Plain values that JSON can say.

    Example:
        >>> about, arrays = unpack("example", pack("example", {"n": np.arange(3)}, {"seed": 1}))
        >>> about["seed"], arrays["n"].tolist()
        (1, [0, 1, 2])
    """
    known = json.loads(json.dumps(dict(about), allow_nan=False))
    description = {
        "schema": CHECKPOINT_SCHEMA,
        "kind": kind,
        "sha256": _digest(arrays, known),
        "about": known,
    }
    # Not compressed: a checkpoint is written often and read at most once.
    text = np.array(json.dumps(description))
    return npz_bytes({DESCRIPTION: text, **arrays}, compressed=False)


def unpack(kind: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what `pack` was given.

    Raises:
        InvalidData: if the file is truncated, of another kind or schema, or not as it was written.
    """
    try:
        arrays = npz_arrays(content)
        description = json.loads(str(arrays.pop(DESCRIPTION)))
        schema, found, digest = description["schema"], description["kind"], description["sha256"]
        about = description["about"]
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        reason = str(problem).rstrip(".")
        raise InvalidData(f"a file of kind {kind!r} must be whole, got {reason}.") from problem
    if schema != CHECKPOINT_SCHEMA:
        raise InvalidData(f"a file of kind {kind!r} must have schema {CHECKPOINT_SCHEMA}, got {schema!r}.")
    if found != kind:
        raise InvalidData(f"a file of kind {kind!r} was asked for, got one of kind {found!r}.")
    if digest != _digest(arrays, about):
        raise InvalidData(f"a file of kind {kind!r} must be as it was written, got one that was changed.")
    return about, arrays


def kind_of(content: bytes) -> str | None:
    """Return what a file says it holds, None where it says nothing; only `unpack` tells whether it is so."""
    try:
        kind = json.loads(str(npz_arrays(content)[DESCRIPTION]))["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def _digest(arrays: Mapping[str, NDArray[Any]], about: object) -> str:
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()
