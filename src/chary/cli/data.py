"""The commands for logged data: inspect, convert, seal."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli.options import Json, Overwrite
from chary.cli.terminal import say
from chary.errors import InvalidLog
from chary.storage.files import as_json as json_line

if TYPE_CHECKING:
    from chary.data import Log
    from chary.mdp.setting import Setting

# A table of this many pairs still fits into memory.
MOST_PAIRS = 10**8

# The most faulty rows that a terminal shows.
MOST_LINES = 100

LogFile = Annotated[
    Path, typer.Argument(help="A log, .csv or .parquet, with one row per transition.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading a log.

    Args:
        column: A column of the file that is called otherwise, such as episode=patient; repeat for more.
        label: The texts of state or action in the order of their numbers, such as action=wait,treat; a text
            with a comma is in double quotes.
        discretiser: A saved discretiser, for files with columns state_0, state_1 and so on.
        delimiter: What is between the cells of a CSV file, such as ";".
        first_step: The number of every episode's first step in the file, 0 or 1.
        ignore_extra: Ignore all other columns.
        drop_bad_episodes: Leave out episodes with missing or unreadable values or steps, and say which.
        cut_at_horizon: Take endings at the last step of the longest episodes for cuts by the clock.
    """

    column: Annotated[Sequence[str], "OURS=THEIRS"] = ()
    label: Annotated[Sequence[str], "COLUMN=TEXT,..."] = ()
    discretiser: Path | None = None
    delimiter: Annotated[str, "CHARACTER"] = ","
    first_step: int = 0
    ignore_extra: bool = False
    drop_bad_episodes: bool = False
    cut_at_horizon: bool = False

    def labels(self) -> dict[str, list[str]]:
        """Return the texts of states and actions."""
        texts = _assignments("label", self.label)
        return {name: _listed(value) for name, value in texts.items()}

    def columns(self) -> dict[str, str]:
        """Return the names of columns by ours."""
        return _assignments("column", self.column)

    def given(self) -> dict[str, Any]:
        """Return the options of `chary.data.read_log` that were given."""
        told = {"columns": self.columns(), "labels": self.labels()}
        flags = {name: getattr(self, name) for name in ("first_step", "ignore_extra", "drop_bad_episodes")}
        given = {name: value for name, value in (told | flags).items() if value}
        return given if self.delimiter == "," else {**given, "delimiter": self.delimiter}

    def arguments(self) -> list[str]:
        """Return them as arguments of a command."""
        words = [word for each in self.column for word in ("--column", each)]
        words += [word for each in self.label for word in ("--label", each)]
        words += [] if self.discretiser is None else ["--discretiser", str(self.discretiser)]
        words += [] if self.delimiter == "," else ["--delimiter", self.delimiter]
        words += ["--first-step", str(self.first_step)] if self.first_step else []
        flags = ("ignore_extra", "drop_bad_episodes", "cut_at_horizon")
        return words + [f"--{name.replace('_', '-')}" for name in flags if getattr(self, name)]

    def read(self, file: Path) -> Log:
        """Return the log in a file."""
        from chary.data import load_discretiser, read_log

        saved = None if self.discretiser is None else load_discretiser(self.discretiser)
        log = read_log(
            file,
            columns=self.columns(),
            labels=self.labels(),
            discretiser=saved,
            delimiter=self.delimiter,
            first_step=self.first_step,
            ignore_extra=self.ignore_extra,
            drop_bad_episodes=self.drop_bad_episodes,
        )
        if log.dropped is not None:
            say(log.dropped.describe(), error=True)
        return log.cut_at() if self.cut_at_horizon else log


def _listed(texts: str) -> list[str]:
    """Return texts that are separated by commas, those that contain one in double quotes.

    Example:
        >>> _listed('wait, treat'), _listed('"new, tired","new, fresh"')
        (['wait', 'treat'], ['new, tired', 'new, fresh'])
    """
    (row,) = csv.reader([texts.replace("\n", " ").replace("\r", " ")], skipinitialspace=True)
    return [text.strip() for text in row]


def _assignments(option: str, given: Sequence[str]) -> dict[str, str]:
    """Return what options of the form NAME=VALUE say."""
    from chary.errors import InvalidSetting

    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise InvalidSetting(f"'{option}' must have the form NAME=VALUE, got {each!r}.")
        if name in found:
            raise InvalidSetting(f"'{option}' must name {name!r} once, got it twice.")
        found[name] = value
    return found


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


def _inspect(
    *,
    file: LogFile,
    sizes: Sizes,
    options: ReadOptions,
    faults: Annotated[bool, typer.Option("--faults", help="List every faulty row of a log.")] = False,
    as_json: Json = False,
) -> None:
    """Summarise a log: counts, coverage of state-action pairs, lengths, rewards, suspicious rows."""
    from chary.data import inspect

    try:
        log = options.read(file)
    except InvalidLog as problem:
        if faults:
            _list(problem, as_json=as_json)
        raise
    found = inspect(log, sizes.setting(log))
    say(json_line(found.to_json()) if as_json else found.describe(options.labels()))


def _list(problem: InvalidLog, *, as_json: bool) -> None:
    """Print every faulty row of a log."""
    if as_json:
        say(json_line({"faults": [fault._asdict() for fault in problem.faults]}))
        return
    lines = [line for fault in problem.faults for line in fault.lines(MOST_LINES)]
    say("\n".join(lines[:MOST_LINES]))
    rest = sum(len(fault.rows) for fault in problem.faults) - len(lines[:MOST_LINES])
    if rest:
        say(f"and {rest} more; --json lists all.")


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
        say(json_line(written))
    else:
        say(f"{log.n_transitions} transitions of {log.n_episodes} episodes: {target}")


def _seal(*, file: LogFile, overwrite: Overwrite = False, as_json: Json = False) -> None:
    """Seal a log as it is: write its checksum to FILE.seal, which is compared whenever the log is read.

    With CHARY_SEAL_KEY set, the seal is made with that key.
    """
    from chary.data import seal_log

    seal = seal_log(file, overwrite=overwrite)
    say(json_line({"path": str(file), "seal": str(seal)}) if as_json else f"Seal: {seal}")


COMMANDS = {"inspect": _inspect, "convert": _convert, "seal": _seal}
