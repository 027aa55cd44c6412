"""The charts of a sweep of the deep learner, built from its tables; those without data are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chary.charts import Chart, Panel, Series
from chary.charts.palette import PALETTE
from chary.report.hiv.table1 import MILLION, TABLE_1, measured_entry
from chary.report.measured import Measured, Place
from chary.report.style import Lines, looks_of, panel_of, plain, reined, slug
from chary.report.tabular.claims import say, say_rate
from chary.results import Estimate
from chary.results.hiv import ACTIONS
from chary.sweeps.hiv import HIVConditions
from chary.sweeps.spec import MAIN, Experiment

__all__ = ["TREATMENTS", "deep_charts"]

TREATMENTS = ("nothing", "RTI", "PI", "RTI and PI")
# How far points of two series stand apart.
SHIFT = 0.08
COLOURS = ("grey", "light blue", "orange", "vermillion")
# What studies compare: in words, the column of `runs`, and what it is multiplied by.
STUDIED = (
    ("maximum return, millions", "max_return", 1 / MILLION),
    ("violations per 1,000 episodes", "violation_rate", 1000.0),
    ("held-out charges that cover, %", "held_out_coverage", 100.0),
    ("steps that leave the baseline", "deviating_steps", 1.0),
)
# Where an axis of shares ends.
WHOLE = 1.05
# The share of deviations that a charge is asked to cover.
ASKED = 0.95
# Charts whose axes are fixed, or whose intervals are no means over seeds.
UNREINED = ("table-1", "actions", "coverage", "runtime")


def deep_charts(experiment: Experiment, measured: Measured) -> list[Chart]:
    """Return all charts that the sweep has data for, in the order of the report."""
    assert isinstance(experiment.conditions, HIVConditions)
    maker = _Maker(Lines(measured, looks_of(experiment)), experiment.conditions)
    charts = [
        maker.returns(),
        maker.violations(),
        maker.best(),
        maker.table_1(),
        maker.frontier(),
        maker.budget_use(),
        maker.deficit(),
        maker.coverage(),
        maker.exploring(),
        maker.baseline(),
        maker.actions(),
    ]
    for study in experiment.studies:
        charts.append(maker.study(study.name, study.question.rstrip(".")))
    charts.append(maker.lines.runtime())
    drawn = [chart for chart in charts if chart is not None and any(panel.series for panel in chart.panels)]
    return [chart if chart.key in UNREINED else reined(chart) for chart in drawn]


class _Maker:
    """The charts of one sweep."""

    def __init__(self, lines: Lines, conditions: HIVConditions) -> None:
        self.lines, self.measured, self.conditions = lines, lines.measured, conditions

    @property
    def _window(self) -> str:
        return f"Smoothed: each point is the mean of the {self._width} episodes up to it. "

    @property
    def _width(self) -> int:
        for place in self.measured.places[:1]:
            episodes = self.measured.curves(place, "return").episodes
            return round(float(episodes[-1]) / len(episodes))
        return self.conditions.audit_every

    @property
    def _sampled(self) -> str:
        every = self.conditions.audit_every
        if every == 1:
            return "Every episode is compared with the truth."
        return f"One episode in {every} is compared with the truth."

    def returns(self) -> Chart | None:
        chart = self.lines.over_time(
            "returns",
            "Discounted return",
            f"{self._window}Mean over seeds with its 95 % bootstrap band, in millions, as the paper's figure "
            "(top). Algorithms without a budget of their own are the same in every panel.",
            "return",
            "discounted return, millions",
            share_y=True,
        )
        return _in_millions(chart)

    def violations(self) -> Chart | None:
        return self.lines.over_time(
            "violations",
            "Cumulative violations of the budget",
            "Episodes whose true deficit z* exceeded the panel's budget η, as the paper's figure (bottom). "
            f"{self._sampled} Their count is multiplied by {self.conditions.audit_every}. Mean over seeds "
            "with its 95 % bootstrap band. Each episode is judged against the baseline of the algorithm's "
            "own networks.",
            "violations",
            "cumulative violations",
        )

    def best(self) -> Chart | None:
        chart = self.lines.over_time(
            "best",
            "Largest discounted return so far",
            "Mean over seeds with its 95 % bootstrap band, in millions. Table 1 has its end.",
            "best_return",
            "largest so far, millions",
            share_y=True,
        )
        return _in_millions(chart)

    def table_1(self) -> Chart | None:
        found = [(entry, measured_entry(self.measured, entry)) for entry in TABLE_1]
        shown = [(entry, place) for entry, place in found if place is not None]
        if not shown:
            return None
        x = tuple(i - SHIFT for i in range(len(shown)))
        values = [self.measured.column(place, "max_return") / MILLION for _, place in shown]
        means = [float(each.mean()) for each in values]
        spread = [float(each.std(ddof=1)) if len(each) > 1 else np.nan for each in values]
        here = Series(
            label="here",
            x=x,
            y=tuple(means),
            low=plain(np.subtract(means, spread)),
            high=plain(np.add(means, spread)),
            colour=PALETTE["blue"],
            kind="points",
        )
        paper = Series(
            label="the paper",
            x=tuple(i + SHIFT for i in range(len(shown))),
            y=tuple(entry.mean for entry, _ in shown),
            low=tuple(entry.mean - entry.deviation for entry, _ in shown),
            high=tuple(entry.mean + entry.deviation for entry, _ in shown),
            colour=PALETTE["vermillion"],
            kind="points",
        )
        return Chart(
            key="table-1",
            title="Table 1: maximum discounted return",
            caption="Mean over seeds; bars are one standard deviation over seeds, as the paper's ± is taken "
            "to be. The paper does not say which patient it treats.",
            panels=(
                Panel(
                    title="Over all episodes of a run",
                    x_label="",
                    y_label="maximum, millions",
                    series=(here, paper),
                    y_zero=False,
                    categories=tuple(entry.name for entry, _ in shown),
                ),
            ),
        )

    def frontier(self) -> Chart | None:
        places = [place for place in self.measured.places if place.study == MAIN]
        if not places:
            return None
        most = max(self.measured.rate(place).episodes for place in places)
        series = []
        for algorithm in self.measured.algorithms():
            here = self.lines.places(algorithm, self.measured.budgets())
            best = [
                Estimate(*(each / MILLION for each in self.measured.mean(place, "max_return")))
                for place in here
            ]
            rates = [self.measured.rate(place) for place in here]
            series.append(
                self.lines.line_of(
                    algorithm,
                    [1000 * rate.rate for rate in rates],
                    [each.value for each in best],
                    [each.low for each in best],
                    [each.high for each in best],
                    kind="path",
                    notes=tuple(
                        f"<b>{algorithm}</b>, η = {place.budget:g}<br>violations per 1,000: {say_rate(rate)}"
                        f"<br>maximum return, millions: {say(each)}"
                        for place, rate, each in zip(here, rates, best, strict=True)
                    ),
                )
            )
        panel = Panel(
            title="Up and to the left is better",
            x_label="violations per 1,000 episodes",
            y_label="maximum discounted return, millions",
            series=tuple(series),
            x_log=True,
            # Below what a single violation in all audited episodes would be.
            x_zero=1000 / most / 3,
        )
        return Chart(
            key="frontier",
            title="Maximum return against violations, over the budgets",
            caption="One point a budget, joined from the smallest to the largest; bars are 95 % intervals of "
            "the mean. The horizontal axis is logarithmic, with a place for 0 at its left.",
            panels=(panel,),
        )

    def budget_use(self) -> Chart | None:
        budgets = self.measured.budgets()
        keepers = self.lines.algorithms_with("deficit_max")
        if not (budgets and keepers):
            return None
        guide = self.lines.guide("the budget itself", budgets, budgets)
        booked = [self.lines.against(each, budgets, "deficit_mean") for each in keepers]
        worst = []
        for algorithm in self.measured.algorithms():
            places = self.lines.places(algorithm, budgets)
            values = [float(self.measured.known(place, "true_deficit_max").max()) for place in places]
            worst.append(
                self.lines.line_of(algorithm, [place.budget for place in places], values, kind="path")
            )
        return Chart(
            key="budget-use",
            title="How much of the budget is used",
            caption="Left: what the ledger books in an episode, mean over episodes and seeds with its 95 % "
            f"interval. Right: the largest true deficit z* of any audited episode. {self._sampled}",
            panels=(
                panel_of("Booked, mean", "budget η", "standardised reward", [guide, *booked]),
                panel_of("True deficit, largest", "budget η", "standardised reward", [guide, *worst]),
            ),
        )

    def deficit(self) -> Chart | None:
        chart = self.lines.over_time(
            "deficit",
            "True deficit of an episode",
            f"z* of audited episodes, mean over seeds with its 95 % bootstrap band. {self._sampled}",
            "true_deficit",
            "z*, standardised reward",
        )
        if chart is None:
            return None
        panels = []
        for panel, budget in zip(chart.panels, self.measured.budgets(), strict=True):
            if not panel.series:
                panels.append(panel)
                continue
            ends = [panel.series[0].x[0], panel.series[0].x[-1]]
            guide = self.lines.guide("the budget itself", ends, [budget, budget])
            panels.append(replace(panel, series=(guide, *panel.series)))
        return replace(chart, panels=tuple(panels))

    def coverage(self) -> Chart | None:
        budgets = self.measured.budgets()
        labels = self.lines.algorithms_with("booked")
        if not labels:
            return None
        smallest = [Place(label, budgets[0]) for label in labels]
        over_time = self.lines.bands(smallest, "held_out_coverage")
        panels = [panel_of(f"Held out, over time, η = {budgets[0]:g}", "episode", "share covered", over_time)]
        for title, column in (("Held out", "held_out_coverage"), ("Booked", "booked_coverage")):
            series = [self.lines.against(label, budgets, column) for label in labels]
            panels.append(panel_of(title, "budget η", "share covered", series))
        for i, panel in enumerate(panels):
            x = [value for one in panel.series for value in one.x]
            ends = [min(x, default=0.0), max(x, default=1.0)]
            guide = self.lines.guide("95 %, what is asked", ends, [ASKED, ASKED])
            panels[i] = replace(panel, series=(guide, *panel.series), y_top=WHOLE)
        return Chart(
            key="coverage",
            title="Coverage of the charge",
            caption="Deviations from the baseline whose charge was at least their true cost: mean over seeds "
            "with its 95 % interval. Held out: random ones in episodes that nothing is learnt from. Booked: "
            "those of audited episodes that the shield authorised.",
            panels=tuple(panels),
            share_y=True,
        )

    def exploring(self) -> Chart | None:
        return self.lines.over_time(
            "exploring",
            "Steps that leave the baseline",
            f"{self._window}Of 200 steps an episode, those at which another treatment than the baseline's "
            "was given: mean over seeds with its 95 % bootstrap band.",
            "deviating_steps",
            "steps an episode",
        )

    def baseline(self) -> Chart | None:
        return self.lines.over_time(
            "baseline",
            "What the baseline is worth",
            "Discounted return of the baseline that audited episodes are judged against, in standardised "
            "reward: mean over seeds with its 95 % bootstrap band.",
            "baseline_value",
            "value of the baseline",
            share_y=True,
        )

    def actions(self) -> Chart | None:
        """Return which treatments were given, a panel an algorithm; of budgets the smallest."""
        panels = []
        for algorithm in self.measured.algorithms():
            place = self.lines.places(algorithm, None)[0]
            series = []
            for action in range(ACTIONS):
                episodes, band = self.measured.band(place, f"share_{action}")
                series.append(
                    Series(
                        label=TREATMENTS[action],
                        x=plain(episodes),
                        y=plain(band.mean),
                        colour=PALETTE[COLOURS[action]],
                    )
                )
            own = self.measured.column(place, "deficit_max").any()
            name = f"{algorithm}, η = {place.budget:g}" if own else algorithm
            panels.append(replace(panel_of(name, "episode", "share of steps", series), y_top=WHOLE))
        if not panels:
            return None
        return Chart(
            key="actions",
            title="Which treatments are given",
            caption=f"{self._window}Mean over seeds. RTI: reverse transcriptase inhibitor, PI: protease "
            "inhibitor. A constant policy is a line at 1; where seeds are stuck in different treatments, the "
            "table below the figures has the largest share of a seed.",
            panels=tuple(panels),
            share_y=True,
        )

    def study(self, name: str, question: str) -> Chart | None:
        """Return returns, violations, charges and steps of a study: a column an algorithm and variant."""
        variants = self.measured.variants(name)
        if not variants:
            return None
        budget = self.measured.budgets(name, variants[0])[0]
        places = [place for place in self.measured.places if place[1:3] == (budget, name)]
        algorithms = dict.fromkeys(place.algorithm for place in places)
        columns = [
            ", ".join(
                part
                for part, many in (
                    (place.algorithm, len(algorithms) > 1 or len(variants) == 1),
                    (place.variant, len(variants) > 1),
                )
                if many
            )
            for place in places
        ]
        panels = []
        for title, column, factor in STUDIED:
            series = []
            for algorithm in algorithms:
                found = [
                    (float(i), self.measured.mean(place, column))
                    for i, place in enumerate(places)
                    if place.algorithm == algorithm
                ]
                series.append(
                    self.lines.line_of(
                        algorithm,
                        [i for i, _ in found],
                        [factor * each.value for _, each in found],
                        [factor * each.low for _, each in found],
                        [factor * each.high for _, each in found],
                        kind="points",
                    )
                )
            panel = panel_of(f"{title[0].upper()}{title[1:]}", "", title, series)
            panels.append(replace(panel, categories=tuple(columns)))
        told = f", {variants[0]}" if len(variants) == 1 and variants[0] else ""
        return Chart(
            key=f"study-{slug(name)}",
            title=question or name,
            caption=f"Mean over seeds with its 95 % interval, η = {budget:g}{told}.",
            panels=tuple(panels),
            across=2,
        )


def _in_millions(chart: Chart | None) -> Chart | None:
    if chart is None:
        return None

    def scaled(one: Series) -> Series:
        y, low, high = (tuple(value / MILLION for value in each) for each in (one.y, one.low, one.high))
        return replace(one, y=y, low=low, high=high)

    panels = tuple(
        replace(panel, series=tuple(scaled(one) for one in panel.series)) for panel in chart.panels
    )
    return replace(chart, panels=panels)
