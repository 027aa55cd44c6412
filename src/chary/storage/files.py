"""Bytes on the disk: whole files or none, arrays without pickle, and JSON that every reader takes."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidData, InvalidSetting

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DRAFT",
    "as_json",
    "as_path",
    "npz_arrays",
    "npz_bytes",
    "read_file",
    "write_draft",
    "write_file",
    "write_new",
]

# What NumPy and zipfile raise on files that were cut off or changed (as of NumPy 2.4 and Python 3.11).
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    AttributeError,
    OverflowError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

# How the names of files begin that are not finished.
DRAFT = ".draft-"


def as_json(values: Mapping[str, Any]) -> str:
    """Return one line of standard JSON; a number that is not finite, which JSON lacks, becomes null.

    Example:
        >>> as_json({"eta": float("inf"), "seed": 0})
        '{"eta": null, "seed": 0}'
    """
    return json.dumps(_plain(values), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_path(name: str, path: object) -> Path:
    """Return `path` as a Path, once it can be one.

    Raises:
        InvalidSetting: if it is neither a text nor a Path, or empty.
    """
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise InvalidSetting(f"{name!r} must be the path of a file, got {path!r}.")
    return Path(path)


def read_file(path: Path) -> bytes:
    """Return the contents of a file that a user named.

    Raises:
        InvalidData: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except (OSError, UnicodeError) as problem:
        raise InvalidData(
            f"'path' must be a file that can be read, got {str(path)!r}: {_reason(problem)}."
        ) from problem


def write_new(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file that a user named, all of it or nothing.

    Raises:
        InvalidSetting: if it exists and must not be overwritten, or cannot be written.
    """
    try:
        if path.exists() and not overwrite:
            raise InvalidSetting(
                f"'path' must not exist yet, got {str(path)!r}. "
                "Choose another, or pass overwrite=True (--overwrite)."
            )
        write_file(path, content)
    except (OSError, UnicodeError) as problem:
        raise InvalidSetting(
            f"'path' must be a file that can be written, got {str(path)!r}: {_reason(problem)}."
        ) from problem


def _reason(problem: OSError | UnicodeError) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


def npz_bytes(arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True) -> bytes:
    """Return arrays as an npz file: the same arrays always give the same bytes."""
    import numpy as np

    target = io.BytesIO()
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(target, **arrays)
    return target.getvalue()


def npz_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file; nothing in it can run code.

    Raises:
        InvalidData: if it is none, or was cut off or changed.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UNREADABLE as problem:
        raise InvalidData(f"an npz file must hold numbers and be whole, got {problem}.") from problem


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, make sure it is on the disk, and rename it.

    Raises:
        OSError: if the disk refuses; then there is neither a new file nor a half of one.
    """
    draft = write_draft(path.parent, content)
    try:
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_draft(folder: Path, content: bytes) -> Path:
    """Write a file of a temporary name that is on the disk when this returns, and return its path.

    Raises:
        OSError: if the disk refuses; then there is no file.
    """
    draft: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=DRAFT, delete=False) as file:
            draft = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; results are as readable as any other file of the user's.
        draft.chmod(0o666 & ~_umask())
    except BaseException:
        if draft is not None:
            draft.unlink(missing_ok=True)
        raise
    return draft


def _umask() -> int:
    # There is no way to read it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
