"""The command line: progress on stderr, results on stdout, one sentence and exit code 2 for any mistake.

Commands import what they need themselves, so that `chary --help` answers at once.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

import chary
from chary.cli.data import add_data_commands
from chary.cli.options import (
    Actions,
    Charge,
    Delta,
    Episodes,
    Eta,
    Horizon,
    Json,
    Overwrite,
    Problem,
    RewardKnowledge,
    RuleName,
    Seed,
    StepBound,
    Warmup,
    count,
    number,
    word,
)
from chary.cli.plan import add_plan_command
from chary.cli.sweep import add_sweep_commands
from chary.cli.terminal import by_label, fancy, progress, show
from chary.errors import CharyError, InvalidSetting, check_choice, check_integer, check_seed

if TYPE_CHECKING:
    from chary.mdp import FiniteMDP
    from chary.presets import Preset
    from chary.simulation.run import Run

__all__ = ["app", "main"]

FAILED, MISTAKEN, INTERRUPTED = 1, 2, 130
LOG_LEVELS = ("debug", "info", "warning", "error")

# Typer exports one of the errors of its parser, whose base is all of them; from which package that comes
# depends on its version (click's own up to 0.2x, a copy since).
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

log = logging.getLogger("chary")

app = typer.Typer(name="chary", add_completion=False, pretty_exceptions_enable=False)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    app.rich_markup_mode = "rich" if fancy() else None
    command = typer.main.get_command(app)
    code: object = 0
    try:
        code = command.main(args=arguments, prog_name="chary", standalone_mode=False, obj=arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except CharyError as problem:
        code = _complain(str(problem), MISTAKEN)
    except UsageError as problem:
        code = _complain(cast("typer.BadParameter", problem).format_message(), MISTAKEN)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as problem:  # the one boundary: whatever arrives here is a defect of chary
        if log.isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        code = _complain(
            f"unexpected {type(problem).__name__}: {problem}. This is a defect of chary; "
            "rerun with --log-level debug to see where.",
            FAILED,
        )
    if code == INTERRUPTED:
        _complain("interrupted.", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _chary(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    log_level: Annotated[
        str, typer.Option(help="What is reported on stderr.", metavar="debug|info|warning|error")
    ] = "warning",
) -> None:
    """Reinforcement learning with an exploration budget that every single episode keeps."""
    level = check_choice("log_level", log_level, LOG_LEVELS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())
    if version:
        print(f"chary {chary.__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command("run")
def _run(
    problem: Problem,
    agent: Annotated[str, word("NAME", "Who plays, see `chary agents`.")] = "chary",
    eta: Eta = None,
    rule: RuleName = None,
    step_bound: StepBound = None,
    after_refusal: Annotated[
        str | None, word("pause|close", "Whether an episode may explore again after a refusal.")
    ] = None,
    charge: Charge = None,
    pool: Annotated[int | None, count("Chains open at once.")] = None,
    clock: Annotated[
        str | None, word("episode|meta", "Explorers play by the episode's step or the chain's own.")
    ] = None,
    data: Annotated[
        str | None, word("all|meta", "Explorers learn from all data or from finished chains.")
    ] = None,
    patience: Annotated[
        int | None, count("Episodes without an advance after which a chain is abandoned.")
    ] = None,
    chains: Annotated[
        str | None, word("on|off", "Off explores from each episode's start until refused.")
    ] = None,
    bonus: Annotated[
        str | None, word("hoeffding|l1|kl|bernstein", "The family of bounds; ucbvi also has ch and bf.")
    ] = None,
    bonus_scale: Annotated[float | None, number("Factor on the bonus.")] = None,
    reward: RewardKnowledge = None,
    delta: Delta = None,
    episodes: Episodes = None,
    warmup: Warmup = None,
    seed: Seed = 0,
    actions: Actions = None,
    horizon: Horizon = None,
    prior: Annotated[
        str | None, word("recorded|none|FILE", "Policy that decides ties; a .npy or .csv file of actions.")
    ] = None,
    alpha: Annotated[float | None, number("cucbvi: the share of value that may be lost.")] = None,
    baseline_value: Annotated[
        str | None, word("estimated|oracle", "Mixing agents: how they know the baseline's value.")
    ] = None,
    coverage: Annotated[
        str, word("played|everywhere", "Where bounds are compared with the truth.")
    ] = "played",
    driver: Annotated[str, word("compiled|step", "How episodes are played; the same ones.")] = "compiled",
    planner: Annotated[
        str, word("incremental|full", "How the compiled driver plans; the same plans, bit for bit.")
    ] = "incremental",
    check_every: Annotated[int, count("Compare every N-th plan with the full pass; 0 for never.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Write run.json, episodes.csv and run.npz into this folder.", metavar="DIR"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Let an agent learn a problem, and judge every episode.

    What is left out comes from the problem's preset, else from the agent's own defaults. In JSON, null stands
    for what does not apply and for infinity; eta_infinite tells the two apart.
    """
    from chary.agents import make_agent
    from chary.presets import preset
    from chary.simulation import simulate
    from chary.simulation.run import RUN_FILES, run_files
    from chary.storage.files import as_json as json_line
    from chary.storage.result_folder import ResultFolder

    mdp = _make(problem, actions=actions, horizon=horizon)
    usual = preset(problem)
    family = bonus or usual.bonus
    given = {
        "rule": rule,
        "step_bound": step_bound,
        "after_refusal": after_refusal,
        "charge": charge,
        "pool": pool,
        "clock": clock,
        "data": data,
        "patience": patience,
        "chains": None if chains is None else check_choice("chains", chains, ("on", "off")) == "on",
        "prior": _prior(prior),
        "alpha": alpha,
        "baseline_value": baseline_value,
    }
    spec = make_agent(
        agent,
        eta=usual.eta if eta is None else eta,
        bonus=family,
        bonus_scale=usual.bonus_scale(family) if bonus_scale is None else bonus_scale,
        reward=reward or usual.reward,
        delta=usual.delta if delta is None else delta,
        **{option: value for option, value in given.items() if value is not None},
    )
    log.info("%s on %s: %s", agent, problem, spec)
    with ResultFolder(out, RUN_FILES, overwrite=overwrite) if out else nullcontext() as folder:
        with progress() as report:
            run = simulate(
                mdp,
                spec,
                episodes=usual.episodes if episodes is None else episodes,
                warmup=usual.warmup if warmup is None else warmup,
                seed=seed,
                coverage=coverage,
                driver=driver,
                planner=planner,
                check_every=check_every,
                progress=report(f"{agent} on {problem}"),
            )
        summary = _summary(run)
        if folder is not None:
            folder.write(run_files(run, summary))
    if as_json:
        print(json_line(summary))
    else:
        show(("", f"{agent} on {problem}"), _readable(summary))
        print(_standing_in_words(run))


@app.command("check")
def _check(
    problem: Problem,
    eta: Eta = None,
    step_bound: Annotated[float | None, number("What gaps are held against; eta / 2 by default.")] = None,
    actions: Actions = None,
    horizon: Horizon = None,
    as_json: Json = False,
) -> None:
    """Say whether the paper's two assumptions hold on a problem: holds, fails, or undecided."""
    from chary.assumptions import check_assumptions
    from chary.presets import preset
    from chary.storage.files import as_json as json_line

    mdp = _make(problem, actions=actions, horizon=horizon)
    report = check_assumptions(mdp, preset(problem).eta if eta is None else eta, step_bound=step_bound)
    print(json_line(report.to_json()) if as_json else report.describe())


@app.command("calibrate")
def _calibrate(
    problem: Problem,
    bonus: Annotated[str, word("hoeffding|bernstein", "The family of bounds.")] = "hoeffding",
    eta: Eta = None,
    delta: Delta = None,
    runs: Annotated[int, count("Other MDPs of the kind, played at each scale.")] = 20,
    episodes: Episodes = 1000,
    warmup: Warmup = None,
    seed: Seed = 0,
    rule: RuleName = None,
    step_bound: StepBound = None,
    charge: Charge = None,
    reward: RewardKnowledge = None,
    actions: Actions = None,
    horizon: Horizon = None,
    precision: Annotated[float | None, number("Factor within which the scale is found.")] = None,
    workers: Annotated[int | None, count("Processes; all cores by default.")] = None,
    as_json: Json = False,
) -> None:
    """Find the smallest bonus scale that covers on other MDPs of the same kind."""
    from chary.calibrate import calibrate
    from chary.presets import preset
    from chary.storage.files import as_json as json_line

    usual = preset(problem)
    if workers is not None:
        check_integer("workers", workers, minimum=1)
    given: dict[str, Any] = {
        "episodes": episodes,
        "rule": rule,
        "step_bound": step_bound,
        "charge": charge,
        "actions": actions,
        "horizon": horizon,
        "precision": precision,
        "workers": workers,
    }
    with progress(compiles=False) as report:
        result = calibrate(
            problem,
            bonus=bonus,
            eta=usual.eta if eta is None else eta,
            delta=usual.delta if delta is None else delta,
            runs=runs,
            warmup=usual.warmup if warmup is None else warmup,
            seed=seed,
            reward=reward or usual.reward,
            progress=report(f"calibrating {bonus} on siblings of {problem}"),
            **{option: value for option, value in given.items() if value is not None},
        )
    print(json_line(result.to_json()) if as_json else result.describe())


@app.command("bench")
def _bench(
    problem: Annotated[
        str, typer.Argument(help="A problem's name, see `chary problems`, or hiv for the simulator.")
    ] = "sepsis",
    episodes: Annotated[int, count("Online episodes of every run.")] = 50_000,
    config: Annotated[
        list[str] | None,
        typer.Option(help="Measure this configuration alone, or several, one an option.", metavar="NAME"),
    ] = None,
    seed: Seed = 0,
    repeats: Annotated[int, count("How often each configuration is measured.")] = 1,
    as_json: Json = False,
) -> None:
    """Time the incremental planner against the full pass and against dense replanning.

    Both planners play the same episodes in turns. Configurations are strict, capped, worst (a bonus so small
    that nothing is clipped) and, for sepsis, "all actions". In JSON, the first one measured is at the top.
    For hiv, it is the simulator's step against SciPy's integrators; `--episodes` is of no use there.
    """
    if problem == "hiv":
        _bench_hiv(config, seed, repeats, as_json)
        return
    from chary.bench.planner import COLUMNS, bench
    from chary.storage.files import as_json as json_line

    with progress() as report:
        result = bench(
            problem,
            episodes=episodes,
            only=config or (),
            seed=seed,
            repeats=repeats,
            progress=by_label(report),
        )
    if as_json:
        print(json_line(result.to_json()))
        return
    for name, measurement in result.measurements.items():
        print(f"{problem}, {name}: microseconds an episode")
        show(COLUMNS, measurement.rows())
        print(f"{measurement.describe()}\n")


def _bench_hiv(config: list[str] | None, seed: int, repeats: int, as_json: bool) -> None:
    from chary.bench.hiv import COLUMNS, bench_hiv
    from chary.storage.files import as_json as json_line

    if config:
        raise InvalidSetting(f"'config' must be left out for hiv, which has none, got {config[0]!r}.")
    with progress() as report:
        timed = bench_hiv(turns=35 * repeats, seed=seed, progress=by_label(report))
    if as_json:
        print(json_line(timed.to_json()))
        return
    show(COLUMNS, timed.rows())
    print(timed.describe())


@app.command("problems")
def _problems(as_json: Json = False) -> None:
    """List the problems and their presets."""
    from chary.envs import GYMNASIUM_IDS, PROBLEMS
    from chary.presets import preset
    from chary.storage.files import as_json as json_line

    rows: list[dict[str, Any]] = []
    for name, make in PROBLEMS.items():
        mdp, usual = make(), preset(name)
        rows.append(
            {
                "problem": name,
                "states": mdp.n_states,
                "actions": mdp.n_actions,
                "pairs": mdp.setting.n_pairs,
                "horizon": mdp.horizon,
                "restricts_actions": mdp.restricts_actions,
                "recorded_policy": mdp.recorded_policy is not None,
                "gymnasium": GYMNASIUM_IDS[name],
                **_preset_values(usual),
            }
        )
    if as_json:
        print(json_line({"problems": rows}))
        return
    shown = (
        "problem",
        "states",
        "actions",
        "pairs",
        "horizon",
        "episodes",
        "warmup",
        "eta",
        "bonus",
        "reward",
    )
    show((*shown, "gymnasium"), [[_text(row[key]) for key in (*shown, "gymnasium")] for row in rows])


@app.command("agents")
def _agents(as_json: Json = False) -> None:
    """List the agents and the options each of them has."""
    from dataclasses import fields

    from chary.agents import AGENTS, AgentSpec
    from chary.storage.files import as_json as json_line

    shared = [field.name for field in fields(AgentSpec)]
    rows: list[dict[str, Any]] = [
        {
            "agent": name,
            "summary": spec.summary,
            "shielded": spec.shielded,
            "options": [field.name for field in fields(spec) if field.name not in shared],
        }
        for name, spec in AGENTS.items()
    ]
    if as_json:
        print(json_line({"agents": rows, "shared_options": shared}))
        return
    show(
        ("agent", "what it does", "options of its own"),
        [(row["agent"], row["summary"], ", ".join(row["options"]) or "-") for row in rows],
    )
    print(f"All take: {', '.join(shared)}.")


@app.command("demo")
def _demo(
    out: Annotated[Path, typer.Option(help="The folder that demo.png is written to.", metavar="DIR")] = Path(
        "out"
    ),
    episodes: Episodes = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Learn inventory control with eight algorithms and compare them in a table and a figure."""
    from chary.charts.palette import require_matplotlib
    from chary.cli import demo
    from chary.storage.result_folder import ResultFolder

    number = check_integer("episodes", demo.EPISODES if episodes is None else episodes, minimum=1)
    check_seed(seed)
    require_matplotlib()
    with ResultFolder(out, ["demo.png"], overwrite=overwrite) as folder:
        results = []
        with progress() as report:
            for contestant, run in demo.play(episodes=number, seed=seed, progress=by_label(report)):
                results.append((contestant, run))
        folder.write({"demo.png": demo.draw(results)})
    show(demo.COLUMNS, [demo.row(contestant, run) for contestant, run in results])
    print(
        "A deficit is what an episode lost by leaving the algorithm's own baseline; "
        f"'broke {demo.JUDGED_AT:g}' judges all by that budget."
    )
    print(f"Figure: {folder.path / 'demo.png'}")


add_sweep_commands(app)
add_data_commands(app)
add_plan_command(app)


def _make(problem: str, *, actions: str | None, horizon: int | None) -> FiniteMDP:
    from chary.envs import make

    return make(problem, actions=actions, **({} if horizon is None else {"horizon": horizon}))


def _preset_values(usual: Preset) -> dict[str, Any]:
    return {
        "episodes": usual.episodes,
        "warmup": usual.warmup,
        "eta": usual.eta,
        "bonus": usual.bonus,
        "bonus_scale": usual.bonus_scale(usual.bonus),
        "reward": usual.reward,
        "delta": usual.delta,
    }


def _prior(given: str | None) -> Any:
    """Return the prior that was asked for: None, "recorded", or the actions stored in a file."""
    if given in (None, "none"):
        return None
    if given == "recorded":
        return given
    import numpy as np

    path = Path(str(given))
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda file: np.load(file, allow_pickle=False),
        ".csv": lambda file: np.array([row.split(",") for row in file.read_text().split()], dtype=float),
    }
    rule = "'prior' must be recorded, none, or a .npy or .csv file of actions"
    if path.suffix not in readers:
        raise InvalidSetting(f"{rule}, got {given!r}.")
    try:
        values = readers[path.suffix](path)
    except (OSError, ValueError) as problem:
        reason = (
            problem.strerror if isinstance(problem, OSError) and problem.strerror else "it cannot be read"
        )
        raise InvalidSetting(f"{rule}, got {given!r}: {reason}.") from problem
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise InvalidSetting(f"{rule}, got {given!r}: it holds something else than finite numbers.")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    # Text has no integers of its own: whole numbers in one column are actions.
    return values.astype(np.int64) if values.ndim == 1 and (values == np.floor(values)).all() else values


def _summary(run: Run) -> dict[str, Any]:
    summary = run.summary()
    return {**summary, "eta_infinite": summary["eta"] == float("inf")}


def _readable(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's rows without what does not apply, nor scaled units where they are the user's."""
    left_out = {"eta_infinite"}
    if summary["reward_span"] == 1.0:
        left_out |= {"eta_scaled", "regret_scaled", "reward_span"}
    return [(k, _text(v)) for k, v in summary.items() if v is not None and k not in left_out]


def _standing_in_words(run: Run) -> str:
    """Say in a sentence what the standing of this very run means."""
    spec = run.spec
    chance = f"with probability at least {1 - spec.delta:g}"
    promise = "every episode loses at most eta against its baseline"
    if spec.standing == "certified":
        return f"Certified: {chance}, {promise}."
    if spec.standing == "conditional":
        bound = run.summary()["step_bound"]
        limit = f"{bound:g}" if bound is not None else "eta / 2"
        return (
            f"Conditional: {chance}, {promise}, provided that no true gap of a baseline played exceeds "
            f"{limit}; the largest one audited was {run.largest_gap.max():.4g}."
        )
    if spec.standing == "calibrated":
        return (
            "Calibrated: nothing is proved here; if the bonus scale comes from `chary calibrate`, then in "
            f"{1 - spec.delta:.0%} of runs on other problems of the kind no ledger fell short of the truth."
        )
    return "Uncertified: nothing is promised; the audit counted the episodes that broke the budget."


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _complain(sentence: str, code: int) -> int:
    """Print one line on stderr and return the exit code."""
    print(f"chary: {' '.join(sentence.split())}", file=sys.stderr)
    return code
