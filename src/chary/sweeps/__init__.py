"""Sweeps: many runs described by one file, played by many processes, kept in one folder.

`sweep` plays what is missing of an experiment, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from chary.errors import CharyError, InvalidData, InvalidSetting
from chary.extensions import theirs
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment
from chary.texts import shown

if TYPE_CHECKING:
    from chary.callbacks import Callback
    from chary.sweeps.engines import Engine, Failure, Watcher

__all__ = ["SweepResult", "sweep"]


class SweepResult(NamedTuple):
    """The number of runs that were there already, the number that were played, and those that failed."""

    found: int
    played: int
    failures: list[Failure]


def sweep(
    experiment: Experiment,
    out: Path,
    engine: Engine,
    watcher: Watcher,
    *,
    command: str = "",
    extend: bool = False,
    recompute: bool = False,
    callbacks: Callable[[RunSpec], Sequence[Callback]] | None = None,
) -> SweepResult:
    """Play the runs of `experiment` that `out` does not contain yet.

    Args:
        experiment: The runs that `out` contains in the end.
        out: A folder that contains this experiment, or nothing.
        engine: The engine that plays.
        watcher: The observer of its progress.
        command: The command that the user typed, kept with the results.
        extend: Whether the folder may contain a part of this experiment.
        recompute: Whether results that were tampered with, or whose code of the user's own has changed since,
            are computed again.
        callbacks: Called in this process with each run that is finished; what it returns is told of the run's
            episodes, from the results in the folder, and closed.

    Raises:
        CharyError: if the experiment makes no sense; if the folder contains another one, is in use or cannot
            be written to; or if a result in it was tampered with, or computed on another kind of processor.
    """
    experiment.check()
    engine.check()
    folder = SweepFolder(out)
    with folder.held(experiment, command, extend=extend) as lock:
        specs = {each.spec.id: each.spec for each in experiment.plan()}
        states = {run: folder.state(run, in_use=False) for run in specs}
        damaged = [state for state in states.values() if state.state == "damaged"]
        if damaged and not recompute:
            others = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            raise InvalidData(
                f"{damaged[0].reason.rstrip('.')}{others}. Pass --recompute to compute "
                f"{'them' if len(damaged) > 1 else 'it'} again."
            )
        done = [run for run in specs if states[run].state == "done"]
        changed = [run for run in done if folder.sources(run) != experiment.family.sources(specs[run])]
        if changed and not recompute:
            raise InvalidSetting(
                f"your own code must be that of the finished runs in {str(out)!r}, got another for "
                f"{len(changed)} of them. Choose another folder, or pass --recompute to play them again."
            )
        for run in (*(state.id for state in damaged), *changed):
            folder.discard(run)
        again = {state.id for state in damaged} | set(changed)
        missing = [spec for run, spec in specs.items() if run in again or states[run].state != "done"]
        if missing:
            _check_device(engine, folder, (run for run in done if run not in again))
        if callbacks is not None:
            watcher = _Telling(watcher, folder, specs, callbacks)
        failures = engine.play(missing, folder, lock, watcher) if missing else []
        return SweepResult(len(specs) - len(missing), len(missing) - len(failures), failures)


@final
class _Telling:
    """A watcher that tells callbacks of every run that is finished, besides another watcher."""

    def __init__(
        self,
        watcher: Watcher,
        folder: SweepFolder,
        specs: dict[str, RunSpec],
        callbacks: Callable[[RunSpec], Sequence[Callback]],
    ) -> None:
        self._watcher, self._folder, self._specs, self._make = watcher, folder, specs, callbacks

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        self._watcher.progress(worker, run, done, total)

    def finished(self, worker: int, run: str, *, failed: bool) -> None:
        self._watcher.finished(worker, run, failed=failed)
        if not failed:
            self._tell(self._specs[run])

    def _tell(self, spec: RunSpec) -> None:
        from chary.callbacks import Told, log

        try:
            with theirs("'callbacks'"):
                told = Told(self._make(spec))
        except CharyError as problem:
            # A sweep does not end for want of a logger.
            log.warning("run %s is not logged: %s", spec.id, problem)
            return
        arrays = self._folder.read(spec.id).arrays
        one_each = {name: array for name, array in arrays.items() if array.shape == (spec.episodes,)}
        with told:
            told.episodes(0, {name: each for name, each in one_each.items() if not name.startswith("chain_")})
            told.close()


def _check_device(engine: Engine, folder: SweepFolder, done: Iterable[str]) -> None:
    """Raise InvalidSetting if results in the folder were rounded otherwise than those of the engine."""
    others = sorted({folder.device(run) for run in done} - {engine.device})
    if others:
        raise InvalidSetting(
            f"'device' must be that of the other results in {str(folder.path)!r}, {others[0]!r}, got "
            f"{shown(engine.device)}, which rounds differently. Choose another folder, or the other device."
        )
