"""Python's collector of cycles, kept from looking through everything while much of it is being made."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Collections of the middle generation between two of the oldest; ten is Python's default.
MIDDLE_PER_WHOLE = 1000


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector inside.

    Records and arrays of thousands of episodes are made at once and have no cycles; looking through them
    again and again took most of the time of loading them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def settle() -> None:
    """Keep what was loaded out of all later collections: it stays for long.

    Whole collections become rarer, too: each looks through all open episodes while no request is answered,
    and finds next to nothing, because requests leave no cycles behind.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, MIDDLE_PER_WHOLE)


def give_back() -> None:
    """Give freed memory back to the system, where the C library is glibc; for a thread nobody waits for.

    It keeps what short-lived threads have freed, plans and snapshots above all: some bytes per decision,
    while what is in use stays the same.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
