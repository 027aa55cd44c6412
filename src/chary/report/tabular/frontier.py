"""The frontier of a tabular sweep: regret against violations, one line per group over its own settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from chary.charts import Chart, Panel, Series
from chary.pages import Table
from chary.report.claims import say, say_rate
from chary.report.measured import Measured, Place
from chary.report.style import Lines, algorithms_of, slug
from chary.report.tables import ends, place_row, violation_row
from chary.sweeps.spec import MAIN, Experiment

KEY = "frontier"


class Setting(NamedTuple):
    """One point of the frontier: its line, its name there, and the place of its runs."""

    group: str
    point: str
    place: Place


def settings_of(experiment: Experiment, measured: Measured) -> list[Setting]:
    """Return all points of the frontier, line by line within a study; none if no algorithm has a group.

    An algorithm without a group is a line of its own.
    """
    algorithms = {each.label: each for each in algorithms_of(experiment)}
    if not any(each.group for each in algorithms.values()):
        return []
    found: dict[tuple[str, str, str], list[Setting]] = {}
    for place in measured.places:
        each = algorithms[place.algorithm]
        line = found.setdefault((place.study, place.variant, each.group or each.label), [])
        line.append(Setting(each.group or each.label, each.point, place))
    return [setting for line in found.values() for setting in line]


def frontiers_of(experiment: Experiment, lines: Lines) -> list[Chart]:
    """Return a chart for the main runs and for every variant of a study, one panel per budget."""
    charts: dict[tuple[str, str], list[Setting]] = {}
    for setting in settings_of(experiment, lines.measured):
        if lines.measured.rate(setting.place).runs:
            charts.setdefault(setting.place[2:], []).append(setting)
    questions = {study.name: study.question.rstrip(".") for study in experiment.studies}
    return [
        _chart(lines, settings, questions.get(study, ""), study, variant)
        for (study, variant), settings in charts.items()
    ]


def _chart(lines: Lines, settings: list[Setting], question: str, study: str, variant: str) -> Chart:
    measured = lines.measured
    most = max(measured.rate(each.place).episodes for each in settings)
    panels = []
    for budget in sorted({each.place.budget for each in settings}):
        here = [each for each in settings if each.place.budget == budget]
        groups = dict.fromkeys(each.group for each in here)
        panels.append(
            Panel(
                title=f"η = {budget:g}: down and to the left is better",
                x_label="violations per 1,000 episodes",
                y_label="regret",
                series=tuple(
                    _line(lines, group, [each for each in here if each.group == group]) for group in groups
                ),
                x_log=True,
                # Smaller than a single violation in all judged episodes.
                x_zero=1000 / most / 3,
            )
        )
    key = KEY if study == MAIN else f"study-{slug(study)}-{slug(variant)}-{KEY}"
    title = "Regret against violations"
    return Chart(
        key=key,
        title=f"{title}, every method over its own settings"
        if study == MAIN
        else f"{question or study} ({variant}: {title.lower()})",
        caption="One line per method, one point per setting, joined in the order of the settings; bars are "
        "95 % intervals of the mean regret over seeds. The horizontal axis is logarithmic. Its place for 0, "
        f"at the left, stands for no violation in {most:,} episodes, which does not show a rate of 0.",
        panels=tuple(panels),
        height=1.5,
    )


def _line(lines: Lines, group: str, settings: list[Setting]) -> Series:
    measured, places = lines.measured, [each.place for each in settings]
    rates = [measured.rate(place) for place in places]
    notes = tuple(
        f"{place.algorithm}, η = {place.budget:g}\nviolations per 1,000: {say_rate(rate)}"
        f"\nregret: {say(measured.mean(place, 'regret'))}"
        for place, rate in zip(places, rates, strict=True)
    )
    x = [1000 * rate.rate for rate in rates]
    line = lines.line_of(places[0].algorithm, x, *lines.column_of(places, "regret"), kind="path", notes=notes)
    return replace(line, label=group, dash="solid", marks=tuple(each.point for each in settings))


def frontier_rows(experiment: Experiment, measured: Measured) -> list[dict[str, Any]]:
    """Return one row per point of the frontier, for CSV."""
    rows = []
    for group, point, place in settings_of(experiment, measured):
        row = place_row(measured, place)
        given = row.pop("given")
        rows.append(
            {
                **row,
                "group": group,
                "point": point,
                "seeds": len(measured.seeds(place)),
                "episodes": measured.rate(place).episodes,
                **ends("regret", measured.mean(place, "regret")),
                **violation_row(measured, place),
                "incumbent_per_1000": 1000 * _broken(measured, place, "violations_incumbent"),
                "deviating_share": deviating_share(measured, place),
                "given": given,
            }
        )
    return rows


def frontier_table(experiment: Experiment, measured: Measured) -> Table | None:
    """Return the points of the main frontier as a table of the page; None without groups."""
    settings = [each for each in settings_of(experiment, measured) if each.place.study == MAIN]
    if not settings:
        return None

    def runs(each: Setting) -> str:
        rate = measured.rate(each.place)
        return f"{rate.broken_runs} of {rate.runs}" if rate.runs else "unknown"

    columns: list[tuple[str, Callable[[Setting], str]]] = [
        ("method", lambda each: each.group),
        ("setting", lambda each: each.point),
        ("budget η", lambda each: f"{each.place.budget:g}"),
        ("regret, mean (95\N{NO-BREAK SPACE}%)", lambda each: say(measured.mean(each.place, "regret"))),
        ("violations per 1,000 (95\N{NO-BREAK SPACE}%)", lambda each: say_rate(measured.rate(each.place))),
        ("runs with any", runs),
        ("deviating steps", lambda each: f"{100 * deviating_share(measured, each.place):.3g} %"),
        ("standing", lambda each: measured.text(each.place, "standing")),
    ]
    return Table.of(columns, settings)


def _broken(measured: Measured, place: Place, name: str) -> float:
    return float(measured.column(place, name).sum() / measured.column(place, "episodes").sum())


def deviating_share(measured: Measured, place: Place) -> float:
    """Return the share of all steps that played another action than the baseline."""
    return float(measured.column(place, "deviating_steps").sum() / measured.column(place, "steps").sum())
