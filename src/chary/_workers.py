"""Worker processes that leave nothing behind: not on Ctrl-C, and not when their parent is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor

__all__ = ["usable_cores", "worker_pool"]


def usable_cores() -> int:
    """Return how many cores this process may use; where the system does not limit them, all of them."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        # macOS and Windows.
        return os.cpu_count() or 1


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of `workers` fresh processes; each has one thread, since kernels start no others."""
    # Spawned, not forked: numba's threads and a fork do not mix.
    return ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_follow_the_parent
    )


def _follow_the_parent() -> None:
    # Ctrl-C reaches all processes at once. Workers ignore it, and the parent ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
