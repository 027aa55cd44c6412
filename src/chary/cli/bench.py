"""The commands that time and show: bench, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chary.cli.options import Given, Json, Options, Overwrite
from chary.cli.terminal import by_label, progress, say, show
from chary.errors import MOST_EPISODES, InvalidSetting, check_integer, check_seed
from chary.storage.files import as_json as json_line
from chary.storage.result_folder import ResultFolder


def _bench(
    *,
    problem: Annotated[
        str,
        typer.Argument(help="Name of a problem, as listed by `chary problems`, or hiv for its simulator."),
    ] = "sepsis",
    options: Annotated[
        Given, Options("chary.bench.planner:bench", without=("problem",), names={"only": "config"})
    ],
    as_json: Json = False,
) -> None:
    """Time the incremental planner against the full pass and against dense replanning.

    Both planners play the same episodes in turns. Configurations are strict, capped, worst (a bonus so small
    that nothing is clipped) and, for sepsis, "all actions". In JSON, the first measured one is at the top
    level. For hiv, the simulator's step is timed against SciPy's integrators, and `--episodes` is ignored.
    """
    if problem == "hiv":
        from chary.bench.hiv import COLUMNS as HIV_COLUMNS
        from chary.bench.hiv import bench_hiv

        if options.get("only"):
            raise InvalidSetting(
                f"'config' must be left out for hiv, which has none, got {options['only'][0]!r}."
            )
        with progress() as report:
            turns = 35 * options["repeats"]
            timed = bench_hiv(turns=turns, seed=options["seed"], progress=by_label(report))
        if as_json:
            say(json_line(timed.to_json()))
        else:
            show(HIV_COLUMNS, timed.rows())
            say(timed.describe())
        return
    from chary.bench.planner import COLUMNS, bench

    with progress() as report:
        result = bench(problem, **options, progress=by_label(report))
    if as_json:
        say(json_line(result.to_json()))
        return
    for name, measurement in result.measurements.items():
        say(f"{problem}, {name}: microseconds per episode")
        show(COLUMNS, measurement.rows())
        say(f"{measurement.describe()}\n")


def _demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder to write demo.png to.", metavar="DIR")] = Path("out"),
    options: Annotated[Given, Options("chary.cli.demo:play")],
    overwrite: Overwrite = False,
) -> None:
    """Learn inventory control with eight algorithms and compare them in a table and a figure."""
    from chary.charts.palette import require_matplotlib
    from chary.cli import demo

    check_integer("episodes", options["episodes"], minimum=1, largest=MOST_EPISODES)
    check_seed(options["seed"])
    require_matplotlib()
    with ResultFolder(out, ["demo.png"], overwrite=overwrite) as folder:
        with progress() as report:
            results = list(demo.play(**options, progress=by_label(report)))
        folder.write({"demo.png": demo.draw(results)})
    show(demo.COLUMNS, [demo.row(contestant, run) for contestant, run in results])
    say(
        "A deficit is the expected loss of an episode from leaving the algorithm's own baseline; "
        f"'broke {demo.JUDGED_AT:g}' applies that budget to all of them."
    )
    say(f"Figure: {folder.path / 'demo.png'}")


COMMANDS = {"bench": _bench, "demo": _demo}
