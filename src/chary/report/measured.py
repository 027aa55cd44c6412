"""A sweep's tables, looked up by place, for claims, charts and the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

import numpy as np

from chary.arrays import Floats
from chary.results import Tables
from chary.standing import Standing
from chary.statistics import (
    Band,
    Estimate,
    Interval,
    ViolationRate,
    bootstrap_band,
    bootstrap_mean,
    bootstrap_of,
    fitted_exponent,
    paired_difference,
    violation_rate,
)
from chary.sweeps.spec import MAIN

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

# Columns that may be negative; intervals of all others are cut at 0.
SIGNED = (
    "signed_deficit_mean",
    "mean_return",
    "max_return",
    "early_return",
    "late_return",
    "max_standardised",
    "mean_standardised",
    "incumbent_signed_mean",
    "incumbent_value",
    "baseline_value_first",
    "baseline_value_last",
    "baseline_value_lowest",
    "return",
    "return_standardised",
    "best_return",
    "baseline_value",
    *("incumbent_value", "baseline_value_first", "baseline_value_last"),
)

# Columns that are shares; their intervals are cut at 1.
SHARES = ("coverage", "booked_coverage", "held_out_coverage", "favourite_share")


class Place(NamedTuple):
    """The origin of a number in the report: one algorithm, judged at one budget, under one condition."""

    algorithm: str
    budget: float
    study: str = MAIN
    variant: str = ""


class Curves(NamedTuple):
    """One measure over time: `episodes` (points,), `values` (seeds, points), and the seeds of the rows."""

    episodes: Floats
    values: Floats
    seeds: tuple[int, ...]


@final
class Measured:
    """The tables of `chary.results.load_tables`, by place; a place without finished runs is missing."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._runs = _by_place(tables.runs)
        self._curves = _by_place(tables.curves)
        self._found: dict[tuple[str, Place, Any], Any] = {}
        # Of runs with audits, only some episodes were compared with the truth.
        self.judged = "audited" if "audited" in tables.runs.columns else "episodes"

    @property
    def places(self) -> list[Place]:
        """Every place with a finished run, in the order of the plan."""
        return list(self._runs)

    def within(self, study: str, variant: str) -> Measured:
        """Return the runs of one variant of a study alone, as if they were the main ones."""
        import polars as pl

        here = (pl.col("study") == study) & (pl.col("variant") == variant)
        names = pl.lit(MAIN).alias("study"), pl.lit("").alias("variant")
        return Measured(Tables(*(table.filter(here).with_columns(*names) for table in self.tables)))

    def studies(self) -> list[str]:
        """Return the studies with finished runs, the main one first."""
        return list(dict.fromkeys(place.study for place in self._runs))

    def variants(self, study: str) -> list[str]:
        """Return the variants of a study with finished runs."""
        return list(dict.fromkeys(place.variant for place in self._runs if place.study == study))

    def budgets(self, study: str = MAIN, variant: str = "") -> list[float]:
        """Return the budgets at which finished runs are judged, ascending."""
        return sorted(
            {place.budget for place in self._runs if (place.study, place.variant) == (study, variant)}
        )

    def algorithms(self, study: str = MAIN, variant: str = "", *, roles: Sequence[str] = ()) -> list[str]:
        """Return the algorithms with finished runs; if `roles` are given, only those with one of them."""
        return list(
            dict.fromkeys(
                place.algorithm
                for place in self._runs
                if (place.study, place.variant) == (study, variant)
                and (not roles or self.role(place) in roles)
            )
        )

    def first(self, *roles: str, study: str = MAIN, variant: str = "") -> str | None:
        """Return the first algorithm with one of some roles, or None."""
        return next(iter(self.algorithms(study, variant, roles=roles)), None)

    def together(
        self, *labels: str | None, study: str = MAIN, variant: str = ""
    ) -> Iterator[tuple[Place, ...]]:
        """Yield, budget by budget, the places of some algorithms where all of them have finished runs."""
        for budget in self.budgets(study, variant):
            places = tuple(Place(label, budget, study, variant) for label in labels if label is not None)
            if len(places) == len(labels) and all(map(self.has, places)):
                yield places

    def has(self, place: Place) -> bool:
        """Whether any run of this place is finished."""
        return place in self._runs

    def role(self, place: Place) -> str:
        """Return the role of the algorithm in the paper's claims."""
        return str(self._runs[place]["role"][0])

    def text(self, place: Place, name: str) -> str:
        """Return a text that all runs of the place share."""
        return str(self._runs[place][name][0])

    def standing(self, place: Place) -> Standing:
        """Return the standing of the promise, which all runs of the place share."""
        names = ("level", "per", "probability", "given", "about")
        values = {name: self._runs[place][name][0] for name in names}
        return Standing.from_json(values | {"given": json.loads(values["given"])})

    def seeds(self, place: Place) -> tuple[int, ...]:
        """Return the seeds of the finished runs."""
        return tuple(self._runs[place]["seed"].to_list())

    def runs(self, place: Place) -> tuple[str, ...]:
        """Return the ids of the finished runs; places of one algorithm may share them."""
        return tuple(self._runs[place]["run"].to_list())

    def column(self, place: Place, name: str) -> Floats:
        """Return a column of `runs`, one entry per seed; NaN where it is missing."""
        return np.array(
            [np.nan if value is None else value for value in self._runs[place][name]], dtype=float
        )

    def known(self, place: Place, name: str) -> Floats:
        """Return a column of `runs` without its missing entries."""
        values = self.column(place, name)
        return values[np.isfinite(values)]

    def curves(self, place: Place, name: str) -> Curves:
        """Return a column of `curves`, one row per seed; NaN where it is missing."""

        def read() -> Curves:
            frame = self._curves[place]
            seeds = self.seeds(place)
            values = frame[name].cast(float).fill_null(np.nan).to_numpy().reshape(len(seeds), -1)
            episodes = frame["episode"].to_numpy().reshape(len(seeds), -1)[0]
            return Curves(episodes.astype(float), values, seeds)

        return self._kept(("curves", place, name), read)

    def band(self, place: Place, name: str) -> tuple[Floats, Band]:
        """Return the points, and the mean over seeds with its band.

        If some seed has no value at some point, the mean is over the others, and there is no band.
        """

        def read() -> tuple[Floats, Band]:
            curves = self.curves(place, name)
            known = np.isfinite(curves.values)
            if known.all():
                return curves.episodes, bootstrap_band(curves.values).at_least(_floor(name))
            count = known.sum(axis=0)
            total = np.where(known, curves.values, 0.0).sum(axis=0)
            mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
            unknown = np.full(len(count), np.nan)
            return curves.episodes, Band(mean, unknown, unknown)

        return self._kept(("band", place, name), read)

    def mean(self, place: Place, name: str) -> Estimate:
        """Return the mean of a column over seeds with its interval; seeds without a value are left out."""

        def read() -> Estimate:
            known = self.known(place, name)
            if not len(known):
                return UNKNOWN
            value, low, high = bootstrap_mean(known)
            top = 1.0 if name in SHARES else np.inf
            return Estimate(value, float(np.maximum(low, _floor(name))), float(np.minimum(high, top)))

        return self._kept(("mean", place, name), read)

    def rate(self, place: Place) -> ViolationRate:
        """Return the rate of violations of the budget, over the runs of which they are known."""

        def read() -> ViolationRate:
            violations, judged = self.column(place, "violations"), self.column(place, self.judged)
            known = np.isfinite(violations)
            return violation_rate(violations[known], judged[known]) if known.any() else UNKNOWN_RATE

        return self._kept(("rate", place, ""), read)

    def exponent(self, place: Place, *, start: float = 0.5, stop: float = 1.0) -> Estimate:
        """Return the exponent of N in the cumulative regret; NaN if there are too few points for a fit."""

        def fit() -> Estimate:
            episodes, values, _ = self.curves(place, "regret")
            if not _fittable(episodes, start, stop):
                return UNKNOWN
            value, low, high = fitted_exponent(episodes, values, start=start, stop=stop)
            # Cumulative regret never falls.
            return Estimate(value, float(np.maximum(low, 0.0)), high)

        return self._kept(("exponent", place, (start, stop)), fit)

    def exponent_difference(self, place: Place, other: Place) -> Estimate:
        """Return the exponent of the first minus that of the second, over the seeds that both have."""
        common = self.common(place, other)
        episodes = self.curves(place, "regret").episodes
        if not common or not _fittable(episodes, 0.5, 1.0):
            return UNKNOWN
        ours, theirs = (self.curves_at(each, "regret", common) for each in (place, other))
        return fitted_exponent(episodes, ours, less=theirs)

    def common(self, *places: Place) -> list[int]:
        """Return the seeds that all places have, ascending."""
        return sorted(set.intersection(*(set(self.seeds(place)) for place in places)))

    def paired(self, place: Place, other: Place, name: str) -> tuple[Floats, Floats]:
        """Return a column of `runs` at both places, for the seeds that both have."""
        common = self.common(place, other)
        return self.at_seeds(place, name, common), self.at_seeds(other, name, common)

    def difference(self, place: Place, other: Place, name: str) -> Estimate | None:
        """Return the mean of the first - the second over the seeds that both have, or None without any.

        Seeds without a value are left out.
        """
        ours, theirs = self.paired(place, other, name)
        if not len(ours):
            return None
        known = np.isfinite(ours) & np.isfinite(theirs)
        return paired_difference(ours[known], theirs[known]) if known.any() else UNKNOWN

    def same_seeds(self, place: Place, other: Place) -> tuple[int, int]:
        """Return the number of common seeds at which both places have the same numbers, and that of all.

        Compared are the regret at every point of the curves and the exploring steps. Places that share their
        runs, like those of an algorithm without a budget, count as having no seed in common.
        """
        common = self.common(place, other)
        if not common or set(self.runs(place)) & set(self.runs(other)):
            return 0, len(common)
        alike = np.equal(*self.paired(place, other, "exploring_steps"))
        first, second = (self.curves_at(each, "regret", common) for each in (place, other))
        return int(np.count_nonzero(alike & np.all(first == second, axis=1))), len(common)

    def same_results(self, place: Place, other: Place) -> bool:
        """Whether two places have different runs with the same numbers in most seeds."""
        same, of = self.same_seeds(place, other)
        return 2 * same > of

    def same_budgets(self, algorithm: str, study: str = MAIN, variant: str = "") -> list[list[float]]:
        """Return groups of two or more budgets at which the algorithm's results are the same."""
        found: list[list[float]] = []
        for budget in self.budgets(study, variant):
            place = Place(algorithm, budget, study, variant)
            if not self.has(place):
                continue
            for group in found:
                if self.same_results(place, place._replace(budget=group[0])):
                    group.append(budget)
                    break
            else:
                found.append([budget])
        return [group for group in found if len(group) > 1]

    def curves_at(self, place: Place, name: str, seeds: Sequence[int]) -> Floats:
        """Return a column of `curves` at given seeds, in their order, (seeds, points)."""
        curves = self.curves(place, name)
        row = {seed: i for i, seed in enumerate(curves.seeds)}
        return np.asarray(curves.values[[row[seed] for seed in seeds]])

    def of_means(self, columns: Sequence[Floats], statistic: Callable[[Floats], Floats]) -> Estimate:
        """Return a number computed from the means of columns of equal seeds, with its interval.

        Args:
            columns: Each (seeds,), of the same seeds.
            statistic: From means, (resamples, columns), to that number, (resamples,); NaN if undefined.
        """
        values = np.column_stack(columns)
        if not len(values) or not np.all(np.isfinite(values)):
            return UNKNOWN
        return bootstrap_of(values, lambda means: statistic(means)[:, None]).only

    def at_seeds(self, place: Place, name: str, seeds: Sequence[int]) -> Floats:
        """Return a column of `runs` at given seeds, in their order."""
        values = dict(zip(self.seeds(place), self.column(place, name).tolist(), strict=True))
        return np.array([values[seed] for seed in seeds], dtype=float)

    def _kept(self, key: tuple[str, Place, Any], make: Callable[[], T]) -> T:
        """Return a cached result: charts, claims and tables need the same bootstraps."""
        if key not in self._found:
            self._found[key] = make()
        found: T = self._found[key]
        return found


UNKNOWN = Estimate(np.nan, np.nan, np.nan)
UNKNOWN_RATE = ViolationRate(0, 0, Interval(np.nan, np.nan), 0, 0, Interval(np.nan, np.nan), 0.95)


def _floor(name: str) -> float:
    # Every chain takes one episode or more.
    return -np.inf if name in SIGNED else 1.0 if name == "chain_episodes" else 0.0


def _fittable(episodes: Floats, start: float, stop: float) -> bool:
    inside = (episodes >= start * episodes[-1]) & (episodes <= stop * episodes[-1])
    return bool(np.count_nonzero(inside) >= 2)


def _by_place(frame: pl.DataFrame) -> dict[Place, pl.DataFrame]:
    keys = ["algorithm", "budget", "study", "variant"]
    parts = frame.partition_by(keys, as_dict=True, maintain_order=True)
    order = ["seed", "episode"] if "episode" in frame.columns else ["seed"]
    return {
        Place(str(key[0]), float(key[1]), str(key[2]), str(key[3])): part.sort(order)
        for key, part in parts.items()
    }
