"""The charts of a tabular sweep, built from its tables; those without data are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from chary.charts import Chart, Panel, Series
from chary.charts.palette import PALETTE
from chary.report.measured import Measured, Place
from chary.report.style import Lines, finished, kind_of, looks_of, none_of, panel_of, plain, slug
from chary.report.tabular.frontier import frontiers_of
from chary.statistics import clopper_pearson, ratio_band
from chary.sweeps.spec import MAIN, Experiment
from chary.sweeps.tabular import Conditions

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
# What studies compare: its name, the column of `runs`, and its unit.
MEASURES = (
    ("regret", "regret", 1.0),
    ("violations per 1,000 episodes", "violation_rate", 1000.0),
    ("exploring steps", "exploring_steps", 1.0),
    ("deviating steps", "deviating_steps", 1.0),
)
# The labels of algorithms that differ in the number of chains that may be open at once.
POOL = re.compile(r"(.+), pool (\d+)")
# Above this number of budgets a study's chart is no longer legible.
MOST_BUDGETS = 4
# Ratios of cumulative regrets are not informative before this share of the run.
SETTLED = 0.05
# The panel of a ratio ends at this multiple of the largest mean; bands of few seeds are very wide.
HEADROOM = 1.4
# Charts whose intervals are not those of means over seeds.
FIXED = ("coverage", "runtime", "ratio")
BAND = "mean over seeds with its 95 % bootstrap band"


def charts_of(experiment: Experiment, measured: Measured) -> list[Chart]:
    """Return all charts that the sweep has data for, in the order of the report."""
    assert isinstance(experiment.conditions, Conditions)
    maker = _Maker(Lines(measured, looks_of(experiment)), experiment.conditions.delta)
    frontiers: list[Chart | None] = [*frontiers_of(experiment, maker.lines)]
    charts = [
        *(frontiers or [maker.frontier()]),
        maker.regret(),
        maker.violations(),
        maker.violations_incumbent(),
        maker.baseline_value(),
        maker.deficit(),
        maker.deficit_over_time(),
        maker.exploring(),
        maker.deviating(),
        maker.chain_lengths(),
        maker.chain_parts(),
        maker.ratio(),
        maker.scaling(),
        maker.coverage(),
    ]
    for study in experiment.studies:
        charts += maker.study(study.name, study.question.rstrip("."))
    return finished([*charts, maker.lines.runtime()], FIXED)


class _Maker:
    """The charts of one sweep; `delta` is the promised probability that a bound fails."""

    def __init__(self, lines: Lines, delta: float) -> None:
        self.lines, self.measured, self.delta = lines, lines.measured, delta

    def regret(self) -> Chart | None:
        return self.lines.over_time(
            "regret",
            "Cumulative regret",
            f"Regret compared with the optimal policy, summed over episodes: {BAND}. Algorithms that keep no "
            "budget are the same in every panel.",
            "regret",
            "cumulative regret",
            share_y=True,
        )

    def violations(self) -> Chart | None:
        return self.lines.over_time(
            "violations",
            "Cumulative violations of the budget",
            f"Episodes whose true deficit z* exceeded the panel's budget η, summed over episodes: {BAND}. "
            "Each episode is judged against the baseline of the algorithm's own data.",
            "violations",
            "cumulative violations",
        )

    def violations_incumbent(self) -> Chart | None:
        return self.lines.over_time(
            "violations-incumbent",
            "Cumulative violations compared with the first day's policy",
            "Episodes whose true deficit exceeded the budget where it is measured from the policy of the "
            f"first day and not from the baseline of the algorithm's own data, summed over episodes: {BAND}. "
            "A baseline that gets worse breaks no budget by its own measure.",
            "violations_incumbent",
            "cumulative violations",
        )

    def baseline_value(self) -> Chart | None:
        chart = self.lines.over_time(
            "baseline-value",
            "True value of the baseline",
            "The value of each episode's own baseline in the true problem, mean since the last point and "
            "over seeds, with its 95 % band. The dotted line is the policy of the first day. No promise "
            "keeps a baseline from falling.",
            "baseline_value",
            "true value of the baseline",
        )
        if chart is None:
            return None
        panels = []
        for budget, panel in zip(self.measured.budgets(), chart.panels, strict=True):
            places = [Place(label, budget) for label in self.measured.algorithms()]
            known = [
                self.measured.known(place, "incumbent_value") for place in places if self.measured.has(place)
            ]
            series = list(panel.series)
            if series:
                value = float(np.concatenate(known).mean())
                series.insert(0, self.lines.level("the first day's policy", series, value))
            panels.append(replace(panel, series=tuple(series), y_zero=False))
        return replace(chart, panels=tuple(panels))

    def frontier(self) -> Chart | None:
        return self.lines.frontier(
            "regret",
            "regret",
            "regret",
            better="Down",
            title="Regret against violations, over the budgets",
            caption="mean regret",
        )

    def deficit(self) -> Chart | None:
        return self.lines.budget_use(
            "deficit",
            "Deficit spent per episode, against the budget",
            "Left: the deficit booked by the ledger per episode, mean over episodes and seeds with its 95 % "
            "band. Right: the largest true deficit z* of any episode of any seed. Points above the dotted "
            "line broke the budget.",
            {"Booked, mean": "deficit booked per episode", "True, largest": "largest true deficit"},
            self.lines.algorithms_with("deficit_max"),
        )

    def deficit_over_time(self) -> Chart | None:
        return self.lines.over_time(
            "deficit-over-time",
            "Deficit booked per episode, over time",
            "The deficit booked by the ledger, mean over the episodes since the last point and over seeds, "
            "with its 95 % band. The dotted line is the budget; rule “paper” stops at half of it, after at "
            "most one more step.",
            "deficit_mean",
            "deficit booked per episode",
            algorithms=self.lines.algorithms_with("deficit_max"),
            budget_line=True,
        )

    def exploring(self) -> Chart | None:
        return self.lines.over_time(
            "exploring",
            "Exploring steps per episode",
            "Steps of an episode that an explorer chose, mean since the last point and over seeds, with its "
            "95 % band. UCBVI explores in every step.",
            "exploring_steps",
            "exploring steps per episode",
            algorithms=self.lines.algorithms_with("exploring_steps"),
            share_y=True,
        )

    def deviating(self) -> Chart | None:
        return self.lines.over_time(
            "deviating",
            "Deviating steps per episode",
            "Steps of an episode that played another action than its baseline, mean since the last point and "
            "over seeds, with its 95 % band. Explorers often agree with the baseline, and then risk nothing: "
            "an algorithm that never deviates keeps any budget.",
            "deviating_steps",
            "deviating steps per episode",
            algorithms=self.lines.algorithms_with("deviating_steps"),
            share_y=True,
        )

    def chain_lengths(self) -> Chart | None:
        return self.lines.over_time(
            "chain-lengths",
            "Episodes per chain, N_m",
            "Number of episodes of a chain (meta-episode), by the episode in which it began. Chains that "
            "were never finished have no length and are missing, which favours short ones near the end.",
            "chain_episodes",
            "N_m, mean",
            algorithms=self.lines.algorithms_with("chains_finished"),
            y_log=True,
        )

    def chain_parts(self) -> Chart | None:
        paper = self.measured.first("paper")
        if paper is None:
            return None
        panels = []
        for budget in self.measured.budgets():
            place = Place(paper, budget)
            series = []
            if self.measured.has(place) and self.measured.column(place, "chains_finished").sum():
                for column, (label, colour) in PARTS.items():
                    episodes, (mean, _, _) = self.measured.band(place, column)
                    kind = kind_of(mean)
                    series.append(
                        Series(label=label, x=plain(episodes), y=plain(mean), colour=colour, kind=kind)
                    )
            panels.append(panel_of(f"η = {budget:g}", "episode in which the chain began", "episodes", series))
        return Chart(
            key="chain-parts",
            title=f"Parts of the episodes of a chain: {paper}",
            caption="The three parts of N_m that the paper's proof bounds one by one, mean over the finished "
            "chains that began since the last point.",
            panels=tuple(panels),
        )

    def ratio(self) -> Chart | None:
        free = self.measured.first("unconstrained")
        if free is None:
            return None
        panels: list[Panel] = []
        for (other,) in self.measured.together(free):
            labels = self._with_roles("paper", "ours", "chosen")
            found = (self._ratio_line(other._replace(algorithm=label), other) for label in labels)
            series = [line for line in found if line is not None]
            if series:
                series.insert(0, self.lines.level(f"as {free}", series, 1.0))
            panel = panel_of(f"η = {other.budget:g}", "episode", f"regret / {free}'s", series)
            panels.append(replace(panel, y_top=HEADROOM * max((max(one.y) for one in series), default=1.0)))
        return Chart(
            key="ratio",
            title=f"Cumulative regret as a multiple of {free}'s",
            caption="At equal seeds, mean with its 95 % band. If the line is level, the factor does not "
            "depend on the number of episodes.",
            panels=tuple(panels),
        )

    def _ratio_line(self, place: Place, other: Place) -> Series | None:
        if not self.measured.has(place) or not (common := self.measured.common(place, other)):
            return None
        episodes = self.measured.curves(place, "regret").episodes
        if len(episodes) != len(self.measured.curves(other, "regret").episodes):
            return None
        ours, theirs = (self.measured.curves_at(each, "regret", common) for each in (place, other))
        below = theirs.mean(axis=0)
        settled = (episodes >= SETTLED * episodes[-1]) & (below > SETTLED * below[-1])
        if not settled.any():
            return None
        band = ratio_band(ours[:, settled], theirs[:, settled])
        return self.lines.line_of(place.algorithm, episodes[settled], *band)

    def _with_roles(self, *roles: str) -> list[str]:
        """Return the algorithms with some roles, or all of an experiment without the paper's algorithm."""
        return self.measured.algorithms(roles=roles if self.measured.first("paper") else ())

    def scaling(self) -> Chart | None:
        budgets = [budget for budget in self.measured.budgets() if budget > 0]
        if len(budgets) < 2:
            return None
        labels = self._with_roles("paper", "ours", "chosen", "unconstrained")
        series = [self.lines.against(label, "regret", budgets) for label in labels]
        paper = self.measured.first("paper")
        if paper is not None and len(places := self.lines.places(paper, budgets)) >= 2:
            start = self.measured.mean(places[0], "regret").value
            reach = [place.budget for place in places]
            falling = [start * reach[0] / budget for budget in reach]
            series.insert(0, self.lines.guide("proportional to 1/η", reach, falling))
        panel = panel_of("Both axes logarithmic", "budget η", "regret", series, y_log=True)
        return Chart(
            key="scaling",
            title="Regret against the budget",
            caption="Mean over seeds with its 95 % interval. The theorem's term for being conservative falls "
            "like 1/η.",
            panels=(replace(panel, x_log=True),),
        )

    def coverage(self) -> Chart | None:
        # Runs of one seed at different budgets have much in common: those at one budget are independent.
        largest = max(self.measured.budgets(), default=0.0)
        checked = {
            label: place
            for label in self.measured.algorithms()
            if self.measured.has(place := Place(label, largest))
            and len(self.measured.known(place, "charge_failures"))
        }
        if not checked:
            return None
        shares, counts = [], []
        x = tuple(float(i) for i in range(len(checked)))
        for column, (name, colour) in FAILURES.items():
            share, often = [], []
            for place in checked.values():
                failures, played = self.measured.known(place, column), self.measured.column(place, "episodes")
                failed, runs = int(np.count_nonzero(failures)), max(len(failures), 1)
                share.append((failed / runs, *clopper_pearson(failed, runs)))
                often.append(float(1000 * failures.sum() / played.sum()))
            y, low, high = zip(*share, strict=True)
            shares.append(Series(label=name, x=x, y=y, low=low, high=high, colour=colour, kind="bars"))
            counts.append(Series(label=name, x=x, y=tuple(often), colour=colour, kind="bars"))
        promised = f"δ = {self.delta:g}, the promised share"
        shares.append(self.lines.guide(promised, [-0.5, len(x) - 0.5], [self.delta] * 2))
        panels = (
            panel_of("Runs with any failure, 95 % Clopper-Pearson", "", "share of runs", shares),
            panel_of("Episodes with a failure", "", "per 1,000 episodes", counts),
        )
        return Chart(
            key="coverage",
            title="Coverage: how often bounds failed",
            caption=f"Runs at the largest budget, η = {largest:g}; the table of coverage has all budgets. A "
            "bound fails in an episode if the truth was outside it at a step that was checked. Certified "
            "bounds promise that "
            "at most a share δ of the runs has any failure; calibrated ones promise only that the charges of "
            "an episode cover its deficit, and value bounds may fail.",
            panels=tuple(replace(panel, categories=tuple(checked)) for panel in panels),
        )

    def study(self, name: str, question: str) -> list[Chart | None]:
        """Return the charts of one study: against the bonus scale, next to the main runs, or over time."""
        variants = self.measured.variants(name)
        if not variants:
            return []
        scales = {self._scale(name, variant) for variant in variants}
        if len(scales) == len(variants) > 1:
            return [self._by_scale(name, question, variants)]
        pools = [label for label in self.measured.algorithms(name, variants[0]) if POOL.fullmatch(label)]
        if len(variants) == 1 and len(pools) > 1:
            return [self._by_pool(name, question, variants[0])]
        if name == "prior":
            return [self._next_to_main(name, question, variants)]
        return self._study_over_time(name, question, variants)

    def _scale(self, study: str, variant: str) -> float:
        place = next(place for place in self.measured.places if place[2:] == (study, variant))
        return float(self.measured.column(place, "bonus_scale")[0])

    def _by_scale(self, name: str, question: str, variants: Sequence[str]) -> Chart:
        shared = set.intersection(*(set(self.measured.budgets(name, variant)) for variant in variants))
        ordered = sorted(variants, key=lambda variant: self._scale(name, variant))
        budgets = sorted(shared) or self.measured.budgets(name, variants[0])[-1:]

        def panel(budget: float, column: str, factor: float) -> Panel:
            series = []
            for algorithm in self.measured.algorithms(name, variants[0]):
                places = [Place(algorithm, budget, name, variant) for variant in variants]
                here = list(filter(self.measured.has, places))
                scales = [self._scale(name, place.variant) for place in here]
                series.append(self.lines.means(algorithm, scales, here, column, factor))
            return replace(panel_of("", "scale of the bonus", "", series), x_log=True)

        order = f"From left to right: {'; '.join(ordered)}. "
        fixed = "The scale of the main runs was fixed before regret was looked at."
        return self._measures(name, question, budgets, panel, order + fixed)

    def _by_pool(self, name: str, question: str, variant: str) -> Chart:
        labels = self.measured.algorithms(name, variant)
        sizes: dict[str, dict[float, str]] = {}
        for label in labels:
            if found := POOL.fullmatch(label):
                sizes.setdefault(found[1], {})[float(found[2])] = label
        reach = sorted({size for found in sizes.values() for size in found})

        def panel(budget: float, column: str, factor: float) -> Panel:
            series = []
            for rule, found in sizes.items():
                places = [Place(label, budget, name, variant) for label in found.values()]
                here = {
                    size: place for size, place in zip(found, places, strict=True) if self.measured.has(place)
                }
                line = self.lines.means(places[0].algorithm, list(here), list(here.values()), column, factor)
                series.append(replace(line, label=rule))
            for label in labels:
                place = Place(label, budget, name, variant)
                if not POOL.fullmatch(label) and self.measured.has(place):
                    level = self.measured.mean(place, column).value * factor
                    series.append(self.lines.line_of(label, reach, [level] * len(reach), kind="line"))
            return replace(panel_of("", "chains open at once", "", series), x_log=True)

        note = "Algorithms without chains are level lines."
        return self._measures(
            name, question, self.measured.budgets(name, variant), panel, f"{variant}. {note}"
        )

    def _next_to_main(self, name: str, question: str, variants: Sequence[str]) -> Chart | None:
        main = self.measured.budgets()
        budgets = [budget for budget in self.measured.budgets(name, variants[0]) if budget in main]
        if not budgets:
            return None
        labels = self.measured.algorithms(name, variants[0])
        conditions = [(MAIN, "", "without"), *((name, variant, variant) for variant in variants)]
        colours = (PALETTE["grey"], PALETTE["blue"], PALETTE["orange"], PALETTE["green"])

        def panel(budget: float, column: str, factor: float) -> Panel:
            series = []
            for (study, variant, label), colour in zip(conditions, colours, strict=False):
                places = {i: Place(each, budget, study, variant) for i, each in enumerate(labels)}
                here = {i: place for i, place in places.items() if self.measured.has(place)}
                y, low, high = map(plain, self.lines.column_of(list(here.values()), column, factor))
                series.append(
                    Series(
                        label=label, x=plain(list(here)), y=y, low=low, high=high, colour=colour, kind="bars"
                    )
                )
            return replace(panel_of("", "", "", series), categories=tuple(labels))

        return self._measures(name, question, budgets, panel)

    def _measures(
        self,
        name: str,
        question: str,
        budgets: Sequence[float],
        panel: Callable[[float, str, float], Panel],
        caption: str = "",
    ) -> Chart:
        """Return all measures of a study, one row of panels per budget."""
        shown, others = _shown(budgets)
        panels = [
            replace(panel(budget, column, factor), title=f"η = {budget:g}: {title}", y_label=title)
            for budget in shown
            for title, column, factor in MEASURES
        ]
        return Chart(
            key=f"study-{slug(name)}",
            title=question or name,
            caption=f"Mean over seeds with its 95 % interval. {others}{caption}".strip(),
            panels=tuple(panels),
            across=len(MEASURES),
        )

    def _study_over_time(self, name: str, question: str, variants: Sequence[str]) -> list[Chart | None]:
        wanted = [
            (variant, budget) for variant in variants for budget in self.measured.budgets(name, variant)
        ]
        alone = len(wanted) == 1
        measures = {"regret": "cumulative regret", "violations": "cumulative violations"}
        sets: dict[str, list[Panel]] = {column: [] for column in measures}
        for column, label in measures.items():
            for variant, budget in wanted:
                algorithms = self.measured.algorithms(name, variant)
                places = [Place(algorithm, budget, name, variant) for algorithm in algorithms]
                series = self.lines.bands(places, column)
                first = label.capitalize() if alone else variant if len(variants) > 1 else ""
                title = f"{first}{', ' if first else ''}η = {budget:g}{none_of(column, series)}"
                sets[column].append(panel_of(title, "episode", label, series))
        shown, key, one = question or name, f"study-{slug(name)}", len(variants) == 1
        groups = [(key, variants[0], [*sets["regret"], *sets["violations"]], False)]
        if not alone:
            titles = {
                column: f"{variants[0]}: {label}" if one else label for column, label in measures.items()
            }
            groups = [
                (key, titles["regret"], sets["regret"], one),
                (f"{key}-violations", titles["violations"], sets["violations"], False),
            ]
        caption = "Mean over seeds with its 95 % bootstrap band."
        return [
            Chart(key=key, title=f"{shown} ({title})", caption=caption, panels=tuple(panels), share_y=share)
            for key, title, panels, share in groups
        ]


def _shown(budgets: Sequence[float]) -> tuple[list[float], str]:
    """Return the budgets that fit into a study's chart, and a remark on the others.

    Example:
        >>> _shown([0.1, 0.2])
        ([0.1, 0.2], '')
        >>> _shown([0.1, 0.2, 0.3, 0.4, 0.5])[1]
        'Of 5 budgets, the smallest and the largest are shown. '
    """
    if len(budgets) <= MOST_BUDGETS:
        return list(budgets), ""
    return [budgets[0], budgets[-1]], f"Of {len(budgets)} budgets, the smallest and the largest are shown. "
