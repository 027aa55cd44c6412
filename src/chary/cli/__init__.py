"""The command line: progress on stderr, results on stdout, one sentence and exit code 2 for invalid input.

Commands import what they need when they run, so that `chary --help` is fast.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn, cast

import typer

import chary
from chary.cli import audit, bench, calibrate, data, plan, run, serve, sweep
from chary.cli.options import command
from chary.cli.terminal import VisibleFormatter, fancy, say
from chary.errors import CharyError, check_choice
from chary.texts import clipped, visible

__all__ = ["app", "main"]

FAILED, MISTAKEN, INTERRUPTED = 1, 2, 130
# Errors of a stream that takes no more: a full or broken disk, or a stream that was closed.
REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
LOG_LEVELS = ("debug", "info", "warning", "error")

# Typer exports one error of its parser; its base class covers all of them. Its package depends on the version
# of Typer (click up to 0.2x, a copy of click since).
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

log = logging.getLogger("chary")

app = typer.Typer(name="chary", add_completion=False, pretty_exceptions_enable=False)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    _open_streams()
    app.rich_markup_mode = "rich" if fancy() else None
    command = typer.main.get_command(app)
    code: object = 0
    try:
        code = command.main(args=arguments, prog_name="chary", standalone_mode=False, obj=arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except CharyError as problem:
        code = _complain(str(problem), MISTAKEN)
    except UsageError as problem:
        code = _complain(cast("typer.BadParameter", problem).format_message(), MISTAKEN)
    except BrokenPipeError:
        _drop_output()
        code = FAILED
    except MemoryError:
        code = _complain(
            "the memory of this machine must suffice, which it does not. Use fewer episodes, chains (pool), "
            "states or workers.",
            MISTAKEN,
        )
    except Exception as problem:  # the one boundary: anything that arrives here is a defect of chary
        if isinstance(problem, OSError) and problem.errno in REFUSED:
            # Files of the user are checked where they are written: this is stdout.
            _drop_output()
            code = _complain(f"the output could not be written: {problem.strerror}.", FAILED)
        else:
            code = _complain_of_defect(problem)
    if code == INTERRUPTED:
        _complain("interrupted.", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _chary(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    log_level: Annotated[
        str, typer.Option(help="Lowest level of the messages on stderr.", metavar="debug|info|warning|error")
    ] = "warning",
) -> None:
    """Reinforcement learning with an exploration budget that every single episode keeps."""
    level = check_choice("log_level", log_level, LOG_LEVELS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(levelname)s %(name)s: %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())
    if version:
        say(f"chary {chary.__version__}")
    elif context.invoked_subcommand is None:
        say(context.get_help())


_commands = run.COMMANDS | calibrate.COMMANDS | bench.COMMANDS | sweep.COMMANDS | plan.COMMANDS
for _name, _function in _commands.items():
    command(app, _name, _function)
_parts = {
    "data": (data.COMMANDS, "Inspect logged decisions, convert and seal their files."),
    "serve": (serve.COMMANDS, "Decide over HTTP: make a deployment, serve it, operate it, rehearse it."),
    "audit": (audit.COMMANDS, "Check, replay and export the audit trail of a deployment."),
}
for _part, (_commands, _about) in _parts.items():
    _of_part = typer.Typer(help=_about)
    for _name, _function in _commands.items():
        command(_of_part, _name, _function)
    app.add_typer(_of_part, name=_part)


def _complain_of_defect(problem: Exception) -> int:
    if log.isEnabledFor(logging.DEBUG):
        traceback.print_exception(problem)
    return _complain(
        f"unexpected {type(problem).__name__}: {problem}. This is a defect of chary; "
        "rerun with --log-level debug to see where.",
        FAILED,
    )


def _open_streams() -> None:
    """Replace streams that were closed before chary started, for which Python has None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def _drop_output() -> None:
    """Send what is left to nowhere: without this, Python would report the error again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str, code: int) -> int:
    """Print one line on stderr and return the exit code."""
    say(f"chary: {clipped(visible(' '.join(sentence.split())))}", error=True)
    return code
