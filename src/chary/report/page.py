"""The report's page: one HTML file that needs nothing else, under 6 MB with plotly.js inside."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import chary
from chary.assumptions import AssumptionReport
from chary.charts import Chart, Series, plotly_figure, thinned
from chary.errors import InvalidSetting
from chary.report.measured import Measured, Place
from chary.report.style import looks_of
from chary.report.tabular.claims import FEWEST_SEEDS, VERDICTS, Claim, count_verdicts, same_results, say
from chary.report.tabular.tables import Table, difference_table, key_table, summary_table
from chary.statistics import binomial_report
from chary.sweeps.folder import RunState
from chary.sweeps.spec import MAIN, Experiment
from chary.sweeps.tabular import Conditions

__all__ = [
    "PAGE_LIMIT",
    "SECTIONS",
    "Page",
    "Sections",
    "claims_section",
    "figures_section",
    "incomplete",
    "page_bytes",
    "plotly_script",
    "provenance_section",
    "ranged",
    "runtime_section",
    "safe",
    "table_html",
]

# Bytes of the whole page; curves are thinned until it fits.
PAGE_LIMIT = 6_000_000
THINNER = (100, 50, 25, 12)

# The page asks for nothing: no script, picture, font or address of anybody else's is ever loaded.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

# Written before anything else runs, so that a browser test sees every error.
CATCH = (
    "window.addEventListener('error',function(e){var d=document.documentElement.dataset;"
    "d.errors=(d.errors||'')+e.message+'\\n'});"
)

DASH_STROKES = {"solid": "", "dash": "6 3", "dot": "2 3", "dashdot": "6 3 2 3"}
SHOWN_RUNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page shows.

    Args:
        experiment: What was to be run.
        command: The command that ran it.
        states: Where every run stands.
        measured: The finished ones.
        claims: The paper's claims with their answers.
        charts: The figures.
        differences: Rows of paired differences.
        assumptions: The paper's assumptions, checked at each budget, where there is a table to check.
    """

    experiment: Experiment
    command: str
    states: tuple[RunState, ...]
    measured: Measured
    claims: tuple[Claim, ...]
    charts: tuple[Chart, ...]
    differences: tuple[Mapping[str, Any], ...]
    assumptions: tuple[AssumptionReport, ...] = ()


Sections: TypeAlias = dict[str, tuple[str, Callable[[Page], str]]]


def plotly_script() -> str:
    """Return plotly.js as it comes with the Python package plotly.

    Raises:
        InvalidSetting: if plotly is not installed.
    """
    try:
        script = (
            resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
        )
    except (ImportError, OSError) as problem:
        raise InvalidSetting(
            "'plotly' must be installed to write a report, got none. Run: pip install 'chary[report]'."
        ) from problem
    # Within a page, this would end the script.
    return script.replace("</script", "<\\/script")


def page_bytes(page: Page, script: str, sections: Sections) -> bytes:
    """Return the page with plotly.js inside; figures have fewer points where it would be too large.

    Args:
        page: What it shows.
        script: What `plotly_script` returned.
        sections: Its parts in their order.

    Raises:
        InvalidSetting: if it stays above 6 MB with the fewest points.
    """
    for points in THINNER:
        content = _document(page, script, sections, points).encode()
        if len(content) <= PAGE_LIMIT:
            return content
    raise InvalidSetting(
        f"a report must stay below {PAGE_LIMIT:,} bytes, got {len(content):,}. "
        "Report on fewer budgets or algorithms."
    )


def _document(page: Page, script: str, sections: Sections, points: int) -> str:
    title = page.experiment.title or page.experiment.name
    body = "\n".join(
        f'<section id="{key}">\n<h2>{name}</h2>\n{fill(page)}\n</section>'
        for key, (name, fill) in sections.items()
    )
    links = "".join(f'<a href="#{key}">{name}</a>' for key, (name, _) in sections.items())
    own = resources.files("chary.report")
    style = own.joinpath("page.css").read_text(encoding="utf-8")
    code = own.joinpath("page.js").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="generator" content="chary {safe(chary.__version__)}">
<title>{safe(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
<script>{CATCH}</script>
</head>
<body>
<header>
<h1>{safe(title)}</h1>
<p class="lead">Experiment “{safe(page.experiment.name)}”, reported by chary {safe(chary.__version__)}</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{body}
</main>
<footer>Everything on this page was computed from the results in the sweep's folder; it loads nothing from
anywhere. Click a name above a figure to hide it, double-click to see it alone.</footer>
<script type="application/json" id="charts">{_charts_json(page.charts, points)}</script>
<script>{script}</script>
<script>
{code}</script>
</body>
</html>
"""


def _charts_json(charts: Sequence[Chart], points: int) -> str:
    figures = []
    for chart in charts:
        thin = thinned(chart, points)
        wide = plotly_figure(thin)
        narrow = plotly_figure(thin, columns=1)["layout"]
        # A box that lists all series covers a small screen.
        narrow |= {"hovermode": "closest", "margin": {**narrow["margin"], "l": 44, "r": 4}}
        figures.append({"key": chart.key, "data": wide["data"], "wide": wide["layout"], "narrow": narrow})
    text = json.dumps(figures, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("</", "<\\/")


def _summary(page: Page) -> str:
    conditions, measured = page.experiment.conditions, page.measured
    assert isinstance(conditions, Conditions)
    done = sum(state.state == "done" for state in page.states)
    seeds = ranged(conditions.first_seed, conditions.first_seed + conditions.seeds - 1)
    etas = ", ".join(f"{eta:g}" for eta in conditions.etas)
    labels = measured.algorithms() or {place.algorithm for place in measured.places}
    lines = [
        f"<b>{done:,} of {len(page.states):,} runs</b> are finished: {len(labels)} algorithms on problem "
        f"“{safe(conditions.problem)}” at budgets η = {etas}, seeds {seeds}, {conditions.episodes:,} "
        f"episodes each after {conditions.warmup:,} random ones. Bounds: {safe(conditions.bonus)} at scale "
        f"{conditions.bonus_scale:.3g}, rewards {safe(conditions.reward)}, δ = {conditions.delta:g}.",
    ]
    told = _told_of_smallest(measured)
    if told:
        lines.append(told)
    target = next((claim for claim in page.claims if claim.key == "g1" and claim.findings), None)
    if target is not None:
        lines.append(
            "At most one violation in 1,000 episodes <i>and</i> less regret than UCBVI, by settings that "
            f"were chosen on other seeds: <b>{target.verdict}</b>. {safe(target.answer)}"
        )
    lines += [safe(told) for label in measured.algorithms() if (told := same_results(measured, label))]
    colours = {label: look.colour for label, look in looks_of(page.experiment).items()}
    numbers = table_html(key_table(measured), colours=colours) if measured.budgets() else ""
    counts = "".join(
        f'<span class="verdict {_class(verdict)}">{count} {verdict}</span>'
        for verdict, count in count_verdicts(page.claims).items()
    )
    return (
        f'<div class="card"><ul>{"".join(f"<li>{line}</li>" for line in lines)}</ul>'
        f'<div class="counts">{counts}</div></div>\n{incomplete(page)}\n{numbers}'
    )


def _told_of_smallest(measured: Measured) -> str:
    """Return who broke the smallest budget how often, and what it cost, in a sentence."""
    budgets = measured.budgets()
    places = [
        place
        for role in ("unconstrained", "conservative", "paper", "ours", "chosen")
        for label in measured.algorithms(roles=(role,))
        if measured.has(place := Place(label, budgets[0]))
    ]
    if not places:
        return ""
    regrets = [say(measured.mean(place, "regret")._replace(low=math.nan)) for place in places]
    rates = [measured.rate(place).rate for place in places]
    if not any(rates):
        told = (f"{safe(place.algorithm)} {regret}" for place, regret in zip(places, regrets, strict=True))
        return f"Nobody broke even the smallest budget, <b>η = {budgets[0]:g}</b>. Regret: {', '.join(told)}."
    told = (
        f"{safe(place.algorithm)} in {100 * rate:.2g} % of episodes (regret {regret})"
        for place, rate, regret in zip(places, rates, regrets, strict=True)
    )
    return f"The smallest budget, <b>η = {budgets[0]:g}</b>, was broken by {', '.join(told)}."


def incomplete(page: Page) -> str:
    """Return what is not finished, run by run, or nothing."""
    left = [state for state in page.states if state.state != "done"]
    if not left:
        return ""
    where = {each.spec.id: each for each in reversed(page.experiment.plan())}
    rows = []
    for state in left[:SHOWN_RUNS]:
        each = where[state.id]
        study = each.study + (f", {each.variant}" if each.variant else "")
        eta = "" if each.eta is None else f"{each.eta:g}"
        reason = state.reason.strip().splitlines()[-1] if state.reason.strip() else ""
        rows.append((state.id, state.state, study, each.algorithm, eta, str(each.seed), reason))
    more = f"<p class='note'>… and {len(left) - SHOWN_RUNS:,} more.</p>" if len(left) > SHOWN_RUNS else ""
    table = table_html(Table(("run", "state", "study", "algorithm", "η", "seed", "why"), tuple(rows)))
    kinds = ", ".join(
        f"{sum(each.state == kind for each in left):,} {kind}"
        for kind in dict.fromkeys(e.state for e in left)
    )
    return (
        f'<div class="card warning"><b>This sweep is not complete: {kinds}.</b> Everything below is from the '
        f"finished runs alone.<details><summary>Which runs</summary>{table}{more}</details></div>"
    )


def claims_section(page: Page) -> str:
    """Return every claim with its verdict, how it was decided and what was found."""
    cards = []
    for claim in page.claims:
        marks = {True: "fits", False: "fails", None: ""}
        findings = "".join(
            f'<li class="{marks[finding.fits]}">{safe(finding.words)}</li>' for finding in claim.findings
        )
        note = f"<p>{safe(claim.note)}</p>" if claim.note else ""
        cards.append(
            f'<article class="card claim" id="claim-{claim.key}"><div>'
            f'<span class="verdict {_class(claim.verdict)}">{claim.verdict}</span> '
            f'<span class="source">{claim.key} · {safe(claim.source)}</span>'
            f"<h3>{safe(claim.statement)}</h3>"
            f"<details><summary>How this was decided</summary>"
            f'<p class="rule">{safe(claim.rule)}</p></details>'
            f"</div><div><ul>{findings}</ul>{note}</div></article>"
        )
    return (
        '<p class="note">What the paper says, and what this sweep measured. Numbers in brackets are 95 % '
        "intervals: bootstrap over seeds, widened for few seeds (Hesterberg 2015), for regret, exponents and "
        "differences; Clopper-Pearson where a rate is said to be over episodes, or compared with another. "
        f"Verdicts are {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}, by rules fixed in the code. “Not "
        "comparable” also stands where the sweep cannot tell: an interval holds the threshold, or there are "
        f"fewer than {FEWEST_SEEDS} seeds.</p>\n" + "\n".join(cards)
    )


def figures_section(page: Page) -> str:
    """Return the figures' places, legends and captions."""
    parts = []
    for chart in page.charts:
        legend = "".join(_legend_button(series) for series in chart.labels.values())
        parts.append(
            f'<figure id="figure-{chart.key}"><h3>{safe(chart.title)}</h3>'
            f'<div class="legend" id="legend-{chart.key}">{legend}</div>'
            f'<div class="plot" id="plot-{chart.key}" role="img" aria-label="{safe(chart.title)}"></div>'
            f"<figcaption>{safe(chart.caption)} "
            f'<a href="figures/{chart.key}.png">PNG</a> · <a href="figures/{chart.key}.pdf">PDF</a>'
            "</figcaption></figure>"
        )
    return "\n".join(parts)


def _legend_button(series: Series) -> str:
    if series.kind == "bars":
        mark = f'<rect width="14" height="10" y="1" fill="{series.colour}"/>'
    else:
        dash = DASH_STROKES[series.dash]
        mark = (
            f'<line x1="0" x2="26" y1="6" y2="6" stroke="{series.colour}" stroke-width="3"'
            f"{f' stroke-dasharray={dash!r}' if dash else ''}/>"
        )
    width = 14 if series.kind == "bars" else 26
    label = safe(series.label)
    return (
        f'<button type="button" aria-pressed="true" data-label="{label}">'
        f'<svg width="{width}" height="12" aria-hidden="true">{mark}</svg>{label}</button>'
    )


def _tables(page: Page) -> str:
    measured = page.measured
    colours = {label: look.colour for label, look in looks_of(page.experiment).items()}
    parts = [
        '<p class="note">Regret is summed over all episodes. IQM is the mean of the middle half of the '
        "seeds. Intervals of violations take episodes for independent, which those of one run are not: the "
        "runs with any violation are counted beside them. “Frozen baseline” counts violations per 1,000 "
        "episodes where deficits are measured from the policy that the random episodes alone gave. The "
        "signed deficit is what an episode loses against the baseline in the mean, gains counted: the left "
        "side of the weaker constraint, eq. (2), which asks it to be at most η in every episode. Steps and "
        "seconds are means over runs.</p>"
    ]
    parts += summaries(measured, summary_table, colours)
    parts.append(file_links(("summary", "differences", "claims")))
    return "\n".join(parts)


def summaries(
    measured: Measured,
    summary: Callable[[Measured, Sequence[Place]], Table],
    colours: Mapping[str, str],
) -> list[str]:
    """Return a table of every budget, those of studies folded away."""
    parts = []
    for study in measured.studies():
        for variant in measured.variants(study):
            inner = []
            for budget in measured.budgets(study, variant):
                places = [place for place in measured.places if place[1:] == (budget, study, variant)]
                table = table_html(summary(measured, places), colours=colours)
                inner.append(f"<h3>η = {budget:g}</h3>{table}")
            if study == MAIN:
                parts += inner
            else:
                head = safe(study if not variant else f"{study}: {variant}")
                parts.append(f"<details><summary>Study “{head}”</summary>{''.join(inner)}</details>")
    return parts


def file_links(names: Sequence[str]) -> str:
    """Return where the tables lie as files."""
    files = " · ".join(f'<a href="tables/{name}.csv">{name}.csv</a>' for name in names)
    return (
        f'<p class="note">As files: {files}, and all runs and curves as Parquet in the sweep\'s folder, '
        "<code>tables/</code>.</p>"
    )


def _differences(page: Page) -> str:
    note = (
        '<p class="note">The algorithm less the other at equal seeds, mean with its 95 % bootstrap interval. '
        "Equal seeds share the warm-up and the world's randomness.</p>"
    )
    parts = [note]
    for study, variant in dict.fromkeys((row["study"], row["variant"]) for row in page.differences):
        rows = [row for row in page.differences if (row["study"], row["variant"]) == (study, variant)]
        table = table_html(difference_table(rows), name=1)
        head = safe(f"{study}: {variant}" if variant else study)
        parts.append(
            table if study == MAIN else f"<details><summary>Study “{head}”</summary>{table}</details>"
        )
    return "\n".join(parts) if len(parts) > 1 else f"{note}<p>Nothing to compare.</p>"


def _assumptions(page: Page) -> str:
    measured = page.measured
    rows = []
    for report in page.assumptions:
        places = [place for place in measured.places if place.study == MAIN and place.budget == report.eta]
        played = [float(measured.known(place, "largest_gap").max()) for place in places]
        rows.append(
            (
                f"{report.eta:g}",
                report.diameter.status,
                report.gaps.status,
                f"{report.eta / 2:g}",
                f"{max(played):.3g}" if played and max(played) > 0 else "none looked at",
            )
        )
    table = table_html(
        Table(
            (
                "budget η",
                "2.2, worst-case diameter at most H/2",
                "2.3, gaps of all policies at most η/2",
                "η/2",
                "largest true gap at a step that was played",
            ),
            tuple(rows),
        )
    )
    told = "".join(f"<li>{safe(line)}</li>" for line in page.assumptions[-1].describe().splitlines())
    last = page.assumptions[-1].eta
    partly = (
        f"<p class='note'>Checking takes long on this problem: done at {len(rows)} of "
        f"{len(page.experiment.conditions.etas)} budgets.</p>"
        if len(rows) < len(page.experiment.conditions.etas)
        else ""
    )
    return (
        '<p class="note">The paper\'s guarantees rest on two assumptions about the true problem. '
        f"Rule “strict” needs neither to keep its budget.</p>{table}<div class='card'><p style='margin:0 0 "
        f"6px'>In words, at η = {last:g}:</p><ul>{told}</ul></div>{partly}"
    )


def _coverage(page: Page) -> str:
    measured = page.measured
    assert isinstance(page.experiment.conditions, Conditions)
    delta = page.experiment.conditions.delta
    rows, unseen = [], []
    for label in measured.algorithms():
        places = [place for place in measured.places if place[0::2] == (label, MAIN)]
        seen = [place for place in places if len(measured.known(place, "charge_failures"))]
        if not seen:
            unseen.append(label)
        for place in seen:
            kinds = (
                _failed(measured.known(place, column).tolist(), delta)
                for column in ("value_failures", "bonus_failures", "charge_failures")
            )
            rows.append((label, f"{place.budget:g}", measured.text(place, "standing"), *kinds))
    table = table_html(
        Table(("algorithm", "budget η", "standing", "value bounds", "bonus", "charge"), tuple(rows)), name=0
    )
    others = f" Not compared with the truth: the bounds of {', '.join(unseen)}." if unseen else ""
    return (
        '<p class="note">Runs in which a bound failed at least once, of those looked at; their share with '
        f"its 95 % Clopper-Pearson interval over runs, set against δ = {delta:g}; and in how many episodes. "
        "Certified bounds fail in at most a share δ of runs. Where they are calibrated, only the charges of "
        "an episode together were asked to cover its deficit, on other problems of the same kind: single "
        f"bounds may fail.{safe(others)}</p>{table}"
    )


def _failed(failures: Sequence[float], delta: float) -> str:
    """Return how many runs had any failure, against what is promised, and how many episodes.

    Example:
        >>> _failed([0.0, 0.0, 3.0, 0.0], 0.1)
        '1 of 4, 25 % (0.631 to 80.6), compatible with δ; in 3 episodes'
    """
    if not failures:
        return "not looked at"
    found = binomial_report(sum(value > 0 for value in failures), len(failures), delta)
    low, high = (100 * end for end in found.interval)
    verdict = {"below": "below δ", "above": "above δ", "compatible": "compatible with δ"}[found.verdict]
    episodes = f"in {sum(failures):,.0f} episode{'' if sum(failures) == 1 else 's'}"
    return (
        f"{found.failures} of {found.runs}, {100 * found.rate:.3g} % ({low:.3g} to {high:.3g}), {verdict}"
        + (f"; {episodes}" if found.failures else "")
    )


def runtime_section(page: Page) -> str:
    """Return how long the runs of each algorithm took."""
    runs = page.measured.tables.runs.unique(subset=["run"], maintain_order=True)
    rows = []
    for label in dict.fromkeys(runs["algorithm"].to_list()):
        some = [row for row in runs.iter_rows(named=True) if row["algorithm"] == label]
        wall = [row["seconds"] for row in some if row["seconds"] is not None]
        playing = [row["episode_seconds"] for row in some if row["episode_seconds"]]
        episodes = [row["episodes"] for row in some if row["episode_seconds"]]
        rows.append(
            (
                str(label),
                str(len(some)),
                f"{sum(wall) / len(wall):.3g}" if wall else "",
                f"{max(wall):.3g}" if wall else "",
                f"{sum(episodes) / sum(playing):,.0f}" if playing else "",
            )
        )
    cpu = sum(value for value in runs["cpu_seconds"].to_list() if value is not None)
    table = table_html(
        Table(("algorithm", "runs", "seconds, mean", "seconds, most", "episodes a second"), tuple(rows)),
        name=0,
    )
    return (
        f'<p class="note">All runs together took {_duration(cpu)} of processor time. Studies with other '
        f"bounds are included.</p>{table}"
    )


def provenance_section(page: Page) -> str:
    """Return where results came from, and the whole experiment."""
    runs = page.measured.tables.runs.unique(subset=["run"], maintain_order=True)

    def told(column: str) -> str:
        values = sorted({str(value) for value in runs[column].to_list() if value is not None})
        return ", ".join(values) or "unknown"

    finished = sorted(value for value in runs["finished"].to_list() if value is not None)
    resumed = sum(value for value in runs["resumed"].to_list() if value is not None)
    machines = sorted({f"{row['machine']}, {row['cores']} cores" for row in runs.iter_rows(named=True)})
    facts = {
        "chary": told("version"),
        "commit": told("commit"),
        "Python": told("python"),
        "packages": told("packages"),
        "machines": "; ".join(machines),
        "finished": f"{finished[0]} to {finished[-1]}" if finished else "unknown",
        "resumed": f"{resumed:,} times from a checkpoint",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{safe(value)}</dd>" for name, value in facts.items())
    return (
        f"<p>The command:</p><pre>{safe(page.command)}</pre><dl>{listed}</dl>"
        "<details><summary>The whole experiment as TOML, for <code>chary sweep</code> "
        '(also as <a href="experiment.toml">experiment.toml</a>)</summary>'
        f"<pre>{safe(page.experiment.to_toml())}</pre></details>"
    )


# The parts of the page in their order: what a link calls them, and what fills them.
SECTIONS: Sections = {
    "summary": ("Summary", _summary),
    "claims": ("Claims", claims_section),
    "figures": ("Figures", figures_section),
    "tables": ("Tables", _tables),
    "differences": ("Paired differences", _differences),
    "assumptions": ("Assumptions", _assumptions),
    "coverage": ("Coverage", _coverage),
    "runtime": ("Runtime", runtime_section),
    "provenance": ("Provenance", provenance_section),
}


def table_html(table: Table, *, name: int = 0, colours: Mapping[str, str] | None = None) -> str:
    """Return a table that scrolls within its own box; column `name` is what a row is called."""
    head = "".join(f"<th>{safe(heading)}</th>" for heading in table.headings)
    rows = []
    for row in table.rows:
        cells = []
        for i, cell in enumerate(row):
            swatch = ""
            if i == name and colours and cell in colours:
                swatch = f'<span class="swatch" style="border-color:{colours[cell]}"></span>'
            kind = "name" if i == name else "number" if len(cell) < 40 else ""
            cells.append(f'<td class="{kind}">{swatch}{safe(cell)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def safe(text: str) -> str:
    """Return a text that HTML does not take for tags."""
    return html.escape(str(text), quote=True)


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def ranged(first: int, last: int) -> str:
    """Return the first and the last of some numbers, in words."""
    return f"{first}" if first == last else f"{first} to {last}"


def _duration(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> _duration(90), _duration(7300)
        ('90 s', '2 h 2 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
