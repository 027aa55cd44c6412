"""The charts of a sweep of the deep learner, built from its tables; those without data are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chary.charts import Chart, Series
from chary.charts.palette import PALETTE
from chary.report.deep.tables import MILLION, TABLE_1, measured_entry
from chary.report.measured import Measured, Place
from chary.report.style import Lines, finished, looks_of, panel_of, plain, slug
from chary.sweeps.deep import DeepConditions
from chary.sweeps.spec import Experiment

# The distance between the points of two series.
SHIFT = 0.08
COLOURS = ("grey", "light blue", "orange", "vermillion", "purple", "green")
# What studies compare beside the maximum return: its name, the column of `runs`, and its unit.
STUDIED = (
    ("violations per 1,000 episodes", "violation_rate", 1000.0),
    ("held-out charges that cover, %", "held_out_coverage", 100.0),
    ("deviating steps", "deviating_steps", 1.0),
)
# The end of an axis of shares.
WHOLE = 1.05
# The share of deviations that the charge should cover.
ASKED = 0.95
# Charts whose axes are fixed, or whose intervals are not those of means over seeds.
FIXED = ("table-1", "actions", "coverage", "runtime")
BAND = "mean over seeds with its 95 % bootstrap band"


def charts_of(experiment: Experiment, measured: Measured) -> list[Chart]:
    """Return all charts that the sweep has data for, in the order of the report."""
    assert isinstance(experiment.conditions, DeepConditions)
    maker = _Maker(Lines(measured, looks_of(experiment)), experiment.conditions)
    charts = [
        maker.returns(),
        maker.violations(),
        maker.best(),
        maker.table_1() if experiment.conditions.about.of_paper else None,
        maker.frontier(),
        maker.budget_use(),
        maker.deficit(),
        maker.incumbent(),
        maker.coverage(),
        maker.exploring(),
        maker.baseline(),
        maker.actions(),
        *(maker.study(study.name, study.question.rstrip(".")) for study in experiment.studies),
    ]
    return finished([*charts, maker.lines.runtime()], FIXED)


class _Maker:
    """The charts of one sweep."""

    def __init__(self, lines: Lines, conditions: DeepConditions) -> None:
        self.lines, self.measured, self.conditions = lines, lines.measured, conditions
        self.problem = conditions.about

    @property
    def _in_units(self) -> str:
        return f", in {self.problem.unit}" if self.problem.unit else ""

    @property
    def _as_in_the_paper(self) -> tuple[str, str]:
        if not self.problem.of_paper:
            return "", ""
        return ", as in the paper's figure (top)", ", as in the paper's figure (bottom)"

    @property
    def _window(self) -> str:
        width = self.conditions.audit_every
        for place in self.measured.places[:1]:
            episodes = self.measured.curves(place, "return").episodes
            width = round(float(episodes[-1]) / len(episodes))
        return f"Smoothed: each point is the mean of the {width} episodes up to it. "

    @property
    def _sampled(self) -> str:
        every = self.conditions.audit_every
        if every == 1:
            return "Every episode is compared with the truth."
        return f"One episode in {every} is compared with the truth."

    def returns(self) -> Chart | None:
        return self.lines.over_time(
            "returns",
            "Discounted return",
            f"{self._window}{BAND.capitalize()}{self._in_units}{self._as_in_the_paper[0]}. Algorithms "
            "that keep no budget are the same in every panel.",
            "return",
            self.problem.with_unit("discounted return"),
            factor=self.problem.factor,
            share_y=True,
        )

    def violations(self) -> Chart | None:
        return self.lines.over_time(
            "violations",
            "Cumulative violations of the budget",
            f"Episodes whose true deficit z* exceeded the panel's budget η{self._as_in_the_paper[1]}. "
            f"{self._sampled} Their count is multiplied by {self.conditions.audit_every}. "
            f"{BAND.capitalize()}. Each episode is compared with a baseline learnt from the algorithm's own "
            "data.",
            "violations",
            "cumulative violations",
        )

    def best(self) -> Chart | None:
        return self.lines.over_time(
            "best",
            "Largest discounted return so far",
            f"{BAND.capitalize()}{self._in_units}."
            + (" Table 1 shows its end." if self.problem.of_paper else ""),
            "best_return",
            self.problem.with_unit("largest so far"),
            factor=self.problem.factor,
            share_y=True,
        )

    def table_1(self) -> Chart | None:
        found = {entry: measured_entry(self.measured, entry) for entry in TABLE_1}
        shown = {entry: place for entry, place in found.items() if place is not None}
        if not shown:
            return None
        values = [self.measured.column(place, "max_return") / MILLION for place in shown.values()]
        spread = [float(each.std(ddof=1)) if len(each) > 1 else np.nan for each in values]

        def points(
            label: str, shift: float, means: list[float], deviations: list[float], colour: str
        ) -> Series:
            return Series(
                label=label,
                x=tuple(i + shift for i in range(len(shown))),
                y=tuple(means),
                low=plain(np.subtract(means, deviations)),
                high=plain(np.add(means, deviations)),
                colour=PALETTE[colour],
                kind="points",
            )

        here = points("here", -SHIFT, [float(each.mean()) for each in values], spread, "blue")
        theirs = [entry.mean for entry in shown], [entry.deviation for entry in shown]
        paper = points("the paper", SHIFT, *theirs, "vermillion")
        panel = panel_of("Over all episodes of a run", "", "maximum, millions", [here, paper])
        names = tuple(entry.name for entry in shown)
        return Chart(
            key="table-1",
            title="Table 1: maximum discounted return",
            caption="Mean over seeds; bars are one standard deviation over seeds, which the paper's ± is "
            "assumed to be. The paper does not say which patient it treats.",
            panels=(replace(panel, y_zero=False, categories=names),),
        )

    def frontier(self) -> Chart | None:
        return self.lines.frontier(
            "max_return",
            self.problem.with_unit("maximum return"),
            self.problem.with_unit("maximum discounted return"),
            better="Up",
            title="Maximum return against violations, over the budgets",
            caption="mean",
            factor=self.problem.factor,
        )

    def budget_use(self) -> Chart | None:
        keepers = self.lines.algorithms_with("deficit_max")
        if not keepers:
            return None
        return self.lines.budget_use(
            "budget-use",
            "How much of the budget is used",
            "Left: the deficit booked by the ledger per episode, mean over episodes and seeds with its 95 % "
            f"interval. Right: the largest true deficit z* of any audited episode. {self._sampled}",
            {"Booked, mean": self.problem.rewards, "True deficit, largest": self.problem.rewards},
            keepers,
        )

    def deficit(self) -> Chart | None:
        return self.lines.over_time(
            "deficit",
            "True deficit of an episode",
            f"z* of audited episodes, eq. (1), {BAND}. {self._sampled}",
            "true_deficit",
            f"z*, {self.problem.rewards}",
            budget_line=True,
        )

    def incumbent(self) -> Chart | None:
        return self.lines.over_time(
            "incumbent",
            "True deficit against the warm-up's baseline",
            f"z* of audited episodes against the baseline at the end of the warm-up, {BAND}. All algorithms "
            f"of a seed have this reference in common. {self._sampled}",
            "incumbent_deficit",
            f"z*, {self.problem.rewards}",
            budget_line=True,
        )

    def coverage(self) -> Chart | None:
        budgets = self.measured.budgets()
        labels = self.lines.algorithms_with("booked")
        if not labels:
            return None
        smallest = [Place(label, budgets[0]) for label in labels]
        over_time = self.lines.bands(smallest, "held_out_coverage")
        panels = [panel_of(f"Held out, over time, η = {budgets[0]:g}", "episode", "share covered", over_time)]
        for title, column in (("Held out", "held_out_coverage"), ("Booked", "booked_coverage")):
            series = [self.lines.against(label, column) for label in labels]
            panels.append(panel_of(title, "budget η", "share covered", series))
        for i, panel in enumerate(panels):
            x = [value for one in panel.series for value in one.x]
            ends = [min(x, default=0.0), max(x, default=1.0)]
            guide = self.lines.guide("95 %, the goal", ends, [ASKED, ASKED])
            panels[i] = replace(panel, series=(guide, *panel.series), y_top=WHOLE)
        return Chart(
            key="coverage",
            title="Coverage of the charge",
            caption="Deviations from the baseline whose charge was at least their true cost: mean over seeds "
            "with its 95 % interval. Held out: random ones in episodes that are not learnt from. Booked: "
            "those of audited episodes that the shield authorised.",
            panels=tuple(panels),
            share_y=True,
        )

    def exploring(self) -> Chart | None:
        return self.lines.over_time(
            "exploring",
            "Deviating steps",
            f"{self._window}Of at most {self.problem.horizon} steps per episode, those at which another "
            f"{self.problem.decision} than the baseline's was chosen: {BAND}.",
            "deviating_steps",
            "steps per episode",
        )

    def baseline(self) -> Chart | None:
        return self.lines.over_time(
            "baseline",
            "Value of the baseline",
            "True discounted return of the baseline against which audited episodes are judged, in "
            f"{self.problem.rewards}: {BAND}. The baseline is learnt by networks, and may fall.",
            "baseline_value",
            "value of the baseline",
            share_y=True,
        )

    def actions(self) -> Chart | None:
        """Return the actions that were played, one panel per algorithm; of budgets the smallest."""
        panels = []
        for algorithm in self.measured.algorithms():
            place = self.lines.places(algorithm, None)[0]
            series = []
            for action, (label, name) in enumerate(zip(self.problem.actions, COLOURS, strict=False)):
                episodes, (mean, _, _) = self.measured.band(place, f"share_{action}")
                series.append(Series(label=label, x=plain(episodes), y=plain(mean), colour=PALETTE[name]))
            own = self.measured.column(place, "deficit_max").any()
            title = f"{algorithm}, η = {place.budget:g}" if own else algorithm
            panels.append(replace(panel_of(title, "episode", "share of steps", series), y_top=WHOLE))
        if not panels:
            return None
        return Chart(
            key="actions",
            title=f"{self.problem.decision}s".capitalize(),
            caption=f"{self._window}Mean over seeds. {self.problem.legend}A constant policy is a line at 1; "
            f"if seeds are stuck in different {self.problem.decision}s, the table below the figures has the "
            "largest share of a seed.",
            panels=tuple(panels),
            share_y=True,
        )

    def study(self, name: str, question: str) -> Chart | None:
        """Return returns, violations, charges and steps of a study: one column per algorithm and variant."""
        variants = self.measured.variants(name)
        if not variants:
            return None
        budget = self.measured.budgets(name, variants[0])[0]
        places = [place for place in self.measured.places if place[1:3] == (budget, name)]
        algorithms = dict.fromkeys(place.algorithm for place in places)
        many = len(algorithms) > 1 or len(variants) == 1, len(variants) > 1
        columns = [
            ", ".join(
                part for part, named in zip((place.algorithm, place.variant), many, strict=True) if named
            )
            for place in places
        ]
        panels = []
        returns = (self.problem.with_unit("maximum return"), "max_return", self.problem.factor)
        for title, column, factor in (returns, *STUDIED):
            series = []
            for algorithm in algorithms:
                here = {float(i): place for i, place in enumerate(places) if place.algorithm == algorithm}
                x, found = list(here), list(here.values())
                series.append(self.lines.means(algorithm, x, found, column, factor, kind="points"))
            panel = panel_of(f"{title[0].upper()}{title[1:]}", "", title, series)
            panels.append(replace(panel, categories=tuple(columns)))
        only = f", {variants[0]}" if len(variants) == 1 and variants[0] else ""
        return Chart(
            key=f"study-{slug(name)}",
            title=question or name,
            caption=f"Mean over seeds with its 95 % interval, η = {budget:g}{only}.",
            panels=tuple(panels),
            across=2,
        )
