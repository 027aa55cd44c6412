"""The file format of saved state: arrays with a JSON description that contains their hash, perhaps keyed.

The container is an npz file or, for networks, which other programs may want to read, a safetensors file;
readers detect which one it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from chary.errors import CharyError, InvalidData, check_choice, check_installed
from chary.storage.archives import npz_arrays, npz_bytes
from chary.storage.files import as_path, read_file, understood
from chary.storage.keys import check_keyed, keyed_seal
from chary.texts import shown

CHECKPOINT_SCHEMA = 1
CONTAINERS = ("npz", "safetensors")

# The member of the file that describes the others.
DESCRIPTION = "chary"

Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")


def pack(
    kind: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], *, container: str = "npz"
) -> bytes:
    """Return arrays and their description as one file; nothing in it is pickled.

    Args:
        kind: The kind of content, so that nothing else is mistaken for it.
        arrays: Numbers and texts by name.
        about: Plain values that JSON can express.
        container: The format of the file: `npz`, or `safetensors`, which takes numbers alone.

    Raises:
        InvalidSetting: if safetensors is requested and not installed.

    Example:
        >>> about, arrays = unpack("example", pack("example", {"n": np.arange(3)}, {"seed": 1}))
        >>> about["seed"], arrays["n"].tolist()
        (1, [0, 1, 2])
    """
    known = json.loads(json.dumps(dict(about), allow_nan=False))
    digest = _digest(arrays, known)
    seal = {"sha256": digest, **keyed_seal([CHECKPOINT_SCHEMA, kind, digest])}
    text = json.dumps({"schema": CHECKPOINT_SCHEMA, "kind": kind, **seal, "about": known})
    if check_choice("container", container, CONTAINERS) == "safetensors":
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # `ascontiguousarray` makes a vector of a single number.
        shaped = {name: array.reshape(np.shape(arrays[name])) for name, array in whole.items()}
        packed: bytes = _safetensors().numpy.save(shaped, metadata={DESCRIPTION: text})
        return packed
    # Not compressed: a checkpoint is written often and read at most once.
    return npz_bytes({DESCRIPTION: np.array(text), **arrays}, compressed=False)


def unpack(kind: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the description and the arrays that `pack` was given.

    Raises:
        InvalidData: if the file is truncated, of another kind or schema, not as it was written, or not sealed
            with a key that is set.
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
        raise InvalidData(
            f"a file of kind {kind!r} must have schema {CHECKPOINT_SCHEMA}, got {shown(schema)}."
        )
    if found != kind:
        raise InvalidData(f"a file of kind {kind!r} was expected, got one of kind {found!r}.")
    if digest != _digest(arrays, about):
        raise InvalidData(f"a file of kind {kind!r} must be as it was written, got one that was changed.")
    check_keyed(f"a file of kind {kind!r}", description.get("hmac"), [schema, kind, digest])
    return about, arrays


def kind_of(content: bytes) -> str | None:
    """Return the kind that a file declares, or None; only `unpack` checks whether it is true."""
    try:
        kind = json.loads(_members(content)[0])["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def load_sealed(
    path: str | Path, kind: str, what: str, build: Callable[[dict[str, Any], Arrays], T]
) -> tuple[T, Path]:
    """Return what `build` makes of the description and the arrays of a file, and its path.

    Args:
        path: A file with what `pack` returned.
        kind: The kind that `pack` was given.
        what: What the file must contain, for error messages.
        build: Called once the seal was found intact; it may raise whatever malformed values lead to.

    Raises:
        InvalidData: if the file is missing, truncated, changed, of another schema, of another kind or not
            what `build` needs.
    """
    source = as_path("path", path)
    content = read_file(source)
    with understood(f"'path' must contain {what}, got {source}"):
        return build(*unpack(kind, content)), source


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def as_array(
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    shape: tuple[int | None, ...],
    dtype: type[np.generic] | type[bool],
    *,
    below: int | None = None,
    error: type[CharyError] = InvalidData,
) -> NDArray[Any]:
    """Return a copy of an array that has this shape and type, and entries in 0..below - 1 if given.

    None in a shape stands for any length.

    Raises:
        InvalidData: or `error`, if it does not: kernels trust their arguments.
    """
    given = arrays.get(name)
    array = np.array(given if isinstance(given, np.ndarray) else None)
    fits = array.ndim == len(shape) and array.dtype == np.dtype(dtype)
    fits = fits and all(n is None or n == m for n, m in zip(shape, array.shape, strict=True))
    if fits and below is not None:
        fits = bool(((array >= 0) & (array < below)).all())
    if not fits:
        most = "" if below is None else f" with entries below {below}"
        wanted = f"{np.dtype(dtype)} of shape {str(shape).replace('None', 'any')}{most}"
        raise error(f"{name!r} must be {wanted}, got {array.dtype} of shape {array.shape}.")
    return array


def _members(content: bytes) -> tuple[str, Arrays]:
    """Return the description and the arrays of a file; whatever is wrong raises ValueError."""
    size = int.from_bytes(content[:8], "little")
    # A safetensors file begins with the length of its header and the header, which is JSON.
    if content[8:9] != b"{" or len(content) < 8 + size:
        # `pack` compresses nothing: a file never takes more memory than its size.
        arrays = npz_arrays(content, compressed=False)
        return str(arrays.pop(DESCRIPTION)), arrays
    header = json.loads(content[8 : 8 + size])
    safetensors = _safetensors()
    try:
        loaded = dict(safetensors.numpy.load(content))
    except safetensors.SafetensorError as problem:
        raise ValueError(str(problem)) from problem
    return str(header["__metadata__"][DESCRIPTION]), loaded


def _safetensors() -> Any:
    check_installed("safetensors", "Saving networks", "deep")
    import safetensors.numpy

    return safetensors


def _digest(arrays: Mapping[str, NDArray[Any]], about: object) -> str:
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()
