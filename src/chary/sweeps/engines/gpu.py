"""Runs on a GPU: one process, runs of one kind side by side, kept in the same folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from chary.errors import InvalidSetting, check_installed
from chary.sweeps.engines import Failure, Pending, Watcher
from chary.sweeps.folder import SweepFolder
from chary.sweeps.perform import Spent, prepare, result_files, save
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import family_of

# Seconds between two checkpoints of all lanes: each is several megabytes.
SAVE_SECONDS = 120.0
# The most runs side by side.
LANES = 64


class _Lane(NamedTuple):
    """A run, its simulation, and the time spent on it."""

    spec: RunSpec
    simulation: Any
    spent: Spent


@final
class DeviceEngine:
    """The GPU that JAX finds.

    Results differ from those of a CPU by rounding, and so do results of batches of different sizes: their
    provenance names the `device` and the number of `lanes`.

    Args:
        lanes: The most runs side by side, >= 1.
        checkpoint_seconds: Seconds between two checkpoints of a run.
    """

    def __init__(self, lanes: int = LANES, *, checkpoint_seconds: float = SAVE_SECONDS) -> None:
        self._lanes = lanes
        self._checkpoint_seconds = checkpoint_seconds

    @property
    def device(self) -> str:
        """The name of the GPU."""
        import jax

        return str(jax.devices()[0].device_kind)

    def check(self) -> None:
        """Raise InvalidSetting if JAX is not installed, or finds no GPU."""
        check_installed("jax", "'device' gpu", "deep")
        import jax

        if not any(device.platform == "gpu" for device in jax.devices()):
            raise InvalidSetting(
                "'device' gpu needs a GPU that JAX finds. Install JAX for it, as with "
                "pip install 'jax[cuda13]', or use --device cpu."
            )

    def play(
        self, specs: Sequence[RunSpec], folder: SweepFolder, lock: int, watcher: Watcher
    ) -> list[Failure]:
        """Play every run, and return those whose equations could not be integrated.

        Raises:
            Unwritable: if results cannot be written.
        """
        pending = Pending(specs, folder, watcher)
        groups: dict[tuple[str, int], list[_Lane]] = {}
        for spec in specs:
            lane = _Lane(spec, *prepare(spec, folder, self.device))
            # Lanes advance together: a resumed run joins others that came equally far.
            key = (family_of(spec.problem).compiled(spec), lane.simulation.done)
            groups.setdefault(key, []).append(lane)
        for group in groups.values():
            for start in range(0, len(group), self._lanes):
                self._together(group[start : start + self._lanes], folder, watcher, pending)
        return pending.failures

    def _together(
        self, lanes: Sequence[_Lane], folder: SweepFolder, watcher: Watcher, pending: Pending
    ) -> None:
        make_lanes, count = family_of(lanes[0].spec.problem).lanes, len(lanes)
        assert make_lanes is not None
        for number, lane in enumerate(lanes):
            pending.begin(number, lane.spec, lane.simulation.done)
            lane.spent.start()
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
                        spent = lane.spent.until_now(runs=count)
                        save(lane.spec, folder, lane.simulation, spent, self.device)
                saved = time.perf_counter()
        batch.settle()
        made_by = {"device": self.device, "lanes": count}
        for number, lane in enumerate(lanes):
            if number in batch.failed:
                pending.failed(number, lane.spec, str(batch.failed[number]), 1)
                continue
            spent = lane.spent.until_now(runs=count)
            folder.write(lane.spec.id, result_files(lane.spec, lane.simulation.result(), spent, made_by))
            pending.finished(number, lane.spec)
