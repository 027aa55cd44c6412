"""Logs as files: CSV by the standard library, Parquet by Polars; both are read back exactly."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Bools, Floats
from chary.data._agreement import check_known
from chary.data._columns import (
    COLUMNS,
    KINDS,
    Places,
    check_first_step,
    check_steps,
    from_zero,
    refusal,
    sorted_order,
)
from chary.data._csv import check_delimiter
from chary.data._parquet import parquet_bytes
from chary.data._seals import seal_of, write_seal
from chary.data._tables import FileTable, Table
from chary.data.discretise import Discretiser, discretise
from chary.data.logs import Dropped, Known, Log, LogColumns, check_log
from chary.errors import InvalidSetting
from chary.storage.files import as_path, write_new

SUFFIXES = (".csv", ".parquet")


def read_log(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    discretiser: Discretiser | None = None,
    delimiter: str = ",",
    first_step: int = 0,
    ignore_extra: bool = False,
    drop_bad_episodes: bool = False,
    **known: Unpack[Known],
) -> Log:
    """Read a log from a .csv or .parquet file with one row per transition, in any order.

    The columns are `episode, t, state, action, reward, next_state, terminated`, in any order. Where
    observations are continuous, `state_0, state_1, ...` and `next_state_0, ...` stand for `state` and
    `next_state`; a discretiser turns them into states, and steps that terminated lead to state
    `discretiser.n_states`, which nothing else uses. Rows are numbered as in a spreadsheet: the header of a
    CSV file is row 1; a Parquet file has none, and its first row is row 1. A byte-order mark of UTF-8 at the
    beginning is accepted, any other is not.

    Args:
        path: The file, which ends in `.csv` or `.parquet`. Parquet needs `pip install 'chary[report]'`.
        columns: The names of columns in the file that are called otherwise: `{"episode": "patient"}`.
        labels: The texts of `state` (and `next_state`) or `action` in the order of their numbers, where the
            file has texts: `{"action": ["wait", "treat"]}`.
        discretiser: A function from observations to states.
        delimiter: What is between the cells of a CSV file: a comma, a semicolon, a tab or a bar. Numbers
            have a decimal point in all of them.
        first_step: The number of every episode's first step in the file, 0 or 1; in the log it is 0.
        ignore_extra: Whether other columns are ignored; otherwise they are an error.
        drop_bad_episodes: Whether episodes with missing or unreadable values, or steps that do not follow
            from each other, are left out, see `Log.dropped`. Values that contradict what is known about the
            problem are an error all the same: leaving them out would select by outcome.
        **known: `setting`, or `reward_range`, `n_states` and `n_actions`, see `Log.checked`.

    Raises:
        InvalidLog: naming the first invalid row and where the others are; its `faults` lists all.
        InvalidData: if the file cannot be read, or is not as it was sealed (`seal_log`).
        InvalidSetting: if the file does not fit these options.
    """
    return log_of_table(
        FileTable(_as_path(path), columns, labels, check_delimiter(delimiter)),
        discretiser=discretiser,
        first_step=first_step,
        ignore_extra=ignore_extra,
        drop_bad_episodes=drop_bad_episodes,
        known=known,
    )


def log_of_table(
    table: Table,
    *,
    discretiser: Discretiser | None,
    first_step: int,
    ignore_extra: bool,
    drop_bad_episodes: bool,
    known: Known,
) -> Log:
    """Return the log in a table, see `read_log`."""
    first = check_first_step(first_step)
    dimensions = table.check_header(continuous=discretiser is not None, ignore_extra=ignore_extra)
    if discretiser is None:
        columns, places = table.read(KINDS)
    else:
        columns, places = table.observations(("episode", "t", "action", "reward", "terminated"), dimensions)
        discretise(discretiser, columns, places)
    columns["t"] = from_zero(columns["t"], first, places)
    episode, faults = columns["episode"], places.faults
    assert faults is not None
    certain = all(fault.column != "episode" for fault in faults)
    # Episodes with faults in their cells would look broken, too: their steps are not compared.
    good = ~np.isin(episode, episode[places.faulty()])
    part, here = _sorted(columns, places.among(good)._replace(faults=[]), good)
    check_steps(part, here, first)
    faults += here.faults or ()
    good &= ~np.isin(episode, episode[places.faulty()])
    if faults and not (drop_bad_episodes and certain and good.any()):
        if drop_bad_episodes and certain:
            # No episode is left: what is wrong in most rows comes first.
            faults.sort(key=lambda fault: len(fault.rows), reverse=True)
        raise refusal(faults)
    dropped = None
    if faults:
        dropped = Dropped(len(np.unique(episode[~good])), int((~good).sum()), tuple(faults))
    part, here = _sorted(columns, places.among(good)._replace(faults=[]), good)
    read = Log(
        **cast("LogColumns", part),
        row=here.number,
        unit=here.unit,
        discretised=discretiser is not None,
        names=table.names,
        dropped=dropped,
    )
    check_known(read, here, **known)
    if here.faults:
        raise refusal(here.faults)
    return read


def _sorted(
    columns: dict[str, NDArray[Any]], places: Places, kept: Bools
) -> tuple[dict[str, NDArray[Any]], Places]:
    """Return the entries kept by episode and step, and the places they came from."""
    part = {name: column[kept] for name, column in columns.items()}
    order = sorted_order(part["episode"], part["t"])
    if order is None:
        return part, places
    return {name: column[order] for name, column in part.items()}, places.among(order)


def read_observations(path: str | Path, *, delimiter: str = ",") -> Floats:
    """Return the observations of a file with columns `state_0, ...`, (N, D), to fit a discretiser to.

    They are the observations at which an action was played, by episode and step, and then the last one of
    every episode; other columns are ignored. `delimiter` is that of `read_log`.

    Raises:
        InvalidLog: naming the first invalid row and where the others are.
    """
    table = FileTable(_as_path(path), {}, {}, check_delimiter(delimiter))
    dimensions = table.check_header(continuous=True, ignore_extra=True)
    columns, places = table.observations(("episode", "t"), dimensions)
    if places.faults:
        raise refusal(places.faults)
    columns, _ = _sorted(columns, places, np.ones(len(columns["t"]), dtype=bool))
    last = np.append(columns["episode"][1:] != columns["episode"][:-1], True)
    return np.concatenate([columns["state"], columns["next_state"][last]])


def write_log(log: Log, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a log as .csv or .parquet, the whole file or nothing.

    Floats are written with enough digits to be read back exactly, booleans in CSV as 0 and 1, and episodes by
    their names if they have any.

    Raises:
        InvalidSetting: if the file exists, has another suffix, or cannot be written.
    """
    check_log(log)
    target = _as_path(path)
    if seal_of(target).exists():
        raise InvalidSetting(
            f"'path' must not be sealed, got {str(target)!r}. Remove {seal_of(target).name!r} first."
        )
    columns: dict[str, NDArray[Any]] = log.columns()
    if log.names:
        columns["episode"] = np.array(log.names, dtype=object)[log.episode]
    content = parquet_bytes(columns) if target.suffix == ".parquet" else _csv(columns)
    write_new(target, content, overwrite=overwrite)


def seal_log(path: str | Path, *, overwrite: bool = False) -> Path:
    """Seal a log as it is: write its checksum to a file next to it, which `read_log` compares from then on.

    Where a key is set, the seal is made with it, see docs/reliability.md. Return the path of the seal, which
    is that of the log and `.seal`.

    Raises:
        InvalidData: if the log cannot be read.
        InvalidSetting: if it is sealed already, or the seal cannot be written.
    """
    return write_seal(_as_path(path), overwrite=overwrite)


def _as_path(path: str | Path) -> Path:
    file = as_path("path", path)
    if file.suffix not in SUFFIXES:
        raise InvalidSetting(f"'path' must end in {' or '.join(SUFFIXES)}, got {str(file)!r}.")
    return file


def _csv(columns: Mapping[str, NDArray[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    # tolist: Python's floats are written with enough digits to be read back exactly.
    cells = [
        (column.astype(np.int8) if column.dtype == bool else column).tolist() for column in columns.values()
    ]
    writer.writerows(zip(*cells, strict=True))
    return text.getvalue().encode()
