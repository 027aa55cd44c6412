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
from typing import NoReturn, final

from chary.service.committer import Committer, Snapshot
from chary.service.events import Fresh, Snapshotted, encode
from chary.service.live import Live
from chary.service.logs import SERVICE, place_of
from chary.service.memory import give_back, uncollected
from chary.service.points import reached

_log = logging.getLogger(SERVICE)
# A copy runs where nobody else wants to. If it has nothing to show after so many seconds it is ended, and the
# next one runs as a program of low priority: a process cannot take back what it has left to others.
MODEST, PATIENT_SECONDS, NICENESS = True, 5.0, 10
# Seconds after which any copy is ended: it hangs, or has no processor at all.
LONGEST_SECONDS = 60.0


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
        # Whether a copy leaves the processors to all others.
        self._modest = MODEST
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

    def now(self, live: Live, *, last: bool = False) -> None:
        """Take a snapshot; `last` says that nothing else is left to do."""
        self.finish()
        self.name(live)
        self._last = live.seq
        modest = self._modest and not last
        try:
            process, pipe = _copied(live, modest=modest)
        except OSError as problem:
            # There may be too little memory for a copy; the next one may find more.
            _log.error("no snapshot", extra={"fields": {"reason": str(problem)}})
            return
        self._thread = threading.Thread(
            target=self._receive, args=(live.seq, process, pipe, modest), name="chary-snapshot", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last one is packed."""
        if self._thread is not None:
            self._thread.join()

    def _receive(self, seq: int, process: int, pipe: int, modest: bool) -> None:
        """Take what the copy has packed."""
        with open(pipe, "rb") as packed:
            if not select.select([packed], [], [], PATIENT_SECONDS if modest else LONGEST_SECONDS)[0]:
                os.kill(process, signal.SIGKILL)
            content = packed.read()
        _, status = os.waitpid(process, 0)
        if modest and status == signal.SIGKILL:
            _log.warning("snapshot postponed", extra={"fields": {"reason": "the processors are busy"}})
            self._modest, self._last = False, seq - self._every
        elif status:
            _log.error("no snapshot", extra={"fields": {"reason": f"its process ended with {status}"}})
        else:
            self._packed = seq, hashlib.sha256(content).hexdigest(), content
        give_back()

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


def _copied(live: Live, *, modest: bool) -> tuple[int, int]:
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
        _pack(live, giving, modest=modest)
    os.close(giving)
    return process, taking


def _pack(live: Live, pipe: int, *, modest: bool) -> NoReturn:
    """Write the state to a pipe, and end the process, which is a copy."""
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # The lock of the deployment, and its port, are to be free as soon as the service has ended.
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(NICENESS)
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE if modest else os.SCHED_BATCH, os.sched_param(0))
        with uncollected(), open(pipe, "wb") as packed:
            packed.write(live.packed())
        status = 0
    finally:
        kind, _, trace = sys.exc_info()
        # Where the service has ended meanwhile, nobody reads what was packed.
        if status and kind is not BrokenPipeError:
            _log.error("packing failed", extra={"fields": place_of(kind or SystemExit, trace)})
        os._exit(status)
