"""The commands that let a simulated clinic call the service: a demonstration and a dress rehearsal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from chary.cli.options import Given, Json, Options
from chary.cli.serve_options import Directory, check_directory, check_service
from chary.cli.terminal import say
from chary.errors import InvalidSetting
from chary.storage.files import as_json as json_line

SECONDS = 30.0


def _demo(
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the deployment in this folder, which must be new or empty.", metavar="DIR"),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            help="Only write the clinic's log (visits.csv) and its rule (rule.csv) to this folder.",
            metavar="DIR",
        ),
    ] = None,
    pace: Annotated[float, typer.Option(help="Factor on the length of every part.", metavar="X")] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the service with a simulated clinic of 50 beds.

    Outcomes come late, twice or never, and actions are overruled. The service starts as an apprentice, is
    switched to mode budgeted, killed and started again, and stopped by the kill switch. Every number is
    measured in this run, which takes less than two minutes.
    """
    check_service()
    if files is not None:
        from chary.service.ward import write_files

        log, rule = write_files(files)
        say(json_line({"log": str(log), "rule": str(rule)}) if as_json else f"Written: {log} and {rule}")
        return
    import asyncio
    from dataclasses import asdict

    from chary.service.demo import show

    with _folder(out) as folder:
        found = asyncio.run(show(folder, lambda line: say(line, error=as_json), pace=pace))
        say(json_line(asdict(found)) if as_json else found.describe())
        if out is not None and not as_json:
            say(f"Kept: {folder}. Look with chary serve status {folder / 'ward'} and chary audit.")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Yield a folder for a deployment: the one that was given, or one that is removed at the end."""
    if out is None:
        with TemporaryDirectory() as draft:
            yield Path(draft)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidSetting(f"'out' must be new or empty, got {str(out)!r}. Choose another folder.")
    out.mkdir(parents=True, exist_ok=True)
    yield out


def _rehearse(
    *,
    directory: Directory,
    seconds: Annotated[
        float, typer.Option(help="For how long patients are admitted.", metavar="X")
    ] = SECONDS,
    mode: Annotated[
        str, typer.Option(help="The mode of the copy.", metavar="apprentice|budgeted|frozen|stopped")
    ] = "budgeted",
    habits: Annotated[Given, Options("chary.service.clinic:Habits")],
    as_json: Json = False,
) -> None:
    """Let a simulated clinic call a copy of a deployment.

    It measures, and says what would go wrong. The deployment itself is not touched. Patients are simulated by
    a problem resampled from its log. Half-way the process is killed and started again.
    """
    check_directory(directory)
    from chary.service.clinic import Habits
    from chary.service.rehearsal import rehearse

    with TemporaryDirectory() as folder:
        measured = rehearse(
            directory,
            Path(folder),
            Habits(**habits),
            seconds=seconds,
            mode=mode,
            say=lambda line: say(line, error=True),
        )
    say(json_line(measured.to_json()) if as_json else measured.describe())


COMMANDS: dict[str, Any] = {"rehearse": _rehearse, "demo": _demo}
