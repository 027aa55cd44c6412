"""Do what is missing of an experiment, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from chary.errors import InvalidData
from chary.sweeps.engines.local import Engine, Failure, Watcher
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment

__all__ = ["SweepResult", "sweep"]


class SweepResult(NamedTuple):
    """How many runs were there already, how many were played, and those that failed."""

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
) -> SweepResult:
    """Play the runs of `experiment` that `out` does not hold yet.

    Args:
        experiment: What is to be there in the end.
        out: A folder that holds this experiment, or nothing.
        engine: What plays.
        watcher: Who is told how it goes on.
        command: What the user typed, kept beside the results.
        extend: Whether the folder may hold a part of this experiment.
        recompute: Whether results that were tampered with are computed again.

    Raises:
        CharyError: if the experiment makes no sense, the folder holds another or is in use or cannot be
            written to, or a result in it was tampered with.
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
        for state in damaged:
            folder.discard(state.id)
        missing = [spec for run, spec in specs.items() if states[run].state != "done"]
        failures = engine.play(missing, folder, lock, watcher) if missing else []
        return SweepResult(len(specs) - len(missing), len(missing) - len(failures), failures)
