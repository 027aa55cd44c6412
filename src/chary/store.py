"""Results on disk: all files of a run or none, and never in place of an earlier run's."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from chary.errors import InvalidData, InvalidSetting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chary.run import Run

__all__ = [
    "CHAIN_ARRAYS",
    "DRAFT",
    "EPISODE_ARRAYS",
    "RUN_FILES",
    "ResultFolder",
    "as_json",
    "npz_arrays",
    "npz_bytes",
    "run_arrays",
    "run_files",
    "write_file",
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
    zipfile.BadZipFile,
    zlib.error,
)

# How the names of files begin that are not finished.
DRAFT = ".draft-"

RUN_FILES = ("episodes.csv", "run.npz", "run.json")

# The arrays of a run with one entry an episode, in the order of the columns of episodes.csv.
EPISODE_ARRAYS = (
    "regret",
    "true_deficit",
    "signed_deficit",
    "frozen_deficit",
    "deficit",
    "returns",
    "exploring_steps",
    "deviating_steps",
    "length",
    "blocked",
    "value_failed",
    "bonus_failed",
    "charge_failed",
    "largest_gap",
)
# The arrays with one entry a chain.
CHAIN_ARRAYS = ("born", "episodes", "fed", "exhausted", "long")


@final
class ResultFolder:
    """A folder that is known to be writable before the work starts, and holds nothing unless it succeeds.

    Use it as a context: entering creates the folder and tries it, `write` puts files into it, leaving without
    having written removes what entering created.

    Args:
        path: The folder; missing ones above it are created too.
        names: The files that will be written.
        overwrite: Whether files of these names may be replaced.

    Raises:
        InvalidSetting: on entering, if the folder cannot be written to or holds one of the files; on writing,
            if the disk refuses.

    Example:
        >>> with tempfile.TemporaryDirectory() as where, ResultFolder(Path(where, "a"), ["b"]) as folder:
        ...     folder.write({"b": b"text"})
        ...     sorted(os.listdir(folder.path))
        ['b']
    """

    def __init__(self, path: Path, names: Sequence[str], *, overwrite: bool = False) -> None:
        self.path = path
        self._names = tuple(names)
        self._overwrite = overwrite
        self._created: list[Path] = []
        self._written = False

    def __enter__(self) -> ResultFolder:
        try:
            self._prepare()
        except BaseException:
            self._remove_created()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._written:
            self._remove_created()

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write files under temporary names, then rename them all, the last one last."""
        drafts: list[Path] = []
        try:
            for name, content in contents.items():
                with tempfile.NamedTemporaryFile(dir=self.path, prefix=f".{name}.", delete=False) as draft:
                    drafts.append(Path(draft.name))
                    draft.write(content)
                    draft.flush()
                    os.fsync(draft.fileno())
                # mkstemp makes files private; results are as readable as any other file of the user's.
                drafts[-1].chmod(0o666 & ~_umask())
            self._refuse_existing(contents)
            for draft_path, name in zip(drafts, contents, strict=True):
                draft_path.replace(self.path / name)
                self._written = True
        except OSError as problem:
            raise self._unwritable(problem) from problem
        finally:
            for draft_path in drafts:
                draft_path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        missing: list[Path] = []
        above = self.path
        try:
            while not above.exists():
                missing.append(above)
                above = above.parent
            for folder in reversed(missing):
                folder.mkdir()
                self._created.append(folder)
            self._refuse_existing(self._names)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as problem:
            raise self._unwritable(problem) from problem

    def _refuse_existing(self, names: Sequence[str] | Mapping[str, bytes]) -> None:
        there = [name for name in names if (self.path / name).exists()]
        if there and not self._overwrite:
            raise InvalidSetting(
                f"'out' must not hold results already, got {str(self.path)!r} with {', '.join(there)}. "
                "Choose another folder, or pass --overwrite."
            )

    def _unwritable(self, problem: OSError) -> InvalidSetting:
        return InvalidSetting(
            f"'out' must be a folder that can be written to, got {str(self.path)!r}: "
            f"{problem.strerror or problem}."
        )

    def _remove_created(self) -> None:
        for folder in reversed(self._created):
            try:
                folder.rmdir()
            except OSError:
                # Somebody else put something there meanwhile: it is theirs.
                return
        self._created = []


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


def run_arrays(run: Run) -> dict[str, NDArray[Any]]:
    """Return the arrays of a run: those by episode, and those by chain with `chain_` before their names."""
    columns = {name: getattr(run, name) for name in EPISODE_ARRAYS}
    return columns | {f"chain_{name}": getattr(run.chains, name) for name in CHAIN_ARRAYS}


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


def run_files(run: Run, summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the contents of a run's files by name: the table, the arrays, and last the summary."""
    columns = {name: getattr(run, name) for name in EPISODE_ARRAYS}
    # tolist: Python's own floats are written with as many digits as it takes to read them back exactly.
    # Booleans as 0 and 1, which every reader of CSV takes for numbers.
    cells = [(array.astype(int) if array.dtype == bool else array).tolist() for array in columns.values()]
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["episode", *columns])
    writer.writerows(zip(range(run.episodes), *cells, strict=True))
    return {
        "episodes.csv": table.getvalue().encode(),
        "run.npz": npz_bytes(run_arrays(run)),
        "run.json": (as_json(summary) + "\n").encode(),
    }


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, make sure it is on the disk, and rename it.

    Raises:
        OSError: if the disk refuses; then there is neither a new file nor a half of one.
    """
    draft: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=DRAFT, delete=False) as file:
            draft = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; results are as readable as any other file of the user's.
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _umask() -> int:
    # There is no way to read it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
