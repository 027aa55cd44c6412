"""Every chart of the report, built from a sweep's tables; those without data are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chary.charts import Chart, Panel, Series
from chary.charts.palette import PALETTE
from chary.report.measured import Measured, Place
from chary.report.style import Lines, kind_of, looks_of, none_of, panel_of, plain, reined, slug
from chary.report.tabular.claims import say, say_rate
from chary.results import ratio_band
from chary.statistics import clopper_pearson
from chary.sweeps.spec import MAIN, Experiment
from chary.sweeps.tabular import Conditions

__all__ = ["charts_of"]


PARTS = {
    "chain_exhausted": ("budget exhausted (N_m¹)", PALETTE["vermillion"]),
    "chain_long": ("advanced by H/4 or more (N_m²)", PALETTE["blue"]),
    "chain_missed": ("target missed (N_m³)", PALETTE["grey"]),
}
FAILURES = {
    "value_failures": ("value bounds", PALETTE["light blue"]),
    "bonus_failures": ("bonus", PALETTE["orange"]),
    "charge_failures": ("charge", PALETTE["vermillion"]),
}
# What studies compare: in words, the column of `runs`, and what it is multiplied by.
MEASURES = (
    ("Regret", "regret", 1.0),
    ("Violations per 1,000 episodes", "violation_rate", 1000.0),
    ("Exploring steps", "exploring_steps", 1.0),
)
# How many budgets a study's chart may have before it can no longer be read.
MOST_BUDGETS = 4
# Ratios of cumulative regrets say little before this share of the run.
SETTLED = 0.05
# How far above the largest mean ratio its panel reaches; bands of few seeds reach anywhere.
HEADROOM = 1.4
# Charts whose intervals are no means over seeds.
UNREINED = ("coverage", "runtime", "ratio")


def charts_of(experiment: Experiment, measured: Measured) -> list[Chart]:
    """Return all charts that the sweep has data for, in the order of the report."""
    assert isinstance(experiment.conditions, Conditions)
    maker = _Maker(Lines(measured, looks_of(experiment)), experiment.conditions.delta)
    charts = [
        maker.regret(),
        maker.violations(),
        maker.frontier(),
        maker.deficit(),
        maker.deficit_over_time(),
        maker.exploring(),
        maker.chain_lengths(),
        maker.chain_parts(),
        maker.ratio(),
        maker.scaling(),
        maker.coverage(),
    ]
    for study in experiment.studies:
        charts += maker.study(study.name, study.question.rstrip("."))
    charts.append(maker.lines.runtime())
    drawn = [chart for chart in charts if chart is not None and any(panel.series for panel in chart.panels)]
    return [chart if chart.key in UNREINED else reined(chart) for chart in drawn]


class _Maker:
    """The charts of one sweep; `delta` is what its bounds promise."""

    def __init__(self, lines: Lines, delta: float) -> None:
        self.lines, self.measured, self.delta = lines, lines.measured, delta

    def regret(self) -> Chart | None:
        return self.lines.over_time(
            "regret",
            "Cumulative regret",
            "Regret against the optimal policy, summed over episodes: mean over seeds with its 95 % "
            "bootstrap band. Algorithms without a budget of their own are the same in every panel.",
            "regret",
            "cumulative regret",
            share_y=True,
        )

    def violations(self) -> Chart | None:
        return self.lines.over_time(
            "violations",
            "Cumulative violations of the budget",
            "Episodes whose true deficit z* exceeded the panel's budget η, summed over episodes: mean over "
            "seeds with its 95 % bootstrap band. Each episode is judged against the baseline of the "
            "algorithm's own data.",
            "violations",
            "cumulative violations",
        )

    def frontier(self) -> Chart | None:
        places = [place for place in self.measured.places if place.study == MAIN]
        if not places:
            return None
        most = max(self.measured.rate(place).episodes for place in places)
        series = []
        for algorithm in self.measured.algorithms():
            here = sorted(
                (place for place in places if place.algorithm == algorithm), key=lambda place: place.budget
            )
            regrets = [self.measured.mean(place, "regret") for place in here]
            rates = [self.measured.rate(place) for place in here]
            series.append(
                self.lines.line_of(
                    algorithm,
                    [1000 * rate.rate for rate in rates],
                    [each.value for each in regrets],
                    [each.low for each in regrets],
                    [each.high for each in regrets],
                    kind="path",
                    notes=tuple(
                        f"<b>{algorithm}</b>, η = {place.budget:g}<br>violations per 1,000: {say_rate(rate)}"
                        f"<br>regret: {say(regret)}"
                        for place, rate, regret in zip(here, rates, regrets, strict=True)
                    ),
                )
            )
        nobody = all(self.measured.rate(place).violations == 0 for place in places)
        # Below what a single violation in all episodes would be.
        floor = 1000 / most / 3
        panel = Panel(
            title="Down and to the left is better",
            x_label="violations per 1,000 episodes",
            y_label="regret",
            series=tuple(series),
            x_log=True,
            x_zero=floor,
        )
        return Chart(
            key="frontier",
            title="Regret against violations, over the budgets",
            caption="One point a budget, joined from the smallest to the largest; bars are 95 % intervals of "
            "the mean regret. The horizontal axis is logarithmic, with a place for 0 at its left."
            + (" No algorithm broke any budget." if nobody else ""),
            panels=(panel,),
        )

    def deficit(self) -> Chart | None:
        budgets = self.measured.budgets()
        keepers = self.lines.algorithms_with("deficit_max")
        if not budgets:
            return None
        line = self.lines.guide("the budget itself", budgets, budgets)
        spent = [self.lines.against(algorithm, budgets, "deficit_mean") for algorithm in keepers]
        worst = []
        for algorithm in self.measured.algorithms():
            places = self.lines.places(algorithm, budgets)
            values = [float(self.measured.column(place, "true_deficit_max").max()) for place in places]
            worst.append(
                self.lines.line_of(algorithm, [place.budget for place in places], values, kind="path")
            )
        return Chart(
            key="deficit",
            title="Deficit spent per episode, against the budget",
            caption="Left: what the ledger booked in an episode, mean over episodes and seeds with its 95 % "
            "band. Right: the largest true deficit z* of any episode of any seed. Points above the dotted "
            "line broke the budget.",
            panels=(
                Panel(
                    title="Booked, mean",
                    x_label="budget η",
                    y_label="deficit booked an episode",
                    series=(line, *spent),
                ),
                Panel(
                    title="True, largest",
                    x_label="budget η",
                    y_label="largest true deficit",
                    series=(line, *worst),
                ),
            ),
        )

    def deficit_over_time(self) -> Chart | None:
        keepers = self.lines.algorithms_with("deficit_max")
        chart = self.lines.over_time(
            "deficit-over-time",
            "Deficit booked per episode, over time",
            "What the ledger booked, mean over the episodes since the last point and over seeds, with its 95 "
            "% band. The dotted line is the budget; rule “paper” stops at half of it, after at most one more "
            "step.",
            "deficit_mean",
            "deficit booked an episode",
            algorithms=keepers,
        )
        if chart is None:
            return None
        panels = []
        for panel, budget in zip(chart.panels, self.measured.budgets(), strict=True):
            ends = [panel.series[0].x[0], panel.series[0].x[-1]] if panel.series else [1.0, 2.0]
            guide = self.lines.guide("the budget itself", ends, [budget, budget])
            panels.append(replace(panel, series=(guide, *panel.series)))
        return replace(chart, panels=tuple(panels))

    def exploring(self) -> Chart | None:
        return self.lines.over_time(
            "exploring",
            "Exploring steps per episode",
            "Steps of an episode that an explorer chose, mean since the last point and over seeds, with its "
            "95 % band. UCBVI explores in every step.",
            "exploring_steps",
            "exploring steps an episode",
            algorithms=self.lines.algorithms_with("exploring_steps"),
            share_y=True,
        )

    def chain_lengths(self) -> Chart | None:
        return self.lines.over_time(
            "chain-lengths",
            "Episodes per chain, N_m",
            "How many episodes a chain (meta-episode) took, by the episode in which it began. Chains that "
            "were never finished have no length and are missing, which favours short ones near the end.",
            "chain_episodes",
            "N_m, mean",
            algorithms=self.lines.algorithms_with("chains_finished"),
            y_log=True,
        )

    def chain_parts(self) -> Chart | None:
        papers = self.measured.algorithms(roles=("paper",))
        if not papers:
            return None
        panels = []
        for budget in self.measured.budgets():
            place = Place(papers[0], budget)
            series = []
            if self.measured.has(place) and self.measured.column(place, "chains_finished").sum():
                for column, (label, colour) in PARTS.items():
                    episodes, band = self.measured.band(place, column)
                    series.append(
                        Series(
                            label=label,
                            x=plain(episodes),
                            y=plain(band.mean),
                            colour=colour,
                            kind=kind_of(band.mean),
                        )
                    )
            panels.append(panel_of(f"η = {budget:g}", "episode in which the chain began", "episodes", series))
        return Chart(
            key="chain-parts",
            title=f"What the episodes of a chain went into: {papers[0]}",
            caption="The three parts of N_m that the paper's proof bounds one by one, mean over the finished "
            "chains that began since the last point.",
            panels=tuple(panels),
        )

    def ratio(self) -> Chart | None:
        free = self.measured.algorithms(roles=("unconstrained",))
        if not free:
            return None
        panels = []
        for budget in self.measured.budgets():
            other = Place(free[0], budget)
            if not self.measured.has(other):
                continue
            series = []
            theirs = self.measured.curves(other, "regret")
            row = {seed: i for i, seed in enumerate(theirs.seeds)}
            for algorithm in self.measured.algorithms(roles=("paper", "ours", "chosen")):
                place = Place(algorithm, budget)
                if not self.measured.has(place):
                    continue
                ours = self.measured.curves(place, "regret")
                common = [(i, row[seed]) for i, seed in enumerate(ours.seeds) if seed in row]
                if not common or ours.values.shape[1] != theirs.values.shape[1]:
                    continue
                mine, their = [i for i, _ in common], [i for _, i in common]
                below = theirs.values[their].mean(axis=0)
                settled = (ours.episodes >= SETTLED * ours.episodes[-1]) & (below > SETTLED * below[-1])
                if not settled.any():
                    continue
                band = ratio_band(ours.values[mine][:, settled], theirs.values[their][:, settled])
                series.append(
                    self.lines.line_of(algorithm, ours.episodes[settled], band.mean, band.low, band.high)
                )
            if series:
                ends = [series[0].x[0], series[0].x[-1]]
                series.insert(0, self.lines.guide(f"as {free[0]}", ends, [1.0, 1.0]))
            panel = panel_of(f"η = {budget:g}", "episode", f"regret / {free[0]}'s", series)
            panels.append(replace(panel, y_top=HEADROOM * max((max(one.y) for one in series), default=1.0)))
        return Chart(
            key="ratio",
            title=f"Cumulative regret as a multiple of {free[0]}'s",
            caption="At equal seeds, mean with its 95 % band. A level line is a price that does not depend "
            "on the number of episodes.",
            panels=tuple(panels),
        )

    def scaling(self) -> Chart | None:
        budgets = [budget for budget in self.measured.budgets() if budget > 0]
        if len(budgets) < 2:
            return None
        series = [
            self.lines.against(algorithm, budgets, "regret")
            for algorithm in self.measured.algorithms(roles=("paper", "ours", "chosen", "unconstrained"))
        ]
        papers = self.measured.algorithms(roles=("paper",))
        if papers and len(places := self.lines.places(papers[0], budgets)) >= 2:
            start = self.measured.mean(places[0], "regret").value
            reach = [place.budget for place in places]
            guide = self.lines.guide(
                "proportional to 1/η", reach, [start * reach[0] / budget for budget in reach]
            )
            series.insert(0, guide)
        panel = Panel(
            title="Both axes logarithmic",
            x_label="budget η",
            y_label="regret",
            series=tuple(series),
            x_log=True,
            y_log=True,
        )
        return Chart(
            key="scaling",
            title="Regret against the budget",
            caption="Mean over seeds with its 95 % interval. The theorem's term for being conservative falls "
            "like 1/η.",
            panels=(panel,),
        )

    def coverage(self) -> Chart | None:
        labels = [
            algorithm
            for algorithm in self.measured.algorithms()
            if any(
                len(self.measured.known(place, "charge_failures"))
                for place in self.lines.places(algorithm, None)
            )
        ]
        shares, counts = [], []
        for column, (name, colour) in FAILURES.items():
            share: list[tuple[float, float, float]] = []
            often: list[float] = []
            for algorithm in labels:
                failures = np.concatenate(
                    [self.measured.known(place, column) for place in self.lines.places(algorithm, None)]
                )
                played = np.concatenate(
                    [self.measured.column(place, "episodes") for place in self.lines.places(algorithm, None)]
                )
                failed = int(np.count_nonzero(failures))
                low, high = clopper_pearson(failed, max(len(failures), 1))
                share.append((failed / max(len(failures), 1), low, high))
                often.append(float(1000 * failures.sum() / played.sum()))
            x = tuple(float(i) for i in range(len(labels)))
            value, low_ends, high_ends = (tuple(each[i] for each in share) for i in range(3))
            shares.append(
                Series(label=name, x=x, y=value, low=low_ends, high=high_ends, colour=colour, kind="bars")
            )
            counts.append(Series(label=name, x=x, y=tuple(often), colour=colour, kind="bars"))
        if not labels:
            return None
        promised = self.lines.guide(
            f"δ = {self.delta:g}, what is promised", [-0.5, len(labels) - 0.5], [self.delta] * 2
        )
        return Chart(
            key="coverage",
            title="Coverage: how often bounds failed",
            caption="All budgets together: runs of one seed at different budgets have much in common, so "
            "that the intervals are too narrow; the table of coverage has each budget alone. A bound fails "
            "in an episode if the truth lay outside it at a step that was looked at. Certified bounds "
            "promise that at most a share δ of the runs has any failure; calibrated ones promise only that "
            "the charges of an episode cover its deficit, and value bounds may fail.",
            panels=(
                Panel(
                    title="Runs with any failure, 95 % Clopper-Pearson",
                    x_label="",
                    y_label="share of runs",
                    series=(*shares, promised),
                    categories=tuple(labels),
                ),
                Panel(
                    title="Episodes with a failure",
                    x_label="",
                    y_label="per 1,000 episodes",
                    series=tuple(counts),
                    categories=tuple(labels),
                ),
            ),
        )

    def study(self, name: str, question: str) -> list[Chart | None]:
        """Return the charts of one study: against the bonus scale, against the main runs, or over time."""
        variants = self.measured.variants(name)
        if not variants:
            return []
        scales = {self._scale(name, variant) for variant in variants}
        if len(scales) == len(variants) > 1:
            return [self._by_scale(name, question, variants)]
        if name == "prior":
            return [self._beside_main(name, question, variants)]
        return self._study_over_time(name, question, variants)

    def _scale(self, study: str, variant: str) -> float:
        place = next(place for place in self.measured.places if place[2:] == (study, variant))
        return float(self.measured.column(place, "bonus_scale")[0])

    def _by_scale(self, name: str, question: str, variants: Sequence[str]) -> Chart:
        shared = set.intersection(*(set(self.measured.budgets(name, variant)) for variant in variants))
        ordered = sorted(variants, key=lambda variant: self._scale(name, variant))
        budgets = sorted(shared) or self.measured.budgets(name, variants[0])[-1:]
        shown, told = _shown(budgets)
        panels = []
        for budget in shown:
            for title, column, factor in MEASURES:
                series = []
                for algorithm in self.measured.algorithms(name, variants[0]):
                    places = [
                        place
                        for variant in variants
                        if self.measured.has(place := Place(algorithm, budget, name, variant))
                    ]
                    estimates = [self.measured.mean(place, column) for place in places]
                    series.append(
                        self.lines.line_of(
                            algorithm,
                            [self._scale(name, place.variant) for place in places],
                            [factor * each.value for each in estimates],
                            [factor * each.low for each in estimates],
                            [factor * each.high for each in estimates],
                            kind="path",
                        )
                    )
                panels.append(
                    Panel(
                        title=f"η = {budget:g}: {title.lower()}",
                        x_label="scale of the bonus",
                        y_label=title.lower(),
                        series=tuple(series),
                        x_log=True,
                    )
                )
        return Chart(
            key=f"study-{slug(name)}",
            title=question or name,
            caption=f"Mean over seeds with its 95 % interval. {told}From left to right: "
            f"{'; '.join(ordered)}. The calibrated scale was fixed before regret was looked at.",
            panels=tuple(panels),
            across=len(MEASURES),
        )

    def _beside_main(self, name: str, question: str, variants: Sequence[str]) -> Chart | None:
        budgets = [
            budget for budget in self.measured.budgets(name, variants[0]) if budget in self.measured.budgets()
        ]
        if not budgets:
            return None
        shown, told = _shown(budgets)
        labels = self.measured.algorithms(name, variants[0])
        conditions = [(MAIN, "", "without"), *((name, variant, variant) for variant in variants)]
        colours = (PALETTE["grey"], PALETTE["blue"], PALETTE["orange"], PALETTE["green"])
        panels = []
        for budget in shown:
            for title, column, factor in MEASURES:
                series = []
                for (study, variant, label), colour in zip(conditions, colours, strict=False):
                    found = [
                        (float(i), self.measured.mean(place, column))
                        for i, algorithm in enumerate(labels)
                        if self.measured.has(place := Place(algorithm, budget, study, variant))
                    ]
                    series.append(
                        Series(
                            label=label,
                            x=tuple(i for i, _ in found),
                            y=tuple(factor * each.value for _, each in found),
                            low=tuple(factor * each.low for _, each in found),
                            high=tuple(factor * each.high for _, each in found),
                            colour=colour,
                            kind="bars",
                        )
                    )
                panels.append(
                    Panel(
                        title=f"η = {budget:g}: {title.lower()}",
                        x_label="",
                        y_label=title.lower(),
                        series=tuple(series),
                        categories=tuple(labels),
                    )
                )
        return Chart(
            key=f"study-{slug(name)}",
            title=question or name,
            caption=f"Mean over seeds with its 95 % interval. {told}".strip(),
            panels=tuple(panels),
            across=len(MEASURES),
        )

    def _study_over_time(self, name: str, question: str, variants: Sequence[str]) -> list[Chart | None]:
        wanted = [
            (variant, budget) for variant in variants for budget in self.measured.budgets(name, variant)
        ]
        measures = (("regret", "cumulative regret"), ("violations", "cumulative violations"))
        sets: dict[str, list[Panel]] = {column: [] for column, _ in measures}
        for column, label in measures:
            for variant, budget in wanted:
                algorithms = self.measured.algorithms(name, variant)
                series = self.lines.bands(
                    [Place(algorithm, budget, name, variant) for algorithm in algorithms], column
                )
                title = f"{variant}, η = {budget:g}" if len(variants) > 1 else f"η = {budget:g}"
                if len(wanted) == 1:
                    title = f"{label[0].upper()}{label[1:]}, η = {budget:g}"
                title += none_of(column, series)
                sets[column].append(panel_of(title, "episode", label, series))
        what = f"{variants[0]}: " if len(variants) == 1 else ""
        shown = question or name
        caption = "Mean over seeds with its 95 % bootstrap band."
        if len(wanted) == 1:
            return [
                Chart(
                    key=f"study-{slug(name)}",
                    title=f"{shown} ({variants[0]})",
                    caption=caption,
                    panels=tuple(panel for panels in sets.values() for panel in panels),
                )
            ]
        return [
            Chart(
                key=f"study-{slug(name)}" + ("" if column == "regret" else f"-{column}"),
                title=f"{shown} ({what}{label})",
                caption=caption,
                panels=tuple(sets[column]),
                share_y=column == "regret" and len(variants) == 1,
            )
            for column, label in measures
        ]


def _shown(budgets: Sequence[float]) -> tuple[list[float], str]:
    """Return the budgets that a study's chart has room for, and what is said of the others.

    Example:
        >>> _shown([0.1, 0.2])
        ([0.1, 0.2], '')
        >>> _shown([0.1, 0.2, 0.3, 0.4, 0.5])[1]
        'Of 5 budgets, the smallest and the largest are shown. '
    """
    if len(budgets) <= MOST_BUDGETS:
        return list(budgets), ""
    return [budgets[0], budgets[-1]], f"Of {len(budgets)} budgets, the smallest and the largest are shown. "
