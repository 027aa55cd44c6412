"""Sources of logs as tables of columns: files and data frames, with names and labels of the user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary._workers import machine_memory
from chary.data._columns import COLUMNS, KINDS, OBSERVED, Fault, Places, as_ids, as_kind, as_labelled, worded
from chary.data._csv import COMMA, check_delimiter, csv_begun, csv_table
from chary.data._parquet import frame_column, interchanged, parquet_frame
from chary.data._seals import check_seal
from chary.errors import InvalidData, InvalidSetting, did_you_mean
from chary.storage.files import read_file
from chary.texts import shown

# Bytes of memory that a byte of a log may take while it is read: 14 were measured for rows of 21 characters.
MEMORY_PER_BYTE = 16

# The columns that may have labels, and where those of a state are used.
LABELLED = {"state": OBSERVED, "action": ("action",)}


class Table(ABC):
    """A source of columns. `columns` maps our names to those of the source, `labels` texts to numbers."""

    def __init__(
        self,
        name: str,
        header: Sequence[str],
        columns: Mapping[str, str] | None,
        labels: Mapping[str, Sequence[str]] | None,
    ) -> None:
        self.name, self.names = name, ()
        self.header = self._renamed(list(header), checked_names(columns))
        self._labels = {
            each: texts for column, texts in checked_labels(labels).items() for each in LABELLED[column]
        }

    names: tuple[str, ...]

    @abstractmethod
    def _read(self, kinds: Mapping[str, str], faults: list[Fault]) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return columns of these kinds by name, and the places of their entries; faults are collected."""

    def check_header(self, *, continuous: bool, ignore_extra: bool) -> int:
        """Raise InvalidData unless the columns are those of a log; return the number of dimensions."""
        dimensions = sum(name.startswith("state_") and name[6:].isdecimal() for name in self.header)
        if dimensions and "state" not in self.header and not continuous:
            raise InvalidData(
                f"{self.name!r} must have a column 'state', or be read with a discretiser, got "
                "'state_0' and none. Pass discretiser=Bins(...) or a Codebook (--discretiser FILE)."
            )
        if continuous and not dimensions:
            raise InvalidData(
                f"{self.name!r} must have columns 'state_0', 'state_1', ... to be discretised, got "
                f"{', '.join(map(repr, self.header[:9]))}. Leave the discretiser out."
            )
        wanted = list(COLUMNS)
        if continuous:
            wanted = [name for name in COLUMNS if name not in OBSERVED]
            wanted += [f"{name}_{d}" for name in OBSERVED for d in range(dimensions)]
        doubled = next((name for name in wanted if self.header.count(name) > 1), None)
        if doubled is not None:
            raise InvalidData(f"{self.name!r} must have every column once, got {doubled!r} twice in row 1.")
        extra = [name for name in self.header if name not in wanted]
        missing = [name for name in wanted if name not in self.header]
        if missing:
            raise InvalidData(
                f"{self.name!r} must have the columns {', '.join(wanted)}, got no "
                f"{', '.join(map(repr, missing))}."
                f"{did_you_mean(missing[0], extra) or self._other_name(missing[0], extra)}"
            )
        if extra and not ignore_extra:
            raise InvalidData(
                f"{self.name!r} must have the columns {', '.join(wanted)} alone, got {extra[0]!r} too."
                f"{did_you_mean(extra[0], wanted)} Pass ignore_extra=True (--ignore-extra) to ignore it."
            )
        return dimensions

    def read(self, kinds: Mapping[str, str]) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return columns by name, and the rows their entries come from, with all faults of their cells."""
        faults: list[Fault] = []
        wanted = {name: "any" if name in self._labels else kind for name, kind in kinds.items()}
        columns, places = self._read(wanted, faults)
        for name in kinds.keys() & self._labels.keys():
            columns[name] = as_labelled(name, columns[name], self._labels[name], places)
        if "episode" in columns:
            columns["episode"], self.names = as_ids("episode", columns["episode"], places)
        faults.sort(key=lambda fault: fault.rows[0])
        return columns, places

    def observations(self, others: Sequence[str], dimensions: int) -> tuple[dict[str, NDArray[Any]], Places]:
        """Return `state` and `next_state` as observations, (N, D), and some other columns, and the rows."""
        seen = {name: [f"{name}_{d}" for d in range(dimensions)] for name in OBSERVED}
        kinds = {name: KINDS[name] for name in others}
        columns, places = self.read(kinds | dict.fromkeys(chain(*seen.values()), "real"))
        for name, parts in seen.items():
            columns[name] = np.stack([columns.pop(each) for each in parts], axis=1)
        return columns, places

    def _renamed(self, header: list[str], columns: dict[str, str]) -> list[str]:
        """Return the header with our names for columns that are called otherwise."""
        for ours, theirs in columns.items():
            if theirs not in header:
                raise InvalidSetting(
                    f"'columns' must name columns of {self.name!r}, got {theirs!r} for {ours!r}."
                    f"{did_you_mean(theirs, header)}"
                )
            if ours != theirs and ours in header:
                raise InvalidSetting(
                    f"'columns' must leave one column for {ours!r}, got {theirs!r} and a column {ours!r} in "
                    f"{self.name!r}."
                )
        theirs_to_ours = {theirs: ours for ours, theirs in columns.items()}
        return [theirs_to_ours.get(name, name) for name in header]

    def _other_name(self, name: str, extra: Sequence[str]) -> str:
        """Return the way out where a column seems to be called otherwise."""
        if not extra:
            return ""
        return f" Is it called otherwise? Pass columns={{{name!r}: ...}} (--column {name}=...)."


@final
class FileTable(Table):
    """A CSV or Parquet file; without a delimiter the header of a CSV file tells which one it has."""

    def __init__(
        self,
        path: Path,
        columns: Mapping[str, str] | None,
        labels: Mapping[str, Sequence[str]] | None,
        delimiter: str | None = None,
    ) -> None:
        if delimiter is not None and check_delimiter(delimiter) != COMMA and path.suffix == ".parquet":
            raise InvalidSetting(
                f"'delimiter' must be left out for a Parquet file, got {delimiter!r} for {str(path)!r}."
            )
        self._path, content = path, read_file(path, largest=machine_memory() // MEMORY_PER_BYTE)
        check_seal(path, content)
        if not content:
            raise InvalidData(f"{str(path)!r} must contain at least one row, got an empty file.")
        self._frame: Any = None
        if path.suffix == ".parquet":
            self._frame = parquet_frame(path, content)
            header = list(self._frame.columns)
        else:
            header, self._rows = csv_begun(path, content, delimiter)
        super().__init__(str(path), header, columns, labels)

    def _read(self, kinds: Mapping[str, str], faults: list[Fault]) -> tuple[dict[str, NDArray[Any]], Places]:
        if self._frame is None:
            columns, rows = csv_table(self._path, self.header, self._rows, kinds, faults)
            return columns, Places(rows, "row", faults)
        return _of_frame(self.name, self._frame, self._frame.columns, self.header, kinds, faults)


@final
class FrameTable(Table):
    """A data frame of Polars, pandas or another library that has columns by name, or a dictionary of them."""

    def __init__(
        self, frame: Any, columns: Mapping[str, str] | None, labels: Mapping[str, Sequence[str]] | None
    ) -> None:
        # Polars, pandas and their like call them `columns`; Arrow calls them `column_names`.
        names = frame if isinstance(frame, Mapping) else getattr(frame, "column_names", None)
        names = getattr(frame, "columns", ()) if names is None else names
        if not isinstance(names, Iterable) or not list(names):
            frame = interchanged(frame)
            names = frame.columns
        self._frame, self._given = frame, list(names)
        header = [str(name) for name in self._given]
        super().__init__("frame", header, columns, labels)

    def _read(self, kinds: Mapping[str, str], faults: list[Fault]) -> tuple[dict[str, NDArray[Any]], Places]:
        return _of_frame(self.name, self._frame, self._given, self.header, kinds, faults)


def _of_frame(
    name: str,
    frame: Any,
    given: Sequence[Any],
    header: Sequence[str],
    kinds: Mapping[str, str],
    faults: list[Fault],
) -> tuple[dict[str, NDArray[Any]], Places]:
    """Return columns of a data frame, whose own names are `given` and ours `header`."""
    arrays = {each: frame_column(each, frame[given[header.index(each)]]) for each in kinds}
    size = len(next(iter(arrays.values())))
    if not size:
        raise InvalidData(f"{name!r} must contain at least one row, got 0.")
    for each, array in arrays.items():
        if len(array) != size:
            raise InvalidData(f"{each!r} must be as long as the other columns, {size}, got {len(array)}.")
    places = Places(np.arange(1, size + 1), "row", faults)
    columns = {
        each: array
        if kinds[each] in ("id", "any")
        else as_kind(kinds[each], each, _said(kinds[each], array), places)
        for each, array in arrays.items()
    }
    return columns, places


def _said(kind: str, column: NDArray[Any]) -> NDArray[Any]:
    return worded(column) if kind == "truth" else column


def checked_names(columns: object) -> dict[str, str]:
    """Return the user's names of columns by ours."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(
        isinstance(each, str) for pair in columns.items() for each in pair
    ):
        raise InvalidSetting(
            f"'columns' must map names of columns to those of the source, got {shown(columns)}. Example: "
            '{"episode": "patient"}.'
        )
    for ours in columns:
        stem = ours.rpartition("_")[0] if ours[-1:].isdecimal() else ours
        if stem not in COLUMNS:
            raise InvalidSetting(
                f"'columns' must map {', '.join(COLUMNS)}, got {ours!r}.{did_you_mean(ours, COLUMNS)}"
            )
    return dict(columns)


def checked_labels(labels: object) -> dict[str, tuple[str, ...]]:
    """Return the texts of states and actions in the order of their numbers."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not labels.keys() <= LABELLED.keys():
        raise InvalidSetting(
            f"'labels' must map state or action to lists of texts, got {shown(labels)}. Example: "
            '{"action": ["wait", "treat"]}.'
        )
    checked = {}
    for column, texts in labels.items():
        listed = () if isinstance(texts, str) else tuple(texts) if isinstance(texts, Sequence) else ()
        if not listed or not all(isinstance(text, str) and text.strip() == text != "" for text in listed):
            raise InvalidSetting(f"'labels' must list texts for {column!r}, got {shown(texts)}.")
        if len(set(listed)) < len(listed):
            doubled = next(text for text in listed if listed.count(text) > 1)
            raise InvalidSetting(f"'labels' must list every text of {column!r} once, got {doubled!r} twice.")
        checked[str(column)] = listed
    return checked
