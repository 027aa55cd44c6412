"""The command plan: what an exploration budget allows, from logs alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    from chary.preview import BudgetOutcome, HelpfulPair, Preview

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
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every number and assumption.")] = False,
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
        options |= {
            "columns": reading.columns(),
            "labels": reading.labels(),
            "first_step": reading.first_step,
        }
        with progress() as report:
            found = preview(log, **options, source=source, progress=report(f"planning from {file.name}"))
        line = json_line({"file": file.name, **found.summary()})
        if folder is not None:
            from chary.preview.page import page_bytes

            folder.write({"plan.json": (line + "\n").encode(), "plan.html": page_bytes(found, file.name)})
    if as_json:
        say(line)
        return
    if verbose:
        _show_all(found)
    else:
        _show(found)
    if folder is not None:
        say(f"Page: {folder.path / 'plan.html'}")


def _show(found: Preview) -> None:
    """Print the verdict, what each budget would buy, and the program to paste."""
    from chary.preview.sentences import warnings_of
    from chary.preview.words import READ_OFF, percent
    from chary.standing import MARKOV, UNCONFOUNDED

    standing, inferred = found.verdict.standing, found.basis.inferred
    say(found.verdict.sentence)
    say()
    if inferred:
        named = "; ".join(each.removesuffix(READ_OFF) for each in inferred)
        say(f"{standing.label.capitalize()}, because this was read off the log and not declared: {named}.")
    else:
        say(standing.promise)
    said = [each for each in standing.given if each.startswith((MARKOV, UNCONFOUNDED))]
    others = len(standing.given) - len(said)
    say(f"It leans on this: {'; '.join(said)}; and on {others} more things, which --verbose lists.")
    say()
    several = len({each.rule for each in found.outcomes}) > 1
    _show_budgets(
        found,
        [("rule", lambda each: each.rule)] * several,
        [("differing steps", lambda each: percent(each.deviating))],
        [("episodes with one", lambda each: percent(each.episodes_deviating))],
    )
    for warning in warnings_of(found):
        say(f"\nWarning: {warning}")
    say(f"\n{indent(found.verdict.python, '    ')}\n\nNext: {found.verdict.cli}\n")
    notes = len(found.notes)
    say(
        f"--verbose prints all numbers, {notes} notes on what they assume, and TOML; --out DIR writes a page."
    )


def _show_budgets(found: Preview, *columns: Sequence[tuple[str, Callable[[BudgetOutcome], str]]]) -> None:
    from chary.pages import Table
    from chary.preview.words import amount, budget

    told: list[tuple[str, Callable[[BudgetOutcome], str]]] = [("eta", lambda each: budget(each.eta))]
    told += [column for each in columns for column in each]
    if found.credible is not None:
        told.append(("expected loss", lambda each: amount(each.expected_loss or 0.0)))
    else:
        told.append(("booked per episode", lambda each: amount(each.charge_per_episode)))
    show(*Table.of(told, found.outcomes))


def _show_all(found: Preview) -> None:
    from chary.pages import Table
    from chary.preview.page import proposals_table
    from chary.preview.words import action_name, amount, percent, standing_of, state_name

    basis, (verdict, *others) = found.basis, found.sentences()
    say(verdict)
    say(found.verdict.standing.describe())
    say()
    say("\n".join(others))
    say()
    _show_budgets(
        found,
        [("rule", lambda each: each.rule), ("standing", lambda each: standing_of(found, each))],
        [("differing steps", lambda each: percent(each.deviating))],
        [("episodes with one", lambda each: percent(each.episodes_deviating))],
        [("may act", lambda each: percent(each.explored))],
        [("booked per episode", lambda each: amount(each.charge_per_episode))] * (found.credible is not None),
    )
    say()
    for rule in found.rules:
        if rule.standing == found.verdict.standing:
            continue
        say(f"Rule {rule.rule}. {rule.standing.describe()}")
    if found.credible is not None and found.credible.proposals:
        say()
        show(*proposals_table(basis, found.credible))
    if found.helpful:
        say()
        pairs: list[tuple[str, Callable[[HelpfulPair], str]]] = [
            ("state", lambda each: state_name(basis, each.state)),
            ("action", lambda each: action_name(basis, each.action)),
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
