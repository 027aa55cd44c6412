"""A preview as one HTML page that needs no other file: it has no script, and pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

from chary.charts import Chart, Panel, Series, draw_files
from chary.charts.palette import PALETTE
from chary.errors import InvalidSetting
from chary.pages import Table, render, require_jinja
from chary.preview.result import (
    Basis,
    BudgetOutcome,
    Credible,
    Gap,
    HelpfulPair,
    Preview,
    Proposal,
    StepBound,
)
from chary.preview.words import (
    action_name,
    amount,
    budget,
    interval,
    percent,
    standing_of,
    state_name,
    step_name,
)

# Bytes of the whole page.
PAGE_LIMIT = 2_000_000
COLOURS = {
    "strict": PALETTE["blue"],
    "capped": PALETTE["orange"],
    "paper": PALETTE["green"],
    "unlimited": PALETTE["vermillion"],
    "closed": PALETTE["grey"],
}
# The number of steps that an axis has room to name.
MOST_TICKS = 25
# Lines of rules with equal results show through each other.
RULE_DASHES = {"strict": "solid", "capped": "dash", "paper": "dashdot", "unlimited": "dot", "closed": "dot"}
KNOWN = {
    "best": ("known to be best", PALETTE["green"]),
    "chosen": ("preferred by data", PALETTE["blue"]),
    "tied": ("undecided by data", PALETTE["vermillion"]),
    "only": ("no choice", PALETTE["grey"]),
}
SECTIONS = {
    "verdict": "Recommended",
    "summary": "In plain words",
    "today": "Today's policy and the learnt one",
    "budgets": "What each budget buys",
    "rules": "What each rule depends on",
    "baseline": "How well the baseline is known",
    "charges": "Charges for exploring",
    "data": "Data that would help",
    "basis": "What this is based on",
}


def page_bytes(preview: Preview, source: str) -> bytes:
    """Return the page of a preview; `source` is the name of the log.

    Raises:
        InvalidSetting: if matplotlib or Jinja2 is not installed, or the page is too large because there are
            so many budgets.
    """
    require_jinja()
    pictures = [(chart, base64.b64encode(draw_files(chart)["png"]).decode()) for chart in charts_of(preview)]
    content = render(
        "preview.html",
        ("preview",),
        {
            "title": f"What a budget would buy: {source}",
            "sections": {key: name for key, name in SECTIONS.items() if key not in _left_out(preview)},
            "credible": preview.credible and _credible_table(preview.credible),
            "proposals": preview.credible and proposals_table(preview.basis, preview.credible),
            "source": source,
            "preview": preview,
            "figures": pictures,
            "tiles": _tiles(preview),
            "pasted": {
                "As Python": preview.verdict.python,
                "As an algorithm of an experiment, in TOML": preview.verdict.toml,
                "Next, on the command line": preview.verdict.cli,
            },
            "money": partial(amount, unit=preview.basis.unit),
            "sentences": preview.sentences()[1:],
            "step_bounds": _step_bounds(preview),
            "budgets": _budgets(preview),
            "thresholds": _thresholds(preview),
            "worth_something": percent(preview.baseline.worth_something),
            "charges": _charges(preview),
            "helpful": _helpful(preview),
            "basis": _basis(preview),
        },
    )
    if len(content) > PAGE_LIMIT:
        raise InvalidSetting(
            f"a preview's page must stay below {PAGE_LIMIT:,} bytes, got {len(content):,}. Preview fewer "
            "budgets."
        )
    return content


def _left_out(preview: Preview) -> tuple[str, ...]:
    """Return the sections that a preview does not have."""
    return ("today",) if preview.credible is None else ("data",)


def _credible_table(credible: Credible) -> Table:
    named = {
        f"today's policy ({credible.today})": credible.today_value,
        "the learnt baseline": credible.baseline_value,
        "gain": credible.gain,
    }
    rows = [[name, *(amount(each) for each in (v.mean, v.low, v.high))] for name, v in named.items()]
    return Table(("value per episode", "mean of the worlds", "2.5 %", "97.5 %"), rows)


def proposals_table(basis: Basis, credible: Credible) -> Table:
    """Return what the largest budget would try, in the user's words."""
    columns: list[tuple[str, Callable[[Proposal], str]]] = [
        ("state", lambda each: state_name(basis, each.state)),
        ("baseline's action", lambda each: action_name(basis, each.baseline)),
        ("action tried", lambda each: action_name(basis, each.action)),
        ("steps", lambda each: f"{each.steps:,}"),
        ("mean loss per step", lambda each: amount(each.gap)),
        ("worlds in which it is no worse", lambda each: percent(each.better)),
    ]
    return Table.of(columns, credible.proposals)


def charts_of(preview: Preview) -> list[Chart]:
    """Return the charts of a preview: shares against the budget, the baseline by step, the charges."""
    charts = [_budget_chart(preview), _baseline_chart(preview)]
    if preview.charges.overall:
        charts.append(_charge_chart(preview))
    return charts


def _budget_chart(preview: Preview) -> Chart:
    positive = [eta for curve in preview.curves for eta in curve.eta if eta > 0]
    zero = min(positive) / 2 if positive else None
    asked = {(outcome.rule, outcome.eta): outcome for outcome in preview.outcomes}

    def panel(title: str, field: str) -> Panel:
        series = []
        for curve in preview.curves:
            look: dict[str, Any] = {"label": curve.rule, "colour": COLOURS[curve.rule]}
            shares = tuple(100 * share for share in getattr(curve, field))
            series.append(Series(x=curve.eta, y=shares, dash=RULE_DASHES[curve.rule], **look))
            mine = [each for (rule, _), each in asked.items() if rule == curve.rule]
            at = tuple(each.eta for each in mine)
            series.append(Series(x=at, y=tuple(100 * getattr(o, field) for o in mine), kind="points", **look))
        return Panel(
            title=title,
            x_label="budget eta per episode",
            y_label="% of the logged steps",
            series=tuple(series),
            x_log=zero is not None,
            x_zero=zero,
        )

    return Chart(
        key="budget",
        title="Share of steps at which exploring is allowed",
        caption="Dots are the given budgets. Left: steps at which the explorer may act and differs from the "
        "baseline. Right: all steps at which it may act, including those at which it agrees with the "
        "baseline, which are free.",
        panels=(panel("Differs from the baseline", "deviating"), panel("May act at all", "explored")),
    )


def _baseline_chart(preview: Preview) -> Chart:
    stages, first = preview.baseline.by_stage, preview.basis.first_step
    series = tuple(
        Series(
            label=label,
            x=tuple(float(stage.t + first) for stage in stages),
            y=tuple(100 * getattr(stage, field) for stage in stages),
            colour=colour,
            kind="path",
        )
        for field, (label, colour) in KNOWN.items()
        if field != "only" or preview.baseline.only > 0
    )
    steps = tuple(str(stage.t + first) for stage in stages)
    panel = Panel(
        title="",
        x_label="step t of the episode",
        y_label="% of the logged steps there",
        series=series,
        # Each step has its own tick while there is room. Every stage of a log has one, from 0 on.
        categories=steps if len(steps) <= MOST_TICKS else (),
    )
    return Chart(
        key="baseline",
        title="Knowledge of the baseline's action, step by step",
        caption="Known to be best: its lower bound is above the upper bound of every other allowed action. "
        "Preferred by data: its lower bound is the highest, but others may still be better. Undecided by "
        "data: another action has the same lower bound.",
        panels=(panel,),
    )


def _charge_chart(preview: Preview) -> Chart:
    charges = preview.charges
    shares = tuple(100 * level for level in charges.levels)
    looks = (
        ("all steps", charges.overall, "blue", "solid"),
        (f"first step (t = {preview.basis.first_step})", charges.at_start, "orange", "dash"),
    )
    series = [
        Series(label=label, x=values, y=shares, colour=PALETTE[colour], dash=dash)
        for label, values, colour, dash in looks
        if values
    ]
    panel = Panel(title="", x_label="charge of the step", y_label="% of the proposals", series=tuple(series))
    return Chart(
        key="charges",
        title="Charges for the explorer's proposals",
        caption="The share of the proposals that differ from the baseline and are charged at most this much. "
        "A charge is the largest expected cost of the step that the data do not rule out.",
        panels=(panel,),
    )


def _tiles(preview: Preview) -> list[tuple[str, str]]:
    """Return the most important numbers, each with its explanation."""
    largest = [each for each in preview.outcomes if each.rule == preview.rules[0].rule][-1]
    return [
        (f"{preview.basis.steps:,}", f"logged decisions in {preview.basis.episodes:,} episodes"),
        (percent(preview.baseline.best), "of them with a baseline action known to be best"),
        (percent(preview.charges.differing), "where the explorer would try something else"),
        (
            percent(largest.deviating),
            f"where a budget of {budget(largest.eta, preview.basis.unit)} allows it, by rule {largest.rule}",
        ),
    ]


def _budgets(preview: Preview) -> Table:
    columns: list[tuple[str, Callable[[BudgetOutcome], str]]] = [
        ("budget eta", lambda each: budget(each.eta)),
        ("rule", lambda each: each.rule),
        ("standing", lambda each: standing_of(preview, each)),
        ("steps that differ", lambda each: percent(each.deviating)),
        ("episodes with one", lambda each: percent(each.episodes_deviating)),
        ("steps it may act at", lambda each: percent(each.explored)),
        ("booked per step", lambda each: amount(each.charge_per_step)),
        ("booked per episode", lambda each: amount(each.charge_per_episode)),
        ("episodes booked beyond eta", lambda each: percent(each.episodes_over_eta)),
    ]
    if preview.credible is not None:
        columns[-1:] = [
            ("expected loss per episode", lambda each: amount(each.expected_loss or 0.0)),
            ("worlds over eta, mean", lambda each: percent(each.exceeding or 0.0)),
        ]
    return Table.of(columns, sorted(preview.outcomes, key=lambda each: each.eta))


def _thresholds(preview: Preview) -> Table:
    def text(eta: float | None) -> str:
        return "none tried" if eta is None else "any" if eta == 0 else amount(eta)

    kinds = (("differing proposals", "eta_deviating"), ("all steps", "eta_explored"))
    shares = sorted({each.share for each in preview.thresholds})
    found = {(each.rule, each.share): each for each in preview.thresholds}
    rows = [
        (
            basis.rule,
            *(text(getattr(found[basis.rule, share], field)) for _, field in kinds for share in shares),
        )
        for basis in preview.rules
    ]
    heads = ("rule", *(f"{percent(share)} of {name}" for name, _ in kinds for share in shares))
    return Table(heads, rows)


def _step_bounds(preview: Preview) -> Table | None:
    columns: list[tuple[str, Callable[[StepBound], str]]] = [
        ("step bound", lambda each: budget(each.bound)),
        ("the log", lambda each: "refutes it" if each.refuted else "does not refute it"),
        ("surely above", lambda each: f"{each.refuting:,} of {each.compared:,}"),
        ("above on average", lambda each: percent(each.above)),
        ("largest: step, state, action", lambda each: _place(preview.basis, each.worst)),
        ("loses", lambda each: "-" if each.worst is None else interval(each.worst.gap)),
    ]
    return Table.of(columns, preview.step_bounds) if preview.step_bounds else None


def _place(basis: Basis, gap: Gap | None) -> str:
    if gap is None:
        return "-"
    return ", ".join([step_name(basis, gap.t), state_name(basis, gap.state), action_name(basis, gap.action)])


def _charges(preview: Preview) -> Table | None:
    charges = preview.charges
    if not charges.overall:
        return None
    wanted = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    places = [charges.levels.index(level) for level in wanted]
    named = {"all steps": charges.overall, "first step": charges.at_start}
    rows = [[name, *(amount(values[i]) for i in places)] for name, values in named.items() if values]
    heads = ("charge of", "least", "10 %", "25 %", "median", "75 %", "90 %", "most")
    return Table(heads, rows)


def _helpful(preview: Preview) -> Table:
    roles = {"explorer": "the explorer's", "baseline": "the baseline's", "both": "both, by step"}
    sources = {"its own": "as seen there", "other actions": "like other actions there"}
    columns: list[tuple[str, Callable[[HelpfulPair], str]]] = [
        ("state", lambda each: state_name(preview.basis, each.state)),
        ("action", lambda each: action_name(preview.basis, each.action)),
        ("whose", lambda each: roles[each.role]),
        ("seen", lambda each: f"{each.visits:,}"),
        ("supposed", lambda each: f"+{each.added:,}"),
        ("outcomes", lambda each: sources[each.supposed]),
        ("mean charge", lambda each: f"{amount(each.charge_before)} → {amount(each.charge_after)}"),
        ("lower by", lambda each: percent(1 - each.charge_after / each.charge_before)),
    ]
    return Table.of(columns, preview.helpful)


def _bounds(basis: Basis) -> str:
    if basis.worlds is not None:
        return (
            f"{basis.worlds} posterior worlds, prior {basis.world_prior}, kappa {basis.kappa:g}, risk "
            f"{basis.risk:g}, pessimism {basis.pessimism:g}, seed {basis.seed}"
        )
    coming = "" if basis.max_episodes is None else f", for {basis.max_episodes:,} episodes to come"
    return f"{basis.bonus}, scale {basis.bonus_scale:g}, delta {basis.delta:g}{coming}"


def _basis(preview: Preview) -> dict[str, str]:
    basis = preview.basis
    return {
        "log": f"{basis.episodes:,} episodes, {basis.steps:,} steps",
        "learnt from": f"{basis.learnt_episodes:,} episodes, {basis.learnt_steps:,} steps",
        "replayed": f"{basis.replayed_episodes:,} episodes, {basis.replayed_steps:,} steps",
        "problem": f"{basis.states:,} states, {basis.actions:,} actions, horizon {basis.horizon:,}, discount "
        f"{basis.discount:g}",
        "state-action pairs": f"{basis.pairs_seen:,} seen of {basis.pairs:,} allowed ({basis.allowed})",
        "rewards": f"{budget(basis.reward_low)} to {budget(basis.reward_high, basis.unit)}, {basis.reward}",
        "value cap": "none" if basis.value_cap is None else budget(basis.value_cap, basis.unit),
        "your own policy": "none" if basis.baseline is None else f"in the role {basis.baseline}",
        "successors of a pair": "any" if basis.support is None else f"{basis.support:,} at most",
        "bounds": _bounds(basis),
        "charge": basis.charge,
        "ties of the baseline": {
            "none": "the lowest number",
            "logged": "the action logged most often",
            "given": "the policy that was given",
        }[basis.prior],
    }
