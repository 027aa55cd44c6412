"""Terminal output of a command: progress on stderr, tables on stdout, and the handling of Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any

from chary.texts import visible

# Without a terminal, seconds until progress is first told, and between two lines of it.
FIRST_LINE, NEXT_LINE = 10.0, 30.0
# Where the texts about a name begin, and where they end, in columns.
INDENT, NARROW = 10, 80

log = logging.getLogger("chary")


class VisibleFormatter(logging.Formatter):
    """Messages of the log as text: a name in them cannot move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line, or the lines of a traceback."""
        return visible(super().format(record), keep="\n")


def say(text: str = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a text on stdout, or on stderr; control characters in it are shown and not obeyed."""
    stream = sys.stderr if error else sys.stdout
    kept = visible(text, keep="\n")
    # A terminal that lacks a letter shows its number.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(kept.encode(encoding, "backslashreplace").decode(encoding), end=end, file=stream)


def fancy() -> bool:
    """Whether stdout shows colours and boxes."""
    return sys.stdout.isatty() and _animated()


def _animated() -> bool:
    """Whether a terminal, if there is one, can show more than plain lines."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


Report = Callable[[int, int], None]


@contextmanager
def _noted_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a check that raises KeyboardInterrupt after Ctrl-C; a second press raises at once.

    An exception raised inside numba's compiler or its cache can be lost there, or end the process.
    """
    presses = 0

    def note(number: int, frame: object) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt

    def check() -> None:
        if presses:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _bars() -> Any:
    """Return rich's progress bars on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


@contextmanager
def progress(*, compiles: bool = True) -> Iterator[Callable[[str], Report]]:
    """Yield a function that makes progress bars on stderr, one per label; without a terminal, plain lines.

    Set `compiles` if this process compiles and runs kernels itself; if it only waits for others, Ctrl-C acts
    at once.
    """
    with _noted_interrupts() if compiles else nullcontext(lambda: None) as check:
        with _bars() if sys.stderr.isatty() and _animated() else nullcontext() as bars:

            def bar(label: str) -> Report:
                # Until the first report there is no total and the bar pulses: kernels are being compiled.
                task = None if bars is None else bars.add_task(visible(label), total=None)
                started = monotonic()
                due = started + FIRST_LINE

                def report(done: int, total: int) -> None:
                    nonlocal due
                    check()
                    if bars is not None:
                        bars.update(task, completed=done, total=total)
                        return
                    log.debug("%s: %d of %d", label, done, total)
                    now = monotonic()
                    if now >= due and done < total:
                        due = now + NEXT_LINE
                        # At once: whoever reads along in a file wants to know.
                        say(f"{label}: {done:,} of {total:,} after {now - started:.0f} s", error=True)
                        sys.stderr.flush()

                return report

            yield bar


class SweepBars:
    """The progress of a sweep on stderr: one bar for all runs and one per worker; without a terminal, a log.

    Use it as a context manager.
    """

    def __init__(self, total: int, labels: Mapping[str, str]) -> None:
        self._total, self._labels = total, labels
        self._done = 0
        self._bars: Any = None
        self._tasks: dict[int, Any] = {}

    def __enter__(self) -> SweepBars:
        if sys.stderr.isatty() and _animated():
            self._bars = _bars()
            self._bars.start()
            self._tasks[-1] = self._bars.add_task("runs", total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        """Show the progress of a worker with its run."""
        if self._bars is not None:
            text = visible(f"{worker + 1}: {self._labels.get(run, run)}")
            if worker not in self._tasks:
                self._tasks[worker] = self._bars.add_task(text, total=total)
            self._bars.update(self._tasks[worker], description=text, completed=done, total=total)

    def finished(self, worker: int, run: str, *, failed: bool) -> None:
        """Show that one more run is finished or failed."""
        self._done += 1
        word = "failed" if failed else "done"
        log.info("%d of %d runs: %s %s (%s)", self._done, self._total, run, word, self._labels.get(run, run))
        if self._bars is not None:
            self._bars.update(self._tasks[-1], completed=self._done)


def by_label(make: Callable[[str], Report]) -> Callable[[str, int, int], None]:
    """Return a function that opens a bar for each label when it is first used."""
    bars: dict[str, Report] = {}

    def report(label: str, done: int, total: int) -> None:
        if label not in bars:
            bars[label] = make(label)
        bars[label](done, total)

    return report


def show(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout: drawn by rich on a terminal, otherwise plain columns. Cells are plain text."""
    headers = [visible(header) for header in headers]
    rows = [[visible(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(headers))]
    if fancy():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for header, right in zip(headers, numeric, strict=True):
            table.add_column(Text(header), justify="right" if right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(len(line[i]) for line in [headers, *rows]) for i in range(len(headers))]
    for line in [headers, *rows]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        say("  ".join(cells).rstrip())


def describe(name: str, *texts: str) -> None:
    """Print a name with some texts about it, one below the other, at most `NARROW` columns wide."""
    start = visible(name).ljust(INDENT - 1) + " "
    for text in filter(None, texts):
        lines = textwrap.wrap(visible(text), NARROW - INDENT)
        for line in lines:
            say(start + line)
            start = " " * INDENT


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell == "-"
    return True
