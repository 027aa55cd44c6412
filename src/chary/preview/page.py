"""A preview as one HTML page that needs nothing else: no script, and pictures inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

import chary
from chary.charts import Chart, Panel, Series, draw_files
from chary.charts.palette import PALETTE
from chary.errors import InvalidSetting
from chary.preview.result import Outcome, Preview, percent

__all__ = ["PAGE_LIMIT", "charts_of", "page_bytes"]

# Bytes of the whole page.
PAGE_LIMIT = 2_000_000
# The page asks for nothing, and runs nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
COLOURS = {
    "strict": PALETTE["blue"],
    "capped": PALETTE["orange"],
    "paper": PALETTE["green"],
    "unlimited": PALETTE["vermillion"],
    "closed": PALETTE["grey"],
}
# Steps of an episode that an axis has room to name.
MOST_TICKS = 25
# Rules that allow the same show through each other.
RULE_DASHES = {"strict": "solid", "capped": "dash", "paper": "dashdot", "unlimited": "dot", "closed": "dot"}
KNOWN = {
    "best": ("known to be best", PALETTE["green"]),
    "chosen": ("preferred by data", PALETTE["blue"]),
    "tied": ("data cannot tell", PALETTE["vermillion"]),
    "only": ("no choice", PALETTE["grey"]),
}
STYLE = """
figure img { display: block; width: 100%; height: auto; }
figure img.single { max-width: 800px; margin: 0 auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 12px; margin: 18px 0
4px; } .tile { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 14px
18px; } .tile b { display: block; font-size: 1.7rem; line-height: 1.2; letter-spacing: -0.01em; }
.tile span { color: var(--soft); font-size: 0.88rem; }
.words { font-size: 1.05rem; }
.words p { margin: 8px 0; max-width: 96ch; }
.verdict.certified { color: var(--good); background: var(--good-ground); }
.verdict.uncertified { color: var(--bad); background: var(--bad-ground); }
td.wide { min-width: 22em; }
"""

SECTIONS = (
    ("summary", "In plain words"),
    ("budgets", "What each budget buys"),
    ("rules", "What each rule leans on"),
    ("baseline", "How well the baseline is known"),
    ("charges", "What exploring is charged"),
    ("data", "Data that would help"),
    ("basis", "What this rests on"),
)


def page_bytes(preview: Preview, source: str) -> bytes:
    """Return the page of a preview; `source` is what the log is called.

    Raises:
        InvalidSetting: if matplotlib is not installed, or there are so many budgets that the page is too
            large.
    """
    pictures = {chart.key: _figure(chart) for chart in charts_of(preview)}
    parts = {
        "summary": _summary(preview),
        "budgets": pictures.get("budget", "") + _budgets(preview) + _thresholds(preview),
        "rules": _rules(preview),
        "baseline": pictures.get("baseline", "") + _baseline(preview),
        "charges": pictures.get("charges", "") + _charges(preview),
        "data": _data(preview),
        "basis": _basis(preview),
    }
    body = "\n".join(
        f'<section id="{key}">\n<h2>{name}</h2>\n{parts[key]}\n</section>' for key, name in SECTIONS
    )
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name in SECTIONS)
    style = resources.files("chary.report").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    page = f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="generator" content="chary {_safe(chary.__version__)}">
<title>What a budget would buy: {_safe(source)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>What an exploration budget would buy</h1>
<p class="lead">From the log “{_safe(source)}” alone, before anything goes live.
Made by chary {_safe(chary.__version__)}.</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{body}
</main>
<footer>Amounts are in the log's own reward units. The logged states were replayed through the shield; nothing
was simulated. This page loads nothing from anywhere.</footer>
</body>
</html>
"""
    content = page.encode()
    if len(content) > PAGE_LIMIT:
        raise InvalidSetting(
            f"a preview's page must stay below {PAGE_LIMIT:,} bytes, got {len(content):,}. Preview fewer "
            "budgets."
        )
    return content


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
            x_label="budget eta of an episode",
            y_label="% of the logged steps",
            series=tuple(series),
            x_log=zero is not None,
            x_zero=zero,
            y_top=None,
        )

    return Chart(
        key="budget",
        title="How often the explorer would be let",
        caption="Dots are the budgets asked for. Left: steps at which it may act and differs from the "
        "baseline. Right: all steps at which it may act, those included where it agrees with the baseline, "
        "which are free.",
        panels=(panel("Differs from the baseline", "deviating"), panel("May act at all", "explored")),
    )


def _baseline_chart(preview: Preview) -> Chart:
    stages = preview.baseline.by_stage
    series = tuple(
        Series(
            label=label,
            x=tuple(float(stage.t) for stage in stages),
            y=tuple(100 * getattr(stage, field) for stage in stages),
            colour=colour,
            kind="path",
        )
        for field, (label, colour) in KNOWN.items()
        if field != "only" or preview.baseline.only > 0
    )
    steps = tuple(str(stage.t) for stage in stages)
    panel = Panel(
        title="",
        x_label="step t of the episode",
        y_label="% of the logged steps there",
        series=series,
        # Steps are whole: each has its own tick while there is room. Every stage of a log has one, from 0 on.
        categories=steps if len(steps) <= MOST_TICKS else (),
    )
    return Chart(
        key="baseline",
        title="What is known of the baseline's action, step by step",
        caption="Known to be best: its lower bound lies above the upper bound of every other allowed "
        "action. Preferred by data: its lower bound is the highest, but others may still be better. Data "
        "cannot tell: another action has the same lower bound.",
        panels=(panel,),
    )


def _charge_chart(preview: Preview) -> Chart:
    charges = preview.charges
    shares = tuple(100 * level for level in charges.levels)
    series = [Series(label="all steps", x=charges.overall, y=shares, colour=PALETTE["blue"])]
    if charges.at_start:
        series.append(
            Series(
                label="first step (t = 0)",
                x=charges.at_start,
                y=shares,
                colour=PALETTE["orange"],
                dash="dash",
            )
        )
    panel = Panel(title="", x_label="charge of the step", y_label="% of the proposals", series=tuple(series))
    return Chart(
        key="charges",
        title="What the explorer's proposals would be charged",
        caption="The share of the proposals that differ from the baseline, and are charged at most this "
        "much. A charge is the most the step may cost in expectation, as far as the data can tell.",
        panels=(panel,),
    )


def _figure(chart: Chart) -> str:
    single = ' class="single"' if len(chart.panels) == 1 else ""
    picture = base64.b64encode(draw_files(chart)["png"]).decode()
    return (
        f'<figure id="figure-{chart.key}"><img{single} alt="{_safe(chart.title)}" '
        f'src="data:image/png;base64,{picture}"><figcaption>{_safe(chart.caption)}</figcaption></figure>'
    )


def _summary(preview: Preview) -> str:
    first = _first_rule(preview)
    largest = first[-1]
    tiles = [
        (f"{preview.basis.steps:,}", f"logged decisions in {preview.basis.episodes:,} episodes"),
        (percent(preview.baseline.best), "of them with a baseline action known to be best"),
        (percent(preview.charges.differing), "where the explorer would try something else"),
        (
            percent(largest.deviating),
            f"where a budget of {largest.eta:g} lets it, by rule {largest.rule}",
        ),
    ]
    cards = "".join(
        f'<div class="tile"><b>{_safe(b)}</b><span>{_safe(text)}</span></div>' for b, text in tiles
    )
    words = "".join(f"<p>{_safe(sentence)}</p>" for sentence in preview.sentences())
    notes = "".join(f"<li>{_safe(note)}</li>" for note in preview.notes)
    return (
        f'<div class="tiles">{cards}</div><div class="card words">{words}</div>'
        f'<div class="card warning"><b>Before you rely on this</b><ul>{notes}</ul></div>'
    )


def _first_rule(preview: Preview) -> list[Outcome]:
    return [each for each in preview.outcomes if each.rule == preview.rules[0].rule]


def _budgets(preview: Preview) -> str:
    rows = [
        (
            f"{each.eta:g}",
            each.rule,
            each.standing,
            percent(each.deviating),
            percent(each.episodes_deviating),
            percent(each.explored),
            f"{each.charge_per_step:.4g}",
            f"{each.charge_per_episode:.4g}",
            percent(each.episodes_over_eta),
        )
        for each in sorted(preview.outcomes, key=lambda each: each.eta)
    ]
    heads = (
        "budget eta",
        "rule",
        "standing",
        "steps that differ",
        "episodes with one",
        "steps it may act at",
        "booked a step",
        "booked an episode",
        "episodes booked beyond eta",
    )
    return _table(heads, rows)


def _thresholds(preview: Preview) -> str:
    def said(eta: float | None) -> str:
        return "none tried" if eta is None else "any" if eta == 0 else f"{eta:.4g}"

    kinds = (("differing proposals", "eta_deviating"), ("all steps", "eta_explored"))
    shares = sorted({each.share for each in preview.thresholds})
    found = {(each.rule, each.share): each for each in preview.thresholds}
    rows = [
        (
            basis.rule,
            *(said(getattr(found[basis.rule, share], field)) for _, field in kinds for share in shares),
        )
        for basis in preview.rules
    ]
    heads = ("rule", *(f"{percent(share)} of {name}" for name, _ in kinds for share in shares))
    return (
        "<h3>The smallest budget that buys a share</h3>"
        + _table(heads, rows)
        + '<p class="note">Found on a grid and then to within 1 %. “Any”: a budget as small as you like '
        "will do, since the rule counts on its assumption, or since the step is free.</p>"
    )


def _rules(preview: Preview) -> str:
    rows = "".join(
        f'<tr><td class="name">{_safe(each.rule)}</td>'
        f'<td><span class="verdict {_safe(each.standing)}">{_safe(each.standing)}</span></td>'
        f'<td class="wide">{_safe(each.leans_on[0].upper() + each.leans_on[1:])}.</td></tr>'
        for each in preview.rules
    )
    return (
        '<div class="scroll"><table><thead><tr><th>rule</th><th>standing</th><th>its promise leans on</th>'
        f'</tr></thead><tbody>{rows}</tbody></table></div><p class="note">The promise: with '
        f"probability at least {1 - preview.basis.delta:g}, no episode loses more than eta in expectation by "
        "leaving its baseline. Certified: it follows from a theorem. Conditional: it needs the assumption, "
        "too, which a log cannot confirm. Calibrated: bounds were scaled down, nothing is proved. "
        "Uncertified: nothing is promised.</p>"
    )


def _baseline(preview: Preview) -> str:
    known = preview.baseline
    return (
        f"<p>In {known.states_best:,} of the {known.states:,} states met, the baseline's action is known to "
        f"be best at every step at which they were met. At {percent(known.worth_something)} of the steps its "
        "lower bound promises more than what is certain anyway, the lowest reward at every step left.</p>"
    )


def _charges(preview: Preview) -> str:
    charges = preview.charges
    if not charges.overall:
        return "<p>The explorer never differs from the baseline at these states: nothing is charged.</p>"
    wanted = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    places = [charges.levels.index(level) for level in wanted]
    rows = [("all steps", *(f"{charges.overall[i]:.4g}" for i in places))]
    if charges.at_start:
        rows.append(("first step", *(f"{charges.at_start[i]:.4g}" for i in places)))
    heads = ("charge of", "least", "10 %", "25 %", "median", "75 %", "90 %", "most")
    return _table(heads, rows) + (
        f"<p>The mean over all logged steps is {charges.mean:.4g}, those included at which the explorer "
        "agrees with the baseline.</p>"
    )


def _data(preview: Preview) -> str:
    roles = {"explorer": "the explorer's", "baseline": "the baseline's", "both": "both, by step"}
    sources = {"its own": "as seen there", "other actions": "like other actions there"}
    rows = [
        (
            str(each.state),
            str(each.action),
            roles[each.role],
            f"{each.visits:,}",
            f"+{each.added:,}",
            sources[each.supposed],
            f"{each.charge_before:.4g} → {each.charge_after:.4g}",
            f"{percent(1 - each.charge_after / each.charge_before)}",
        )
        for each in preview.helpful
    ]
    heads = ("state", "action", "whose", "seen", "supposed", "outcomes", "mean charge", "lower by")
    table = (
        _table(heads, rows) if rows else "<p>No single pair's data would lower the charges noticeably.</p>"
    )
    return f'{table}<p class="note">{_safe(preview.helpful_note)}</p>'


def _basis(preview: Preview) -> str:
    basis = preview.basis
    facts = {
        "log": f"{basis.episodes:,} episodes, {basis.steps:,} steps",
        "learnt from": f"{basis.learnt_episodes:,} episodes, {basis.learnt_steps:,} steps",
        "replayed": f"{basis.replayed_episodes:,} episodes, {basis.replayed_steps:,} steps",
        "problem": f"{basis.states:,} states, {basis.actions:,} actions, horizon {basis.horizon:,}, discount "
        f"{basis.discount:g}",
        "state-action pairs": f"{basis.pairs_seen:,} seen of {basis.pairs:,} allowed ({basis.allowed})",
        "rewards": f"{basis.reward_low:g} to {basis.reward_high:g}",
        "value cap": "none" if basis.value_cap is None else f"{basis.value_cap:g}",
        "successors of a pair": "any" if basis.support is None else f"{basis.support:,} at most",
        "bounds": f"{basis.bonus}, scale {basis.bonus_scale:g}, delta {basis.delta:g}"
        + ("" if basis.max_episodes is None else f", for {basis.max_episodes:,} episodes to come"),
        "charge": basis.charge,
        "ties of the baseline": {
            "none": "the lowest number",
            "logged": "the action logged most often",
            "given": "the policy that was given",
        }[basis.prior],
    }
    listed = "".join(f"<dt>{_safe(name)}</dt><dd>{_safe(value)}</dd>" for name, value in facts.items())
    return f'<div class="card"><dl>{listed}</dl></div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(heading)}</th>" for heading in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"name" if i == 0 else "number"}">{_safe(cell)}</td>' for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _safe(text: str) -> str:
    return html.escape(str(text), quote=True)
