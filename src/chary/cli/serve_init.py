"""The command serve init: a new deployment, from a declaration or from logged decisions."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli import calibrate
from chary.cli.data import ReadOptions
from chary.cli.options import ALL, Given, Json, Options
from chary.cli.run import needs_bounds, of_agent
from chary.cli.serve_options import check_service
from chary.cli.terminal import say
from chary.errors import InvalidSetting
from chary.storage.files import as_json as json_line

if TYPE_CHECKING:
    from chary.data import Log
    from chary.policies import OwnBaseline
    from chary.preview.problem import Problem

# The options of a plan that declare a log's problem are those of a calibration, and the horizon.
OF_PLANS = tuple(name for name in calibrate.OF_PLANS if name != "horizon")
LOG, POLICY, REWARDS = "log.csv", "policy.csv", "rewards.csv"


def init(
    *,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The folder to make; it must not exist or be empty.", show_default=False
        ),
    ],
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LOG]",
            help="A log, .csv or .parquet, to learn from before the first episode.",
            show_default=False,
        ),
    ] = None,
    declaration: Annotated[
        Path | None,
        typer.Option(help="A declaration in TOML, in place of a log and options.", metavar="FILE"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="What people call the deployment, by default the name of the folder.", metavar="TEXT"
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="The mode at the start.", metavar="apprentice|budgeted|frozen|stopped")
    ] = "apprentice",
    seed: Annotated[int, typer.Option(help="Seed of the agent.", metavar="N")] = 0,
    every: Annotated[
        int | None, typer.Option(help="Number of episodes' worth of outcomes between two plans.", metavar="N")
    ] = None,
    most_open: Annotated[
        int | None, typer.Option(help="The most episodes that may be open at once.", metavar="N")
    ] = None,
    losses: Annotated[
        bool,
        typer.Option("--losses", help="Allow for lost outcomes in the bounds from the first episode on."),
    ] = False,
    options: Annotated[Given, Options("chary.agents:CharyUCBVI", without=("calibration",), unset=ALL)],
    declared: Annotated[Given, Options("chary.preview.options:PreviewOptions", without=OF_PLANS, unset=ALL)],
    reading: ReadOptions,
    as_json: Json = False,
) -> None:
    """Make a deployment, from a log or a declaration.

    The problem comes from a declaration, or from a log with the options of `chary plan`; what is not declared
    is read off the log, and said. As there, posterior worlds are the default, except with options that
    confidence bounds alone have. All is checked first. The folder is made whole or not at all.
    """
    check_service()
    from chary.agents.protocol import POSTERIOR
    from chary.service.declaring import Declaration
    from chary.service.local import make

    given = {"--seed": seed != 0, "--every": every, "--most-open": most_open, "--losses": losses}
    given |= {f"--{key.replace('_', '-')}": True for key in (*options, *declared)}
    notes: list[str] = []
    with TemporaryDirectory() as draft:
        if declaration is not None:
            extra = [key for key, value in given.items() if value] + (["LOG"] if log is not None else [])
            if extra:
                raise InvalidSetting(
                    f"'declaration' must come without {', '.join(extra[:3])}, got both. Write what they say "
                    "into the file."
                )
            made = Declaration.read(declaration)
        elif log is not None:
            agent = of_agent(options) | ({"losses": True} if losses else {})
            if not needs_bounds(agent):
                agent.setdefault("bonus", POSTERIOR)
            logged, told, notes = _problem(log, agent, declared, reading)
            made = Declaration(
                name=name or directory.resolve().name,
                agent={"name": "chary", **agent},
                seed=seed,
                mode=mode,
                planning={} if every is None else {"every": every},
                limits={} if most_open is None else {"open_episodes": most_open},
                **_tables(logged, told, declared, reading.labels(), Path(draft)),
            )
        else:
            raise InvalidSetting(
                "'LOG' must be a log to start from, got none. Pass a .csv or .parquet file, or --declaration "
                "FILE.toml."
            )
        standing = make(directory, made)
    if as_json:
        say(json_line({"directory": str(directory), "name": made.name, "standing": standing, "notes": notes}))
        return
    for note in notes:
        say(f"Note: {note}")
    say(f"Made: {directory} ({made.name}, mode {made.mode}).")
    say(standing)
    say(f"Next: chary serve token {directory} create --label mine --scope decide --scope report")
    say(f"      chary serve run {directory}")


def _problem(
    file: Path, agent: Given, declared: Given, reading: ReadOptions
) -> tuple[Log, Problem, list[str]]:
    """Return a log, its problem as declared, and what was read off it instead."""
    from chary.preview.options import PreviewOptions
    from chary.preview.problem import make_problem

    if "eta" not in agent:
        raise InvalidSetting(
            "'eta' must be given: the budget of an episode, in the log's units. Pass --eta X."
        )
    log = reading.read(file)
    of_log: Given = {"labels": reading.labels(), "first_step": reading.first_step}
    told = make_problem(log, PreviewOptions(etas=[agent["eta"]], **of_log, **declared))
    if "rewards" in declared:
        agent.setdefault("reward", "known")
    changed = [note for note in told.notes if told.change and "separate state" in note]
    return log, told, [f"{each}." for each in told.inferred] + changed


def _tables(
    log: Log, told: Problem, declared: Given, labels: Mapping[str, Sequence[str]], draft: Path
) -> dict[str, Any]:
    """Return the tables of a declaration about a problem, whose files are written to `draft`."""
    for name, size in (("state", told.plain.n_states), ("action", told.plain.n_actions)):
        if name in labels and len(labels[name]) != size:
            raise InvalidSetting(
                f"'label' must list a text for each of {size} {name}s, got {len(labels[name])}. List all."
            )
    columns = log.columns()
    # Episodes are numbered: whose they are does not matter for what is learnt.
    rows = zip(*(_cells(name, column, labels) for name, column in columns.items()), strict=True)
    _write(draft / LOG, [list(columns), *rows])
    tables: dict[str, Any] = {"setting": _setting(told, declared, labels), "log": {"file": str(draft / LOG)}}
    if told.own is not None:
        _write(draft / POLICY, _acts(told, told.own, labels))
        tables["policy"] = {"file": str(draft / POLICY), "role": told.own.role}
    if "rewards" in declared:
        tables["setting"]["rewards"] = str(draft / REWARDS)
        _write(draft / REWARDS, _rewards(told, Path(declared["rewards"]), labels))
    return tables


def _setting(told: Problem, declared: Given, labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the table of a declaration about the shape of a problem.

    The state that is added for early endings is not declared: it comes with them.
    """
    setting, S = told.setting, told.plain.n_states
    table: dict[str, Any] = {
        "n_states": S,
        "n_actions": setting.n_actions,
        "horizon": setting.horizon,
        "reward_range": [setting.scale.low, setting.scale.high],
    }
    table |= {f"{name}s": list(texts) for name, texts in labels.items()}
    if told.change:
        table["early_endings"] = True
    elif setting.terminal.any():
        table["terminal"] = setting.terminal.nonzero()[0].tolist()
    table |= {name: declared[name] for name in ("discount", "value_cap", "support") if name in declared}
    if not setting.allowed[:S][~setting.terminal[:S]].all():
        table["allowed"] = setting.allowed[:S].astype(int).tolist()
    return table


def _acts(told: Problem, own: OwnBaseline, labels: Mapping[str, Sequence[str]]) -> list[Sequence[Any]]:
    """Return the rows of a file of today's policy, by step only if it differs between steps."""
    table = own.table[:, : told.plain.n_states]
    steps = len(table) if (table != table[0]).any() else 1
    names = ("t", "state", "action")[steps == 1 :]
    rows: list[Sequence[Any]] = [names]
    for t in range(steps):
        for s, a in enumerate(table[t].tolist()):
            act = (t, _named(labels, "state", s), _named(labels, "action", a))
            rows.append(act[-len(names) :])
    return rows


def _cells(name: str, column: Any, labels: Mapping[str, Sequence[str]]) -> list[Any]:
    """Return a column of the log as it is written."""
    kind = {"state": "state", "next_state": "state", "action": "action"}.get(name, "")
    values = column.tolist()
    if kind in labels:
        return [labels[kind][value] for value in values]
    return [int(value) if isinstance(value, bool) else value for value in values]


def _named(labels: Mapping[str, Sequence[str]], kind: str, number: int) -> int | str:
    return labels[kind][number] if kind in labels else number


def _rewards(told: Problem, file: Path, labels: Mapping[str, Sequence[str]]) -> list[Sequence[Any]]:
    """Return the rows of a file of known rewards."""
    import numpy as np

    from chary.data import read_rewards

    plain = told.plain
    table = read_rewards(file, n_states=plain.n_states, n_actions=plain.n_actions, labels=labels)
    kinds = ("state", "action", "state")[: table.ndim]
    rows: list[Sequence[Any]] = [(*("state", "action", "next_state")[: table.ndim], "reward")]
    for place in zip(*np.isfinite(table).nonzero(), strict=True):
        names = (_named(labels, kind, int(k)) for kind, k in zip(kinds, place, strict=True))
        rows.append((*names, float(table[place])))
    return rows


def _write(file: Path, rows: Iterable[Sequence[Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
