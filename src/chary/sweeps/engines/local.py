"""What plays the runs of a sweep: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple, Protocol, cast, final

from chary.errors import Unwritable
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import CHECKPOINT_SECONDS
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

__all__ = ["ENGINES", "Engine", "Failure", "LocalEngine", "Watcher", "one_core"]

ENGINES = ("local", "ray")

# A run that raises is tried again once. One whose worker vanishes is hardly to blame: it is tried again
# more often.
MOST_TRIES = 2
MOST_LOSSES = 10

# Libraries that would start threads of their own: every worker has one core. NPROC is what XLA takes for the
# number of cores (jaxlib 0.10).
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

# How long a worker may take to end once there is nothing left to do, before it is killed.
PATIENCE_SECONDS = 5.0


class Failure(NamedTuple):
    """A run that was given up."""

    run: str
    traceback: str


class Watcher(Protocol):
    """Who is told how a sweep goes on."""

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        """A worker has played `done` of `total` episodes of a run."""
        ...

    def finished(self, worker: int, run: str, *, failed: bool) -> None:
        """A run is finished, or was given up."""
        ...


class Engine(Protocol):
    """Plays runs into a folder; both engines leave the same bytes there."""

    def check(self) -> None:
        """Raise InvalidSetting if it cannot work here, before anything is written."""
        ...

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run, and return those that failed twice; whoever writes to the folder has the lock."""
        ...


@dataclass(slots=True)
class _Worker:
    """A process, and the run it plays."""

    number: int
    process: subprocess.Popen[bytes]
    spec: RunSpec | None = None
    heard: bytes = b""
    # What it has compiled and keeps, see Family.compiled.
    warm: set[str] = field(default_factory=set)

    @property
    def output(self) -> int:
        """The descriptor its events come from."""
        return cast("IO[bytes]", self.process.stdout).fileno()

    def order(self, spec: RunSpec) -> None:
        self.spec = spec
        self.warm.add(_compiled(spec))
        orders = cast("IO[bytes]", self.process.stdin)
        # If it is dead its events end, and there it is noticed.
        with contextlib.suppress(BrokenPipeError):
            orders.write(json.dumps({"spec": spec.canonical}).encode() + b"\n")
            orders.flush()

    def events(self) -> list[dict[str, object]] | None:
        """Return what it said since it was last asked; None where it will say nothing more."""
        read = os.read(self.output, 65_536)
        *lines, self.heard = (self.heard + read).split(b"\n")
        return [json.loads(line) for line in lines] if read else None

    def dismiss(self) -> None:
        """End the process, gently at first, and take leave of it so that no zombie stays."""
        with contextlib.suppress(BrokenPipeError):
            cast("IO[bytes]", self.process.stdin).close()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        cast("IO[bytes]", self.process.stdout).close()


@final
class LocalEngine:
    """Processes of this machine, one thread each, that receive specs as JSON.

    Args:
        workers: How many; by default one a core.
        checkpoint_seconds: How often a run is saved.
        module: What a worker runs.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        module: str = "chary.sweeps.worker",
    ) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._checkpoint_seconds = checkpoint_seconds
        self._module = module

    def check(self) -> None:
        """Nothing can be missing: this is where chary runs."""

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run, and return those that failed twice.

        Raises:
            Unwritable: if results cannot be written.
        """
        state = _Sweep(deque(specs), folder, watcher)
        with selectors.DefaultSelector() as selector:
            workers: dict[int, _Worker] = {}
            try:
                while state.pending or any(worker.spec for worker in workers.values()):
                    # The first one compiles, if there is anything to compile, and the others find it done.
                    wanted = self.workers if state.compiled else 1
                    busy = sum(worker.spec is not None for worker in workers.values())
                    while len(workers) < min(wanted, busy + len(state.pending)):
                        worker = self._hire(min(set(range(self.workers)) - set(workers)), folder, lock)
                        workers[worker.number] = worker
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                    for worker in workers.values():
                        if worker.spec is None and state.pending:
                            state.assign(worker, workers.values())
                    for key, _ in selector.select():
                        worker = key.data
                        events = worker.events()
                        for event in events or ():
                            state.heard(worker, event)
                        if events is None:
                            selector.unregister(worker.output)
                            del workers[worker.number]
                            worker.dismiss()
                            state.lost(worker)
            finally:
                for worker in workers.values():
                    worker.dismiss()
        return state.failures

    def _hire(self, number: int, folder: SweepFolder, lock: int) -> _Worker:
        # -P: what lies in the user's folder is not taken for a module of Python's.
        command = [sys.executable, "-P", "-m", self._module, str(folder.path)]
        process = subprocess.Popen(
            [*command, str(self._checkpoint_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Workers that outlive their sweep for a moment keep the next one waiting.
            pass_fds=(lock,),
            # Ctrl-C reaches all processes of a terminal at once: the sweep decides when its workers end.
            start_new_session=True,
            env={**os.environ, **one_core()},
        )
        return _Worker(number, process)


def one_core() -> dict[str, str]:
    """Return the environment of a process that has one core, for libraries that would start threads."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    return {**dict.fromkeys(THREADS, "1"), "XLA_FLAGS": flags}


def _compiled(spec: RunSpec) -> str:
    return family_of(spec.problem).compiled(spec)


class _Sweep:
    """Which runs are still to be played, and what became of the others."""

    def __init__(self, pending: deque[RunSpec], folder: SweepFolder, watcher: Watcher) -> None:
        self.pending = pending
        self.failures: list[Failure] = []
        self.compiled = not any(family_of(spec.problem).compiles_to_disk for spec in pending)
        self._folder, self._watcher = folder, watcher
        self._tries: dict[str, int] = {}
        self._losses: dict[str, int] = {}

    def assign(self, worker: _Worker, workers: Iterable[_Worker]) -> None:
        """Give a worker the next run: one it has compiled for, else one that nobody has, else the first."""
        others = {kind for each in workers if each is not worker for kind in each.warm}
        spec = next(
            (spec for spec in self.pending if _compiled(spec) in worker.warm),
            next((spec for spec in self.pending if _compiled(spec) not in others), self.pending[0]),
        )
        self.pending.remove(spec)
        self._folder.note_running(spec.id, 0)
        worker.order(spec)
        self._watcher.progress(worker.number, spec.id, 0, spec.episodes)

    def heard(self, worker: _Worker, event: dict[str, object]) -> None:
        """Take in one event of a worker.

        Raises:
            Unwritable: if it was refused what every run needs.
        """
        spec = worker.spec
        assert spec is not None
        self.compiled = True
        kind = event["event"]
        if kind == "progress":
            self._watcher.progress(worker.number, spec.id, int(str(event["done"])), spec.episodes)
        elif kind == "refused":
            raise Unwritable(str(event["sentence"]))
        else:
            worker.spec = None
            if kind == "failed":
                self._failed(worker, spec, str(event["traceback"]), self._tries, MOST_TRIES)
            else:
                self._watcher.finished(worker.number, spec.id, failed=False)

    def lost(self, worker: _Worker) -> None:
        """Give the run of a worker that is gone to another one."""
        if worker.spec is None:
            return
        if self._folder.state(worker.spec.id).state == "done":
            self._watcher.finished(worker.number, worker.spec.id, failed=False)
        else:
            code = worker.process.returncode
            cause = (signal.strsignal(-code) or f"signal {-code}") if code < 0 else f"exit code {code}"
            self._failed(
                worker, worker.spec, f"its worker ended without a word ({cause}).", self._losses, MOST_LOSSES
            )

    def _failed(
        self, worker: _Worker, spec: RunSpec, traceback: str, counts: dict[str, int], most: int
    ) -> None:
        counts[spec.id] = counts.get(spec.id, 0) + 1
        if counts[spec.id] < most:
            self.pending.appendleft(spec)
            return
        self._folder.note_failed(spec.id, traceback)
        self.failures.append(Failure(spec.id, traceback))
        self._watcher.finished(worker.number, spec.id, failed=True)
