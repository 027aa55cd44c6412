"""The commands for logged data: inspect, convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chary.cli.options import Json, Overwrite, count

if TYPE_CHECKING:
    from chary.data import Log
    from chary.mdp.setting import Setting

__all__ = ["add_data_commands"]

# A table of this many pairs still fits into memory.
MOST_PAIRS = 10**8

File = Annotated[
    Path, typer.Argument(help="A log, .csv or .parquet, with one row a transition.", show_default=False)
]
DiscretiserFile = Annotated[
    Path | None,
    typer.Option(help="A saved discretiser, for files with columns state_0, state_1, ...", metavar="FILE"),
]
IgnoreExtra = Annotated[bool, typer.Option("--ignore-extra", help="Leave other columns aside.")]


def add_data_commands(app: typer.Typer) -> None:
    """Give the command line its commands for logged data."""
    commands = typer.Typer(help="Look into logged decisions, and turn one kind of file into the other.")
    commands.command("inspect")(_inspect)
    commands.command("convert")(_convert)
    app.add_typer(commands, name="data")


def _inspect(
    file: File,
    horizon: Annotated[int | None, count("Steps of an episode; the longest seen by default.")] = None,
    states: Annotated[int | None, count("The number of states; those seen by default.")] = None,
    actions: Annotated[int | None, count("The number of actions; those seen by default.")] = None,
    discretiser: DiscretiserFile = None,
    ignore_extra: IgnoreExtra = False,
    as_json: Json = False,
) -> None:
    """Show what a log holds: counts, coverage of state-action pairs, lengths, rewards, suspicious rows."""
    from chary.data import inspect
    from chary.storage.files import as_json as json_line

    log = _read(file, discretiser, ignore_extra)
    found = inspect(log, _setting(log, horizon, states, actions))
    print(json_line(found.to_json()) if as_json else found.describe())


def _convert(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A log, .csv or .parquet.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write, .csv or .parquet.", show_default=False)
    ],
    discretiser: DiscretiserFile = None,
    ignore_extra: IgnoreExtra = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Check a log and write it again, sorted, as CSV or Parquet."""
    from chary.data import write_log
    from chary.storage.files import as_json as json_line

    log = _read(source, discretiser, ignore_extra)
    write_log(log, target, overwrite=overwrite)
    if as_json:
        written = {"path": str(target), "episodes": log.n_episodes, "transitions": log.n_transitions}
        print(json_line(written))
    else:
        print(f"{log.n_transitions} transitions of {log.n_episodes} episodes: {target}")


def _read(file: Path, discretiser: Path | None, ignore_extra: bool) -> Log:
    from chary.data import load_discretiser, read_log

    saved = None if discretiser is None else load_discretiser(discretiser)
    return read_log(file, discretiser=saved, ignore_extra=ignore_extra)


def _setting(log: Log, horizon: int | None, states: int | None, actions: int | None) -> Setting | None:
    """Return the setting that the options describe, what is left out taken from the log; None without any."""
    if (horizon, states, actions) == (None, None, None):
        return None
    from chary.errors import InvalidSetting, check_integer
    from chary.mdp.setting import RewardScale, Setting

    def said(name: str, asked: int | None, seen: int) -> int:
        return seen if asked is None else check_integer(name, asked, minimum=1)

    S, A = said("states", states, log.n_states), said("actions", actions, log.n_actions)
    if S * A > MOST_PAIRS:
        raise InvalidSetting(
            f"'states' times 'actions' must not exceed {MOST_PAIRS}, got {S} and {A}. Number states from 0."
        )
    # Nothing is known of the rewards but those seen: none is out of range.
    low, high = float(log.reward.min()), float(log.reward.max())
    scale = RewardScale(low, high if high > low else low + max(1.0, abs(low)))
    H = said("horizon", horizon, log.horizon)
    return Setting.declare(n_states=S, n_actions=A, horizon=H, scale=scale)
