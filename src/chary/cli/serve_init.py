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
from chary.cli.run import of_agent
from chary.cli.serve_options import check_service
from chary.cli.terminal import say
from chary.errors import InvalidSetting
from chary.storage.files import as_json as json_line

if TYPE_CHECKING:
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
    is read off the log, and said. All is checked first. The folder is made whole or not at all.
    """
    check_service()
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
            told, notes = _problem(log, agent, declared, reading)
            made = Declaration(
                name=name or directory.resolve().name,
                agent={"name": "chary", **agent},
                seed=seed,
                mode=mode,
                planning={} if every is None else {"every": every},
                limits={} if most_open is None else {"open_episodes": most_open},
                **_tables(told, declared, reading.labels(), Path(draft)),
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


def _problem(file: Path, agent: Given, declared: Given, reading: ReadOptions) -> tuple[Problem, list[str]]:
    """Return the problem of a log as declared, and what was read off it instead."""
    from chary.preview.options import PreviewOptions
    from chary.preview.problem import make_problem

    if "eta" not in agent:
        raise InvalidSetting(
            "'eta' must be given: the budget of an episode, in the log's units. Pass --eta X."
        )
    log = reading.read(file)
    of_log: dict[str, Any] = {"labels": reading.labels(), "first_step": reading.first_step}
    told = make_problem(log, PreviewOptions(etas=[agent["eta"]], **of_log, **declared))
    if "rewards" in declared:
        agent.setdefault("reward", "known")
    changed = [note for note in told.notes if told.change and "separate state" in note]
    return told, [f"{each}." for each in told.inferred] + changed


def _tables(
    told: Problem, declared: Given, labels: Mapping[str, Sequence[str]], draft: Path
) -> dict[str, Any]:
    """Return the tables of a declaration about a problem, whose files are written to `draft`."""
    texts = _texts(told, labels)
    columns = told.log.columns()
    # Episodes are numbered: whose they are does not matter for what is learnt.
    rows = [
        list(columns),
        *zip(*(_cells(name, column, texts) for name, column in columns.items()), strict=True),
    ]
    _write(draft / LOG, rows)
    tables: dict[str, Any] = {"setting": _setting(told, declared, texts), "log": {"file": str(draft / LOG)}}
    if told.own is not None:
        H, S = told.own.table.shape
        steps = range(H) if (told.own.table != told.own.table[0]).any() else range(1)
        acts = [
            (t, _named(texts, "state", s), _named(texts, "action", int(told.own.table[t, s])))
            for t in steps
            for s in range(S)
        ]
        first = 0 if len(steps) > 1 else 1
        _write(draft / POLICY, [("t", "state", "action")[first:], *(act[first:] for act in acts)])
        tables["policy"] = {"file": str(draft / POLICY), "role": told.own.role}
    if "rewards" in declared:
        tables["setting"]["rewards"] = str(draft / REWARDS)
        _write(draft / REWARDS, _rewards(told, Path(declared["rewards"]), labels, texts))
    return tables


def _setting(told: Problem, declared: Given, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the table of a declaration about the shape of a problem."""
    setting = told.setting
    table: dict[str, Any] = {
        "n_states": setting.n_states,
        "n_actions": setting.n_actions,
        "horizon": setting.horizon,
        "reward_range": [setting.scale.low, setting.scale.high],
    }
    table |= {f"{name}s": list(names) for name, names in texts.items()}
    if setting.discount != 1.0:
        table["discount"] = setting.discount
    if setting.terminal.any():
        table["terminal"] = setting.terminal.nonzero()[0].tolist()
    if "value_cap" in declared:
        table["value_cap"] = declared["value_cap"]
    if not setting.allowed[~setting.terminal].all():
        table["allowed"] = setting.allowed.astype(int).tolist()
    if (setting.support < setting.n_states).any():
        support = setting.allowed.astype(int)
        support[setting.allowed] = setting.support
        table["support"] = support.tolist()
    return table


def _texts(told: Problem, labels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the texts of states and actions; a state that was added for endings is called so."""
    texts = {name: list(names) for name, names in labels.items()}
    if "state" in texts and told.change:
        texts["state"].append("ended")
    for name, size in (("state", told.setting.n_states), ("action", told.setting.n_actions)):
        if name in texts and len(texts[name]) != size:
            raise InvalidSetting(
                f"'label' must list a text for each of {size} {name}s, got {len(texts[name])}. List all."
            )
    return texts


def _cells(name: str, column: Any, texts: Mapping[str, Sequence[str]]) -> list[Any]:
    """Return a column of the log as it is written."""
    kind = {"state": "state", "next_state": "state", "action": "action"}.get(name, "")
    values = column.tolist()
    if kind in texts:
        return [texts[kind][value] for value in values]
    return [int(value) if isinstance(value, bool) else value for value in values]


def _named(texts: Mapping[str, Sequence[str]], kind: str, number: int) -> int | str:
    return texts[kind][number] if kind in texts else number


def _rewards(
    told: Problem, file: Path, labels: Mapping[str, Sequence[str]], texts: Mapping[str, Sequence[str]]
) -> list[tuple[Any, ...]]:
    """Return the rows of a file of known rewards; in a state that was added nothing is earned."""
    import numpy as np

    from chary.data import read_rewards

    plain, actions = told.plain.n_states, told.setting.n_actions
    table = read_rewards(file, n_states=plain, n_actions=actions, labels=labels)
    table = np.concatenate([table, np.zeros((told.setting.n_states - plain, *table.shape[1:]))])
    kinds = ("state", "action", "state")[: table.ndim]
    rows: list[tuple[Any, ...]] = [(*("state", "action", "next_state")[: table.ndim], "reward")]
    for place in zip(*np.isfinite(table).nonzero(), strict=True):
        names = (_named(texts, kind, int(k)) for kind, k in zip(kinds, place, strict=True))
        rows.append((*names, float(table[place])))
    return rows


def _write(file: Path, rows: Iterable[Sequence[Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
