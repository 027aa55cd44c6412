"""Columns of CSV files: texts are read exactly, and an error names the first invalid cell with its row."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.data._columns import (
    LABELS_TOLD,
    MEND_MISSING,
    MISSING,
    RULES,
    VALUES_KEPT,
    Fault,
    list_labels,
    shown,
    style_of,
    text_of,
    where,
)
from chary.errors import LARGEST, InvalidData, InvalidSetting

# Rows turned into arrays at a time: a million rows as texts would take half a gigabyte.
CHUNK = 1 << 12
MARK = "\ufeff"
# The longer ones first: the mark of UTF-16 is the beginning of that of UTF-32.
OTHER_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Python's int would accept 1_000 and digits of every script.
WHOLE_TEXT = re.compile(r"\+?([0-9]{1,19})(?:\.0*)?")
REAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
ALL_DIGITS = re.compile(r"[0-9\n]*")
ALL_REALS = re.compile(r"[-+.0-9eE\n]*")
SAFE_DIGITS = 18
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
# What may be between the cells of a row.
COMMA = ","
NAMED = {COMMA: "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def csv_table(
    path: Path,
    header: Sequence[str],
    reader: Iterator[list[str]],
    kinds: Mapping[str, str],
    faults: list[Fault],
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Return the requested columns and the row of each entry; the header is row 1.

    Invalid cells are added to `faults` and read as 0.

    Args:
        path: The file, for the messages.
        header: The names of its columns.
        reader: Its rows, see `csv_begun`.
        kinds: `whole`, `real` or `truth` for each column; `any` is a text, `id` a whole number
            or, if its first cell is something else, a text.
        faults: Where faults are collected.

    Raises:
        InvalidData: at the first row of another length.
    """
    columns = {name: _Column(name, kind) for name, kind in kinds.items()}
    index = [header.index(name) for name in kinds]
    rows = _filled(path, reader)
    ragged, first_ragged = 0, (0, 0)
    numbers: list[NDArray[np.int64]] = []
    number = 2
    while True:
        chunk = list(islice(rows, CHUNK))
        if not chunk:
            break
        here = np.arange(number, number + len(chunk))
        number += len(chunk)
        if set(map(len, chunk)) != {len(header)}:
            uneven = [i for i, row in enumerate(chunk) if len(row) != len(header)]
            if not ragged:
                first_ragged = (int(here[uneven[0]]), len(chunk[uneven[0]]))
            ragged += len(uneven)
            continue
        numbers.append(here)
        cells = list(zip(*chunk, strict=True))
        for column, at in zip(columns.values(), index, strict=True):
            column.take(cells[at], here)
    if ragged:
        raise InvalidData(
            f"{str(path)!r} must have {len(header)} cells in every row, as in its header, got "
            f"{first_ragged[1]} in {where('row', first_ragged[0], ragged - 1)}."
        )
    if number == 2:
        raise InvalidData(f"{str(path)!r} must contain at least one row below its header, got 0.")
    faults += [column.fault() for column in columns.values() if column.wrong]
    return {name: column.values() for name, column in columns.items()}, np.concatenate(numbers)


def _filled(path: Path, reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield rows without the blank lines at the end; others are rows without cells."""
    number, blank = 1, 0
    try:
        for row in reader:
            number += 1
            if not row:
                blank += 1
                continue
            if blank:
                yield from ([] for _ in range(blank))
                blank = 0
            yield row
    except csv.Error as problem:
        raise InvalidData(
            f"{str(path)!r} must be CSV, got unreadable text in row {number + 1}: {problem}."
        ) from problem


def csv_begun(path: Path, content: bytes, delimiter: str | None) -> tuple[list[str], Iterator[list[str]]]:
    """Return the header and a reader of what follows; without a delimiter the header tells which it is."""
    for mark, encoding in OTHER_ENCODINGS.items():
        if content.startswith(mark):
            raise InvalidData(
                f"{str(path)!r} must be text in UTF-8, got the byte-order mark of {encoding} in row 1. "
                "Save it as UTF-8."
            )
    try:
        # Excel writes a mark before UTF-8; it is harmless there, and nowhere else.
        content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        row = 1 + content.count(b"\n", 0, problem.start)
        raise InvalidData(
            f"{str(path)!r} must be text in UTF-8, got the byte {content[problem.start]:#04x} in row {row}. "
            "Save it as UTF-8."
        ) from problem
    # Decoded again, part by part: a text in memory would take four bytes per character.
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    # strict: otherwise a quote that is never closed would include the rest of the file.
    reader = csv.reader(text, strict=True, delimiter=delimiter or _told_by(text))
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as problem:
        raise InvalidData(
            f"{str(path)!r} must be CSV, got a header that cannot be read: {problem}."
        ) from problem
    if not any(header):
        raise InvalidData(f"{str(path)!r} must start with the names of its columns, got an empty row 1.")
    if len(header) == 1 and (apart := re.search("[,;\t|]", header[0])):
        between = NAMED[delimiter or COMMA]
        raise InvalidData(
            f"{str(path)!r} must have {between} between its cells, got {apart.group()!r} in row 1. "
            f"Pass delimiter={apart.group()!r} (--delimiter), or save it with {between}."
        )
    return header, reader


def _told_by(text: io.TextIOWrapper) -> str:
    """Return the delimiter that a header without commas has, a comma otherwise."""
    header = text.readline()
    text.seek(0)
    return next((each for each in NAMED if each in header), COMMA)


def check_delimiter(delimiter: object) -> str:
    """Return what is between the cells of a CSV file.

    Raises:
        InvalidSetting: if it is not one of the four possible ones.
    """
    if isinstance(delimiter, str) and delimiter in NAMED:
        return delimiter
    raise InvalidSetting(f"'delimiter' must be one of {', '.join(map(repr, NAMED))}, got {shown(delimiter)}.")


class _Column:
    """One column while it is read, chunk by chunk."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.wrong: list[int] = []
        self._got: list[str] = []
        self._texts: dict[str, None] = {}
        self._parts: list[NDArray[Any]] = []
        self._style: dict[str, bool] = {}

    def take(self, texts: Sequence[str], rows: NDArray[np.int64]) -> None:
        """Read some cells; the rows of invalid ones are kept, and the first of their texts."""
        if self.kind == "id":
            self.kind = "any" if _whole(texts[0]) is None and text_of(texts[0]) is not None else "whole"
        if self.kind == "any":
            self._parts.append(np.array(texts, dtype=object))
            return
        found = {"whole": _wholes, "real": _reals, "truth": self._truths}[self.kind](texts)
        bad = [i for i, value in enumerate(found) if value is None] if isinstance(found, list) else []
        self.wrong += rows[bad].tolist()
        self._got += [texts[i] for i in bad[: VALUES_KEPT - len(self._got)]]
        if bad:
            if len(self._texts) <= LABELS_TOLD:
                self._texts |= dict.fromkeys(texts[i] for i in bad)
            found = [0 if value is None else value for value in found]
        self._parts.append(np.asarray(found))

    def values(self) -> NDArray[Any]:
        return np.concatenate(self._parts)

    def fault(self) -> Fault:
        """Return the fault of the invalid cells; the way out is that of the first one."""
        text, rule, way_out = self._got[0], RULES[self.kind], ""
        if self.kind == "truth":
            rule = "be 0 and 1, true and false, or yes and no, the same two in all rows"
        if text.strip().lower() in MISSING:
            way_out = MEND_MISSING
        elif MARK in text:
            way_out = "It belongs at the beginning of a file: join files without it."
        elif DECIMAL_COMMA.fullmatch(text.strip()):
            way_out = "Decimal commas are not read: write numbers with a point, 0.5 and not 0,5."
        elif text.strip() == self.name:
            way_out = "Join files without the headers of the later ones."
        elif self.kind == "whole" and text.isdecimal():
            way_out = f"The largest possible one is {LARGEST}."
        elif self.name == "episode":
            way_out = "Episodes are numbers if the first row has a number, and texts if it has a text."
        else:
            way_out = list_labels(self.name, self._texts)
        return Fault(self.name, rule, "row", self.wrong, [_described(each) for each in self._got], way_out)

    def _truths(self, texts: Sequence[str]) -> list[Any]:
        cells = {text: text.strip().lower() for text in set(texts)}
        if not self._style:
            self._style = style_of(cells[text] for text in texts)
        return [self._style.get(cells[text]) for text in texts]


def _described(text: str) -> str:
    """Return an invalid cell for a message."""
    if not text.strip():
        return "an empty cell"
    return "a byte-order mark" if MARK in text else shown(text)


def _wholes(texts: Sequence[str]) -> NDArray[np.int64] | list[Any]:
    if max(map(len, texts)) <= SAFE_DIGITS and "" not in texts and _plain(ALL_DIGITS, texts):
        return np.array(list(map(int, texts)), dtype=np.int64)
    return [_whole(text) for text in texts]


def _reals(texts: Sequence[str]) -> NDArray[np.float64] | list[Any]:
    if _plain(ALL_REALS, texts):
        try:
            values = np.array(list(map(float, texts)))
        except ValueError:
            values = np.array([math.inf])
        if np.isfinite(values).all():
            return values
    return [_real(text) for text in texts]


def _plain(allowed: re.Pattern[str], texts: Sequence[str]) -> bool:
    """Whether all cells consist of these characters, without line breaks of their own."""
    joined = "\n".join(texts)
    return joined.count("\n") == len(texts) - 1 and allowed.fullmatch(joined) is not None


def _whole(text: str) -> int | None:
    found = WHOLE_TEXT.fullmatch(text.strip(" "))
    whole = int(found.group(1)) if found else None
    return whole if whole is not None and whole <= LARGEST else None


def _real(text: str) -> float | None:
    found = REAL_TEXT.fullmatch(text.strip(" "))
    real = float(found.group()) if found else math.inf
    return real if math.isfinite(real) else None
