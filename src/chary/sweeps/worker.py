"""A worker process of the local engine: one run per line of stdin, in JSON, one event per line of stdout.

It ends when stdin does, so that nothing outlives a sweep that was killed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

from chary.errors import Unwritable
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import perform
from chary.sweeps.run_spec import RunSpec


def main(path: str, checkpoint_seconds: str) -> None:
    """Play the runs that arrive on stdin into the sweep's folder at `path`."""
    # Text that a library prints goes to stderr, so that stdout contains events alone.
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    folder = SweepFolder(Path(path))
    while True:
        spec = RunSpec.from_json(json.loads(orders.get())["spec"])
        _play(spec, folder, float(checkpoint_seconds), events)


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    # Files appear by renaming alone, so a run may be interrupted at any moment.
    os._exit(0)


def _play(spec: RunSpec, folder: SweepFolder, checkpoint_seconds: float, events: TextIO) -> None:
    def tell(event: str, **values: Any) -> None:
        try:
            print(json.dumps({"event": event, "run": spec.id, **values}), file=events, flush=True)
        except BrokenPipeError:
            # The sweep has ended.
            os._exit(0)

    def report(done: int, total: int) -> None:
        tell("progress", done=done)

    try:
        files = perform(spec, folder, checkpoint_seconds=checkpoint_seconds, report=report)
        folder.write(spec.id, files)
    except Unwritable as problem:
        # A full disk affects every run.
        tell("refused", sentence=str(problem))
    except Exception:  # a run that fails is listed with its traceback, and the others go on
        tell("failed", traceback=traceback.format_exc())
    else:
        tell("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
