"""The writer thread: all that has queued becomes one transaction, and then the replies may leave.

A commit that fails in any way ends the process at once: memory is ahead of the disk, and a second fsync may
claim what the first one lost. The next start finds what is really on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple, NoReturn, final

from chary.service.events import Fresh
from chary.service.points import reached
from chary.service.store import Store

# The status of a process whose commit failed: EX_SOFTWARE of sysexits.
STATUS = 70
# Events of one transaction at most: their replies wait for all of it.
MOST = 512
# Rows after which the write-ahead log is brought into the database: where nothing waits for a commit, and at
# the latest. A short log is written over and over in the same place, so that a sync changes nothing but data;
# and little is brought over at once, so that no reply waits long.
ROWS_PER_CHECKPOINT, MOST_ROWS = 256, 4096
# Bytes of a snapshot that are written between two commits, whose replies wait for them.
PART = 128 * 1024
# Group commits whose durations are kept for metrics.
KEPT = 1024


class Snapshot(NamedTuple):
    """A snapshot of the state after event `upto`, on its way to the disk; event `seq` names its digest."""

    seq: int
    upto: int
    content: bytes


class Truncation(NamedTuple):
    """A wish to empty the write-ahead log once event `seq`, which erased something, is on the disk."""

    seq: int


@final
class Committer:
    """Commits events in the order in which they are queued, in a thread of its own.

    Args:
        store: The store; only this thread uses it from now on.
        durable: The number of the last event on the disk.
    """

    def __init__(self, store: Store, durable: int) -> None:
        self._store = store
        self._queue: deque[Fresh] = deque()
        self._besides: deque[Snapshot | Truncation] = deque()
        # Bytes of the snapshot in front that are on the disk.
        self._written = 0
        self._wake = threading.Condition(threading.Lock())
        self._ended = False
        self._done = threading.Condition(threading.Lock())
        self.durable = durable
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.commits = self.rows = self.checkpoints = self.snapshots = 0
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self._since_checkpoint = 0
        self._idle = False
        # The last process may have been killed before it emptied the log of what was erased.
        self._must_empty = True
        self._thread = threading.Thread(target=self._run, name="chary-committer", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """The number of events that are not on the disk yet, without those of a commit under way."""
        return len(self._queue)

    def put(self, event: Fresh) -> None:
        """Queue an event."""
        self._queue.append(event)
        if self._idle:
            with self._wake:
                self._wake.notify()

    def besides(self, work: Snapshot | Truncation) -> None:
        """Queue a snapshot or a truncation; a snapshot is written in parts, between commits."""
        self._besides.append(work)
        with self._wake:
            self._wake.notify()

    async def until(self, seq: int) -> None:
        """Return once the events up to `seq` are on the disk."""
        if seq > self.durable:
            loop = asyncio.get_running_loop()
            if self._loop is not loop:
                self._loop = loop
            future = loop.create_future()
            self._waiters.append((seq, future))
            # A commit that ended before the loop was known has woken nobody.
            if seq > self.durable:
                await future
        reached("before-reply")

    def wait(self, seq: int) -> None:
        """Block until the events up to `seq` are on the disk."""
        with self._done:
            while self.durable < seq:
                self._done.wait()
        reached("before-reply")

    def finish(self) -> None:
        """Commit what is queued, empty the write-ahead log, and end the thread; blocks."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        whole = False
        try:
            while self._step():
                pass
            self._checkpoint(empty=True)
            self._store.close()
            whole = True
        finally:
            if not whole:
                problem = sys.exc_info()[1]
                die(f"a commit failed ({type(problem).__name__}: {problem})")

    def _step(self) -> bool:
        """Do what is queued, or wait for it; return whether there may be more."""
        if not self._queue and not self._besides:
            with self._wake:
                self._idle = True
                while not self._queue and not self._besides and not self._ended:
                    self._wake.wait(0.5)
                self._idle = False
            if not self._queue and not self._besides:
                return False
        if self._queue:
            self._commit()
        if self._besides and self._besides[0].seq <= self.durable:
            self._beside(self._besides[0])
        if self._since_checkpoint >= (MOST_ROWS if self._queue else ROWS_PER_CHECKPOINT):
            self._checkpoint(empty=self._must_empty)
        return True

    def _commit(self) -> None:
        queue = self._queue
        batch = [queue.popleft() for _ in range(min(len(queue), MOST))]
        began = time.perf_counter()
        reached("before-commit")
        self._store.write(batch)
        reached("after-commit")
        self.seconds.append(time.perf_counter() - began)
        self.commits += 1
        self.rows += len(batch)
        self._since_checkpoint += len(batch)
        with self._done:
            self.durable = batch[-1].seq
            self._done.notify_all()
        loop = self._loop
        if loop is not None:
            # The loop may end while the last commits go on.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        waiters, durable = self._waiters, self.durable
        # Mostly in order, but a reply may wait for an event older than that of the reply before it.
        for _ in range(len(waiters)):
            seq, future = waiters.popleft()
            if seq > durable:
                waiters.append((seq, future))
            elif not future.done():
                future.set_result(None)

    def _beside(self, work: Snapshot | Truncation) -> None:
        """Do the next part of a piece of work, and forget it after the last."""
        if isinstance(work, Truncation):
            self._besides.popleft()
            self._checkpoint(empty=True)
            return
        if self._written == 0:
            reached("before-snapshot")
        part = work.content[self._written : self._written + PART]
        self._store.write_part(work.upto, self._written // PART, part)
        self._written += len(part)
        if self._written < len(work.content):
            return
        self._store.complete_snapshot(work.upto, named=work.seq)
        reached("after-snapshot")
        self.snapshots += 1
        self._written = 0
        self._besides.popleft()

    def _checkpoint(self, *, empty: bool = False) -> None:
        reached("before-checkpoint")
        emptied = self._store.checkpoint(empty=empty)
        # Where a reader held the log, the next checkpoint empties it.
        self._must_empty = empty and not emptied
        reached("after-checkpoint")
        self.checkpoints += 1
        self._since_checkpoint = 0


def die(reason: str) -> NoReturn:
    """End the process without any cleaning up: no reply leaves, and nothing is written again."""
    try:
        os.write(2, f"chary serve: {reason}; the process ends.\n".encode(errors="replace"))
    finally:
        # Writing may fail too, on the same full disk.
        os._exit(STATUS)
