"""A service that runs for long keeps no more in memory than the episodes that are open.

`benchmarks/service.py memory` measures the resident memory of a server over an hour of load.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from random import Random

from tests.service.faults import wards
from tests.service.faults.patients import Ward, answer_of

from chary.service.engine import Engine

CALLS = 800


def blocks_after(engine: Engine, ward: Ward, calls: int) -> int:
    """Return the number of allocated blocks of memory after so many more calls."""
    steps = ward.steps()
    for _ in range(calls):
        request, one = next(steps)
        status, body, seq = answer_of(engine, request)
        engine.wait(seq)
        ward.hear(request, one, 0.0, status, body)
        ward.attempts.clear()
        del ward.answered[:-200]
    gc.collect()
    return sys.getallocatedblocks()


def test_what_is_kept_in_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    wards.make(tmp_path / "ward")
    engine = Engine.open(tmp_path / "ward")
    ward = Ward(Random(0), called="a")
    # Caches fill, and kernels are compiled.
    before = blocks_after(engine, ward, CALLS)
    head = engine.head
    after = blocks_after(engine, ward, CALLS)
    events = engine.head - head
    engine.finish()
    assert events > CALLS // 2
    # An event that was kept would be ten blocks and more.
    assert after - before < events
