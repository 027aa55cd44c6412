"""The commands for one problem: run, check, calibrate, problems, agents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli.options import ALL, Given, Json, Options, Overwrite, Problem, ProblemOptions
from chary.cli.terminal import progress, say, show
from chary.errors import MOST_WORKERS, InvalidSetting, check_choice, check_integer
from chary.presets import Preset, preset
from chary.shield.watch import STALLED_AFTER
from chary.storage.archives import npy_array
from chary.storage.files import as_json as json_line
from chary.storage.files import parse_json, read_file, read_text, understood, write_new
from chary.storage.result_folder import ResultFolder
from chary.texts import shown

if TYPE_CHECKING:
    from chary.calibrate import RiskCalibration, ScaleCalibration
    from chary.model.calibration import CalibrationRecord
    from chary.model.risk_calibration import RiskRecord
    from chary.simulation.run import Run

SHOWN = "problem states actions pairs horizon episodes warmup eta bonus reward gymnasium".split()

log = logging.getLogger("chary")


def _run(
    *,
    problem: Problem,
    agent: Annotated[
        str, typer.Option(help="Name of an agent, as listed by `chary agents`.", metavar="NAME")
    ] = "chary",
    options: Annotated[Given, Options("chary.agents:AGENTS", unset=ALL)],
    play: Annotated[
        Given,
        Options(
            "chary.simulation:simulate",
            without=("mdp", "agent", "record_steps"),
            unset=("episodes", "warmup"),
        ),
    ],
    of_problem: ProblemOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Write run.json, episodes.csv and run.npz to this folder.", metavar="DIR"),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Calibration of the bonus scale or of the risk, from `chary calibrate --out`.",
            metavar="FILE",
        ),
    ] = None,
    no_references: Annotated[
        bool,
        typer.Option("--no-references", help="Do not play the baseline alone and UCBVI for comparison."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every key of the result.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Run an agent on a problem and audit every episode.

    The first line compares its regret with that of the same agent's baseline alone and of UCBVI, which keeps
    no budget, both played with the same seed. Options that are left out come from the problem's preset, and
    otherwise from the agent's defaults; options that only confidence bounds have select the preset's bounds
    in place of posterior worlds. In JSON, null means "does not apply" or infinity; eta_infinite
    distinguishes the two.
    """
    from chary.agents import AGENTS, make_agent
    from chary.envs import make
    from chary.simulation import simulate
    from chary.simulation.references import references
    from chary.simulation.run import RUN_FILES, run_files

    mdp = make(problem, **of_problem.given())
    usual = preset(problem)
    given = _of_agent(options)
    if calibration is not None:
        record = _calibration(calibration)
        given = {**_calibrated(record), **given, "calibration": record}
    told = AGENTS[check_choice("agent", agent, AGENTS)]
    in_worlds = told.has_worlds and not _needs_bounds({**given, **play})
    family = given.get("bonus", usual.bonus if in_worlds else usual.bounds)
    known = {each.name for each in fields(told)}
    of_preset = {name: value for name, value in usual.of_agent(family).items() if name in known}
    spec = make_agent(agent, **of_preset | given)
    log.info("%s on %s: %s", agent, problem, spec)
    length = usual.under(family)
    play = {"episodes": length.episodes, "warmup": length.warmup, **play}
    with ResultFolder(out, RUN_FILES, overwrite=overwrite) if out else nullcontext() as folder:
        with progress() as report:
            run = simulate(mdp, spec, **play, progress=report(f"{agent} on {problem}"))
            beside = {} if no_references else references(spec, usual.bounds, usual.bonus_scale(usual.bounds))
            regrets = {
                name: float(simulate(mdp, other, **play, progress=report(name)).regret.sum())
                for name, other in beside.items()
            }
        summary = run.summary() | {"references": regrets or None}
        summary["eta_infinite"] = summary["eta"] == float("inf")
        if folder is not None:
            folder.write(run_files(run, summary))
    if as_json:
        say(json_line(summary))
        return
    say(_headline(run, regrets))
    say(
        f"{agent} on {problem}: {run.episodes:,} episodes after {run.warmup:,} random ones, seed {run.seed}."
        f" {run.standing.describe()}"
    )
    for sentence in _remarks(run, given, usual):
        say(sentence)
    if verbose:
        canary = {f"canary_{name}": value for name, value in summary.pop("canary", {}).items()}
        canary.pop("canary_changes", None)
        shown = summary | canary | {"standing": run.standing.label, "references": None}
        shown |= {f"{name}_regret": regret for name, regret in regrets.items()}
        show(("", f"{agent} on {problem}"), _readable(shown))
    else:
        say("--verbose prints all numbers, --json the same as one object.")


def _needs_bounds(given: Mapping[str, Any]) -> bool:
    """Return whether options were given that only confidence bounds have, and posterior worlds do not."""
    if given.get("charge") in ("quantile", "worlds"):
        return False
    named = any(option in given for option in ("bonus_scale", "delta", "charge"))
    rule, data = given.get("rule"), given.get("data")
    judged = given.get("coverage") == "everywhere" or bool(given.get("check_every"))
    return named or rule in ("capped", "paper") or data == "meta" or judged


def _headline(run: Run, regrets: Mapping[str, float]) -> str:
    """Return the result in one line: what was lost, what others lost, the budget, and the standing."""
    names = {"baseline": "baseline", "ucbvi": "UCBVI"}
    beside = ", ".join(f"{names[name]} {_amount(regret)}" for name, regret in regrets.items())
    said = [f"regret {_amount(float(run.regret.sum()))}{f' ({beside})' if beside else ''}"]
    if run.spec.eta is not None:
        said.append(f"{int(run.violations().sum()):,} of {run.episodes:,} episodes over budget")
    standing = run.standing
    if standing.per is None:
        said.append("no promise" if standing.level == "uncertified" else standing.level)
    elif standing.probability in (None, 1.0):
        said.append(standing.level)
    else:
        said.append(f"{standing.level} at {100 * (1 - standing.probability):.3g} %")
    return "; ".join(said)


def _amount(value: float) -> str:
    """Return an amount of reward with as many digits as one reads."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _remarks(run: Run, given: Mapping[str, Any], usual: Preset) -> Iterator[str]:
    """Yield what the numbers alone do not tell, a sentence or two each."""
    if usual.note and not given:
        yield usual.note
    for change in run.canary.changes if run.canary is not None else ():
        yield f"{change.describe()}."
    if run.spec.shielded:
        yield f"The largest true gap of a step that was played is {float(run.largest_gap.max()):.4g}."
        yield from _silence(run)


def _silence(run: Run) -> Iterator[str]:
    """Say so where exploration stalled before the end of a run."""
    busy = run.exploring_steps.nonzero()[0]
    last = int(busy[-1]) + 1 if len(busy) else 0
    if run.episodes - last < STALLED_AFTER or run.spec.options()["rule"] == "closed" or run.spec.eta == 0:
        return
    pool, chains = run.spec.options()["pool"], run.chains
    waiting = chains.started - chains.finished - chains.abandoned
    full = f"{waiting:,} of {pool:,} chains were waiting at the end" if pool else "chains were off"
    way_out = "Set a smaller --patience" if pool == waiting else "Raise --eta, or try --bonus posterior"
    yield f"Exploration stalled: nothing was explored after episode {last:,}; {full}. {way_out}."


def _check(
    *,
    problem: Problem,
    bounds: Annotated[
        Given, Options("chary.assumptions:check_assumptions", without=("mdp", "rng"), unset=("eta",))
    ],
    of_problem: ProblemOptions,
    as_json: Json = False,
) -> None:
    """Check whether the paper's two assumptions hold on a problem: holds, fails, or undecided."""
    from chary.assumptions import check_assumptions
    from chary.envs import make

    mdp = make(problem, **of_problem.given())
    bounds = {"eta": preset(problem).eta, **bounds}
    report = check_assumptions(mdp, **bounds)
    say(json_line(report.to_json()) if as_json else report.describe())


def _calibrate(
    *,
    problem: Problem,
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
    `--risk`; with `--check` this one alone is tested. The result holds for exactly these options and this
    number of episodes.
    """
    from chary.agents import CharyUCBVI
    from chary.agents.protocol import POSTERIOR
    from chary.calibrate import CALIBRATED_FAMILIES, calibrate, calibrate_risk

    usual = preset(problem)
    if "workers" in play:
        check_integer("workers", play["workers"], minimum=1, largest=MOST_WORKERS)
    family = usual.bonus if usual.bonus in CALIBRATED_FAMILIES else CALIBRATED_FAMILIES[0]
    given = _of_agent(options)
    spec = CharyUCBVI(**usual.of_agent(given.get("bonus", family)) | given)
    play = {"episodes": usual.episodes, "warmup": usual.warmup, **play}
    found: list[ScaleCalibration | RiskCalibration] = []
    risky = spec.bonus == POSTERIOR
    for name, value, fits in (("rate", rate, risky), ("precision", play.get("precision"), not risky)):
        if value is not None and not fits:
            raise InvalidSetting(f"{name!r} must be left out with bonus {spec.bonus!r}, got {value!r}.")

    def search() -> bytes:
        with progress(compiles=False) as report:
            label = f"calibrating {spec.bonus} on siblings of {problem}"
            asked = {**play, **of_problem.given(), "progress": report(label)}
            found.append(
                calibrate_risk(problem, spec, rate=rate, **asked)
                if risky
                else calibrate(problem, spec, **asked)
            )
        return (json_line(found[0].to_json()) + "\n").encode()

    if out is None:
        search()
    else:
        write_new(out, search, overwrite=overwrite)
    say(json_line(found[0].to_json()) if as_json else found[0].describe())


def _problems(*, as_json: Json = False) -> None:
    """List the problems and their presets."""
    from chary.envs import GYMNASIUM_IDS, PROBLEMS

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
                "episodes": usual.episodes,
                "warmup": usual.warmup,
                **usual.of_agent(),
            }
        )
    if as_json:
        say(json_line({"problems": rows}))
    else:
        show(SHOWN, [[_text(row[key]) for key in SHOWN] for row in rows])


def _agents(*, as_json: Json = False) -> None:
    """List the agents and the options of each."""
    from chary.agents import AGENTS, AgentSpec

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
        say(json_line({"agents": rows, "shared_options": shared}))
        return
    show(
        ("agent", "what it does", "its options"),
        [(row["agent"], row["summary"], ", ".join(row["options"]) or "-") for row in rows],
    )
    say(f"All take: {', '.join(shared)}.")


def _of_agent(options: Given) -> dict[str, Any]:
    """Return options of an agent as its specification takes them."""
    given = dict(options)
    if "chains" in given:
        given["chains"] = check_choice("chains", given["chains"], ("on", "off")) == "on"
    if given.get("patience") == "none":
        given["patience"] = None
    if "prior" in given and (prior := _prior(given.pop("prior"))) is not None:
        given["prior"] = prior
    return given


def _calibrated(record: CalibrationRecord | RiskRecord) -> dict[str, Any]:
    """Return the options of an agent that a calibration decides."""
    from chary.model.calibration import CalibrationRecord

    if isinstance(record, CalibrationRecord):
        return {name: getattr(record, name) for name in ("bonus", "bonus_scale", "patience")}
    return {"bonus": "posterior", "risk": record.risk}


def _calibration(path: Path) -> CalibrationRecord | RiskRecord:
    """Return the calibration in a file of `chary calibrate --out`."""
    from chary.model.risk_calibration import record_from_plain

    with understood(f"'calibration' must be a file of `chary calibrate --out`, got {str(path)!r}"):
        values = parse_json(read_text(path, "calibration"))
    found = values.get("calibration", values)
    if not isinstance(found, dict):
        raise InvalidSetting(
            f"'calibration' must be a file with a scale or a risk that passed, got {str(path)!r}, where none "
            "did."
        )
    with understood(f"'calibration' must be a file of `chary calibrate --out`, got {str(path)!r}"):
        return record_from_plain(found)


def _prior(given: str) -> Any:
    """Return the prior that an option describes: None, "recorded", or the actions stored in a file."""
    if given in ("none", "recorded"):
        return None if given == "none" else given
    import numpy as np

    path = Path(given)
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda file: npy_array(read_file(file, name="prior")),
        ".csv": lambda file: np.array(
            [row.split(",") for row in read_text(file, "prior").split()], dtype=float
        ),
    }
    rule = "'prior' must be recorded, none, or a .npy or .csv file of actions"
    if path.suffix not in readers:
        raise InvalidSetting(f"{rule}, got {given!r}.")
    with understood(f"{rule}, got {shown(given)}"):
        values = readers[path.suffix](path)
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise InvalidSetting(f"{rule}, got {given!r}: it contains values that are not finite numbers.")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    # Text has no integer type: one column of whole numbers is read as actions.
    return values.astype(np.int64) if values.ndim == 1 and (values == np.floor(values)).all() else values


def _readable(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's rows that apply, without scaled units where they equal the user's."""
    left_out = {"eta_infinite"}
    if summary["reward_span"] == 1.0:
        left_out |= {"eta_scaled", "regret_scaled", "reward_span"}
    return [(k, _text(v)) for k, v in summary.items() if v is not None and k not in left_out]


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


COMMANDS = {"run": _run, "check": _check, "calibrate": _calibrate, "problems": _problems, "agents": _agents}
