"""When snapshots are taken; one is packed in a thread, from copies, while decisions go on."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, final

from numpy.typing import NDArray

from chary.service.committer import Committer, Snapshot
from chary.service.live import SNAPSHOT, Live
from chary.service.memory import uncollected
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

    def after(self, live: Live) -> None:
        """Take a snapshot if it is time, and none is being packed."""
        if live.seq - self._last < self._every:
            return
        if self._thread is None or not self._thread.is_alive():
            self.now(live)

    def now(self, live: Live) -> None:
        """Take a snapshot."""
        self._last = live.seq
        self.finish()
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
        """Wait until the last one is packed and queued."""
        if self._thread is not None:
            self._thread.join()

    def _pack(self, seq: int, arrays: dict[str, NDArray[Any]], about: Described) -> None:
        content = pack(SNAPSHOT, arrays, about)
        self._committer.besides(Snapshot(seq, hashlib.sha256(content).hexdigest(), content))
