"""A deployment: a directory with a declaration, a database, a lock and a secret."""

from __future__ import annotations

from pathlib import Path
from typing import final

from chary.service.declaring import Declaration


@final
class Deployment:
    """A directory with `chary.toml`, `chary.db`, `lock`, `secret.key` and the files that were declared."""

    directory: Path
    declaration: Declaration

    @classmethod
    def create(cls, directory: str | Path, declaration: Declaration) -> Deployment:
        """Make a new deployment; the files that the declaration names are copied into it.

        Raises:
            CharyError: if the directory is not empty, or the declaration does not describe a deployment; then
                nothing was made.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, directory: str | Path) -> Deployment:
        """Return a deployment that was made.

        Raises:
            CharyError: if there is none, or it is not as it was declared.
        """
        raise NotImplementedError
