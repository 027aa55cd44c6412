"""Worker processes that leave nothing behind: not on Ctrl-C, and not when their parent is killed."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

from chary.errors import check_integer

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

__all__ = ["check_workers", "machine_memory", "usable_cores", "worker_pool"]

# Bytes that a worker takes at least, with what it imports and has compiled.
WORKER = 1 << 28
# Bytes of memory where the system does not say how much there is.
USUAL_MEMORY = 1 << 34


def usable_cores() -> int:
    """Return how many cores this process may use; where the system does not limit them, all of them."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        # macOS and Windows.
        return os.cpu_count() or 1


def machine_memory() -> int:
    """Return the bytes of memory that the machine has, or a guess."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return USUAL_MEMORY


def check_workers(workers: object) -> int:
    """Return a number of workers that this machine has memory for, or cores.

    Raises:
        InvalidSetting: if it is not such a number.
    """
    most = max(usable_cores(), machine_memory() // WORKER)
    way_out = f"Each takes {WORKER >> 20} MiB of memory at least; more than one per core is of no use."
    return check_integer("workers", workers, minimum=1, largest=most, way_out=way_out)


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of `workers` fresh processes; each has one thread, since kernels start no others."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned, not forked: numba's threads and a fork do not mix.
    return ProcessPoolExecutor(
        check_workers(workers),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_follow_the_parent,
    )


def _follow_the_parent() -> None:
    import multiprocessing

    # Ctrl-C reaches all processes at once. Workers ignore it, and the parent ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
