"""The commands for many runs: reproduce, sweep, status, report."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chary.cli.options import Json, count, number, word
from chary.cli.terminal import SweepBars, show
from chary.errors import InvalidSetting, check_choice, check_integer, check_real

if TYPE_CHECKING:
    from chary.sweeps.engines.local import Engine
    from chary.sweeps.spec import Experiment
    from chary.sweeps.sweep import SweepResult

__all__ = ["add_sweep_commands"]

FAILED = 1
# An extra number behind `--etas 0.1` is one more budget.
MORE_NUMBERS = {"allow_extra_args": True, "ignore_unknown_options": False}

Quickly = Annotated[bool, typer.Option("--quick", help="Fewer seeds, episodes and studies, the same report.")]
Seeds = Annotated[int | None, count("How many seeds.")]
Episodes = Annotated[int | None, count("Online episodes of every run.")]
Etas = Annotated[
    list[str] | None,
    typer.Option(help="Budgets, one an option or several with commas between them.", metavar="X,..."),
]
Studies = Annotated[str | None, word("all|none|NAME,...", "Which studies are run beside the main one.")]
Patient = Annotated[str | None, word("base|0..5", "hiv: who is treated.")]
Device = Annotated[str, word("cpu|gpu", "hiv: what the learner computes on.")]
Out = Annotated[Path | None, typer.Option(help="The sweep's folder.", metavar="DIR", show_default=False)]
Workers = Annotated[int | None, count("Processes; one a core by default.")]
EngineName = Annotated[str, word("local|ray", "What plays the runs.")]
Address = Annotated[str | None, typer.Option(help="ray: a running cluster, HOST:PORT.", metavar="ADDRESS")]
Extend = Annotated[bool, typer.Option("--extend", help="Add runs to a folder that holds a part of them.")]
Recompute = Annotated[
    bool, typer.Option("--recompute", help="Compute results again that were tampered with.")
]
SaveEvery = Annotated[float | None, number("Seconds after which a run that goes on is saved.")]
WithReport = Annotated[bool, typer.Option(help="Write the report at the end.")]
Folder = Annotated[Path, typer.Argument(help="A sweep's folder.", show_default=False, metavar="DIR")]


def add_sweep_commands(app: typer.Typer) -> None:
    """Give the command line its commands for many runs."""
    app.command("reproduce", context_settings=MORE_NUMBERS)(_reproduce)
    app.command("sweep", context_settings=MORE_NUMBERS)(_sweep)
    app.command("status")(_status)
    app.command("report")(_report)


def _reproduce(
    context: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(help="inventory, sepsis or hiv.", show_default=False, metavar="inventory|sepsis|hiv"),
    ],
    quick: Quickly = False,
    seeds: Seeds = None,
    episodes: Episodes = None,
    etas: Etas = None,
    studies: Studies = None,
    patient: Patient = None,
    device: Device = "cpu",
    out: Out = None,
    workers: Workers = None,
    engine: EngineName = "local",
    address: Address = None,
    extend: Extend = False,
    recompute: Recompute = False,
    save_every: SaveEvery = None,
    report: WithReport = True,
    as_json: Json = False,
) -> None:
    """Reproduce an experiment of the paper and go past it: play what is missing, then write the report.

    Starting the same command again does only what is missing, however the last one ended.
    """
    from chary.sweeps.toml import preset_experiment

    asked = preset_experiment(experiment)
    folder = out or Path("results", f"{asked.name}-quick" if quick else asked.name)
    asked = _changed(asked, context, quick, seeds, episodes, etas, studies, patient)
    plays = _engine(engine, workers, address, save_every, device, asked)
    _run(asked, folder, plays, _typed(context), extend, recompute, report, as_json)


def _sweep(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="An experiment in TOML, like those in experiments/.", metavar="FILE.toml"),
    ] = None,
    quick: Quickly = False,
    seeds: Seeds = None,
    episodes: Episodes = None,
    etas: Etas = None,
    studies: Studies = None,
    patient: Patient = None,
    device: Device = "cpu",
    out: Out = None,
    workers: Workers = None,
    engine: EngineName = "local",
    address: Address = None,
    extend: Extend = False,
    recompute: Recompute = False,
    save_every: SaveEvery = None,
    report: WithReport = True,
    template: Annotated[
        str | None, word("inventory|sepsis|hiv", "Print a preset to start from, and run nothing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Play an experiment of one's own: play what is missing, then write the report."""
    from chary.sweeps.toml import preset_experiment, read_experiment

    if template is not None:
        print(preset_experiment(template).to_toml(), end="")
        return
    if file is None:
        raise InvalidSetting(
            "'FILE.toml' must be given, got none. Start from `chary sweep --template inventory`."
        )
    asked = read_experiment(file)
    folder = out or Path("results", f"{asked.name}-quick" if quick else asked.name)
    asked = _changed(asked, context, quick, seeds, episodes, etas, studies, patient)
    plays = _engine(engine, workers, address, save_every, device, asked)
    _run(asked, folder, plays, _typed(context), extend, recompute, report, as_json)


def _status(directory: Folder, as_json: Json = False) -> None:
    """Say which runs of a sweep are done, running, failed, missing or damaged."""
    from chary.storage.files import as_json as json_line
    from chary.sweeps.folder import STATES, SweepFolder

    folder = SweepFolder(directory)
    states = folder.states()
    counts = {word: sum(state.state == word for state in states) for word in STATES}
    if as_json:
        print(
            json_line(
                {
                    "experiment": folder.experiment().name,
                    "in_use": folder.in_use(),
                    **counts,
                    "runs": [
                        {
                            "id": state.id,
                            "state": state.state,
                            "sha256": state.sha256,
                            "episodes": state.episodes,
                            "reason": state.reason or None,
                        }
                        for state in states
                    ],
                }
            )
        )
        return
    show(("runs", ""), [(word, str(number)) for word, number in counts.items()])
    labels = _labels(folder.experiment())
    for state in states:
        if state.state in ("running", "failed", "damaged"):
            # The last line of a traceback says what went wrong.
            reason = state.reason.strip().splitlines()[-1:] or [
                f"{state.episodes} episodes at its last checkpoint"
            ]
            print(f"{state.id} {state.state}: {labels[state.id]}: {reason[0]}")


def _report(
    directory: Folder,
    out: Annotated[
        Path | None,
        typer.Option(help="The report's folder; report in the sweep's by default.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a sweep: one page, its figures as PNG and PDF, its tables."""
    page = _write_report(directory, out)
    if as_json:
        from chary.storage.files import as_json as json_line

        print(json_line({"page": str(page), "bytes": page.stat().st_size}))
    else:
        print(f"Report: {page}")


def _changed(
    asked: Experiment,
    context: typer.Context,
    quick: bool,
    seeds: int | None,
    episodes: int | None,
    etas: list[str] | None,
    studies: str | None,
    patient: str | None,
) -> Experiment:
    names = [study.name for study in asked.studies]
    chosen: list[str] | None = list(asked.quick.studies) if quick else None
    if studies is not None:
        chosen = {"all": names, "none": []}.get(studies, studies.split(","))
    if context.args and etas is None:
        raise InvalidSetting(f"'{context.args[0]}' is one argument too many.")
    budgets = None if etas is None else _numbers([*etas, *context.args])
    if quick:
        asked = asked.shrunk()
    return asked.changed(episodes=episodes, seeds=seeds, etas=budgets, studies=chosen, patient=patient)


def _numbers(texts: list[str]) -> list[float]:
    values = [part.strip() for text in texts for part in text.split(",")]
    try:
        return [float(value) for value in values]
    except ValueError as problem:
        raise InvalidSetting(f"'etas' must be numbers, got {','.join(values)!r}.") from problem


def _engine(
    name: str,
    workers: int | None,
    address: str | None,
    save_every: float | None,
    device: str,
    asked: Experiment,
) -> Engine:
    from chary.sweeps.engines.local import ENGINES, LocalEngine
    from chary.sweeps.family import DEVICES
    from chary.sweeps.perform import CHECKPOINT_SECONDS

    check_choice("engine", name, ENGINES)
    check_choice("device", device, DEVICES)
    if device not in asked.family.devices:
        raise InvalidSetting(
            f"'device' must be {DEVICES[0]!r} with problem {asked.conditions.problem!r}, got {device!r}."
        )
    if workers is not None:
        check_integer("workers", workers, minimum=1)
    if save_every is not None:
        check_real("save_every", save_every, low=0.0)
    if device != DEVICES[0]:
        given = {"engine": name != ENGINES[0] and name, "workers": workers, "address": address}
        for option, value in given.items():
            if value:
                raise InvalidSetting(
                    f"{option!r} must be left out with device {device!r}, got {value!r}: "
                    "one process plays all runs there."
                )
        from chary.sweeps.engines.gpu import SAVE_SECONDS, DeviceEngine

        return DeviceEngine(checkpoint_seconds=SAVE_SECONDS if save_every is None else save_every)
    seconds = CHECKPOINT_SECONDS if save_every is None else save_every
    if name == "ray":
        from chary.sweeps.engines.ray import RayEngine

        return RayEngine(workers, address=address, checkpoint_seconds=seconds)
    if address is not None:
        raise InvalidSetting(
            f"'address' must be left out with engine 'local', got {address!r}. Use --engine ray."
        )
    return LocalEngine(workers, checkpoint_seconds=seconds)


def _typed(context: typer.Context) -> str:
    """Return the command as it was typed."""
    return f"chary {shlex.join(context.obj or sys.argv[1:])}"


def _labels(experiment: Experiment) -> dict[str, str]:
    labels: dict[str, str] = {}
    for each in experiment.plan():
        budget = "" if each.eta is None else f", eta {each.eta:g}"
        variant = f", {each.variant}" if each.variant else ""
        labels.setdefault(each.spec.id, f"{each.algorithm}{budget}{variant}, seed {each.seed}")
    return labels


def _run(
    experiment: Experiment,
    folder: Path,
    engine: Engine,
    command: str,
    extend: bool,
    recompute: bool,
    report: bool,
    as_json: bool,
) -> None:
    from chary.storage.files import as_json as json_line
    from chary.sweeps.folder import SweepFolder
    from chary.sweeps.sweep import sweep

    labels = _labels(experiment)
    experiment.family.check_installed()
    if report:
        _require("a report", "report", ("polars", "plotly", "matplotlib"), ", or pass --no-report")
    with SweepBars(len(labels), labels) as bars:
        result = sweep(
            experiment,
            folder,
            engine,
            bars,
            command=command,
            extend=extend,
            recompute=recompute,
        )
    page = _write_report(folder) if report and result.found + result.played else None
    if as_json:
        states = SweepFolder(folder).states()
        print(
            json_line(
                {
                    "experiment": experiment.name,
                    "folder": str(folder),
                    "runs": len(labels),
                    "found": result.found,
                    "played": result.played,
                    "failed": [failure.run for failure in result.failures],
                    "done": sum(state.state == "done" for state in states),
                    "report": None if page is None else str(page),
                }
            )
        )
    else:
        print(f"{result.found} runs were there, {result.played} were played, {len(result.failures)} failed.")
        if page is not None:
            print(f"Report: {page}")
    _list_failures(result, labels)


def _list_failures(result: SweepResult, labels: dict[str, str]) -> None:
    for failure in result.failures:
        print(
            f"\n{failure.run} ({labels[failure.run]}) failed:\n{failure.traceback.rstrip()}", file=sys.stderr
        )
    if result.failures:
        raise typer.Exit(FAILED)


def _require(what: str, extra: str, packages: tuple[str, ...], or_else: str = "") -> None:
    """Raise InvalidSetting, before hours of work, where a package that they need is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InvalidSetting(
            f"{missing[0]!r} must be installed for {what}, got none. "
            f"Run: pip install 'chary[{extra}]'{or_else}."
        )


def _write_report(folder: Path, out: Path | None = None) -> Path:
    from chary.report import write_report

    return write_report(folder, out)
