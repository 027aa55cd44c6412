"""Runs on a Ray cluster: their results come back as bytes and are kept in the same folder."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
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
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cores = max(1, int(resources.get("CPU", 1)))
        # Ray replaces lost workers; runs that raise are tried again here.
        remote = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(_play)
        room = min(self._workers or cores, cores)
        pending = Pending(specs, folder, watcher)
        running: dict[Any, tuple[int, RunSpec]] = {}
        while pending.specs or running:
            while pending.specs and len(running) < room:
                spec = pending.specs[0]
                number = min(set(range(room)) - {number for number, _ in running.values()})
                pending.begin(number, spec)
                where = str(folder.path.absolute())
                order = remote.remote(spec.canonical, where, self._checkpoint_seconds)
                running[order] = (number, spec)
            finished, _ = ray.wait(list(running), num_returns=1)
            number, spec = running.pop(finished[0])
            try:
                files = ray.get(finished[0])
            except RayError as problem:
                raised = isinstance(problem, RayTaskError)
                if isinstance(problem, RayTaskError) and isinstance(problem.cause, Unwritable):
                    raise Unwritable(str(problem.cause)) from problem
                pending.failed(number, spec, str(problem), MOST_TRIES if raised else 1)
            else:
                folder.write(spec.id, files)
                pending.finished(number, spec)
        ray.shutdown()
        return pending.failures


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
