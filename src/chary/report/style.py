"""What every chart of the report is drawn with: the looks of algorithms, lines, bands and axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np

from chary.arrays import Floats
from chary.charts import Chart, Panel, Series
from chary.charts.palette import PALETTE
from chary.report.measured import Measured, Place
from chary.sweeps.spec import Experiment

__all__ = ["GUIDE", "Lines", "Look", "kind_of", "looks_of", "none_of", "panel_of", "plain", "reined", "slug"]


# What an algorithm looks like in every chart; the second of a role takes the second look. Those that often
# play alike differ in their dashes, so that the one below shows through.
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
    "": (("grey", "solid"), ("grey", "dashdot"), ("purple", "dashdot"), ("green", "dashdot")),
}
GUIDE = "#8A8F98"
# A line with fewer points than this shows them.
SPARSE = 30
# Intervals of two or three seeds reach anywhere: an axis ends at this many times the largest mean, and a
# logarithmic one a power of ten from it.
REACH, DECADE = 2.0, 10.0


class Look(NamedTuple):
    """The colour and dash of an algorithm."""

    colour: str
    dash: str


def looks_of(experiment: Experiment) -> dict[str, Look]:
    """Return the look of every algorithm, by its label, the same in all charts."""
    looks: dict[str, Look] = {}
    taken: dict[str, int] = {}
    studies = [study.algorithms for study in experiment.studies]
    for algorithm in (each for several in (experiment.algorithms, *studies) for each in several):
        if algorithm.label not in looks:
            role = "ours" if algorithm.role == "chosen" else algorithm.role
            choices = LOOKS[role]
            colour, dash = choices[taken.get(role, 0) % len(choices)]
            taken[role] = taken.get(role, 0) + 1
            looks[algorithm.label] = Look(PALETTE[colour], dash)
    return looks


@final
class Lines:
    """What the charts of one sweep consist of."""

    def __init__(self, measured: Measured, looks: dict[str, Look]) -> None:
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
        algorithms: Iterable[str] | None = None,
        share_y: bool = False,
        y_log: bool = False,
    ) -> Chart | None:
        """Return a panel a budget, each with one line an algorithm."""
        labels = self.measured.algorithms() if algorithms is None else list(algorithms)
        if not labels:
            return None
        panels = []
        for budget in self.measured.budgets():
            series = self.bands([Place(label, budget) for label in labels], column)
            name = f"η = {budget:g}{none_of(column, series)}"
            panels.append(panel_of(name, "episode", y_label, series, y_log=y_log))
        return Chart(key=key, title=title, caption=caption, panels=tuple(panels), share_y=share_y)

    def bands(self, places: Sequence[Place], column: str) -> list[Series]:
        """Return a column of `curves` at each place that has it: means over seeds with their bands."""
        series = []
        for place in places:
            if self.measured.has(place):
                episodes, band = self.measured.band(place, column)
                if np.isfinite(band.mean).any():
                    series.append(
                        self.line_of(
                            place.algorithm,
                            episodes,
                            band.mean,
                            band.low,
                            band.high,
                            kind=kind_of(band.mean),
                        )
                    )
        return series

    def against(self, algorithm: str, budgets: Sequence[float], column: str) -> Series:
        """Return a column of `runs` against the budget."""
        places = self.places(algorithm, budgets)
        estimates = [self.measured.mean(place, column) for place in places]
        return self.line_of(
            algorithm,
            [place.budget for place in places],
            [each.value for each in estimates],
            [each.low for each in estimates],
            [each.high for each in estimates],
            kind="path",
        )

    def places(self, algorithm: str, budgets: Sequence[float] | None) -> list[Place]:
        """Return the main places of an algorithm; without budgets, one a set of runs."""
        wanted = self.measured.budgets() if budgets is None else budgets
        places = [place for budget in wanted if self.measured.has(place := Place(algorithm, budget))]
        if budgets is None:
            unique = {self.measured.runs(place): place for place in reversed(places)}
            return list(reversed(unique.values()))
        return places

    def algorithms_with(self, column: str) -> list[str]:
        """Return the algorithms for which a column of `runs` is not zero throughout."""
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
        """Return one line of an algorithm, in its own look."""
        look = self.looks[algorithm]
        return Series(
            label=algorithm,
            x=plain(x),
            y=plain(y),
            low=plain(low),
            high=plain(high),
            colour=look.colour,
            dash=look.dash,
            kind=kind,
            notes=notes,
        )

    def guide(self, label: str, x: Sequence[float], y: Sequence[float]) -> Series:
        """Return a line that no algorithm made."""
        return Series(label=label, x=tuple(x), y=tuple(y), colour=GUIDE, dash="dot")

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
                series.append(
                    Series(
                        label=algorithm,
                        x=(float(i),),
                        y=(float(np.median(seconds)),),
                        low=(float(seconds.min()),),
                        high=(float(seconds.max()),),
                        colour=self.looks[algorithm].colour,
                        kind="points",
                    )
                )
        return Chart(
            key="runtime",
            title="Runtime of a run",
            caption="Wall clock, median over runs; bars reach from the fastest to the slowest. Runs may have "
            "shared a machine.",
            panels=(
                Panel(
                    title="Wall clock, logarithmic",
                    x_label="",
                    y_label="seconds a run",
                    series=tuple(series),
                    y_log=True,
                    categories=tuple(labels),
                ),
            ),
        )


def panel_of(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, y_log: bool = False
) -> Panel:
    """Return a panel with some lines."""
    return Panel(title=title, x_label=x_label, y_label=y_label, series=tuple(series), y_log=y_log)


def reined(chart: Chart) -> Chart:
    """Return the chart with axes that show its means, where intervals would make them small."""
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
    cut = "Intervals that reach far beyond the means are cut at the edge."
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
    """Return what is added to a title where lines of violations would lie on the axis, unseen."""
    empty = column == "violations" and not any(value > 0 for one in series for value in one.y)
    return ": no violations" if empty else ""


def kind_of(values: Floats) -> str:
    """Return how to draw a line: with points where there are so few that some may stand alone."""
    return "path" if np.count_nonzero(np.isfinite(values)) < min(SPARSE, len(values)) else "line"


def plain(values: Sequence[float] | Floats) -> tuple[float, ...]:
    """Return numbers as Python's own."""
    return tuple(float(value) for value in values)


def slug(text: str) -> str:
    """Return a name fit for a file.

    Example:
        >>> slug("Bonus scale!")
        'bonus-scale'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "study"
