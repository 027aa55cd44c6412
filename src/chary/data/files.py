"""Logs as files: CSV by the standard library, Parquet by Polars; both are read back exactly."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.data._columns import COLUMNS, KINDS, OBSERVED, Places, sorted_order
from chary.data._csv import csv_begun, csv_table
from chary.data._parquet import parquet_bytes, parquet_column, parquet_frame
from chary.data.discretise import Discretiser, discretise
from chary.data.logs import Known, Log, check_log
from chary.errors import InvalidData, InvalidSetting, did_you_mean
from chary.storage.files import as_path, read_file, write_new

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".parquet")


def read_log(
    path: str | Path,
    *,
    discretiser: Discretiser | None = None,
    ignore_extra: bool = False,
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
        discretiser: A function from observations to states.
        ignore_extra: Whether other columns are ignored; otherwise they are an error.
        **known: `setting`, or `reward_range`, `n_states` and `n_actions`, see `Log.checked`.

    Raises:
        InvalidData: naming the first invalid row and the number of others.
        InvalidSetting: if the file does not fit these options.
    """
    table = _Table(_as_path(path))
    dimensions = table.check_header(continuous=discretiser is not None, ignore_extra=ignore_extra)
    if discretiser is None:
        columns, places = table.read(KINDS)
    else:
        columns, places = table.observations(("episode", "t", "action", "reward", "terminated"), dimensions)
        discretise(discretiser, columns, places)
    cells = discretiser is not None
    return Log(**columns, row=places.number, unit=places.unit, discretised=cells).checked(**known)


def read_observations(path: str | Path) -> Floats:
    """Return the observations of a file with columns `state_0, ...`, (N, D), to fit a discretiser to.

    They are the observations at which an action was played, by episode and step, and then the last one of
    every episode; other columns are ignored.

    Raises:
        InvalidData: naming the first invalid row and the number of others.
    """
    table = _Table(_as_path(path))
    dimensions = table.check_header(continuous=True, ignore_extra=True)
    columns, _ = table.observations(("episode", "t"), dimensions)
    order = sorted_order(columns["episode"], columns["t"])
    if order is not None:
        columns = {name: column[order] for name, column in columns.items()}
    last = np.append(columns["episode"][1:] != columns["episode"][:-1], True)
    return np.concatenate([columns["state"], columns["next_state"][last]])


def write_log(log: Log, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a log as .csv or .parquet, the whole file or nothing.

    Floats are written with enough digits to be read back exactly, booleans in CSV as 0 and 1.

    Raises:
        InvalidSetting: if the file exists, has another suffix, or cannot be written.
    """
    check_log(log)
    target = _as_path(path)
    content = parquet_bytes(log.columns()) if target.suffix == ".parquet" else _csv(log)
    write_new(target, content, overwrite=overwrite)


class _Table:
    """A file of columns, CSV or Parquet."""

    def __init__(self, path: Path) -> None:
        self._path, content = path, read_file(path)
        self._frame: pl.DataFrame | None = None
        if not content:
            raise InvalidData(f"{str(path)!r} must contain at least one row, got an empty file.")
        if path.suffix == ".parquet":
            self._frame = parquet_frame(path, content)
            self.header = self._frame.columns
        else:
            self.header, self._rows = csv_begun(path, content)

    def check_header(self, *, continuous: bool, ignore_extra: bool) -> int:
        """Raise InvalidData unless the columns are those of a log; return the number of dimensions."""
        dimensions = sum(name.startswith("state_") and name[6:].isdecimal() for name in self.header)
        if dimensions and "state" not in self.header and not continuous:
            raise InvalidData(
                f"{str(self._path)!r} must have a column 'state', or be read with a discretiser, got "
                "'state_0' and none. Pass discretiser=Bins(...) or a Codebook (--discretiser FILE)."
            )
        if continuous and not dimensions:
            raise InvalidData(
                f"{str(self._path)!r} must have columns 'state_0', 'state_1', ... to be discretised, got "
                f"{', '.join(map(repr, self.header[:9]))}. Leave the discretiser out."
            )
        wanted = list(COLUMNS)
        if continuous:
            wanted = [name for name in COLUMNS if name not in OBSERVED]
            wanted += [f"{name}_{d}" for name in OBSERVED for d in range(dimensions)]
        doubled = next((name for name in wanted if self.header.count(name) > 1), None)
        if doubled is not None:
            raise InvalidData(
                f"{str(self._path)!r} must have every column once, got {doubled!r} twice in row 1."
            )
        extra = [name for name in self.header if name not in wanted]
        for name in wanted:
            if name not in self.header:
                raise InvalidData(
                    f"{str(self._path)!r} must have the columns {', '.join(wanted)}, got no {name!r}."
                    f"{did_you_mean(name, extra)}"
                )
        if extra and not ignore_extra:
            raise InvalidData(
                f"{str(self._path)!r} must have the columns {', '.join(wanted)} alone, got {extra[0]!r} too."
                f"{did_you_mean(extra[0], wanted)} Pass ignore_extra=True (--ignore-extra) to ignore it."
            )
        return dimensions

    def observations(self, others: Sequence[str], dimensions: int) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return `state` and `next_state` as observations, (N, D), and some other columns, and the rows."""
        seen = {name: [f"{name}_{d}" for d in range(dimensions)] for name in OBSERVED}
        kinds = {name: KINDS[name] for name in others}
        columns, places = self.read(kinds | dict.fromkeys(chain(*seen.values()), "real"))
        for name, parts in seen.items():
            columns[name] = np.stack([columns.pop(each) for each in parts], axis=1)
        return columns, places

    def read(self, kinds: dict[str, str]) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return columns by name, and the rows their entries come from."""
        if self._frame is None:
            columns, rows = csv_table(self._path, self.header, self._rows, kinds)
            return columns, Places(rows, "row")
        places = Places(np.arange(1, self._frame.height + 1), "row")
        if not self._frame.height:
            raise InvalidData(f"{str(self._path)!r} must contain at least one row, got 0.")
        return {name: parquet_column(self._frame, name, kind, places) for name, kind in kinds.items()}, places


def _as_path(path: str | Path) -> Path:
    file = as_path("path", path)
    if file.suffix not in SUFFIXES:
        raise InvalidSetting(f"'path' must end in {' or '.join(SUFFIXES)}, got {str(file)!r}.")
    return file


def _csv(log: Log) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    # tolist: Python's floats are written with enough digits to be read back exactly.
    cells = [
        (column.astype(np.int8) if column.dtype == bool else column).tolist()
        for column in log.columns().values()
    ]
    writer.writerows(zip(*cells, strict=True))
    return text.getvalue().encode()
