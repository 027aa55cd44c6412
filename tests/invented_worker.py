"""A worker that makes results up, for tests of sweeps of the deep learner: nothing is compiled."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.tiny_hiv import invented_files

from chary.sweeps import worker


def invent(spec: Any, folder: Any, **options: Any) -> dict[str, bytes]:
    """Return a run's files, provided that the process was told to use one core."""
    if os.environ["NPROC"] != "1" or "--xla_cpu_multi_thread_eigen=false" not in os.environ["XLA_FLAGS"]:
        raise RuntimeError("XLA would start threads of its own")
    if os.environ["JAX_PLATFORMS"] != "cpu":
        raise RuntimeError("JAX would compute on a GPU where there is one")
    if "jax" in sys.modules:
        raise RuntimeError("JAX was imported before a run was made")
    options["report"](spec.episodes, spec.episodes)
    return invented_files(spec)


if __name__ == "__main__":
    worker.perform = invent  # type: ignore[attr-defined]
    worker.main(*sys.argv[1:])
