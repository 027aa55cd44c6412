"""Play one run from where it was left, and return the files of its result."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import chary
from chary.errors import InvalidData
from chary.storage.files import as_json, npz_bytes
from chary.storage.sealed import pack, unpack
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

__all__ = ["CHECKPOINT_SECONDS", "checkpoint_of", "perform", "restored", "result_files"]

log = logging.getLogger("chary")

# At most this much of a run is lost to a power cut. An explorer for each open chain makes it up to 30 MB.
CHECKPOINT_SECONDS = 10.0
KIND = "run"

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
    # Asked for at the start: files of the checkout may change while a run goes on.
    _surroundings(family_of(spec.problem).packages)
    kept = folder.checkpoint(spec.id) if folder is not None else None
    before: dict[str, Any] = {"wall": 0.0, "cpu": 0.0, "resumed": 0}
    found = None if kept is None else restored(spec, kept)
    if found is None:
        simulation = family_of(spec.problem).simulation(spec)
        simulation.start()
    else:
        simulation, about = found
        before = {**about, "resumed": about["resumed"] + 1}

    def spent() -> dict[str, Any]:
        return {
            **before,
            "wall": before["wall"] + time.perf_counter() - began,
            "cpu": before["cpu"] + time.process_time() - busy,
        }

    report(simulation.done, spec.episodes)
    saved = time.perf_counter()
    while simulation.done < spec.episodes:
        report(simulation.advance(), spec.episodes)
        now = time.perf_counter()
        if folder is not None and now - saved >= checkpoint_seconds and simulation.done < spec.episodes:
            folder.write_checkpoint(spec.id, checkpoint_of(spec, simulation, spent()))
            folder.note_running(spec.id, simulation.done)
            saved = time.perf_counter()
    run = simulation.result()
    return result_files(spec, run, spent())


def result_files(spec: RunSpec, run: Any, spent: Mapping[str, Any], **told: Any) -> dict[str, bytes]:
    """Return the files of a run's result.

    Args:
        spec: What the run is.
        run: What its simulation returned.
        spent: Seconds as `wall` and `cpu`, and how often it was `resumed`.
        told: What else is to be known about where it was made.
    """
    family = family_of(spec.problem)
    summary = {key: value for key, value in run.summary().items() if key not in NOT_RESULTS}
    provenance = {
        **_surroundings(family.packages),
        "wall_seconds": spent["wall"],
        "cpu_seconds": spent["cpu"],
        "episode_seconds": run.seconds,
        "resumed": spent["resumed"],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **told,
    }
    return {
        "spec.json": (spec.canonical + "\n").encode(),
        "result.npz": npz_bytes(family.arrays(run)),
        "result.json": _lines(summary),
        "provenance.json": _lines(provenance),
    }


def checkpoint_of(spec: RunSpec, simulation: Any, spent: Mapping[str, Any]) -> bytes:
    """Return how far a run came, as `restored` takes it."""
    about = {"run": spec.id, **{name: spent[name] for name in ("wall", "cpu", "resumed")}}
    return pack(KIND, simulation.state(), about, container=family_of(spec.problem).container)


def restored(spec: RunSpec, kept: bytes) -> tuple[Any, dict[str, Any]] | None:
    """Return a simulation that goes on from a checkpoint, and what was spent; None where it is of no use."""
    # One of its own: a checkpoint that does not fit is found out when half of it was taken over.
    simulation = family_of(spec.problem).simulation(spec)
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
def _surroundings(packages: tuple[str, ...]) -> dict[str, Any]:
    """Return what a result must say about where it came from."""
    return {
        "version": chary.__version__,
        **_checkout(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in packages},
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
