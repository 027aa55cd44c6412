"""The command calibrate: bonus scales and risks, on siblings of a problem or of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary._workers import check_workers
from chary.cli.data import ReadOptions
from chary.cli.options import ALL, Given, Json, Options, Overwrite, ProblemOptions
from chary.cli.run import of_agent
from chary.cli.terminal import progress, say
from chary.errors import InvalidSetting
from chary.presets import preset
from chary.storage.files import as_json as json_line
from chary.storage.files import write_new

if TYPE_CHECKING:
    from chary.calibrate import LogSiblings, RiskCalibration, ScaleCalibration

LOGS = (".csv", ".parquet")
# The options of a plan that declare a log's problem; its horizon is an option of every problem.
OF_PLANS = (
    *(
        "etas",
        "horizon",
        "unit",
        "prior",
        "bonus",
        "bonus_scale",
        "delta",
        "max_episodes",
        "charge",
        "worlds",
    ),
    *("world_prior", "kappa", "pessimism", "risk", "seed", "rules", "step_bound", "after_refusal", "holdout"),
    *("more_visits", "columns", "labels", "first_step", "source", "progress"),
)


def _calibrate(
    *,
    problem: Annotated[
        str,
        typer.Argument(
            help="Name of a problem, as listed by `chary problems`, or a log (.csv or .parquet), from which "
            "siblings are resampled.",
            show_default=False,
        ),
    ],
    options: Annotated[Given, Options("chary.agents:CharyUCBVI", unset=ALL)],
    play: Annotated[
        Given,
        Options(
            "chary.calibrate:calibrate",
            without=("problem", "agent"),
            unset=("episodes", "warmup", "runs", "precision"),
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(
            help="With bonus posterior: share of episodes, in (0, 1), that may exceed the budget, by default "
            "the risk.",
        ),
    ] = None,
    of_problem: ProblemOptions,
    declared: Annotated[Given, Options("chary.preview.options:PreviewOptions", without=OF_PLANS, unset=ALL)],
    reading: ReadOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the result as JSON to this file, for `run --calibration`.", metavar="FILE"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Find the smallest bonus scale whose charges cover the true deficit on sibling problems.

    With `--bonus posterior` it is the largest risk whose rate of violations per episode is at most `--rate`.
    Options that are left out come from the problem's preset. The search starts with `--bonus-scale` or
    `--risk`; with `--check` this one alone is tested. Of a log, siblings are resampled, runs start with a log
    like it, and posterior is the default. The result holds for exactly these options and this number of
    episodes.
    """
    from chary.agents import CharyUCBVI
    from chary.agents.protocol import POSTERIOR
    from chary.calibrate import calibrate, calibrate_risk

    if "workers" in play:
        check_workers(play["workers"])
    given = of_agent(options)
    if Path(problem).suffix in LOGS:
        spec = CharyUCBVI(**{"bonus": POSTERIOR, **_known(declared), **given})
        source: Any = _siblings(Path(problem), spec, of_problem, declared, reading)
        play = {"episodes": source.warmup, **play}
        if "warmup" in play:
            raise InvalidSetting(
                f"'warmup' must be left out with a log, which comes before a run, got {play['warmup']}."
            )
        asked: dict[str, Any] = dict(play)
    else:
        if declared or reading != ReadOptions():
            name = next(iter(declared), "column")
            raise InvalidSetting(
                f"{name!r} must come with a log, a .csv or .parquet file, got problem {problem!r}."
            )
        usual = preset(problem)
        spec = CharyUCBVI(**usual.of_agent(given.get("bonus", _family(usual.bonus))) | given)
        source = problem
        asked = {"episodes": usual.episodes, "warmup": usual.warmup, **play, **of_problem.given()}
    found: list[ScaleCalibration | RiskCalibration] = []
    risky = spec.bonus == POSTERIOR
    for name, value, fits in (("rate", rate, risky), ("precision", play.get("precision"), not risky)):
        if value is not None and not fits:
            raise InvalidSetting(f"{name!r} must be left out with bonus {spec.bonus!r}, got {value!r}.")

    def search() -> bytes:
        with progress(compiles=False) as report:
            told = report(f"calibrating {spec.bonus} on siblings of {problem}")
            found.append(
                calibrate_risk(source, spec, rate=rate, **asked, progress=told)
                if risky
                else calibrate(source, spec, **asked, progress=told)
            )
        return (json_line(found[0].to_json()) + "\n").encode()

    if out is None:
        search()
    else:
        write_new(out, search, overwrite=overwrite)
    say(json_line(found[0].to_json()) if as_json else found[0].describe())


def _family(bonus: str) -> str:
    """Return the family that is calibrated if none is asked for."""
    from chary.calibrate import CALIBRATED_FAMILIES

    return bonus if bonus in CALIBRATED_FAMILIES else CALIBRATED_FAMILIES[0]


def _known(declared: Given) -> Given:
    """Return what declared rewards mean for the agent."""
    return {"reward": "known"} if "rewards" in declared else {}


def _siblings(
    file: Path, spec: Any, of_problem: ProblemOptions, declared: Given, reading: ReadOptions
) -> LogSiblings:
    """Return siblings resampled from a log, with its problem as declared or else as it is in the log."""
    from chary.calibrate import LogSiblings
    from chary.preview.options import PreviewOptions
    from chary.preview.problem import make_problem

    if of_problem.actions is not None:
        raise InvalidSetting(
            f"'actions' must be left out with a log, got {of_problem.actions!r}. Use --allowed."
        )
    log = reading.read(file)
    options = PreviewOptions(
        etas=[0.0 if spec.eta is None else spec.eta],
        horizon=of_problem.horizon,
        columns=reading.columns(),
        labels=reading.labels(),
        first_step=reading.first_step,
        **declared,
    )
    told = make_problem(log, options)
    return LogSiblings(told.log, told.setting, told.own, file.name)


COMMANDS = {"calibrate": _calibrate}
