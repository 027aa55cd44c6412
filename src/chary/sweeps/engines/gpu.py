"""Runs of the deep learner on a GPU: one process, runs of one kind side by side, kept in the same folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from chary.errors import InvalidSetting
from chary.sweeps.engines.local import Failure, Watcher
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import checkpoint_of, restored, result_files
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

__all__ = ["DeviceEngine"]

# Seconds between two times that all lanes are saved: each is several megabytes.
SAVE_SECONDS = 120.0
# The most runs side by side.
LANES = 64


class _Lane(NamedTuple):
    """A run, what plays it, and what was spent on it before."""

    spec: RunSpec
    simulation: Any
    before: dict[str, Any]


@final
class DeviceEngine:
    """The GPU that JAX sees. Results differ from a CPU's by rounding, and say where they were made.

    Args:
        lanes: The most runs side by side, >= 1.
        checkpoint_seconds: How often runs are saved.
    """

    def __init__(self, lanes: int = LANES, *, checkpoint_seconds: float = SAVE_SECONDS) -> None:
        self._lanes = lanes
        self._checkpoint_seconds = checkpoint_seconds

    def check(self) -> None:
        """Raise InvalidSetting if JAX is not installed, or sees no GPU."""
        try:
            import jax
        except ImportError as problem:
            raise InvalidSetting(
                "'device' gpu needs the package jax, got none. Run: pip install 'chary[deep]'."
            ) from problem
        if not any(device.platform == "gpu" for device in jax.devices()):
            raise InvalidSetting(
                "'device' gpu needs a GPU that JAX sees, got none. Install JAX for it, as with "
                "pip install 'jax[cuda13]', or use --device cpu."
            )

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run, and return those whose equations could not be integrated.

        Raises:
            Unwritable: if results cannot be written.
        """
        groups: dict[tuple[str, int], list[_Lane]] = {}
        for spec in specs:
            kept = folder.checkpoint(spec.id)
            found = None if kept is None else restored(spec, kept)
            family = family_of(spec.problem)
            lane = _Lane(spec, family.simulation(spec), {"wall": 0.0, "cpu": 0.0, "resumed": 0})
            if found is not None:
                lane = _Lane(spec, found[0], {**found[1], "resumed": found[1]["resumed"] + 1})
            # Lanes advance together: those that were saved go on with others that came as far.
            groups.setdefault((family.compiled(spec), lane.simulation.done), []).append(lane)
        failures = []
        for group in groups.values():
            for start in range(0, len(group), self._lanes):
                failures += self._together(group[start : start + self._lanes], folder, watcher)
        return failures

    def _together(self, lanes: Sequence[_Lane], folder: SweepFolder, watcher: Watcher) -> list[Failure]:
        make_lanes = family_of(lanes[0].spec.problem).lanes
        assert make_lanes is not None
        began, busy = time.perf_counter(), time.process_time()

        def spent(lane: _Lane) -> dict[str, Any]:
            """Return a run's share of what its batch took."""
            return {
                **lane.before,
                "wall": lane.before["wall"] + (time.perf_counter() - began) / len(lanes),
                "cpu": lane.before["cpu"] + (time.process_time() - busy) / len(lanes),
            }

        for number, lane in enumerate(lanes):
            folder.note_running(lane.spec.id, lane.simulation.done)
            watcher.progress(number, lane.spec.id, lane.simulation.done, lane.spec.episodes)
        batch = make_lanes([lane.simulation for lane in lanes])
        if batch.done == 0:
            batch.start()
        saved = time.perf_counter()
        while batch.done < batch.episodes:
            batch.advance()
            for number, lane in enumerate(lanes):
                watcher.progress(number, lane.spec.id, batch.done, lane.spec.episodes)
            now = time.perf_counter()
            if now - saved >= self._checkpoint_seconds and batch.done < batch.episodes:
                batch.settle()
                for number, lane in enumerate(lanes):
                    if number not in batch.failed:
                        content = checkpoint_of(lane.spec, lane.simulation, spent(lane))
                        folder.write_checkpoint(lane.spec.id, content)
                        folder.note_running(lane.spec.id, batch.done)
                saved = time.perf_counter()
        batch.settle()
        failures = []
        for number, lane in enumerate(lanes):
            if number in batch.failed:
                failures.append(Failure(lane.spec.id, str(batch.failed[number])))
                folder.note_failed(lane.spec.id, failures[-1].traceback)
            else:
                told = {"device": _device(), "lanes": len(lanes)}
                run = lane.simulation.result()
                folder.write(lane.spec.id, result_files(lane.spec, run, spent(lane), **told))
            watcher.finished(number, lane.spec.id, failed=number in batch.failed)
        return failures


def _device() -> str:
    import jax

    return str(jax.devices()[0].device_kind)
