"""The commands for one problem: run, check, problems, agents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli.options import ALL, Given, Json, Options, Overwrite, Problem, ProblemOptions
from chary.cli.terminal import describe, progress, say, show
from chary.errors import InvalidSetting, check_choice
from chary.extensions import resolved
from chary.presets import Preset, preset
from chary.shield.watch import STALLED_AFTER
from chary.storage.archives import npy_array
from chary.storage.files import as_json as json_line
from chary.storage.files import parse_json, parse_toml, read_file, read_text, understood
from chary.storage.result_folder import ResultFolder
from chary.texts import shown

if TYPE_CHECKING:
    from chary.model.calibration import CalibrationRecord
    from chary.model.risk_calibration import RiskRecord
    from chary.simulation.run import Run

# What a terminal of 80 columns has room for; --json has the rest.
SHOWN = "problem states actions horizon eta bonus reward".split()
CONTINUOUS = "problem numbers actions horizon about".split()

log = logging.getLogger("chary")


def _run(
    *,
    problem: Problem,
    agent: Annotated[
        str,
        typer.Option(
            help="Name of an agent, as listed by `chary agents`, or your own as module:name.", metavar="NAME"
        ),
    ] = "chary",
    options: Annotated[Given, Options("chary.agents:AGENTS", unset=ALL)],
    argument: Annotated[
        list[str] | None,
        typer.Option(help="Argument of an agent of your own; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
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
    from chary.agents import AGENTS, OwnAgent, make_agent
    from chary.envs import make
    from chary.simulation import simulate
    from chary.simulation.references import references
    from chary.simulation.run import RUN_FILES, run_files

    mdp = make(problem, **of_problem.given())
    usual = preset(problem)
    given = of_agent(options)
    if calibration is not None:
        record = _calibration(calibration)
        given = {**_calibrated(record), **given, "calibration": record}
    told = AGENTS.get(resolved("agent", agent, AGENTS), OwnAgent)
    in_worlds = told.has_worlds and not needs_bounds({**given, **play})
    family = given.get("bonus", usual.bonus if in_worlds else usual.bounds)
    known = {each.name for each in fields(told)}
    of_preset = {name: value for name, value in usual.of_agent(family).items() if name in known}
    spec = make_agent(agent, **of_preset | given | _arguments(argument or ()))
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


def needs_bounds(given: Mapping[str, Any]) -> bool:
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


def _problems(*, as_json: Json = False) -> None:
    """List the problems and their presets, and the problems with continuous states."""
    from chary.envs import CONTINUOUS_IDS, GYMNASIUM_IDS, PROBLEMS
    from chary.sweeps.deep_problems import DEEP_PROBLEMS

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
    continuous: list[dict[str, Any]] = [
        {
            "problem": each.name,
            "numbers": each.observations,
            "actions": len(each.actions),
            "horizon": each.horizon,
            "about": each.description,
            "action_names": list(each.actions),
            "options": dict(each.defaults),
            "gymnasium": CONTINUOUS_IDS[each.name],
        }
        for each in DEEP_PROBLEMS.values()
    ]
    if as_json:
        say(json_line({"problems": rows, "continuous": continuous}))
        return
    show(SHOWN, [[_text(row[key]) for key in SHOWN] for row in rows])
    say("\nStates are vectors of numbers (chary reproduce NAME):")
    show(CONTINUOUS, [[_text(row[key]) for key in CONTINUOUS] for row in continuous])


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
    for row in rows:
        options = f"options: {', '.join(row['options'])}" if row["options"] else ""
        describe(row["agent"], row["summary"], options)
    say(f"All take: {', '.join(shared)}.")


def of_agent(options: Given) -> dict[str, Any]:
    """Return options of an agent as its specification takes them."""
    given = dict(options)
    if "chains" in given:
        given["chains"] = check_choice("chains", given["chains"], ("on", "off")) == "on"
    if given.get("patience") == "none":
        given["patience"] = None
    if "prior" in given and (prior := _prior(given.pop("prior"))) is not None:
        given["prior"] = prior
    return given


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of an agent of the user's own, each read as a value of TOML or else as a text."""
    if not texts:
        return {}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise InvalidSetting(f"'argument' must be NAME=VALUE, got {shown(text)}.")
        try:
            found[name] = parse_toml(f"value = {value}")["value"]
        except ValueError:
            found[name] = value
    return {"arguments": found}


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


COMMANDS = {"run": _run, "check": _check, "problems": _problems, "agents": _agents}
