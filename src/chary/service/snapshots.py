"""When snapshots are taken: the state is packed by a copy of the process, while decisions go on.

The copy (`fork`) sees the state as it was at one moment, whatever happens meanwhile, and has an interpreter
of its own. A thread would take turns with the loop, and delay every reply for as long as it works; copying
all open episodes first would hold every reply up, too. The copy does nothing but pack: it has no other
thread, and uses no lock, socket or file of the service.
"""

from __future__ import annotations

import hashlib
import logging
import os
import select
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import NoReturn, final

from chary.service.committer import Committer, Snapshot
from chary.service.events import Fresh, Snapshotted, encode
from chary.service.live import Live
from chary.service.logs import SERVICE
from chary.service.memory import uncollected
from chary.service.points import reached

_log = logging.getLogger(SERVICE)
# Whoever packs leaves the processors to those who decide, for so many seconds at most.
PATIENT_SECONDS = 2.0


@final
class Snapshots:
    """Takes a snapshot whenever enough has happened since the last one.

    Args:
        committer: Writes them.
        last: The event of the last one.
        every: Events between two of them.
    """

    def __init__(self, committer: Committer, last: int, *, every: int) -> None:
        self._committer = committer
        self._last = last
        self._every = every
        self._thread: threading.Thread | None = None
        # The copy of this process that packs, or packed last.
        self._process = 0
        # The event that a packed snapshot is of, its digest, and its bytes, until an event names it.
        self._packed: tuple[int, str, bytes] | None = None

    def after(self, live: Live) -> None:
        """Name a snapshot that was packed meanwhile, and take one if it is time and none is being packed."""
        if self._packed is not None:
            self.name(live)
        if live.seq - self._last < self._every:
            return
        if self._thread is None or not self._thread.is_alive():
            self.now(live)

    def now(self, live: Live) -> None:
        """Take a snapshot."""
        self.finish()
        self.name(live)
        self._last = live.seq
        try:
            self._process, pipe = _copied(live)
        except OSError as problem:
            # There may be too little memory for a copy; the next one may find more.
            _log.error("no snapshot", extra={"fields": {"reason": str(problem)}})
            return
        self._thread = threading.Thread(
            target=self._receive, args=(live.seq, self._process, pipe), name="chary-snapshot", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last one is packed."""
        if self._thread is not None:
            if self._thread.is_alive():
                _hurry(self._process)
            self._thread.join()

    def _receive(self, seq: int, process: int, pipe: int) -> None:
        """Take what the copy has packed."""
        with open(pipe, "rb") as packed:
            if not select.select([packed], [], [], PATIENT_SECONDS)[0]:
                _hurry(process)
            content = packed.read()
        _, status = os.waitpid(process, 0)
        if status:
            _log.error("no snapshot", extra={"fields": {"reason": f"its process ended with {status}"}})
        else:
            self._packed = seq, hashlib.sha256(content).hexdigest(), content

    def name(self, live: Live) -> None:
        """Queue the event that names the digest of a packed snapshot, and after it the snapshot itself."""
        if self._packed is None:
            return
        (upto, digest, content), self._packed = self._packed, None
        reached("packed-snapshot")
        facts = Snapshotted(digest=digest, upto=upto)
        seq, body = live.seq + 1, encode(facts)
        self._committer.put(Fresh(seq, facts.kind, None, None, body, time.time_ns() // 1000, facts))
        live.note(seq, None, None, facts, body)
        self._committer.besides(Snapshot(seq, upto, content))


def _copied(live: Live) -> tuple[int, int]:
    """Return a copy of this process that packs the state as it is now, and the pipe that it packs it into."""
    taking, giving = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of locks that other threads hold for ever in the copy, which uses none of them.
            warnings.simplefilter("ignore")
            process = os.fork()
    except OSError:
        os.close(taking)
        os.close(giving)
        raise
    if process == 0:
        _pack(live, giving)
    os.close(giving)
    return process, taking


def _pack(live: Live, pipe: int) -> NoReturn:
    """Write the state to a pipe, and end the process, which is a copy."""
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # The lock of the deployment, and its port, are to be free as soon as the service has ended.
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with uncollected(), open(pipe, "wb") as packed:
            packed.write(live.packed())
        status = 0
    finally:
        os._exit(status)


def _hurry(process: int) -> None:
    """Let a copy run as any other process."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
