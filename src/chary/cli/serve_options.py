"""What the commands of `chary serve` and `chary audit` share: the folder of a deployment, and who runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chary.errors import InvalidSetting, check_installed

PACKAGES = ("uvicorn", "msgspec", "prometheus_client", "httpx")

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a deployment.", show_default=False)
]


def check_service() -> None:
    """Raise InvalidSetting unless what the service needs is installed."""
    for package in PACKAGES:
        check_installed(package, "The decision service", "serve")


def check_directory(directory: Path) -> Path:
    """Return the folder of a deployment, once what the service needs is installed.

    Raises:
        InvalidSetting: if there is no deployment.
    """
    check_service()
    if not (directory / "chary.toml").is_file():
        raise InvalidSetting(
            f"'DIR' must be the folder of a deployment, which contains chary.toml, got {str(directory)!r}. "
            "Make one with chary serve init."
        )
    return directory
