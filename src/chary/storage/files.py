"""Files on disk: written whole or not at all, read up to a limit, and standard JSON and TOML."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import stat
import struct
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chary._workers import machine_memory
from chary.errors import CharyError, InvalidData, InvalidSetting, Unwritable
from chary.texts import shown

# Exceptions of NumPy and zipfile on files that were cut off or changed (as of NumPy 2.4 and Python 3.11), and
# NumPy's warnings about their numbers, where they are made errors.
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    AttributeError,
    ArithmeticError,
    RuntimeWarning,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

# Bytes of the largest text that is parsed: experiments, calibrations, descriptions of runs.
LARGEST_TEXT = 1 << 26
# Characters of the longest TOML text: an experiment has a few thousand.
LONGEST_TOML = 1 << 20
# The deepest tables within tables, and the parts of the longest key.
DEEPEST = 40
LONG_KEY = re.compile(rf"(?<![\w\"'-])[\w\"'-]++(?:[ \t]*+\.[ \t]*+[\w\"'-]++){{{DEEPEST}}}")

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
        return parse_json(_content(path, LARGEST_TEXT))
    except (OSError, ValueError):
        return None


def parse_json(content: bytes | str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: if the text is not one, or nested too deeply.
    """
    try:
        values = json.loads(content)
    except RecursionError as problem:
        raise ValueError("tables nested too deeply") from problem
    if not isinstance(values, dict):
        raise ValueError(f"{type(values).__name__} instead of a table")
    return values


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table that a TOML text describes.

    Raises:
        ValueError: if the text is not TOML, or nested too deeply.
    """
    if len(text) > LONGEST_TOML:
        raise ValueError(f"{len(text)} characters, more than {LONGEST_TOML}")
    # Python 3.11 keeps every beginning of a key: 100,000 parts would take 40 GB.
    if long := LONG_KEY.search(text):
        raise ValueError(f"a key with more than {DEEPEST} parts at character {long.start()}")
    try:
        return tomllib.loads(text)
    except RecursionError as problem:
        raise ValueError("tables nested too deeply") from problem


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
        raise InvalidSetting(f"{name!r} must be the path of a file, got {shown(path)}.")
    return Path(path)


def read_file(path: Path, *, name: str = "path", largest: int | None = None) -> bytes:
    """Return the contents of a file that a user named.

    Args:
        path: The file.
        name: The option or argument that names it.
        largest: The most bytes it may have; by default half of the machine's memory.

    Raises:
        InvalidData: if it cannot be read, or is larger.
    """
    try:
        return _content(path, machine_memory() // 2 if largest is None else largest)
    except (OSError, ValueError) as problem:
        raise InvalidData(
            f"{name!r} must be a file that can be read, got {str(path)!r}: {_reason(problem)}."
        ) from problem


def read_text(path: Path, name: str) -> str:
    """Return a text in UTF-8 that a user named.

    Raises:
        InvalidData: if it cannot be read, is larger than 64 MiB or in another encoding.
    """
    try:
        return read_file(path, name=name, largest=LARGEST_TEXT).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InvalidData(f"{name!r} must be text in UTF-8, got {str(path)!r}, which is not.") from problem


def _content(path: Path, largest: int) -> bytes:
    """Return the bytes of a file; one that is larger, or a device without an end, is not read.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is larger than `largest`, or its path is no path.
    """
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        most = largest if stat.S_ISREG(about.st_mode) else min(largest, LARGEST_TEXT)
        parts: list[bytes] = []
        left = 0 if about.st_size > most else most + 1
        # Usually one part; `read` takes the memory for all that it is asked for.
        while left > 0 and (part := file.read(min(left, max(about.st_size + 1, 1 << 20)))):
            parts.append(part)
            left -= len(part)
    if left <= 0:
        raise ValueError(f"it is larger than {most} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


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


def _reason(problem: OSError | ValueError) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Turn whatever malformed values inside lead to into one sentence about their file.

    Args:
        what: The rule and the file, for example "'path' must contain an agent, got 'x.npz'".

    Raises:
        InvalidData: in place of any error about a value.
    """
    try:
        yield
    except CharyError as problem:
        raise InvalidData(f"{what}: {problem}") from problem
    except UNREADABLE as problem:
        raise InvalidData(f"{what}, which raised {type(problem).__name__}: {problem}.") from problem


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
    draft = new_draft(path.parent)
    try:
        write_draft(draft, content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write several files: all of them under temporary names first, and then they are renamed.

    Raises:
        OSError: if the disk refuses; then files that exist already are as they were, and no other exists.
    """
    drafts: dict[Path, Path] = {}
    made: list[Path] = []
    try:
        for path, content in files.items():
            _make_folders(path.parent, made)
            drafts[path] = new_draft(path.parent)
            write_draft(drafts[path], content)
        # Where one file could not be renamed, others would be new already.
        for path in files:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        for path, draft in drafts.items():
            draft.replace(path)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those that it is in, and add the new ones to `made`."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(exist_ok=True)
            made.append(each)


def new_draft(folder: Path) -> Path:
    """Return the path of a temporary file: chosen before it is made, so that whoever cleans up knows it."""
    return folder / f"{DRAFT}{secrets.token_hex(8)}"


def write_draft(draft: Path, content: bytes) -> None:
    """Write a temporary file, and make sure it is on the disk; the caller removes it, whole or not.

    Raises:
        OSError: if the disk refuses.
    """
    with draft.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
