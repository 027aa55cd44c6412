"""Runs on a Ray cluster: their results come back as bytes and are kept in the same folder."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, final

from chary.errors import InvalidSetting, Unwritable, check_installed
from chary.sweeps.engines import MOST_LOSSES, MOST_TRIES, Failure, Pending, Watcher, one_core
from chary.sweeps.family import CPU
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import CHECKPOINT_SECONDS, perform
from chary.sweeps.run_spec import RunSpec

# Seconds that a cluster may take to answer the first call.
ANSWER_SECONDS = 5.0
# A cluster that did not answer so often, every so many seconds, is lost. A process that then hangs in Ray is
# ended after GRACE_SECONDS: Ray itself would end it, without a word, after a minute (as of 2.60).
MOST_SILENCES, PROBE_SECONDS, GRACE_SECONDS = 3, 1.5, 4.0


@final
class RayEngine:
    """A Ray cluster: a new one on this machine by default, or a running one.

    Args:
        workers: The most runs at once; by default as many as the cluster has cores.
        address: `HOST:PORT` of a running cluster, or `auto` for the one this machine belongs to.
        checkpoint_seconds: Seconds between two checkpoints of a run that can reach the sweep's folder.
    """

    device = CPU

    def __init__(
        self,
        workers: int | None = None,
        *,
        address: str | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._workers, self._address = workers, address
        self._checkpoint_seconds = checkpoint_seconds

    def check(self) -> None:
        """Join the cluster, or start one; raise InvalidSetting if there is no Ray, or no cluster answers."""
        # Ray's messages about a cluster that refuses fill a screen.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        check_installed("ray", "'engine' ray", "cluster")
        import ray

        if self._address not in (None, "auto"):
            _check_answer(str(self._address))
        try:
            ray.init(
                address=self._address or "local",
                num_cpus=self._workers if self._address is None else None,
                include_dashboard=False if self._address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": one_core()},
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as problem:
            raise InvalidSetting(
                f"'address' must be a Ray cluster that lets this process in, got {self._address!r}: "
                f"{str(problem).rstrip('.')}. Where it asks for a token, set RAY_AUTH_MODE=token."
            ) from problem

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run on the cluster that `check` joined, and return those that failed twice.

        Raises:
            Unwritable: if results cannot be written.
            InvalidSetting: if the cluster is lost.
        """
        with _Watch(own=self._address is None) as watch:
            return self._play(specs, folder, watcher, watch)

    def _play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, watcher: Watcher, watch: _Watch
    ) -> list[Failure]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        resources: dict[str, float] = ray.cluster_resources()
        cores = max(1, int(resources.get("CPU", 1)))
        # Ray replaces lost workers; runs that raise are tried again here.
        remote = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(_play)
        room = min(self._workers or cores, cores)
        pending = Pending(specs, folder, watcher)
        running: dict[Any, tuple[int, RunSpec]] = {}
        while pending.specs or running:
            while pending.specs and len(running) < room:
                spec = pending.specs[0]
                taken = {number for number, _ in running.values()}
                number = next(n for n in count() if n not in taken)
                pending.begin(number, spec)
                where = str(folder.path.absolute())
                order = remote.remote(spec.canonical, where, self._checkpoint_seconds)
                running[order] = (number, spec)
            finished, _ = ray.wait(list(running), num_returns=1, timeout=PROBE_SECONDS)
            watch.check()
            if not finished:
                continue
            number, spec = running.pop(finished[0])
            try:
                files = ray.get(finished[0])
            except RayError as problem:
                watch.check()
                raised = isinstance(problem, RayTaskError)
                if isinstance(problem, RayTaskError) and isinstance(problem.cause, Unwritable):
                    raise Unwritable(str(problem.cause)) from problem
                pending.failed(number, spec, str(problem), MOST_TRIES if raised else 1)
            else:
                folder.write(spec.id, files)
                pending.finished(number, spec)
        ray.shutdown()
        return pending.failures


class _Watch:
    """A thread that finds out when a cluster is lost; calls of Ray wait for one that was killed.

    Args:
        own: Whether this process started the cluster.
    """

    def __init__(self, *, own: bool) -> None:
        import ray

        self._own = own
        self._address = str(ray.get_runtime_context().gcs_address)
        self._lost, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lost.is_set():
            import ray

            # This may hang where nobody answers.
            ray.shutdown()
        self._over.set()

    def check(self) -> None:
        """Raise InvalidSetting if the cluster is lost."""
        if self._lost.is_set():
            raise InvalidSetting(self._sentence)

    @property
    def _sentence(self) -> str:
        return (
            f"'engine' ray must keep its cluster, which no longer answers at {self._address}. "
            "Finished runs are kept: start the command again."
        )

    def _probe(self) -> None:
        silences = 0
        while silences < MOST_SILENCES:
            if self._over.wait(PROBE_SECONDS):
                return
            silences = 0 if _answers(self._address) else silences + 1
        if self._own:
            _kill_own_cluster()
        self._lost.set()
        if not self._over.wait(GRACE_SECONDS):
            print(f"chary: {self._sentence}", file=sys.stderr, flush=True)
            os._exit(1)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _kill_own_cluster() -> None:
    """End the processes that Ray started for this one; without its head they would wait for a minute."""
    from ray._private import worker

    node: Any = worker._global_node
    if node is None:
        return
    found = [each.process.pid for kind in node.all_processes.values() for each in kind]
    for pid in found:
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
            found += map(int, listed.split())
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _play(spec: str, path: str, seconds: float) -> dict[str, bytes]:
    """Play a run on a machine of the cluster; checkpoints are kept if it can reach the sweep's folder."""
    folder = SweepFolder(Path(path))
    return perform(RunSpec.from_json(spec), folder if folder.exists() else None, checkpoint_seconds=seconds)


def _check_answer(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError, OverflowError) as problem:
        raise InvalidSetting(
            f"'address' must be HOST:PORT of a running Ray cluster, got {address!r}, which does not answer."
        ) from problem
