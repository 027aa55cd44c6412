"""The commands of `chary serve`: make a deployment, serve it, operate it, and rehearse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chary.cli import serve_clinic, serve_init, serve_operate
from chary.cli.serve_options import Directory, check_directory
from chary.cli.terminal import say

# As in `chary.service.hosting`, which the help does not import.
PORT = 8750


def _run(
    *,
    directory: Directory,
    host: Annotated[
        str,
        typer.Option(help="The address to listen at; others than this machine need TLS.", metavar="ADDRESS"),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes one that is free, and prints it.", metavar="N")
    ] = PORT,
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate chain for TLS, in PEM.", metavar="FILE")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The private key for TLS, in PEM, by default in the same file.", metavar="FILE"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen at other addresses without TLS: behind a proxy that ends it, and nowhere else.",
        ),
    ] = False,
) -> None:
    """Serve a deployment until SIGTERM or Ctrl-C.

    Every answer is on the disk before it leaves.
    """
    check_directory(directory)
    from chary.service.hosting import serve
    from chary.service.local import announced

    with announced(directory) as announce:

        def ready(url: str) -> None:
            announce(url, certificate)
            say(f"Serving {directory} at {url}. Stop with Ctrl-C or SIGTERM; look with chary serve status.")

        code = serve(
            directory,
            host=host,
            port=port,
            certificate=certificate,
            key=key,
            insecure=insecure,
            on_ready=ready,
        )
    raise typer.Exit(code)


COMMANDS: dict[str, Any] = {
    "init": serve_init.init,
    "run": _run,
    **serve_operate.COMMANDS,
    **serve_clinic.COMMANDS,
}
