"""The folder of one result: all its files or none, and never in place of an earlier result."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import final

from chary.errors import InvalidSetting
from chary.storage.files import new_draft, write_draft, writing


@final
class ResultFolder:
    """A folder that is checked to be writable before the work starts, and stays empty unless it succeeds.

    Use it as a context: entering creates the folder and tests it, `write` writes files, and leaving without
    having written removes the folders that entering created.

    Args:
        path: The folder; missing ones above it are created too.
        names: The files that will be written.
        overwrite: Whether files of these names may be replaced.

    Raises:
        InvalidSetting: on entering, if the folder cannot be written to or contains one of the files; on
            writing, if the disk refuses.

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

    def __exit__(self, *error: object) -> None:
        if not self._written:
            self._remove_created()

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write files under temporary names, then rename them all, the last one last."""
        drafts = {name: new_draft(self.path) for name in contents}
        try:
            with writing(self.path):
                for name, draft in drafts.items():
                    write_draft(draft, contents[name])
                self._refuse_existing(contents)
                for name, draft in drafts.items():
                    draft.replace(self.path / name)
                    self._written = True
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)

    def _prepare(self) -> None:
        with writing(self.path):
            missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                self._created.append(folder)
            self._refuse_existing(self._names)
            with tempfile.TemporaryFile(dir=self.path):
                pass

    def _refuse_existing(self, names: Iterable[str]) -> None:
        there = [name for name in names if (self.path / name).exists()]
        if there and not self._overwrite:
            raise InvalidSetting(
                f"'out' must not contain results, got {str(self.path)!r} with {', '.join(there)}. "
                "Choose another folder, or pass --overwrite."
            )

    def _remove_created(self) -> None:
        for folder in reversed(self._created):
            try:
                folder.rmdir()
            except OSError:
                # Another process has written files there meanwhile.
                return
        self._created = []
