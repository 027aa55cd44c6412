"""A worker that fails where it is told to, for the tests: by raising, or by vanishing, always or once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chary.sweeps import worker
from chary.sweeps.perform import perform


def fail(spec: Any, folder: Any, **options: Any) -> dict[str, bytes]:
    how, whom, often = os.environ["CHARY_TEST_FAILURE"].split(",")
    marker = Path(os.environ["CHARY_TEST_MARKER"])
    if spec.agent == whom and spec.seed == 0 and not (often == "once" and marker.exists()):
        marker.touch()
        if how == "vanish":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("told to fail")
    played: Callable[..., dict[str, bytes]] = perform
    return played(spec, folder, **options)


if __name__ == "__main__":
    worker.perform = fail  # type: ignore[attr-defined]
    worker.main(*sys.argv[1:])
