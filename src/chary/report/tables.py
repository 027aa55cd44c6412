"""Small tables that all reports have: rows of plain values for CSV, and cells of text for the page."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from chary.pages import Table
from chary.report.claims import Claim, say, say_rate
from chary.report.measured import Measured, Place
from chary.standing import Standing
from chary.statistics import Estimate
from chary.sweeps.spec import MAIN
from chary.texts import visible

# Where a spreadsheet begins a formula: in front of a cell, or behind a semicolon, which is a comma in half of
# the world. The wide signs are those of Japanese keyboards.
FORMULA = re.compile(r"(^|;)(?=[\s\"']*[=+\-@\uff1d\uff0b\uff0d\uff20])")

# The columns of a table on the page: headings, each with the text for a place.
Cells: TypeAlias = Sequence[tuple[str, Callable[[Place], str]]]


def ends(name: str, estimate: Estimate, factor: float = 1.0) -> dict[str, float]:
    """Return a number and its interval as three entries of a row."""
    value, low, high = estimate.times(factor)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def place_row(measured: Measured, place: Place) -> dict[str, Any]:
    """Return the first entries of a row of the summary: which place it is."""
    return {
        "study": place.study,
        "variant": place.variant,
        "budget": place.budget,
        "algorithm": place.algorithm,
        "role": measured.role(place),
        "standing": measured.text(place, "standing"),
        "given": "; ".join(measured.standing(place).given),
    }


def promises_of(measured: Measured, places: Sequence[Place]) -> dict[str, Standing]:
    """Return every standing of some places, by the algorithms, studies and budgets that have it."""
    by_standing: dict[Standing, dict[str, list[str]]] = {}
    for place in places:
        study = "" if place.study == MAIN else f" ({place.study}{place.variant and f', {place.variant}'})"
        having = by_standing.setdefault(measured.standing(place), {})
        having.setdefault(f"{place.algorithm}{study}", []).append(f"{place.budget:g}")
    return {
        "; ".join(f"{name}, η = {', '.join(budgets)}" for name, budgets in having.items()): standing
        for standing, having in by_standing.items()
    }


def violation_row(measured: Measured, place: Place) -> dict[str, Any]:
    """Return the violations of a place: per episode, with the interval over runs, and the runs with any."""
    rate = measured.rate(place)
    return {
        "violations": rate.violations if rate.runs else None,
        **ends("violations_per_1000", Estimate(rate.rate, *rate.interval), 1000),
        "runs_with_violations": rate.broken_runs if rate.runs else None,
        "runs_with_violations_low": rate.run_interval.low,
        "runs_with_violations_high": rate.run_interval.high,
    }


def violation_cells(measured: Measured) -> Cells:
    """Return the columns of violations on the page."""

    def runs(place: Place) -> str:
        rate = measured.rate(place)
        if not rate.runs:
            return "unknown"
        low, high = (100 * end for end in rate.run_interval)
        return f"{rate.broken_runs} of {rate.runs} ({low:.2g} to {high:.3g} %)"

    return (
        ("violations per 1,000 (95\N{NO-BREAK SPACE}%)", lambda place: say_rate(measured.rate(place))),
        ("runs with any (95\N{NO-BREAK SPACE}%)", runs),
    )


def key_table(measured: Measured, cells: Cells) -> Table | None:
    """Return some columns of every algorithm at the smallest and at the largest budget; None without any."""
    budgets = measured.budgets()
    both = dict.fromkeys([*budgets[:1], *budgets[-1:]])
    rows = []
    for label in measured.algorithms():
        places = [Place(label, budget) for budget in both]
        found = [cell(place) if measured.has(place) else "" for place in places for _, cell in cells]
        rows.append([label, *found])
    headings = ["algorithm", *(f"η = {budget:g}: {name}" for budget in both for name, _ in cells)]
    return Table(headings, rows) if budgets else None


def paired_rows(
    measured: Measured,
    roles: Sequence[str],
    measures: Mapping[str, tuple[str, float]],
    compared: Callable[[Place, str], bool] = lambda place, role: True,
) -> list[dict[str, Any]]:
    """Return paired differences at equal seeds: every algorithm minus the first that has a role.

    Where no algorithm has one of the roles, it is minus the first of all.

    Args:
        measured: The sweep.
        roles: The roles to compare with.
        measures: Columns of `runs` with their units, by heading.
        compared: Whether a place is compared with a role.
    """
    rows = []
    for place in measured.places:
        where = {"study": place.study, "variant": place.variant}
        firsts = {role: label for role in roles if (label := measured.first(role, **where)) is not None}
        for role, label in (firsts or {"": measured.algorithms(**where)[0]}).items():
            if label == place.algorithm or not compared(place, role):
                continue
            other = place._replace(algorithm=label)
            if not measured.has(other) or not measured.common(place, other):
                continue
            row = place_row(measured, place)
            del row["role"]
            row |= {"less": label, "pairs": len(measured.common(place, other))}
            for name, _ in measures.values():
                difference = measured.difference(place, other, name)
                assert difference is not None
                row |= ends(name, difference)
            rows.append(row)
    return rows


def difference_table(rows: Sequence[Mapping[str, Any]], measures: Mapping[str, tuple[str, float]]) -> Table:
    """Return the table of paired differences; `measures` are columns and factors, by heading."""

    def cell(row: Mapping[str, Any], name: str, factor: float) -> str:
        return say(Estimate(*(row[key] for key in (name, f"{name}_low", f"{name}_high"))).times(factor))

    return Table(
        ["budget η", "algorithm", "minus", "pairs", *measures],
        [
            [
                f"{row['budget']:g}",
                *(str(row[name]) for name in ("algorithm", "less", "pairs")),
                *(cell(row, name, factor) for name, factor in measures.values()),
            ]
            for row in rows
        ],
    )


def claim_rows(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return one row per claim, without its numbers."""
    names = ("key", "where", "source", "statement", "verdict", "answer", "rule")
    return [{name: getattr(claim, name) for name in names} for claim in claims]


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV with a heading; a number that is not finite is left empty.

    Example:
        >>> csv_bytes([{"a": 1, "b": 0.5}, {"a": 2, "b": float("nan")}]).split()
        [b'a,b', b'1,0.5', b'2,']
    """
    target = io.StringIO(newline="")
    writer = csv.DictWriter(target, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return target.getvalue().encode()


def _cell(value: object) -> object:
    """Return a cell as a spreadsheet shows it unchanged: a text that would be a formula begins with a quote.

    Example:
        >>> _cell("=1+1"), _cell("chary; -1"), _cell(-1.5)
        ("'=1+1", "chary;' -1", -1.5)
    """
    if isinstance(value, str):
        return FORMULA.sub(r"\1'", visible(value))
    return "" if _unknown(value) else value


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
