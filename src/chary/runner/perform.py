"""Play one run from where it was left, and return the files of its result."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import chary
from chary.errors import InvalidData
from chary.files import as_json, npz_bytes
from chary.run import Run
from chary.runner.folder import SweepFolder
from chary.runner.spec import RunSpec
from chary.sealed import pack, unpack
from chary.simulation import Simulation
from chary.store import run_arrays

__all__ = ["CHECKPOINT_SECONDS", "perform"]

log = logging.getLogger("chary")

# At most this much of a run is lost to a power cut. An explorer for each open chain makes it up to 30 MB.
CHECKPOINT_SECONDS = 10.0
KIND = "run"

# What results may depend on.
PACKAGES = ("numpy", "numba", "scipy", "llvmlite")
# What a summary says of the machine and not of the run.
NOT_RESULTS = ("seconds", "episodes_per_second", "version")


def perform(
    spec: RunSpec,
    folder: SweepFolder | None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, bytes]:
    """Play a run, from its checkpoint in `folder` if there is one, and return the files of its result.

    Where the run was interrupted, how often, and on which machine it goes on changes nothing but the
    provenance.

    Raises:
        InvalidSetting: if a checkpoint cannot be written.
    """
    began, busy = time.perf_counter(), time.process_time()
    surroundings = _surroundings()
    kept = folder.checkpoint(spec.id) if folder is not None else None
    before: dict[str, Any] = {"wall": 0.0, "cpu": 0.0, "resumed": 0}
    resumed = None if kept is None else _resumed(spec, kept)
    if resumed is None:
        simulation = _simulation(spec)
        simulation.start()
    else:
        simulation, about = resumed
        before = {**about, "resumed": about["resumed"] + 1}
    report(simulation.done, spec.episodes)
    saved = time.perf_counter()
    while simulation.done < spec.episodes:
        report(simulation.advance(), spec.episodes)
        now = time.perf_counter()
        if folder is not None and now - saved >= checkpoint_seconds and simulation.done < spec.episodes:
            spent = {
                "run": spec.id,
                "wall": before["wall"] + now - began,
                "cpu": before["cpu"] + time.process_time() - busy,
                "resumed": before["resumed"],
            }
            folder.write_checkpoint(spec.id, pack(KIND, simulation.state(), spent))
            folder.note_running(spec.id, simulation.done)
            saved = time.perf_counter()
    run = simulation.result()
    provenance = {
        **surroundings,
        "wall_seconds": before["wall"] + time.perf_counter() - began,
        "cpu_seconds": before["cpu"] + time.process_time() - busy,
        "episode_seconds": run.seconds,
        "resumed": before["resumed"],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {**_result_files(spec, run), "provenance.json": _lines(provenance)}


def _result_files(spec: RunSpec, run: Run) -> dict[str, bytes]:
    summary = {key: value for key, value in run.summary().items() if key not in NOT_RESULTS}
    return {
        "spec.json": (spec.canonical + "\n").encode(),
        "result.npz": npz_bytes(run_arrays(run)),
        "result.json": _lines(summary),
    }


def _simulation(spec: RunSpec) -> Simulation:
    mdp, agent = spec.make()
    return Simulation(
        mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed, coverage=spec.coverage
    )


def _resumed(spec: RunSpec, kept: bytes) -> tuple[Simulation, dict[str, Any]] | None:
    """Return a simulation that goes on from a checkpoint; None where that is of no use."""
    # One of its own: a checkpoint that does not fit is found out when half of it was taken over.
    simulation = _simulation(spec)
    try:
        about, state = unpack(KIND, kept)
        if about.get("run") != spec.id:
            raise InvalidData(f"a checkpoint must be of run {spec.id}, got {about.get('run')!r}.")
        simulation.restore(state)
    except InvalidData as problem:
        log.warning("run %s starts again: %s", spec.id, problem)
        return None
    return simulation, about


@cache
def _surroundings() -> dict[str, Any]:
    """Return what a result must say about where it came from."""
    return {
        "version": chary.__version__,
        **_checkout(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "byte_order": sys.byteorder,
    }


def _checkout() -> dict[str, Any]:
    """Return the commit that the package was checked out at, and whether files were changed since."""
    package = Path(chary.__file__)

    def git(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", *arguments], cwd=package.parent, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return answer.stdout.strip()

    # A package that is installed inside another project's checkout has no commit.
    if git("ls-files", "--error-unmatch", package.name) is None:
        return {"commit": None, "changed": None}
    changes = git("status", "--porcelain", "--untracked-files=no", ".")
    return {"commit": git("rev-parse", "HEAD"), "changed": None if changes is None else changes != ""}


def _lines(values: dict[str, Any]) -> bytes:
    return (as_json(values) + "\n").encode()
