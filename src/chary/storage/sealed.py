"""The one format in which unfinished work is kept: arrays with a sealed description, in JSON.

The arrays lie in an npz file or, for networks, which other programs may want to read, in a safetensors file;
whoever reads need not say which.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.errors import InvalidData, InvalidSetting, check_choice
from chary.storage.files import npz_arrays, npz_bytes

__all__ = ["CHECKPOINT_SCHEMA", "CONTAINERS", "kind_of", "pack", "unpack"]

CHECKPOINT_SCHEMA = 1
CONTAINERS = ("npz", "safetensors")

# The member of the file that says what the others are.
DESCRIPTION = "chary"

Arrays = dict[str, NDArray[Any]]


def pack(
    kind: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], *, container: str = "npz"
) -> bytes:
    """Return arrays and what is to be known about them as one file; nothing in it is pickled.

    Args:
        kind: What is kept, so that nothing else is taken for it.
        arrays: Numbers and texts by name.
        about: Plain values that JSON can say.
        container: What holds the arrays: `npz`, or `safetensors`, which takes numbers alone.

    Raises:
        InvalidSetting: if safetensors is asked for and not installed.

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
    text = json.dumps(description)
    if check_choice("container", container, CONTAINERS) == "safetensors":
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # `ascontiguousarray` makes a vector of a single number.
        shaped = {name: array.reshape(np.shape(arrays[name])) for name, array in whole.items()}
        packed: bytes = _safetensors().numpy.save(shaped, metadata={DESCRIPTION: text})
        return packed
    # Not compressed: a checkpoint is written often and read at most once.
    return npz_bytes({DESCRIPTION: np.array(text), **arrays}, compressed=False)


def unpack(kind: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what `pack` was given.

    Raises:
        InvalidData: if the file is truncated, of another kind or schema, or not as it was written.
    """
    try:
        text, arrays = _members(content)
        description = json.loads(text)
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
        kind = json.loads(_members(content)[0])["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def _members(content: bytes) -> tuple[str, Arrays]:
    """Return the description and the arrays of a file; whatever may be wrong with one is a ValueError."""
    size = int.from_bytes(content[:8], "little")
    # A safetensors file begins with the length of its header and the header, which is JSON.
    if content[8:9] != b"{" or len(content) < 8 + size:
        arrays = npz_arrays(content)
        return str(arrays.pop(DESCRIPTION)), arrays
    header = json.loads(content[8 : 8 + size])
    safetensors = _safetensors()
    try:
        loaded = dict(safetensors.numpy.load(content))
    except safetensors.SafetensorError as problem:
        raise ValueError(str(problem)) from problem
    return str(header["__metadata__"][DESCRIPTION]), loaded


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "'safetensors' must be installed to keep networks, got none. Run: pip install 'chary[deep]'."
        ) from error
    return safetensors


def _digest(arrays: Mapping[str, NDArray[Any]], about: object) -> str:
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()
