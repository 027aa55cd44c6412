"""The commands of `chary audit`: check, replay and export the events of a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chary.cli.options import Overwrite
from chary.cli.serve_options import Directory, check_directory
from chary.cli.terminal import say
from chary.errors import check_integer
from chary.storage.files import write_new


def _export(
    *,
    directory: Directory,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, by default stdout.", metavar="FILE")
    ] = None,
    after: Annotated[int, typer.Option(help="Leave out the events up to this one.", metavar="N")] = 0,
    kind: Annotated[str | None, typer.Option(help="Only events of this kind.", metavar="NAME")] = None,
    episode: Annotated[str | None, typer.Option(help="Only events of this episode.", metavar="NAME")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the events as JSON lines, in order.

    Each has its hash. Names of episodes are not in them.
    """
    check_directory(directory)
    check_integer("after", after, minimum=0)
    from chary.service.summary import exported

    events = exported(directory, after=after, kind=kind, episode=episode)
    if out is None:
        for event in events:
            say(event)
        return
    write_new(out, lambda: "".join(f"{event}\n" for event in events).encode(), overwrite=overwrite)
    say(f"Written: {out}")


COMMANDS: dict[str, Any] = {"export": _export}
