"""The report's page: one HTML file that needs nothing else, under 6 MB with plotly.js inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from chary.charts import Chart, plotly_figure, thinned
from chary.charts.palette import NIGHT
from chary.errors import InvalidSetting, check_installed
from chary.pages import Table, data, render
from chary.pages import script as as_script
from chary.report.claims import FEWEST_SEEDS, VERDICTS, Claim, count_verdicts
from chary.report.measured import Measured
from chary.report.style import looks_of
from chary.report.tables import Cells, difference_table, promises_of
from chary.sweeps.folder import RunState
from chary.sweeps.spec import MAIN, Experiment

if TYPE_CHECKING:
    from markupsafe import Markup

# Bytes of the whole page; curves are thinned until it fits.
PAGE_LIMIT = 6_000_000
THINNER = (100, 50, 25, 12, 6)

# The names of the sections by key, in their order: what was found, what was promised, then everything else.
SECTIONS = {
    "figures": "Figures",
    "summary": "Summary",
    "promises": "Promises",
    "claims": "Claims of the paper",
    "more": "More figures",
    "studies": "Studies",
    "tables": "Tables",
    "differences": "Paired differences",
    "assumptions": "Assumptions",
    "coverage": "Coverage",
    "runtime": "Runtime",
    "provenance": "Provenance",
}

# The figures of the first section, and those of sections of their own; those of studies are in theirs.
LEADING = ("frontier", "regret", "returns", "violations", "best", "table-1")
OWN_SECTION = ("coverage", "runtime")
ALL_FIGURES = ("figures", "more", "studies")
STUDY = "study-"

DASH_STROKES = {"solid": "", "dash": "6 3", "dot": "2 3", "dashdot": "6 3 2 3"}
SHOWN_RUNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a report that each family of problems brings.

    Args:
        claims: The claims with their answers.
        charts: The figures.
        tables: Rows of the CSV files, by name; `summary` and `differences` are among them.
        summary: The columns of the summary on the page.
        compared: Column and factor of each paired difference, by heading.
        studies_compared: Whether paired differences of studies are shown as well.
        without: The sections that its page does not have.
        values: Other values that the family's templates show.
        reading: What matches the paper, what does not and why; not every family has it.
    """

    claims: Sequence[Claim]
    charts: Sequence[Chart]
    tables: Mapping[str, list[dict[str, Any]]]
    summary: Cells
    compared: Mapping[str, tuple[str, float]]
    studies_compared: bool = True
    without: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    reading: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of the page.

    Args:
        experiment: The experiment.
        command: The command that ran it.
        states: The state of every run.
        measured: The finished runs.
        parts: The parts that the family brings.
    """

    experiment: Experiment
    command: str
    states: Sequence[RunState]
    measured: Measured
    parts: Parts


def plotly_script() -> str:
    """Return plotly.js, which is part of the Python package plotly.

    Raises:
        InvalidSetting: if plotly is not installed.
    """
    check_installed("plotly", "Writing a report", "report")
    return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def page_bytes(page: Page, script: str) -> bytes:
    """Return the page with plotly.js inside; figures have fewer points if it would be too large.

    Args:
        page: Its content.
        script: The text of plotly.js, see `plotly_script`.

    Raises:
        InvalidSetting: if it is larger than 6 MB with the fewest points.
    """
    folders = (page.experiment.family.name, "report")
    values = _values(page)
    for points in THINNER:
        charts = {"charts_json": _charts_json(page.parts.charts, points), "plotly": as_script(script)}
        content = render("report.html", folders, values | charts)
        if len(content) <= PAGE_LIMIT:
            return content
    raise InvalidSetting(
        f"a report must stay below {PAGE_LIMIT:,} bytes, got {len(content):,}. "
        "Report on fewer budgets or algorithms."
    )


def _charts_json(charts: Sequence[Chart], points: int) -> Markup:
    figures = []
    for chart in charts:
        thin = thinned(chart, points)
        wide = plotly_figure(thin)
        narrow = plotly_figure(thin, columns=1)["layout"]
        # A box that lists all series covers a small screen.
        narrow |= {"hovermode": "closest", "margin": {**narrow["margin"], "l": 44, "r": 4}}
        figures.append({"key": chart.key, "data": wide["data"], "wide": wide["layout"], "narrow": narrow})
    return data({"charts": figures, "night": NIGHT})


def _values(page: Page) -> dict[str, Any]:
    """Return the values that the templates show."""
    experiment, measured, parts = page.experiment, page.measured, page.parts
    conditions = experiment.conditions
    seeds = (conditions.first_seed, conditions.first_seed + conditions.seeds - 1)
    placed = _placed(parts.charts)
    main = [place for place in measured.places if place.study == MAIN]
    others = [place for place in measured.places if place.study != MAIN]
    return {
        "title": experiment.title or experiment.name,
        "sections": {
            key: name
            for key, name in SECTIONS.items()
            if key not in parts.without and (placed.get(key) or key not in ALL_FIGURES)
        },
        "experiment": experiment,
        "conditions": conditions,
        "etas": ", ".join(f"{eta:g}" for eta in conditions.etas),
        "seeds": " to ".join(str(seed) for seed in dict.fromkeys(seeds)),
        "finished": f"{sum(state.state == 'done' for state in page.states):,}",
        "planned": f"{len(page.states):,}",
        "algorithms": len(measured.algorithms() or {place.algorithm for place in measured.places}),
        "claims": parts.claims,
        "verdicts": count_verdicts(parts.claims),
        "possible_verdicts": VERDICTS,
        "fewest_seeds": FEWEST_SEEDS,
        "charts": placed,
        "strokes": DASH_STROKES,
        "colours": {label: look.colour for label, look in looks_of(experiment).items()},
        "summaries": _summaries(measured, parts.summary),
        "differences": _differences(parts),
        "files": [*parts.tables, *(["claims"] if parts.claims else [])],
        "promises": promises_of(measured, main),
        "promises_of_studies": promises_of(measured, others),
        "command": page.command,
        "toml": experiment.to_toml(),
        **_unfinished(page),
        **_runtime(measured),
        "provenance": _provenance(measured),
        **parts.values,
    }


def _placed(charts: Sequence[Chart]) -> dict[str, list[Chart]]:
    """Return the charts by the section that shows them."""
    placed: dict[str, list[Chart]] = {key: [] for key in (*ALL_FIGURES, *OWN_SECTION)}
    for chart in charts:
        own = chart.key if chart.key in OWN_SECTION else "figures" if chart.key in LEADING else "more"
        placed["studies" if chart.key.startswith(STUDY) else own].append(chart)
    placed["figures"].sort(key=lambda chart: LEADING.index(chart.key))
    return placed


def _unfinished(page: Page) -> dict[str, Any]:
    """Return the runs that are not finished: counts, a table, and how many it leaves out."""
    left = [state for state in page.states if state.state != "done"]
    where = {each.spec.id: each for each in reversed(page.experiment.plan())}
    rows = []
    for state in left[:SHOWN_RUNS]:
        each = where[state.id]
        study = each.study + (f", {each.variant}" if each.variant else "")
        eta = "" if each.eta is None else f"{each.eta:g}"
        reason = state.reason.strip().splitlines()[-1] if state.reason.strip() else ""
        rows.append([state.id, state.state, study, each.algorithm, eta, str(each.seed), reason])
    kinds = [state.state for state in left]
    return {
        "unfinished": ", ".join(f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds)),
        "unfinished_runs": Table(["run", "state", "study", "algorithm", "η", "seed", "why"], rows),
        "unfinished_more": max(len(left) - SHOWN_RUNS, 0),
    }


def _summaries(measured: Measured, cells: Cells) -> list[tuple[str, list[tuple[str, Table]]]]:
    """Return a table per budget of every study and variant; the main one has no name."""
    found = []
    for study in measured.studies():
        for variant in measured.variants(study):
            tables = []
            for budget in measured.budgets(study, variant):
                places = [place for place in measured.places if place[1:] == (budget, study, variant)]
                tables.append((f"{budget:g}", Table.of(cells, places)))
            found.append((_name(study, variant), tables))
    return found


def _differences(parts: Parts) -> list[tuple[str, Table]]:
    rows = parts.tables["differences"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_name(row["study"], row["variant"]), []).append(row)
    shown = {name: group for name, group in groups.items() if parts.studies_compared or not name}
    return [(name, difference_table(group, parts.compared)) for name, group in shown.items()]


def _name(study: str, variant: str) -> str:
    return "" if study == MAIN else f"{study}: {variant}" if variant else study


def _runtime(measured: Measured) -> dict[str, Any]:
    """Return how long the runs of each algorithm took, and all together."""
    runs = measured.tables.runs.unique(subset=["run"], maintain_order=True).to_dicts()
    rows = []
    for label in dict.fromkeys(run["algorithm"] for run in runs):
        some = [run for run in runs if run["algorithm"] == label]
        wall = list(_known(run["seconds"] for run in some))
        timed = [run for run in some if run["episode_seconds"]]
        played, playing = (sum(run[name] for run in timed) for name in ("episodes", "episode_seconds"))
        rows.append(
            [
                str(label),
                str(len(some)),
                f"{sum(wall) / len(wall):.3g}" if wall else "",
                f"{max(wall):.3g}" if wall else "",
                f"{played / playing:,.0f}" if timed else "",
            ]
        )
    headings = ["algorithm", "runs", "seconds, mean", "seconds, most", "episodes per second"]
    total = sum(_known(run["cpu_seconds"] for run in runs))
    return {"runtimes": Table(headings, rows), "processor_time": _duration(total)}


def _provenance(measured: Measured) -> dict[str, str]:
    runs = measured.tables.runs.unique(subset=["run"], maintain_order=True).to_dicts()

    def listed(name: str) -> str:
        return ", ".join(sorted({str(value) for value in _known(run[name] for run in runs)})) or "unknown"

    finished = sorted(_known(run["finished"] for run in runs))
    return {
        "chary": listed("version"),
        "commit": listed("commit"),
        "Python": listed("python"),
        "packages": listed("packages"),
        "machines": "; ".join(sorted({f"{run['machine']}, {run['cores']} cores" for run in runs})),
        "finished": f"{finished[0]} to {finished[-1]}" if finished else "unknown",
        "resumed": f"{sum(_known(run['resumed'] for run in runs)):,} times from a checkpoint",
    }


def _known(values: Iterable[Any]) -> Iterable[Any]:
    return (value for value in values if value is not None)


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
