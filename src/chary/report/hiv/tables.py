"""The small tables of a deep sweep's report: rows of plain values for CSV, cells of text for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chary.report.hiv.table1 import MILLION, TABLE_1, measured_entry
from chary.report.measured import Measured, Place
from chary.report.tabular.claims import say, say_rate
from chary.report.tabular.tables import Table, paired_rows
from chary.results import Estimate
from chary.results.hiv import ACTIONS

__all__ = [
    "action_table",
    "coverage_table",
    "difference_rows",
    "difference_table",
    "key_table",
    "summary_rows",
    "summary_table",
    "table_1",
    "table_1_rows",
]

# What paired differences compare: every algorithm with the first that stands for one of these.
COMPARED_WITH = ("unconstrained", "conservative")
MEASURES = ("max_return", "late_return", "violation_rate", "deviating_steps")


def summary_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return one row a place: returns, violations and effort over its seeds."""
    rows = []
    for place in measured.places:
        rate = measured.rate(place)
        best, late = measured.mean(place, "max_return"), measured.mean(place, "late_return")
        over_seeds = measured.mean(place, "violation_rate")
        rows.append(
            {
                "study": place.study,
                "variant": place.variant,
                "budget": place.budget,
                "algorithm": place.algorithm,
                "role": measured.role(place),
                "patient": measured.text(place, "patient"),
                "seeds": len(measured.seeds(place)),
                "episodes": int(measured.column(place, "episodes").sum()),
                "audited": rate.episodes,
                "max_return": best.value,
                "max_return_low": best.low,
                "max_return_high": best.high,
                "max_return_deviation": _deviation(measured.column(place, "max_return")),
                "mean_return": measured.mean(place, "mean_return").value,
                "late_return": late.value,
                "late_return_low": late.low,
                "late_return_high": late.high,
                "violations": rate.violations,
                "violations_per_1000": 1000 * rate.rate,
                "violations_per_1000_low": 1000 * rate.interval.low,
                "violations_per_1000_high": 1000 * rate.interval.high,
                "violations_per_1000_seeds_low": 1000 * over_seeds.low,
                "violations_per_1000_seeds_high": 1000 * over_seeds.high,
                "runs_with_violations": rate.broken_runs,
                "true_deficit": measured.mean(place, "true_deficit").value,
                "true_deficit_max": _largest(measured.known(place, "true_deficit_max")),
                "deficit_mean": measured.mean(place, "deficit_mean").value,
                "deficit_max": _largest(measured.known(place, "deficit_max")),
                "coverage": measured.mean(place, "coverage").value,
                "booked_coverage": measured.mean(place, "booked_coverage").value,
                "held_out_coverage": measured.mean(place, "held_out_coverage").value,
                "exploring_steps": measured.mean(place, "exploring_steps").value,
                "deviating_steps": measured.mean(place, "deviating_steps").value,
                "favourite_share": measured.mean(place, "favourite_share").value,
                "constant_episodes": measured.mean(place, "constant_episodes").value,
                "seconds": measured.mean(place, "seconds").value,
            }
        )
    return rows


def summary_table(measured: Measured, places: Sequence[Place]) -> Table:
    """Return the page's table of some places, one row each."""
    rows = []
    for place in places:
        rate = measured.rate(place)
        rows.append(
            (
                place.algorithm,
                say(_millions(measured.mean(place, "max_return"))),
                say(_millions(measured.mean(place, "late_return"))),
                say_rate(rate),
                f"{rate.broken_runs} of {rate.runs}",
                say(measured.mean(place, "true_deficit")),
                _text(_largest(measured.known(place, "true_deficit_max"))),
                say(measured.mean(place, "deficit_mean")),
                f"{measured.mean(place, 'deviating_steps').value:,.0f}",
                _text(measured.mean(place, "seconds").value),
            )
        )
    return Table(
        (
            "algorithm",
            "maximum return, millions (95\N{NO-BREAK SPACE}%)",
            "last tenth, millions",
            "violations per 1,000 (95\N{NO-BREAK SPACE}%)",
            "runs with any",
            "z*, mean",
            "z*, largest",
            "booked an episode",
            "steps off the baseline",
            "seconds",
        ),
        tuple(rows),
    )


def key_table(measured: Measured) -> Table:
    """Return maximum return and violations of every algorithm at the smallest and at the largest budget."""
    budgets = measured.budgets()
    ends = list(dict.fromkeys([*budgets[:1], *budgets[-1:]]))
    headings = ["algorithm"]
    for budget in ends:
        headings += [f"η = {budget:g}: maximum return, millions", f"η = {budget:g}: violations per 1,000"]
    rows = []
    for label in measured.algorithms():
        cells = [label]
        for budget in ends:
            place = Place(label, budget)
            cells += (
                [say(_millions(measured.mean(place, "max_return"))), say_rate(measured.rate(place))]
                if measured.has(place)
                else ["", ""]
            )
        rows.append(tuple(cells))
    return Table(tuple(headings), tuple(rows))


def table_1_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return the paper's Table 1 with what was measured beside it; returns in the problem's own units."""
    rows = []
    for entry in TABLE_1:
        place = measured_entry(measured, entry)
        here = None if place is None else measured.mean(place, "max_return")
        values = np.zeros(0) if place is None else measured.column(place, "max_return")
        rows.append(
            {
                "entry": entry.name,
                "algorithm": None if place is None else place.algorithm,
                "budget": entry.budget,
                "seeds": len(values),
                "max_return": None if here is None else here.value,
                "max_return_deviation": _deviation(values),
                "max_return_low": None if here is None else here.low,
                "max_return_high": None if here is None else here.high,
                "paper": entry.mean * MILLION,
                "paper_deviation": entry.deviation * MILLION,
                "relative": None if here is None else here.value / (entry.mean * MILLION) - 1.0,
            }
        )
    return rows


def table_1(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the page's Table 1: mean and deviation over seeds, in millions, next to the paper's."""
    cells = []
    for row in rows:
        there = row["max_return"] is not None
        cells.append(
            (
                str(row["entry"]),
                _plus_minus(row["max_return"], row["max_return_deviation"]) if there else "not run",
                say(Estimate(*(row[f"max_return{end}"] / MILLION for end in ("", "_low", "_high"))))
                if there
                else "",
                _plus_minus(row["paper"], row["paper_deviation"]),
                f"{100 * row['relative']:+.1f} %" if there else "",
                str(row["seeds"]) if there else "",
            )
        )
    return Table(
        ("", "here, mean ± deviation", "mean (95\N{NO-BREAK SPACE}%)", "the paper", "difference", "seeds"),
        tuple(cells),
    )


def coverage_table(measured: Measured) -> Table:
    """Return how often the charge covered the truth, by algorithm and budget."""
    rows = []
    for label in measured.algorithms():
        for budget in measured.budgets():
            place = Place(label, budget)
            if not measured.has(place) or not measured.column(place, "deviations").any():
                continue
            booked = int(measured.column(place, "booked").sum())
            rows.append(
                (
                    label,
                    f"{budget:g}",
                    f"{int(measured.column(place, 'deviations').sum()):,}",
                    _share(measured.mean(place, "coverage")),
                    f"{booked:,}",
                    _share(measured.mean(place, "booked_coverage")) if booked else "none booked",
                    f"{int(measured.column(place, 'held_out').sum()):,}",
                    _share(measured.mean(place, "held_out_coverage")),
                    _text(_largest(measured.known(place, "true_gap_max"))),
                )
            )
    return Table(
        (
            "algorithm",
            "budget η",
            "deviations audited",
            "covered, % (95\N{NO-BREAK SPACE}%)",
            "of them booked",
            "covered, % (95\N{NO-BREAK SPACE}%)",
            "held out",
            "covered, % (95\N{NO-BREAK SPACE}%)",
            "largest true cost of one",
        ),
        tuple(rows),
    )


def action_table(measured: Measured, names: Sequence[str]) -> Table:
    """Return which treatments the last tenth of the episodes had, and whether they were constant."""
    rows = []
    for label in measured.algorithms():
        for budget in measured.budgets():
            place = Place(label, budget)
            if not measured.has(place):
                continue
            own = measured.column(place, "deficit_max").any()
            shares = [100 * measured.mean(place, f"share_{action}").value for action in range(ACTIONS)]
            favourites = measured.column(place, "favourite_share")
            constant = measured.column(place, "constant_episodes")
            rows.append(
                (
                    label,
                    f"{budget:g}" if own else "any",
                    *(f"{share:.3g}" for share in shares),
                    f"{100 * favourites.min():.3g} to {100 * favourites.max():.3g}",
                    f"{np.median(constant):,.0f}",
                )
            )
            if not own:
                break
    return Table(
        (
            "algorithm",
            "budget η",
            *(f"{name}, %" for name in names),
            "most frequent of a seed, %",
            "constant at the end, episodes (median)",
        ),
        tuple(rows),
    )


def difference_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return paired differences at equal seeds: every algorithm less DQN, and less CQL."""
    return paired_rows(measured, COMPARED_WITH, MEASURES)


def difference_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the page's table of paired differences."""

    def cell(row: Mapping[str, Any], name: str, factor: float = 1.0) -> str:
        return say(Estimate(*(factor * row[key] for key in (name, f"{name}_low", f"{name}_high"))))

    return Table(
        (
            "budget η",
            "algorithm",
            "less",
            "pairs",
            "maximum return, millions",
            "last tenth, millions",
            "violations per 1,000",
            "steps off the baseline",
        ),
        tuple(
            (
                f"{row['budget']:g}",
                str(row["algorithm"]),
                str(row["less"]),
                str(row["pairs"]),
                cell(row, "max_return", 1 / MILLION),
                cell(row, "late_return", 1 / MILLION),
                cell(row, "violation_rate", 1000.0),
                cell(row, "deviating_steps"),
            )
            for row in rows
        ),
    )


def _deviation(values: Any) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _largest(values: Any) -> float:
    return float(values.max()) if len(values) else math.nan


def _millions(estimate: Estimate) -> Estimate:
    return Estimate(*(each / MILLION for each in estimate))


def _plus_minus(value: float, deviation: float | None) -> str:
    """Return a return in millions with its deviation.

    Example:
        >>> _plus_minus(3.84e6, 4e4), _plus_minus(2e6, None)
        ('3.84 ± 0.04', '2.00')
    """
    mean = f"{value / MILLION:.2f}"
    return mean if deviation is None else f"{mean} ± {deviation / MILLION:.2g}"


def _share(estimate: Estimate) -> str:
    return say(Estimate(*(100 * each for each in estimate)))


def _text(value: float) -> str:
    return say(Estimate(value, math.nan, math.nan))
