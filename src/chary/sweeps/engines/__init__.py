"""Engines play the runs of a sweep: processes of this machine, a Ray cluster, or a GPU."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec

__all__ = ["ENGINES", "MOST_LOSSES", "MOST_TRIES", "Engine", "Failure", "Pending", "Watcher", "one_core"]

# The engines that compute on CPUs.
ENGINES = ("local", "ray")

# A run that raises is tried again once. One whose worker vanishes is hardly to blame: it is tried again
# more often.
MOST_TRIES = 2
MOST_LOSSES = 10

# Libraries that would start threads: every worker has one core. XLA takes NPROC for the number of cores
# (jaxlib 0.10), and would compute on a GPU if it found one.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class Failure(NamedTuple):
    """A run that was given up."""

    run: str
    traceback: str


class Watcher(Protocol):
    """An observer of a sweep's progress."""

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        """A worker has played `done` of `total` episodes of a run."""

    def finished(self, worker: int, run: str, *, failed: bool) -> None:
        """A run is finished, or was given up."""


class Engine(Protocol):
    """Plays runs into a folder; all engines that compute on CPUs leave the same bytes there."""

    @property
    def device(self) -> str:
        """The processor that runs are computed on: `cpu`, or a GPU's name."""

    def check(self) -> None:
        """Raise InvalidSetting if it cannot work here, before anything is written."""

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run and return those that were given up; processes that write inherit the lock."""


class Pending:
    """The runs of a sweep that are still to be played, and the ones that were given up."""

    def __init__(self, specs: Sequence[RunSpec], folder: SweepFolder, watcher: Watcher) -> None:
        self.specs = deque(specs)
        self.failures: list[Failure] = []
        self.folder, self.watcher = folder, watcher
        self._counts: Counter[tuple[str, int]] = Counter()

    def begin(self, worker: int, spec: RunSpec, done: int = 0) -> None:
        """Note that a worker begins a run, which is no longer pending, after `done` episodes."""
        self.specs.remove(spec)
        self.folder.note_running(spec.id, done)
        self.watcher.progress(worker, spec.id, done, spec.episodes)

    def finished(self, worker: int, spec: RunSpec) -> None:
        """Report that the results of a run are in the folder."""
        self.watcher.finished(worker, spec.id, failed=False)

    def failed(self, worker: int, spec: RunSpec, traceback: str, most: int) -> None:
        """Play a run again, or give it up if this is the `most`-th failure of its kind."""
        self._counts[spec.id, most] += 1
        if self._counts[spec.id, most] < most:
            self.specs.appendleft(spec)
            return
        self.folder.note_failed(spec.id, traceback)
        self.failures.append(Failure(spec.id, traceback))
        self.watcher.finished(worker, spec.id, failed=True)


def one_core() -> dict[str, str]:
    """Return the environment of a process that computes on one core and on no GPU."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    return {**dict.fromkeys(THREADS, "1"), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
