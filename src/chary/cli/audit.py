"""The commands of `chary audit`: check, replay and export the events of a deployment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli.options import Json, Overwrite
from chary.cli.serve_options import Directory, check_directory
from chary.cli.terminal import progress, say
from chary.errors import check_integer
from chary.storage.files import as_json as json_line
from chary.storage.files import write_new

if TYPE_CHECKING:
    from chary.service.findings import Findings

# The exit code where something was found: the command worked, and the deployment is not as it must be.
FOUND = 1


def _verify(
    *,
    directory: Directory,
    head: Annotated[
        str | None,
        typer.Option(help="A head that was published: the trail must contain it.", metavar="HASH"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every event, the chain, and all that follows from them.

    It works beside a running service. The last line names the head of the chain: write it down where nobody
    who can write the database can change it. The exit code is 1 where something was found.
    """
    check_directory(directory)
    from chary.service.verify import verify

    _tell(verify(directory, head=head), as_json=as_json)


def _replay(
    *,
    directory: Directory,
    upto: Annotated[int | None, typer.Option(help="The last event to look at.", metavar="N")] = None,
    as_json: Json = False,
) -> None:
    """Decide all that was decided again, and compare it bit for bit.

    It works beside a running service, and needs the versions of chary, NumPy and Numba that decided. The exit
    code is 1 where something was found.
    """
    check_directory(directory)
    if upto is not None:
        check_integer("upto", upto, minimum=1)
    from chary.service.replay import replay
    from chary.service.summary import last_event

    events = last_event(directory) if upto is None else upto
    with progress() as bar:
        report = bar(f"replaying {directory}")
        found = replay(directory, upto=upto, progress=lambda done: report(done, events))
    _tell(found, as_json=as_json)


def _tell(found: Findings, *, as_json: bool) -> None:
    if as_json:
        plain = asdict(found) | {"found": [each._asdict() for each in found.found], "whole": found.is_whole}
        say(json_line(plain))
    else:
        for each in found.found:
            say(each.message)
        for where, more in found.more.items():
            say(f"and {more:,} more about {where}.")
        say(found.describe())
    if not found.is_whole:
        raise typer.Exit(FOUND)


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


COMMANDS: dict[str, Any] = {"verify": _verify, "replay": _replay, "export": _export}
