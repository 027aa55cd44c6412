"""Files on disk: written whole or not at all, arrays without pickle, and standard JSON."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidData, InvalidSetting, Unwritable

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Exceptions of NumPy and zipfile on files that were cut off or changed (as of NumPy 2.4 and Python 3.11).
UNREADABLE = (
    ValueError,
    LookupError,
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

# The prefix of files that are not finished.
DRAFT = ".draft-"


def as_json(values: Mapping[str, Any]) -> str:
    """Return one line of standard JSON; a number that is not finite, which JSON lacks, becomes null.

    Example:
        >>> as_json({"eta": float("inf"), "seed": 0})
        '{"eta": null, "seed": 0}'
    """
    return json.dumps(_plain(values), allow_nan=False)


def json_line(values: Mapping[str, Any]) -> bytes:
    """Return the contents of a file with one line of standard JSON, see `as_json`."""
    return (as_json(values) + "\n").encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, None where there is no such file or object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_path(name: str, path: object) -> Path:
    """Return `path` as a Path.

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


def write_new(path: str | Path, content: bytes | Callable[[], bytes], *, overwrite: bool) -> None:
    """Write a file that a user named, all of it or nothing; a function is called once the path is free.

    Raises:
        InvalidSetting: if it exists and must not be overwritten, or cannot be written.
    """
    target = as_path("path", path)
    try:
        if target.exists() and not overwrite:
            raise InvalidSetting(
                f"'path' must not exist yet, got {str(path)!r}. "
                "Choose another, or pass overwrite=True (--overwrite)."
            )
        write_file(target, content() if callable(content) else content)
    except (OSError, UnicodeError) as problem:
        raise Unwritable(
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
        InvalidData: if the content is not an npz file, or was cut off or changed.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UNREADABLE as problem:
        raise InvalidData(f"an npz file must contain numbers and be whole, got {problem}.") from problem


@contextmanager
def writing(folder: Path, name: str = "out") -> Iterator[None]:
    """Turn an OSError raised inside into an error about the folder that is written to.

    Args:
        folder: The folder.
        name: The option or argument that names it.

    Raises:
        Unwritable: in place of the OSError.
    """
    try:
        yield
    except OSError as problem:
        raise Unwritable(
            f"{name!r} must be a folder that can be written to, got {str(folder)!r}: {_reason(problem)}."
        ) from problem


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in its folder, make sure it is on the disk, and rename it.

    Raises:
        OSError: if the disk refuses; then no part of the new file exists.
    """
    draft = write_draft(path.parent, content)
    try:
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_draft(folder: Path, content: bytes) -> Path:
    """Write a file under a temporary name, make sure it is on the disk, and return its path.

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
        # mkstemp makes files private; results get the permissions of the user's other files.
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
