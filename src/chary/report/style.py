"""Looks of algorithms, and the charts that all families share: over time, frontier, use of the budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np

from chary.arrays import Floats
from chary.charts import Chart, Panel, Series
from chary.charts.chart import DASHES
from chary.charts.palette import GUIDE, PALETTE
from chary.report.claims import say, say_rate
from chary.report.measured import Measured, Place
from chary.sweeps.family import AnyAlgorithm
from chary.sweeps.spec import MAIN, Experiment

# Colours and dashes of algorithms in all charts; the second algorithm with a role takes the second look.
# Algorithms with similar results differ in their dashes, so that the lower line shows through.
LOOKS: dict[str, tuple[tuple[str, str], ...]] = {
    "unconstrained": (("vermillion", "solid"), ("vermillion", "dash")),
    "conservative": (("orange", "dash"), ("orange", "dashdot")),
    "mixture": (("purple", "solid"), ("purple", "dot"), ("purple", "dash")),
    "baseline": (("grey", "dot"), ("grey", "dashdot")),
    "paper": (("green", "solid"), ("green", "dash"), ("green", "dot")),
    "ours": (
        ("light blue", "solid"),
        ("dark blue", "dash"),
        ("blue", "solid"),
        ("light blue", "dashdot"),
        ("dark blue", "dot"),
        ("blue", "dash"),
    ),
    "naive": (("orange", "dot"), ("vermillion", "dot")),
}
# Groups differ in their colours, the settings of a group in their dashes. Algorithms without role and group
# take the colours that are left, in this order.
GROUP_COLOURS = ("vermillion", "green", "blue", "orange", "purple", "grey", "light blue", "dark blue")
# A line with fewer points shows them.
SPARSE = 30
# Intervals of two or three seeds are very wide: an axis ends at this many times the largest mean, and a
# logarithmic one a power of ten from it.
REACH, DECADE = 1.5, 10.0


class Look(NamedTuple):
    """The colour and dash of an algorithm."""

    colour: str
    dash: str


def looks_of(experiment: Experiment) -> dict[str, Look]:
    """Return the look of every algorithm in all charts, by label."""
    looks: dict[str, Look] = {}
    taken: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    algorithms = algorithms_of(experiment)
    for algorithm in algorithms:
        if algorithm.group:
            members = groups.setdefault(algorithm.group, [])
            members.append(algorithm.label)
            colour = GROUP_COLOURS[[*groups].index(algorithm.group) % len(GROUP_COLOURS)]
            dash = DASHES[(len(members) - 1) % len(DASHES)]
        elif algorithm.role:
            role = "ours" if algorithm.role == "chosen" else algorithm.role
            choices = LOOKS[role]
            colour, dash = choices[taken.get(role, 0) % len(choices)]
            taken[role] = taken.get(role, 0) + 1
        else:
            continue
        looks[algorithm.label] = Look(PALETTE[colour], dash)
    for algorithm in algorithms:
        if algorithm.label not in looks:
            looks[algorithm.label] = _free_look(list(looks.values()))
    return looks


def _free_look(taken: Sequence[Look]) -> Look:
    """Return a look in the colour that is taken least often; neighbours differ in their dashes too."""
    often = [sum(look.colour == PALETTE[colour] for look in taken) for colour in GROUP_COLOURS]
    colour = PALETTE[GROUP_COLOURS[often.index(min(often))]]
    first = len(taken) % 2
    dashes = [*DASHES[first:], *DASHES[:first]]
    return Look(colour, next((dash for dash in dashes if Look(colour, dash) not in taken), dashes[0]))


def algorithms_of(experiment: Experiment) -> list[AnyAlgorithm]:
    """Return the algorithms of an experiment and of its studies, each label once."""
    found: dict[str, AnyAlgorithm] = {}
    for several in (experiment.algorithms, *(study.algorithms for study in experiment.studies)):
        for algorithm in several:
            found.setdefault(algorithm.label, algorithm)
    return list(found.values())


@final
class Lines:
    """Builders of the charts of one sweep, which all families share."""

    def __init__(self, measured: Measured, looks: Mapping[str, Look]) -> None:
        self.measured = measured
        self.looks = looks

    def over_time(
        self,
        key: str,
        title: str,
        caption: str,
        column: str,
        y_label: str,
        *,
        algorithms: Sequence[str] | None = None,
        factor: float = 1.0,
        budget_line: bool = False,
        share_y: bool = False,
        y_log: bool = False,
    ) -> Chart | None:
        """Return a column of `curves` against the episode: one panel per budget, one line per algorithm.

        Args:
            key: Name of the chart in files.
            title: Its title.
            caption: Its caption.
            column: The column of `curves`.
            y_label: Name of y.
            algorithms: The algorithms to show; by default all.
            factor: The unit of y: values are multiplied by it.
            budget_line: Whether each panel has a line at its budget.
            share_y: Whether all panels have the same y.
            y_log: Whether y is logarithmic.
        """
        labels = self.measured.algorithms() if algorithms is None else algorithms
        if not labels:
            return None
        panels = []
        for budget in self.measured.budgets():
            series = self.bands([Place(label, budget) for label in labels], column, factor)
            name = f"η = {budget:g}{none_of(column, series)}"
            if budget_line and series:
                series.insert(0, self.level("the budget itself", series, budget))
            panels.append(panel_of(name, "episode", y_label, series, y_log=y_log))
        if not any(panel.series for panel in panels):
            return None
        return Chart(key=key, title=title, caption=caption, panels=tuple(panels), share_y=share_y)

    def bands(self, places: Sequence[Place], column: str, factor: float = 1.0) -> list[Series]:
        """Return a column of `curves` at each place that has it: means over seeds with their bands."""
        series = []
        for place in filter(self.measured.has, places):
            episodes, band = self.measured.band(place, column)
            if np.isfinite(band.mean).any():
                scaled = (factor * each for each in band)
                kind = kind_of(band.mean)
                series.append(self.line_of(place.algorithm, episodes, *scaled, kind=kind))
        return series

    def means(
        self,
        algorithm: str,
        x: Sequence[float],
        places: Sequence[Place],
        column: str,
        factor: float = 1.0,
        *,
        kind: str = "path",
    ) -> Series:
        """Return the means of a column of `runs` with their intervals, one point per place."""
        return self.line_of(algorithm, x, *self.column_of(places, column, factor), kind=kind)

    def column_of(self, places: Sequence[Place], column: str, factor: float = 1.0) -> Floats:
        """Return the means of a column of `runs` and the ends of their intervals, (3, places)."""
        found = [self.measured.mean(place, column).times(factor) for place in places]
        return np.array(found, dtype=float).reshape(-1, 3).T

    def against(self, algorithm: str, column: str, budgets: Sequence[float] | None = None) -> Series:
        """Return a column of `runs` against the budget."""
        places = self.places(algorithm, self.measured.budgets() if budgets is None else budgets)
        return self.means(algorithm, [place.budget for place in places], places, column)

    def frontier(
        self,
        column: str,
        name: str,
        y_label: str,
        *,
        better: str,
        title: str,
        caption: str,
        factor: float = 1.0,
    ) -> Chart | None:
        """Return a column of `runs` against the violations, one line per algorithm over the budgets.

        Args:
            column: The column.
            name: Its name in the note at each point.
            y_label: Its name at the axis.
            better: The direction in which results are better.
            title: The chart's title.
            caption: The quantity in the caption.
            factor: The unit of the column: values are multiplied by it.
        """
        known = {place for place in self.measured.places if self.measured.rate(place).runs}
        places = [place for place in known if place.study == MAIN]
        if not places:
            return None
        series = []
        for algorithm in self.measured.algorithms():
            here = [place for place in self.places(algorithm, self.measured.budgets()) if place in known]
            rates = [self.measured.rate(place) for place in here]
            values = [self.measured.mean(place, column).times(factor) for place in here]
            notes = tuple(
                f"{algorithm}, η = {place.budget:g}\nviolations per 1,000: {say_rate(rate)}"
                f"\n{name}: {say(value)}"
                for place, rate, value in zip(here, rates, values, strict=True)
            )
            x = [1000 * rate.rate for rate in rates]
            ends = self.column_of(here, column, factor)
            series.append(self.line_of(algorithm, x, *ends, kind="path", notes=notes))
        panel = Panel(
            title=f"{better} and to the left is better",
            x_label="violations per 1,000 episodes",
            y_label=y_label,
            series=tuple(series),
            x_log=True,
            # Smaller than a single violation in all judged episodes.
            x_zero=1000 / max(self.measured.rate(place).episodes for place in places) / 3,
        )
        note = (
            "One point per budget, joined from the smallest to the largest; bars are 95 % intervals of the "
            f"{caption}. The horizontal axis is logarithmic, with a place for 0 at its left."
        )
        if not any(self.measured.rate(place).violations for place in places):
            note += " No algorithm broke any budget."
        return Chart(key="frontier", title=title, caption=note, panels=(panel,), height=1.4)

    def budget_use(
        self, key: str, title: str, caption: str, panels: Mapping[str, str], keepers: Sequence[str]
    ) -> Chart | None:
        """Return the mean booked deficit and the largest true one against the budget.

        Args:
            key: Name of the chart in files.
            title: Its title.
            caption: Its caption.
            panels: Names of y by the titles of the two panels.
            keepers: The algorithms that keep a budget.
        """
        budgets = self.measured.budgets()
        if not budgets:
            return None
        line = self.guide("the budget itself", budgets, budgets)
        booked = [self.against(algorithm, "deficit_mean") for algorithm in keepers]
        worst = []
        for algorithm in self.measured.algorithms():
            found = {
                place.budget: self.measured.known(place, "true_deficit_max")
                for place in self.places(algorithm, budgets)
            }
            largest = {budget: float(values.max()) for budget, values in found.items() if len(values)}
            worst.append(self.line_of(algorithm, [*largest], [*largest.values()], kind="path"))
        drawn = tuple(
            panel_of(name, "budget η", y_label, [line, *series])
            for (name, y_label), series in zip(panels.items(), (booked, worst), strict=True)
        )
        return Chart(key=key, title=title, caption=caption, panels=drawn)

    def places(self, algorithm: str, budgets: Sequence[float] | None) -> list[Place]:
        """Return the main places of an algorithm; without budgets, one per set of runs."""
        wanted = self.measured.budgets() if budgets is None else budgets
        places = [place for budget in wanted if self.measured.has(place := Place(algorithm, budget))]
        if budgets is None:
            unique = {self.measured.runs(place): place for place in reversed(places)}
            return list(reversed(unique.values()))
        return places

    def algorithms_with(self, column: str) -> list[str]:
        """Return the algorithms for which some value in a column of `runs` is not zero."""
        return [
            algorithm
            for algorithm in self.measured.algorithms()
            if any(self.measured.column(place, column).any() for place in self.places(algorithm, None))
        ]

    def line_of(
        self,
        algorithm: str,
        x: Sequence[float] | Floats,
        y: Sequence[float] | Floats,
        low: Sequence[float] | Floats = (),
        high: Sequence[float] | Floats = (),
        *,
        kind: str = "line",
        notes: tuple[str, ...] = (),
    ) -> Series:
        """Return one line of an algorithm, in its look."""
        colour, dash = self.looks[algorithm]
        line = Series(label=algorithm, x=plain(x), y=plain(y), low=plain(low), high=plain(high), kind=kind)
        return replace(line, colour=colour, dash=dash, notes=notes)

    def guide(self, label: str, x: Sequence[float], y: Sequence[float]) -> Series:
        """Return a line that is not the result of an algorithm."""
        return Series(label=label, x=tuple(x), y=tuple(y), colour=GUIDE, dash="dot")

    def level(self, label: str, series: Sequence[Series], y: float) -> Series:
        """Return a level line as long as the first of some series."""
        return self.guide(label, [series[0].x[0], series[0].x[-1]], [y, y])

    def runtime(self) -> Chart | None:
        """Return how long the runs of each algorithm took."""
        study = self.measured.studies()[0]
        variant = self.measured.variants(study)[0]
        labels = self.measured.algorithms(study, variant)
        series = []
        for i, algorithm in enumerate(labels):
            places = [place for place in self.measured.places if place[0::2] == (algorithm, study)]
            seconds = np.concatenate([self.measured.known(place, "seconds") for place in places])
            if len(seconds):
                colour = self.looks[algorithm].colour
                x, y, low, high = (
                    (float(each),) for each in (i, np.median(seconds), min(seconds), max(seconds))
                )
                line = Series(label=algorithm, x=x, y=y, low=low, high=high, colour=colour, kind="points")
                series.append(line)
        panel = panel_of("Wall clock, logarithmic", "", "seconds per run", series, y_log=True)
        return Chart(
            key="runtime",
            title="Runtime of a run",
            caption="Wall clock, median over runs; bars show the fastest and the slowest. Runs may have "
            "shared a machine.",
            panels=(replace(panel, categories=tuple(labels)),),
        )


def finished(charts: Iterable[Chart | None], fixed: Sequence[str]) -> list[Chart]:
    """Return the charts with data, their axes limited except in those named in `fixed`."""
    drawn = [chart for chart in charts if chart is not None and any(panel.series for panel in chart.panels)]
    return [chart if chart.key in fixed else reined(chart) for chart in drawn]


def panel_of(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, y_log: bool = False
) -> Panel:
    """Return a panel with some series."""
    return Panel(title=title, x_label=x_label, y_label=y_label, series=tuple(series), y_log=y_log)


def reined(chart: Chart) -> Chart:
    """Return the chart with its axes limited to its means, if wide intervals would make these look small."""
    panels = [_decade(panel) if panel.y_log else panel for panel in chart.panels]
    heights = [
        max((y for one in panel.series for y in one.y if np.isfinite(y)), default=0.0) for panel in panels
    ]
    if chart.share_y:
        heights = [max(heights)] * len(panels)
    for i, (panel, height) in enumerate(zip(panels, heights, strict=True)):
        reach = max((end for one in panel.series for end in one.high if np.isfinite(end)), default=0.0)
        if not panel.y_log and height > 0 and panel.y_top is None and reach > REACH * height:
            panels[i] = replace(panel, y_top=REACH * height)
    if tuple(panels) == chart.panels:
        return chart
    if chart.share_y:
        panels = [replace(panel, y_top=REACH * heights[0]) for panel in panels]
    cut = "Intervals that go far beyond the means are cut at the edge."
    return replace(chart, panels=tuple(panels), caption=f"{chart.caption} {cut}")


def _decade(panel: Panel) -> Panel:
    def cut(one: Series) -> Series:
        low, high = np.array(one.low), np.array(one.high)
        y = np.array(one.y)
        if not len(low) or not (np.any(low < y / DECADE) or np.any(high > y * DECADE)):
            return one
        return replace(one, low=plain(np.maximum(low, y / DECADE)), high=plain(np.minimum(high, y * DECADE)))

    return replace(panel, series=tuple(cut(one) for one in panel.series))


def none_of(column: str, series: Sequence[Series]) -> str:
    """Return an addition to the title of a panel whose lines would be hidden by the axis: no violations."""
    empty = column.startswith("violations") and not any(value > 0 for one in series for value in one.y)
    return ": no violations" if empty else ""


def kind_of(values: Floats) -> str:
    """Return the kind of a line: with points if there are so few that some may be isolated."""
    return "path" if np.count_nonzero(np.isfinite(values)) < min(SPARSE, len(values)) else "line"


def plain(values: Sequence[float] | Floats) -> tuple[float, ...]:
    """Return numbers as Python floats."""
    return tuple(float(value) for value in values)


def slug(text: str) -> str:
    """Return a name that can be part of a file name.

    Example:
        >>> slug("Bonus scale!")
        'bonus-scale'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "study"
