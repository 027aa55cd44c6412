"""The tables of a sweep of the deep learner, for HIV the paper's Table 1 among them.

They are rows for CSV files, and columns of text for the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from chary.audit import DROPS_AFTER
from chary.deep.options import SHIELDED
from chary.pages import Table
from chary.report.claims import say, say_rate, say_value
from chary.report.measured import UNKNOWN, Measured, Place
from chary.report.tables import Cells, ends, paired_rows, place_row, violation_cells, violation_row
from chary.statistics import Estimate
from chary.sweeps.deep_problems import OWN_OPTIONS, DeepProblem

MILLION = 1e6

# Paired differences are taken to the first algorithm with each of these roles.
COMPARED_WITH = ("unconstrained", "conservative")
# The course of the baseline's value, which judges the episodes of a run.
BASELINE = (
    *("incumbent_value", "baseline_value_first", "baseline_value_last", "baseline_value_lowest"),
    "baseline_falls",
)
# The paper's algorithm is the one that is run as the paper runs it, otherwise the first of ours.
OUR_ROLES = ("paper", "ours", "chosen")


class Entry(NamedTuple):
    """A row of Table 1: algorithm, budget, and mean and deviation of the maximum return in millions."""

    name: str
    role: str
    budget: float | None
    mean: float
    deviation: float


TABLE_1 = (
    Entry("chary, η = 40", "ours", 40.0, 3.84, 0.04),
    Entry("chary, η = 60", "ours", 60.0, 3.72, 0.09),
    Entry("chary, η = 100", "ours", 100.0, 3.78, 0.03),
    Entry("CQL", "conservative", None, 3.75, 0.09),
    Entry("ε-greedy Q-learning", "unconstrained", None, 3.82, 0.04),
)


def judged_one(measured: Measured) -> str | None:
    """Return the algorithm on which the paper's claims are judged, if any of its runs is finished."""
    return next((label for role in OUR_ROLES for label in measured.algorithms(roles=(role,))), None)


def measured_entry(measured: Measured, entry: Entry) -> Place | None:
    """Return the place that is compared with a row of Table 1, None if there is none."""
    budgets = measured.budgets()
    label = judged_one(measured) if entry.role == "ours" else measured.first(entry.role)
    if label is None or not budgets:
        return None
    place = Place(label, budgets[0] if entry.budget is None else entry.budget)
    return place if measured.has(place) else None


def millions(measured: Measured, place: Place, name: str = "max_return") -> str:
    """Return a mean return in millions with its interval."""
    return say(measured.mean(place, name).times(1 / MILLION))


def summary_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return one row per place: returns, violations and effort over its seeds."""

    def means(place: Place, *names: str) -> dict[str, float]:
        return {name: measured.mean(place, name).value for name in names}

    coverages = ("coverage", "booked_coverage", "held_out_coverage", "ledger_coverage")
    steps = ("exploring_steps", "deviating_steps", "favourite_share", "constant_episodes", "seconds")
    return [
        {
            **place_row(measured, place),
            **{name: value for name in OWN_OPTIONS if (value := measured.text(place, name)) != "None"},
            "seeds": len(measured.seeds(place)),
            "episodes": int(measured.column(place, "episodes").sum()),
            "audited": int(measured.column(place, "audited").sum()),
            "judge": measured.text(place, "judge"),
            **ends("max_return", measured.mean(place, "max_return")),
            "max_return_deviation": _deviation(measured.column(place, "max_return")),
            **means(place, "mean_return"),
            **ends("late_return", measured.mean(place, "late_return")),
            **violation_row(measured, place),
            "violations_incumbent": total(measured, place, "violations_incumbent"),
            **means(place, "true_deficit"),
            "true_deficit_max": _largest(measured, place, "true_deficit_max"),
            **ends("signed_deficit", measured.mean(place, "signed_deficit_mean")),
            **means(place, "incumbent_deficit", "incumbent_signed_mean"),
            "incumbent_deficit_max": _largest(measured, place, "incumbent_deficit_max"),
            **means(place, *BASELINE),
            "below_incumbent": total(measured, place, "below_incumbent"),
            **means(place, "deficit_mean"),
            "deficit_max": _largest(measured, place, "deficit_max"),
            **means(place, *coverages, *steps),
            **{name: total(measured, place, name) for name in ("ledgers", "ledgers_covered", "drops")},
            "longest_drop": _largest(measured, place, "longest_drop"),
        }
        for place in measured.places
    ]


def differences_of(problem: DeepProblem) -> dict[str, tuple[str, float]]:
    """Return what paired differences compare: column and factor, by heading."""
    return {
        problem.with_unit("maximum return"): ("max_return", problem.factor),
        problem.with_unit("last tenth"): ("late_return", problem.factor),
        "violations per 1,000": ("violation_rate", 1000.0),
        "deviating steps": ("deviating_steps", 1.0),
    }


def summary_cells(problem: DeepProblem, measured: Measured) -> Cells:
    """Return the columns of the summary on the page."""

    def incumbent(place: Place) -> str:
        found, audited = total(measured, place, "violations_incumbent"), measured.column(place, "audited")
        return "unknown" if found is None else say_value(1000 * found / float(audited.sum()))

    def steps(name: str) -> Any:
        return lambda place: f"{measured.mean(place, name).value:,.0f}"

    return (
        ("algorithm", lambda place: place.algorithm),
        (f"{problem.with_unit('maximum return')} (95\N{NO-BREAK SPACE}%)", returned(problem, measured)),
        (problem.with_unit("last tenth"), returned(problem, measured, "late_return")),
        *violation_cells(measured),
        ("… incumbent", incumbent),
        ("z*, mean", lambda place: say(measured.mean(place, "true_deficit"))),
        ("z*, largest", lambda place: say_value(_largest(measured, place, "true_deficit_max"))),
        ("signed deficit, mean", lambda place: say(measured.mean(place, "signed_deficit_mean"))),
        ("booked per episode", lambda place: say(measured.mean(place, "deficit_mean"))),
        ("exploring steps", steps("exploring_steps")),
        ("deviating steps", steps("deviating_steps")),
        ("ledgers that cover z*", lambda place: _ledgers(measured, place)),
        ("drops per 1,000", lambda place: drops_in_words(measured, place)),
        ("standing", lambda place: measured.text(place, "standing")),
        ("seconds", lambda place: say_value(measured.mean(place, "seconds").value)),
    )


def returned(problem: DeepProblem, measured: Measured, name: str = "max_return") -> Callable[[Place], str]:
    """Return the cells of a mean return with its interval, in the problem's unit."""
    return lambda place: say(measured.mean(place, name).times(problem.factor))


def key_cells(problem: DeepProblem, measured: Measured) -> Cells:
    """Return the columns of the most important numbers."""
    return (
        (problem.with_unit("maximum return"), returned(problem, measured)),
        ("violations per 1,000", lambda place: say_rate(measured.rate(place))),
    )


def table_1_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return the paper's Table 1 with the measured numbers next to it; returns in the problem's own units."""
    rows = []
    for entry in TABLE_1:
        place = measured_entry(measured, entry)
        here = UNKNOWN if place is None else measured.mean(place, "max_return")
        values = np.zeros(0) if place is None else measured.column(place, "max_return")
        rows.append(
            {
                "entry": entry.name,
                "algorithm": None if place is None else place.algorithm,
                "budget": entry.budget,
                "seeds": len(values),
                "max_return": here.value,
                "max_return_deviation": _deviation(values),
                "max_return_low": here.low,
                "max_return_high": here.high,
                "paper": entry.mean * MILLION,
                "paper_deviation": entry.deviation * MILLION,
                "relative": here.value / (entry.mean * MILLION) - 1.0,
            }
        )
    return rows


def table_1(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the page's Table 1: mean and deviation over seeds, in millions, next to the paper's."""
    cells = []
    for row in rows:
        paper = _plus_minus(row["paper"], row["paper_deviation"])
        if not row["seeds"]:
            cells.append([str(row["entry"]), "not run", "", paper, "", ""])
            continue
        here = Estimate(*(row[f"max_return{end}"] for end in ("", "_low", "_high")))
        cells.append(
            [
                str(row["entry"]),
                _plus_minus(row["max_return"], row["max_return_deviation"]),
                say(here.times(1 / MILLION)),
                paper,
                f"{100 * row['relative']:+.1f} %",
                str(row["seeds"]),
            ]
        )
    mean = "mean (95\N{NO-BREAK SPACE}%)"
    return Table(["", "here, mean ± deviation", mean, "the paper", "difference", "seeds"], cells)


def coverage_table(measured: Measured) -> Table:
    """Return how often the charge covered the true cost, per algorithm and budget."""

    def covered(name: str, of: str = "") -> tuple[str, Any]:
        def cell(place: Place) -> str:
            none = bool(of) and not total(measured, place, of)
            return "none booked" if none else say(measured.mean(place, name).times(100))

        return "covered, % (95\N{NO-BREAK SPACE}%)", cell

    cells: Cells = (
        ("algorithm", lambda place: place.algorithm),
        ("budget η", lambda place: f"{place.budget:g}"),
        ("deviations audited", lambda place: f"{total(measured, place, 'deviations'):,}"),
        covered("coverage"),
        ("of them booked", lambda place: f"{total(measured, place, 'booked'):,}"),
        covered("booked_coverage", "booked"),
        ("held out", lambda place: f"{total(measured, place, 'held_out'):,}"),
        covered("held_out_coverage"),
        ("ledgers of episodes that deviated", lambda place: _ledgers(measured, place)),
        ("largest true cost of one", lambda place: say_value(_largest(measured, place, "true_gap_max"))),
    )
    found = [place for label in measured.algorithms() for (place,) in measured.together(label)]
    return Table.of(cells, [place for place in found if measured.column(place, "deviations").any()])


def baseline_table(measured: Measured) -> Table:
    """Return the course of the baseline's true value over the audited episodes, per algorithm and budget."""

    def value(name: str) -> Any:
        return lambda place: say(measured.mean(place, name))

    def below(place: Place) -> str:
        found, audited = total(measured, place, "below_incumbent"), measured.column(place, "audited").sum()
        return "unknown" if found is None else f"{found:,} of {audited:,.0f}"

    cells: Cells = (
        ("algorithm", lambda place: place.algorithm),
        ("budget η", lambda place: f"{place.budget:g}" if has_ledger(measured, place) else "any"),
        ("judged by", lambda place: measured.text(place, "judge")),
        ("incumbent", value("incumbent_value")),
        ("first", value("baseline_value_first")),
        ("last", value("baseline_value_last")),
        ("lowest", value("baseline_value_lowest")),
        ("falls per run", value("baseline_falls")),
        ("audited episodes below the incumbent", below),
    )
    return Table.of(cells, _once(measured))


def action_table(problem: DeepProblem, measured: Measured) -> Table:
    """Return the actions in the last tenth of the episodes, and whether they were constant."""
    rows = []
    for place in _once(measured):
        favourites = measured.column(place, "favourite_share")
        shares = [measured.mean(place, f"share_{action}").value for action in range(len(problem.actions))]
        rows.append(
            [
                place.algorithm,
                f"{place.budget:g}" if has_ledger(measured, place) else "any",
                *(f"{100 * share:.3g}" for share in shares),
                f"{100 * favourites.min():.3g} to {100 * favourites.max():.3g}",
                f"{np.median(measured.column(place, 'constant_episodes')):,.0f}",
            ]
        )
    last = ("most frequent of a seed, %", "constant at the end, episodes (median)")
    return Table(["algorithm", "budget η", *(f"{name}, %" for name in problem.actions), *last], rows)


def difference_rows(problem: DeepProblem, measured: Measured) -> list[dict[str, Any]]:
    """Return paired differences: every algorithm minus DQN, and minus CQL."""
    return paired_rows(measured, COMPARED_WITH, differences_of(problem))


def total(measured: Measured, place: Place, name: str) -> int | None:
    """Return the sum of a count over the runs of a place; None if that is unknown of any."""
    counts = measured.column(place, name)
    return int(counts.sum()) if np.isfinite(counts).all() else None


def has_ledger(measured: Measured, place: Place) -> bool:
    """Whether the algorithm keeps a budget: others have the same runs at every budget."""
    return measured.text(place, "agent") in SHIELDED


def _once(measured: Measured) -> list[Place]:
    """Return the places of the main comparison, those of algorithms without a budget at the first alone."""
    found = []
    for label in measured.algorithms():
        places = [place for (place,) in measured.together(label)]
        found += places if has_ledger(measured, places[0]) else places[:1]
    return found


def _ledgers(measured: Measured, place: Place) -> str:
    """Return how many ledgers covered the true deficit."""
    number = total(measured, place, "ledgers") if has_ledger(measured, place) else None
    return f"{total(measured, place, 'ledgers_covered'):,} of {number:,}" if number else "none"


def drops_in_words(measured: Measured, place: Place) -> str:
    """Return how often an episode earned much less than the best so far, and for how long at most."""
    episodes = float(measured.column(place, "episodes").sum() - DROPS_AFTER * len(measured.seeds(place)))
    rate = 1000 * (total(measured, place, "drops") or 0) / episodes if episodes > 0 else 0.0
    return f"{say_value(rate)}, at most {_largest(measured, place, 'longest_drop'):,.0f} in a row"


def _deviation(values: Any) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _largest(measured: Measured, place: Place, name: str) -> float:
    values = measured.known(place, name)
    return float(values.max()) if len(values) else math.nan


def _plus_minus(value: float, deviation: float | None) -> str:
    """Return a return in millions with its deviation.

    Example:
        >>> _plus_minus(3.84e6, 4e4), _plus_minus(2e6, None)
        ('3.84 ± 0.04', '2.00')
    """
    mean = f"{value / MILLION:.2f}"
    return mean if deviation is None else f"{mean} ± {deviation / MILLION:.2g}"
