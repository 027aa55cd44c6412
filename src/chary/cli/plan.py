"""The command plan: what an exploration budget allows, from logs alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from chary.cli.data import LogFile, ReadOptions
from chary.cli.options import Given, Json, Options, Overwrite
from chary.cli.terminal import progress, say, show
from chary.errors import InvalidSetting, check_installed
from chary.storage.files import as_json as json_line
from chary.storage.result_folder import ResultFolder

if TYPE_CHECKING:
    from chary.preview import BudgetOutcome, HelpfulPair, Preview, Proposal

PLAN_FILES = ("plan.json", "plan.html")


def _plan(
    *,
    file: LogFile,
    options: Annotated[
        Given,
        Options(
            "chary.preview.options:PreviewOptions",
            without=("first_step",),
            names={"etas": "eta", "rules": "rule"},
        ),
    ],
    reading: ReadOptions,
    out: Annotated[
        Path | None, typer.Option(help="Write plan.html and plan.json to this folder.", metavar="DIR")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Show what an exploration budget allows, from logged decisions alone, and recommend a configuration.

    The logged states are replayed through the shield; nothing is simulated. All amounts are in the log's
    reward units.
    """
    from chary.preview import preview
    from chary.preview.options import Source

    if "etas" not in options:
        raise InvalidSetting("'eta' must be given. Pass --eta X, several times for several budgets.")
    if out is not None:
        for package in ("matplotlib", "jinja2"):
            check_installed(package, "Writing a page", "figures")
    with ResultFolder(out, PLAN_FILES, overwrite=overwrite) if out else nullcontext() as folder:
        log = reading.read(file)
        source = Source(
            name=str(file),
            reading=reading.given(),
            discretiser=reading.discretiser,
            cut=reading.cut_at_horizon,
            arguments=reading.arguments(),
        )
        options |= {"labels": reading.labels(), "first_step": reading.first_step}
        with progress() as report:
            found = preview(log, **options, source=source, progress=report(f"planning from {file.name}"))
        line = json_line({"file": file.name, **found.summary()})
        if folder is not None:
            from chary.preview.page import page_bytes

            folder.write({"plan.json": (line + "\n").encode(), "plan.html": page_bytes(found, file.name)})
    if as_json:
        say(line)
        return
    _show(found)
    if folder is not None:
        say(f"Page: {folder.path / 'plan.html'}")


def _show(found: Preview) -> None:
    from chary.pages import Table
    from chary.preview.words import amount, budget, percent, standing_of

    verdict, *others = found.sentences()
    say(verdict)
    say(found.verdict.standing.describe())
    say()
    say("\n".join(others))
    say()
    budgets: list[tuple[str, Callable[[BudgetOutcome], str]]] = [
        ("eta", lambda each: budget(each.eta)),
        ("rule", lambda each: each.rule),
        ("standing", lambda each: standing_of(found, each)),
        ("differing steps", lambda each: percent(each.deviating)),
        ("episodes with one", lambda each: percent(each.episodes_deviating)),
        ("may act", lambda each: percent(each.explored)),
        ("booked per episode", lambda each: amount(each.charge_per_episode)),
    ]
    if found.credible is not None:
        budgets.append(("expected loss", lambda each: amount(each.expected_loss or 0.0)))
    show(*Table.of(budgets, found.outcomes))
    say()
    for basis in found.rules:
        if basis.standing == found.verdict.standing:
            continue
        say(f"Rule {basis.rule}. {basis.standing.describe()}")
    if found.credible is not None and found.credible.proposals:
        say()
        tried: list[tuple[str, Callable[[Proposal], str]]] = [
            ("state", lambda each: str(each.state)),
            ("baseline's action", lambda each: str(each.baseline)),
            ("action tried", lambda each: str(each.action)),
            ("steps", lambda each: f"{each.steps:,}"),
            ("mean loss per step", lambda each: amount(each.gap)),
            ("worlds in which it is no worse", lambda each: percent(each.better)),
        ]
        show(*Table.of(tried, found.credible.proposals))
    if found.helpful:
        say()
        pairs: list[tuple[str, Callable[[HelpfulPair], str]]] = [
            ("state", lambda each: str(each.state)),
            ("action", lambda each: str(each.action)),
            ("seen", lambda each: f"{each.visits:,}"),
            ("supposed", lambda each: f"{each.added:,} more"),
            ("mean charge before", lambda each: amount(each.charge_before)),
            ("after", lambda each: amount(each.charge_after)),
        ]
        show(*Table.of(pairs, found.helpful))
        say(found.helpful_note)
    say()
    for note in found.notes:
        say(f"Note: {note}")
    pasted = {"Python": found.verdict.python, "TOML": found.verdict.toml, "Next": found.verdict.cli}
    for name, text in pasted.items():
        say(f"\n{name}:\n\n{indent(text, '    ')}")


COMMANDS = {"plan": _plan}
