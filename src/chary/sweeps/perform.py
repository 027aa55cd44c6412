"""Play one run, from its checkpoint if there is one, and return the files of its result."""

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
from chary.errors import InvalidData, check_integer, check_real
from chary.storage.archives import npz_bytes
from chary.storage.files import UNREADABLE, json_line
from chary.storage.sealed import pack, unpack
from chary.sweeps.family import CPU
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

log = logging.getLogger("chary")

# At most this much of a run is lost to a power cut. A checkpoint takes up to 30 MB, for the explorers of open
# chains.
CHECKPOINT_SECONDS = 10.0
KIND = "run"

# Entries of a summary that depend on the machine and not on the run.
NOT_RESULTS = ("seconds", "episodes_per_second", "version")


class Spent:
    """The seconds spent on a run, those before its last interruption included."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        kept = {"resumed": -1, "wall": 0.0, "cpu": 0.0} if before is None else before
        self.resumed = check_integer("resumed", kept["resumed"], minimum=-1, error=InvalidData) + 1
        self._before = [check_real(name, kept[name], low=0.0, error=InvalidData) for name in ("wall", "cpu")]
        self.start()

    def start(self) -> None:
        """Start the clock, again where it runs already."""
        self._began, self._busy = time.perf_counter(), time.process_time()

    def until_now(self, *, runs: int = 1) -> dict[str, Any]:
        """Return `wall` and `cpu` seconds, and how often the run was `resumed`.

        Args:
            runs: The number of runs that were played side by side, and share the time.
        """
        return {
            "wall": self._before[0] + (time.perf_counter() - self._began) / runs,
            "cpu": self._before[1] + (time.process_time() - self._busy) / runs,
            "resumed": self.resumed,
        }


def perform(
    spec: RunSpec,
    folder: SweepFolder | None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, bytes]:
    """Play a run on a CPU, from its checkpoint in `folder` if there is one, and return its files.

    Interruptions, and a change of machine, alter nothing but the provenance. Agents of the user's own have no
    checkpoints: a run of one begins again.

    Raises:
        InvalidSetting: if a checkpoint cannot be written.
    """
    # Read at the start: files of the checkout may change while a run goes on.
    _surroundings(family_of(spec.problem).packages)
    simulation, spent = prepare(spec, folder)
    if not spent.resumed:
        simulation.start()
    report(simulation.done, spec.episodes)
    saved = time.perf_counter()
    while simulation.done < spec.episodes:
        report(simulation.advance(), spec.episodes)
        now = time.perf_counter()
        if (
            folder is not None
            and simulation.can_be_saved
            and now - saved >= checkpoint_seconds
            and simulation.done < spec.episodes
        ):
            save(spec, folder, simulation, spent.until_now())
            saved = time.perf_counter()
    return result_files(spec, simulation.result(), spent.until_now())


def prepare(spec: RunSpec, folder: SweepFolder | None, device: str = CPU) -> tuple[Any, Spent]:
    """Return the simulation of a run, restored from its checkpoint if it has one from the same device.

    A simulation that was not resumed is yet to be started.
    """
    spent, kept = Spent(), None if folder is None else folder.checkpoint(spec.id)
    simulation = family_of(spec.problem).simulation(spec)
    if kept is None:
        return simulation, spent
    try:
        about, state = unpack(KIND, kept)
        # Checkpoints without a device are from a CPU.
        expected, found = (spec.id, device), (about.get("run"), about.get("device", CPU))
        if found != expected:
            raise InvalidData(f"a checkpoint must be of run and device {expected!r}, got {found!r}.")
        simulation.restore(state)
        return simulation, Spent(about)
    # A checkpoint can be changed and sealed again: malformed values may lead to anything.
    except UNREADABLE as problem:
        log.warning("run %s starts again: %s", spec.id, problem)
        # A new one: a checkpoint may be refused after half of it was restored.
        return family_of(spec.problem).simulation(spec), spent


def save(
    spec: RunSpec, folder: SweepFolder, simulation: Any, spent: Mapping[str, Any], device: str = CPU
) -> None:
    """Write a checkpoint from which `prepare` restores a run."""
    about = {"run": spec.id, "device": device, **spent}
    content = pack(KIND, simulation.state(), about, container=family_of(spec.problem).container)
    folder.write_checkpoint(spec.id, content)
    folder.note_running(spec.id, simulation.done)


def result_files(
    spec: RunSpec, run: Any, spent: Mapping[str, Any], made_by: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """Return the files of a run's result.

    Args:
        spec: The run.
        run: The result of its simulation.
        spent: The value of `Spent.until_now`.
        made_by: Further entries of the provenance, `device` among them where it was not a CPU.
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
        **({"sources": sources} if (sources := family.sources(spec)) else {}),
        **(made_by or {}),
    }
    return {
        "spec.json": (spec.canonical + "\n").encode(),
        "result.npz": npz_bytes(family.arrays(run)),
        "result.json": json_line(summary),
        "provenance.json": json_line(provenance),
    }


@cache
def _surroundings(packages: tuple[str, ...]) -> dict[str, Any]:
    """Return the provenance that all runs of this process share."""
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
