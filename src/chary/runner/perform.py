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
from chary.run import Run
from chary.runner.checkpoint import pack, unpack
from chary.runner.folder import SweepFolder
from chary.runner.spec import RunSpec
from chary.simulation import Simulation
from chary.store import as_json, npz_bytes, run_arrays

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
    mdp, agent = spec.make()
    simulation = Simulation(
        mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed, coverage=spec.coverage
    )
    before = {"wall": 0.0, "cpu": 0.0, "resumed": 0}
    kept = folder.checkpoint(spec.id) if folder is not None else None
    if kept is not None and (about := _restored(simulation, spec, kept)) is not None:
        before = {**about, "resumed": about["resumed"] + 1}
    else:
        simulation.start()
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
        **_surroundings(),
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


def _restored(simulation: Simulation, spec: RunSpec, kept: bytes) -> dict[str, Any] | None:
    """Let a simulation go on from a checkpoint; None where that is of no use, and the run starts again."""
    try:
        about, state = unpack(KIND, kept)
        if about.get("run") != spec.id:
            raise InvalidData(f"a checkpoint must be of run {spec.id}, got {about.get('run')!r}.")
        simulation.restore(state)
    except InvalidData as problem:
        log.warning("run %s starts again: %s", spec.id, problem)
        return None
    return about


@cache
def _surroundings() -> dict[str, Any]:
    """Return what a result must say about where it came from."""
    root = Path(chary.__file__).parent
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "version": chary.__version__,
        "commit": found or None,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "byte_order": sys.byteorder,
    }


def _lines(values: dict[str, Any]) -> bytes:
    return (as_json(values) + "\n").encode()
