"""The command `plan`: what a budget would buy, from logs alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chary.cli.options import Charge, Json, Overwrite, count, number, word
from chary.cli.terminal import progress, show

if TYPE_CHECKING:
    from chary.preview import Preview

__all__ = ["add_plan_command"]

PLAN_FILES = ("plan.json", "plan.html")


def add_plan_command(app: typer.Typer) -> None:
    """Give the command line its command `plan`."""
    app.command("plan")(_plan)


def _plan(
    file: Annotated[
        Path,
        typer.Argument(help="A log, .csv or .parquet, with one row a transition.", show_default=False),
    ],
    eta: Annotated[
        list[float] | None,
        number("A budget of every episode, in the log's reward units; several, one an option."),
    ] = None,
    horizon: Annotated[int | None, count("Steps of an episode; the longest logged one by default.")] = None,
    discount: Annotated[float, number("The discount gamma.")] = 1.0,
    reward_low: Annotated[
        float | None, number("The lowest reward there can be; that seen by default.")
    ] = None,
    reward_high: Annotated[
        float | None, number("The highest reward there can be; that seen by default.")
    ] = None,
    n_states: Annotated[int | None, count("The number of states; those seen by default.")] = None,
    n_actions: Annotated[int | None, count("The number of actions; those seen by default.")] = None,
    value_cap: Annotated[
        float | None, number("The most an episode can be expected to return, where rewards start at 0.")
    ] = None,
    support: Annotated[
        int | None, count("How many states can follow a state and an action; any by default.")
    ] = None,
    allowed: Annotated[
        str, word("all|seen", "Actions allowed in a state: all, or those seen there.")
    ] = "all",
    prior: Annotated[
        str, word("none|logged", "What decides the baseline's ties: the lowest number, or the usual action.")
    ] = "none",
    bonus: Annotated[str, word("kl|l1|hoeffding|bernstein", "The family of bounds.")] = "kl",
    bonus_scale: Annotated[float, number("Factor on the bonus.")] = 1.0,
    delta: Annotated[float, number("Probability with which the bounds may fail.")] = 0.1,
    max_episodes: Annotated[int | None, count("Episodes to come; bonus kl needs no number.")] = None,
    charge: Charge = "coupled",
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="A rule to try, several one an option; strict, capped and paper by default.",
            metavar="strict|capped|paper|unlimited|closed",
        ),
    ] = None,
    step_bound: Annotated[
        float | None, number("With rule capped: the largest true gap assumed; eta / 2 by default.")
    ] = None,
    after_refusal: Annotated[
        str | None, word("pause|close", "Whether an episode may explore again after a refusal.")
    ] = None,
    holdout: Annotated[
        float, number("Share of the episodes, the last ones, replayed without being learnt from.")
    ] = 0.0,
    more_visits: Annotated[int, count("Further visits supposed when asking which data would help.")] = 100,
    discretiser: Annotated[
        Path | None,
        typer.Option(
            help="A saved discretiser, for files with columns state_0, state_1, ...", metavar="FILE"
        ),
    ] = None,
    ignore_extra: Annotated[bool, typer.Option("--ignore-extra", help="Leave other columns aside.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write plan.html and plan.json into this folder.", metavar="DIR")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Say what an exploration budget would buy, from logged decisions alone, before anything goes live.

    The logged states are replayed through the shield; nothing is simulated. All amounts are in the log's own
    reward units.
    """
    from chary.data import load_discretiser, read_log
    from chary.errors import InvalidSetting
    from chary.preview import preview
    from chary.storage.files import as_json as json_line
    from chary.storage.result_folder import ResultFolder

    if not eta:
        raise InvalidSetting(
            "'eta' must be given, got none. Pass --eta X, several times for several budgets."
        )
    if out is not None:
        from chary.charts.palette import require_matplotlib

        require_matplotlib()
    given: dict[str, Any] = {} if rule is None else {"rules": rule}
    with ResultFolder(out, PLAN_FILES, overwrite=overwrite) if out else nullcontext() as folder:
        saved = None if discretiser is None else load_discretiser(discretiser)
        log = read_log(file, discretiser=saved, ignore_extra=ignore_extra)
        with progress() as report:
            found = preview(
                log,
                etas=eta,
                horizon=horizon,
                discount=discount,
                reward_low=reward_low,
                reward_high=reward_high,
                n_states=n_states,
                n_actions=n_actions,
                value_cap=value_cap,
                support=support,
                allowed=allowed,
                prior=prior,
                bonus=bonus,
                bonus_scale=bonus_scale,
                delta=delta,
                max_episodes=max_episodes,
                charge=charge or "coupled",
                step_bound=step_bound,
                after_refusal=after_refusal,
                holdout=holdout,
                more_visits=more_visits,
                progress=report(f"planning from {file.name}"),
                **given,
            )
        line = json_line({"file": file.name, **found.summary()})
        if folder is not None:
            from chary.preview.page import page_bytes

            folder.write({"plan.json": (line + "\n").encode(), "plan.html": page_bytes(found, file.name)})
    if as_json:
        print(line)
        return
    _show(found)
    if folder is not None:
        print(f"Page: {folder.path / 'plan.html'}")


def _show(found: Preview) -> None:
    from chary.preview.result import percent

    print("\n".join(found.sentences()))
    print()
    show(
        ("eta", "rule", "standing", "differing steps", "episodes with one", "may act", "booked an episode"),
        [
            (
                f"{each.eta:g}",
                each.rule,
                each.standing,
                percent(each.deviating),
                percent(each.episodes_deviating),
                percent(each.explored),
                f"{each.charge_per_episode:.4g}",
            )
            for each in found.outcomes
        ],
    )
    print()
    for basis in found.rules:
        print(f"{basis.rule} ({basis.standing}) leans on {basis.leans_on}.")
    if found.helpful:
        print()
        show(
            ("state", "action", "seen", "supposed", "mean charge before", "after"),
            [
                (
                    str(each.state),
                    str(each.action),
                    str(each.visits),
                    f"{each.added} more",
                    f"{each.charge_before:.4g}",
                    f"{each.charge_after:.4g}",
                )
                for each in found.helpful
            ],
        )
        print(found.helpful_note)
    print()
    for note in found.notes:
        print(f"Note: {note}")
