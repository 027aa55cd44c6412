"""Logs as lines of JSON, without what names a person and without secrets.

A line holds the template of a path, never the path itself; the class and the place of an error, never its
text, which can quote what a caller sent.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO, final

import msgspec

SERVICE = "chary.service"
# Refusals alike that are written one by one within a second; the others are counted.
_ONE_BY_ONE = 5


@final
class JSONLines(logging.Formatter):
    """One object per line: when, how serious, from where, what, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line |= place_of(record.exc_info[0], record.exc_info[2])
        return msgspec.json.encode(line).decode()


def place_of(kind: type[BaseException], trace: TracebackType | None) -> dict[str, Any]:
    """Return the class of an error and where it was raised, without its text."""
    frames = traceback.extract_tb(trace)
    return {
        "error": kind.__name__,
        "trace": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


@contextmanager
def as_lines(stream: TextIO | None = None, *, level: int = logging.INFO) -> Iterator[None]:
    """Write all that chary logs meanwhile to `stream`, by default the standard error, as lines of JSON.

    What the server logs about single requests is left to this service; only its errors are written.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JSONLines())
    levels = {"chary": level, "uvicorn.error": logging.ERROR}
    loggers = [logging.getLogger(name) for name in levels]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    for logger, least in zip(loggers, levels.values(), strict=True):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
    try:
        yield
    finally:
        for logger, (handlers, least, propagates) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagates
            logger.setLevel(least)


@final
class Refusals:
    """Logs requests that were refused; of a flood, one line per second says how many."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._second = 0
        self._counts: dict[tuple[str, str, int, str], int] = {}

    def note(self, method: str, path: str, status: int, code: str) -> None:
        """Log one refusal, or count it."""
        second = int(time.monotonic())
        if second != self._second:
            self._flush()
            self._second = second
        key = method, path, status, code
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= _ONE_BY_ONE:
            self._write(key, 1)

    def _flush(self) -> None:
        for key, count in self._counts.items():
            if count > _ONE_BY_ONE:
                self._write(key, count - _ONE_BY_ONE)
        self._counts.clear()

    def _write(self, key: tuple[str, str, int, str], count: int) -> None:
        method, path, status, code = key
        level = logging.ERROR if status >= 500 and status != 503 else logging.INFO
        fields = {"method": method, "path": path, "status": status, "error": code, "count": count}
        self._logger.log(level, "refused", extra={"fields": fields})
