"""When snapshots are taken; one is packed in a thread, from copies, while decisions go on."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any, final

from numpy.typing import NDArray

from chary.service.committer import Committer, Snapshot
from chary.service.events import Fresh, Snapshotted, encode
from chary.service.live import SNAPSHOT, Live
from chary.service.memory import uncollected
from chary.service.points import reached
from chary.storage.sealed import Described, pack


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
        with uncollected():
            arrays, about = live.arrays()
            # Here and not in the thread: the encoder of JSON lets no other thread run, and a thread that
            # takes turns with the loop delays every reply for as long as it works.
            described = Described.of(about)
        self._thread = threading.Thread(
            target=self._pack, args=(live.seq, arrays, described), name="chary-snapshot", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last one is packed."""
        if self._thread is not None:
            self._thread.join()

    def _pack(self, seq: int, arrays: dict[str, NDArray[Any]], about: Described) -> None:
        content = pack(SNAPSHOT, arrays, about)
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
