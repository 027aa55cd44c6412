"""The commands for many runs: reproduce, sweep, status, report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary._workers import check_workers
from chary.cli.options import Json
from chary.cli.terminal import SweepBars, say, show
from chary.errors import (
    MOST_WORKERS,
    InvalidSetting,
    check_choice,
    check_installed,
    check_integer,
    check_real,
)
from chary.storage.files import as_json as json_line
from chary.texts import shown, visible

if TYPE_CHECKING:
    from chary.callbacks import Callback
    from chary.sweeps.engines import Engine
    from chary.sweeps.run_spec import RunSpec
    from chary.sweeps.spec import Experiment

FAILED = 1
PRESETS = "inventory|sepsis|sepsis-worlds|hiv|cartpole|glucose|plane"

Folder = Annotated[Path, typer.Argument(help="Folder of a sweep.", show_default=False, metavar="DIR")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of reproduce and sweep.

    Args:
        quick: Run fewer seeds, episodes and studies, with the same report.
        seeds: Number of seeds.
        episodes: Number of online episodes per run.
        etas: Budgets, separated by commas or given by several options.
        studies: Which studies to run in addition to the main one.
        patient: The patient to treat, for hiv only.
        device: The device that the learner computes on, for problems with continuous states.
        out: The folder of the sweep.
        workers: Number of processes, one per core by default.
        engine: Where the runs are executed.
        address: Address HOST:PORT of a running cluster, for engine ray only.
        extend: Add runs to a folder that contains some of them.
        recompute: Compute results again if their files were changed.
        save_every: Seconds between checkpoints of an unfinished run.
        report: Write the report at the end.
        log: Logger for the episodes of every finished run, in the folder log.
    """

    quick: bool = False
    seeds: int | None = None
    episodes: int | None = None
    etas: Annotated[Sequence[str], "X,..."] = ()
    studies: Annotated[str | None, "all|none|NAME,..."] = None
    patient: Annotated[str | None, "base|0..5"] = None
    device: Annotated[str, ("cpu", "gpu")] = "cpu"
    out: Annotated[Path | None, "DIR"] = None
    workers: int | None = None
    engine: Annotated[str, ("local", "ray")] = "local"
    address: Annotated[str | None, "ADDRESS"] = None
    extend: bool = False
    recompute: bool = False
    save_every: float | None = None
    report: bool = True
    log: Annotated[str | None, "csv|tensorboard|mlflow|wandb"] = None

    def changed(self, asked: Experiment, extra: Sequence[str]) -> Experiment:
        """Return an experiment with these changes; `extra` are the arguments after the last option."""
        chosen: list[str] | None = list(asked.quick.studies) if self.quick else None
        if self.studies is not None:
            every = {"all": [study.name for study in asked.studies], "none": []}
            chosen = every.get(self.studies, self.studies.split(","))
        if extra and not self.etas:
            raise InvalidSetting(f"'{extra[0]}' is one argument too many.")
        budgets = _numbers([*self.etas, *extra]) if self.etas else None
        return (asked.shrunk() if self.quick else asked).changed(
            episodes=self.episodes, seeds=self.seeds, etas=budgets, studies=chosen, patient=self.patient
        )

    def made_engine(self, asked: Experiment) -> Engine:
        """Return the engine that these options describe."""
        from chary.sweeps.engines import ENGINES
        from chary.sweeps.engines.local import LocalEngine
        from chary.sweeps.family import DEVICES
        from chary.sweeps.perform import CHECKPOINT_SECONDS

        check_choice("engine", self.engine, ENGINES)
        check_choice("device", self.device, DEVICES)
        if self.device not in asked.family.devices:
            raise InvalidSetting(
                f"'device' must be {DEVICES[0]!r} with problem {asked.conditions.problem!r}, "
                f"got {shown(self.device)}."
            )
        if self.workers is not None and self.address is None:
            check_workers(self.workers)
        elif self.workers is not None:
            check_integer("workers", self.workers, minimum=1, largest=MOST_WORKERS)
        seconds = self.save_every
        if seconds is not None:
            check_real("save_every", seconds, low=0.0)
        if self.device != DEVICES[0]:
            engine = None if self.engine == ENGINES[0] else self.engine
            given = {"engine": engine, "workers": self.workers, "address": self.address}
            for option, value in given.items():
                if value:
                    raise InvalidSetting(
                        f"{option!r} must be left out with device {self.device!r}, got {shown(value)}: "
                        "one process plays all runs there."
                    )
            from chary.sweeps.engines.gpu import SAVE_SECONDS, DeviceEngine

            return DeviceEngine(checkpoint_seconds=SAVE_SECONDS if seconds is None else seconds)
        seconds = CHECKPOINT_SECONDS if seconds is None else seconds
        if self.engine == "ray":
            from chary.sweeps.engines.ray import RayEngine

            return RayEngine(self.workers, address=self.address, checkpoint_seconds=seconds)
        if self.address is not None:
            raise InvalidSetting(
                f"'address' must be left out with engine 'local', got {self.address!r}. Use --engine ray."
            )
        return LocalEngine(self.workers, checkpoint_seconds=seconds)


def _reproduce(
    *,
    context: typer.Context,
    experiment: Annotated[
        str, typer.Argument(help="Name of an experiment.", show_default=False, metavar=PRESETS)
    ],
    options: SweepOptions,
    as_json: Json = False,
) -> None:
    """Reproduce an experiment of the paper and extend it: run what is missing, then write the report.

    The command is safe to interrupt: started again, it does only what is missing.
    """
    from chary.sweeps.toml import preset_experiment

    _run(preset_experiment(experiment), options, context, as_json)


def _sweep(
    *,
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="An experiment in TOML, like those in experiments/.", metavar="FILE.toml"),
    ] = None,
    options: SweepOptions,
    template: Annotated[
        str | None, typer.Option(help="Print a preset to start from and run nothing.", metavar=PRESETS)
    ] = None,
    as_json: Json = False,
) -> None:
    """Run your own experiment: run what is missing, then write the report."""
    from chary.sweeps.toml import preset_experiment, read_experiment

    if template is not None:
        say(preset_experiment(template).to_toml(), end="")
        return
    if file is None:
        raise InvalidSetting("'FILE.toml' must be given. Start from `chary sweep --template inventory`.")
    _run(read_experiment(file), options, context, as_json)


def _status(*, directory: Folder, as_json: Json = False) -> None:
    """Show which runs of a sweep are done, running, failed, missing or damaged."""
    from chary.sweeps.folder import STATES, SweepFolder

    folder = SweepFolder(directory)
    states = folder.states()
    counts = {word: sum(state.state == word for state in states) for word in STATES}
    if as_json:
        runs = [{**state._asdict(), "reason": state.reason or None} for state in states]
        about = {"experiment": folder.experiment().name, "in_use": folder.in_use()}
        say(json_line({**about, **counts, "runs": runs}))
        return
    show(("runs", ""), [(word, str(number)) for word, number in counts.items()])
    labels = _labels(folder.experiment())
    for state in states:
        if state.state in ("running", "failed", "damaged"):
            # The last line of a traceback names the error.
            reason = state.reason.strip().splitlines()[-1:] or [
                f"{state.episodes} episodes at its last checkpoint"
            ]
            say(f"{state.id} {state.state}: {labels[state.id]}: {reason[0]}")


def _report(
    *,
    directory: Folder,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the report, by default the folder report inside the sweep's.", metavar="DIR"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a sweep: one page, figures as PNG and PDF, and tables."""
    from chary.report import write_report

    page = write_report(directory, out)
    if as_json:
        say(json_line({"page": str(page), "bytes": page.stat().st_size, "promises": _promises(page)}))
    else:
        say(f"Report: {page}")


def _promises(page: Path) -> list[dict[str, Any]]:
    """Return the standings in a report, with the algorithms that have them."""
    told = json.loads((page.parent / "claims.json").read_text(encoding="utf-8"))
    promises: list[dict[str, Any]] = told["promises"]
    return promises


def _numbers(texts: list[str]) -> list[float]:
    values = [part.strip() for text in texts for part in text.split(",")]
    try:
        return [float(value) for value in values]
    except ValueError as problem:
        raise InvalidSetting(f"'etas' must be numbers, got {','.join(values)!r}.") from problem


def _labels(experiment: Experiment) -> dict[str, str]:
    labels: dict[str, str] = {}
    for each in experiment.plan():
        budget = "" if each.eta is None else f", eta {each.eta:g}"
        variant = f", {each.variant}" if each.variant else ""
        labels.setdefault(each.spec.id, visible(f"{each.algorithm}{budget}{variant}, seed {each.seed}"))
    return labels


def _run(asked: Experiment, options: SweepOptions, context: typer.Context, as_json: bool) -> None:
    """Run what is missing of an experiment, changed by the options, and write its report."""
    from chary.sweeps import sweep
    from chary.sweeps.folder import SweepFolder

    folder = options.out or Path("results", f"{asked.name}-quick" if options.quick else asked.name)
    experiment = options.changed(asked, context.args)
    engine = options.made_engine(experiment)
    labels = _labels(experiment)
    experiment.family.check_installed()
    if options.report:
        for package in ("polars", "plotly", "matplotlib", "jinja2"):
            check_installed(package, "The report, which --no-report leaves out,", "report")
    logged = None if options.log is None else _logging(options.log, folder)
    with SweepBars(len(labels), labels) as bars:
        typed = f"chary {shlex.join(context.obj or sys.argv[1:])}"
        choices = {"extend": options.extend, "recompute": options.recompute}
        result = sweep(experiment, folder, engine, bars, command=typed, callbacks=logged, **choices)
    page = None
    if options.report and result.found + result.played:
        from chary.report import write_report

        page = write_report(folder)
    if as_json:
        states = SweepFolder(folder).states()
        summary = {
            "experiment": experiment.name,
            "folder": str(folder),
            "runs": len(labels),
            "found": result.found,
            "played": result.played,
            "failed": [failure.run for failure in result.failures],
            "done": sum(state.state == "done" for state in states),
            "report": None if page is None else str(page),
            "promises": None if page is None else _promises(page),
        }
        say(json_line(summary))
    else:
        say(f"{result.found} runs existed, {result.played} were played, {len(result.failures)} failed.")
        if page is not None:
            say(f"Report: {page}")
    for failure in result.failures:
        reason = failure.traceback.rstrip()
        say(f"\n{failure.run} ({labels[failure.run]}) failed:\n{reason}", error=True)
    if result.failures:
        raise typer.Exit(FAILED)


def _logging(kind: str, folder: Path) -> Callable[[RunSpec], list[Callback]]:
    """Return what makes the logger of a run; the package that it needs is there."""
    from chary.callbacks.loggers import check_logger, logger_in

    check_logger(kind)
    return lambda spec: [logger_in(kind, folder / "log", spec.id)]


COMMANDS = {"reproduce": _reproduce, "sweep": _sweep, "status": _status, "report": _report}
