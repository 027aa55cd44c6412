"""Runs in processes of this machine, one thread each."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import IO, cast, final

from chary._workers import check_workers, usable_cores
from chary.errors import Unwritable
from chary.sweeps.engines import MOST_LOSSES, MOST_TRIES, Failure, Pending, Watcher, one_core
from chary.sweeps.family import CPU
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import CHECKPOINT_SECONDS
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

# A worker that has nothing left to do is killed if it has not ended after so long.
PATIENCE_SECONDS = 5.0


@dataclass(slots=True)
class _Worker:
    """A process, and the run it plays."""

    number: int
    process: subprocess.Popen[bytes]
    spec: RunSpec | None = None
    unread: bytes = b""
    # The kinds of runs it has compiled for, see Family.compiled.
    warm: set[str] = field(default_factory=set)

    @property
    def output(self) -> int:
        """The descriptor its events come from."""
        return cast("IO[bytes]", self.process.stdout).fileno()

    def order(self, spec: RunSpec) -> None:
        self.spec = spec
        self.warm.add(_compiled(spec))
        orders = cast("IO[bytes]", self.process.stdin)
        # If it is dead its events end, which `play` notices.
        with contextlib.suppress(BrokenPipeError):
            orders.write(json.dumps({"spec": spec.canonical}).encode() + b"\n")
            orders.flush()

    def events(self) -> list[dict[str, object]] | None:
        """Return its events since the last call; None where there will be no more."""
        read = os.read(self.output, 65_536)
        *lines, self.unread = (self.unread + read).split(b"\n")
        return [json.loads(line) for line in lines] if read else None

    def dismiss(self) -> None:
        """End the process, by closing its input at first, and wait for it so that no zombie stays."""
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
        workers: How many; by default one per core.
        checkpoint_seconds: Seconds between two checkpoints of a run.
        module: The module that a worker runs.

    Raises:
        InvalidSetting: if this machine has no memory for so many workers.
    """

    device = CPU

    def __init__(
        self,
        workers: int | None = None,
        *,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        module: str = "chary.sweeps.worker",
    ) -> None:
        self.workers = usable_cores() if workers is None else check_workers(workers)
        self._checkpoint_seconds = checkpoint_seconds
        self._module = module

    def check(self) -> None:
        """Do nothing: this engine needs no more than chary itself."""

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run, and return those that failed twice.

        Raises:
            Unwritable: if results cannot be written.
        """
        state = _Sweep(specs, folder, watcher)
        with selectors.DefaultSelector() as selector:
            workers: dict[int, _Worker] = {}
            try:
                while state.specs or any(worker.spec for worker in workers.values()):
                    # The first one compiles, if there is anything to compile, and the others find it done.
                    wanted = self.workers if state.compiled else 1
                    busy = sum(worker.spec is not None for worker in workers.values())
                    while len(workers) < min(wanted, busy + len(state.specs)):
                        worker = self._hire(next(n for n in count() if n not in workers), folder, lock)
                        workers[worker.number] = worker
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                    for worker in workers.values():
                        if worker.spec is None and state.specs:
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
        # -P: files in the user's folder are not taken for modules of Python's.
        command = [sys.executable, "-P", "-m", self._module, str(folder.path)]
        # Ctrl-C is for the sweep, which decides when its workers end: they inherit the blocked signal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [*command, str(self._checkpoint_seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Workers that outlive their sweep for a moment keep the next one waiting.
                pass_fds=(lock,),
                start_new_session=True,
                env={**os.environ, **one_core()},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return _Worker(number, process)


def _compiled(spec: RunSpec) -> str:
    return family_of(spec.problem).compiled(spec)


class _Sweep(Pending):
    """The runs that are still to be played, and the events of the workers that play them."""

    def __init__(self, specs: Sequence[RunSpec], folder: SweepFolder, watcher: Watcher) -> None:
        super().__init__(specs, folder, watcher)
        self.compiled = not any(family_of(spec.problem).compiles_to_disk for spec in specs)

    def assign(self, worker: _Worker, workers: Iterable[_Worker]) -> None:
        """Give a worker the next run: one it has compiled for, else one that nobody has, else the first."""
        others = {kind for each in workers if each is not worker for kind in each.warm}
        spec = next(
            (spec for spec in self.specs if _compiled(spec) in worker.warm),
            next((spec for spec in self.specs if _compiled(spec) not in others), self.specs[0]),
        )
        self.begin(worker.number, spec)
        worker.order(spec)

    def heard(self, worker: _Worker, event: dict[str, object]) -> None:
        """Process one event of a worker.

        Raises:
            Unwritable: if the worker could not write results, which would happen to every run.
        """
        spec = worker.spec
        assert spec is not None
        self.compiled = True
        kind = event["event"]
        if kind == "progress":
            self.watcher.progress(worker.number, spec.id, int(str(event["done"])), spec.episodes)
        elif kind == "refused":
            raise Unwritable(str(event["sentence"]))
        else:
            worker.spec = None
            if kind == "failed":
                self.failed(worker.number, spec, str(event["traceback"]), MOST_TRIES)
            else:
                self.finished(worker.number, spec)

    def lost(self, worker: _Worker) -> None:
        """Give the run of a worker that is gone to another one."""
        if worker.spec is None:
            return
        if self.folder.state(worker.spec.id).state == "done":
            self.finished(worker.number, worker.spec)
            return
        code = worker.process.returncode
        cause = (signal.strsignal(-code) or f"signal {-code}") if code < 0 else f"exit code {code}"
        traceback = f"the worker exited without reporting a result ({cause})."
        self.failed(worker.number, worker.spec, traceback, MOST_LOSSES)
