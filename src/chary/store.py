"""Results on disk: all files of a run or none, and never in place of an earlier run's."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from chary.errors import InvalidSetting
from chary.files import as_json, npz_bytes, write_draft

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chary.run import Run

__all__ = [
    "CHAIN_ARRAYS",
    "EPISODE_ARRAYS",
    "RUN_FILES",
    "ResultFolder",
    "run_arrays",
    "run_files",
]

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
        ...     sorted(each.name for each in folder.path.iterdir())
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
            for content in contents.values():
                drafts.append(write_draft(self.path, content))
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


def run_arrays(run: Run) -> dict[str, NDArray[Any]]:
    """Return the arrays of a run: those by episode, and those by chain with `chain_` before their names."""
    columns = {name: getattr(run, name) for name in EPISODE_ARRAYS}
    return columns | {f"chain_{name}": getattr(run.chains, name) for name in CHAIN_ARRAYS}


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
