"""The commands for logged data: inspect, convert."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chary.cli.options import Json, Overwrite
from chary.storage.files import as_json as json_line

if TYPE_CHECKING:
    from chary.data import Log
    from chary.mdp.setting import Setting

# A table of this many pairs still fits into memory.
MOST_PAIRS = 10**8

LogFile = Annotated[
    Path, typer.Argument(help="A log, .csv or .parquet, with one row per transition.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading a log.

    Args:
        discretiser: A saved discretiser, for files with columns state_0, state_1 and so on.
        ignore_extra: Ignore all other columns.
    """

    discretiser: Path | None = None
    ignore_extra: bool = False

    def read(self, file: Path) -> Log:
        """Return the log in a file."""
        from chary.data import load_discretiser, read_log

        saved = None if self.discretiser is None else load_discretiser(self.discretiser)
        return read_log(file, discretiser=saved, ignore_extra=self.ignore_extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of the problem that a log comes from; what is left out is read off the log.

    Args:
        horizon: Number of steps per episode, by default that of the longest one seen.
        states: Number of states, by default those seen.
        actions: Number of actions, by default those seen.
    """

    horizon: int | None = None
    states: int | None = None
    actions: int | None = None

    def setting(self, log: Log) -> Setting | None:
        """Return the setting of a log, None where no size was given."""
        if self == Sizes():
            return None
        from chary.errors import InvalidSetting, check_integer
        from chary.mdp.setting import RewardScale, Setting

        seen = {"horizon": log.horizon, "states": log.n_states, "actions": log.n_actions}
        H, S, A = (
            number if (asked := getattr(self, name)) is None else check_integer(name, asked, minimum=1)
            for name, number in seen.items()
        )
        if S * A > MOST_PAIRS:
            raise InvalidSetting(
                f"'states' times 'actions' must not exceed {MOST_PAIRS}, got {S} and {A}. "
                "Number states from 0."
            )
        # The range of rewards is that of the log: none is out of range.
        low, high = float(log.reward.min()), float(log.reward.max())
        scale = RewardScale(low, high if high > low else low + max(1.0, abs(low)))
        return Setting.declare(n_states=S, n_actions=A, horizon=H, scale=scale)


def _inspect(*, file: LogFile, sizes: Sizes, options: ReadOptions, as_json: Json = False) -> None:
    """Summarise a log: counts, coverage of state-action pairs, lengths, rewards, suspicious rows."""
    from chary.data import inspect

    log = options.read(file)
    found = inspect(log, sizes.setting(log))
    print(json_line(found.to_json()) if as_json else found.describe())


def _convert(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A log, .csv or .parquet.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write, .csv or .parquet.", show_default=False)
    ],
    options: ReadOptions,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Check a log and write it again, sorted, as CSV or Parquet."""
    from chary.data import write_log

    log = options.read(source)
    write_log(log, target, overwrite=overwrite)
    if as_json:
        written = {"path": str(target), "episodes": log.n_episodes, "transitions": log.n_transitions}
        print(json_line(written))
    else:
        print(f"{log.n_transitions} transitions of {log.n_episodes} episodes: {target}")


COMMANDS = {"inspect": _inspect, "convert": _convert}
