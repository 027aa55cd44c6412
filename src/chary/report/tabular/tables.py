"""The report's small tables: as rows of plain values for CSV, and as cells of text for the page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from chary.report.measured import Measured, Place
from chary.report.tabular.claims import Claim, say, say_rate
from chary.results import Estimate, interquartile_mean

__all__ = [
    "Table",
    "claim_rows",
    "csv_bytes",
    "difference_rows",
    "difference_table",
    "key_table",
    "summary_rows",
    "summary_table",
]

# What paired differences compare: every algorithm with the first that stands for one of these.
COMPARED_WITH = ("unconstrained", "paper")
MEASURES = ("regret", "violation_rate", "exploring_steps")


class Table(NamedTuple):
    """Cells of text under their headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def summary_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return one row a place: regret, violations and effort over its seeds."""
    rows = []
    for place in measured.places:
        regret, rate = measured.mean(place, "regret"), measured.rate(place)
        over_seeds = measured.mean(place, "violation_rate")
        signed = measured.mean(place, "signed_deficit_mean")
        rows.append(
            {
                "study": place.study,
                "variant": place.variant,
                "budget": place.budget,
                "algorithm": place.algorithm,
                "role": measured.role(place),
                "standing": measured.text(place, "standing"),
                "seeds": len(measured.seeds(place)),
                "episodes": rate.episodes,
                "regret": regret.value,
                "regret_low": regret.low,
                "regret_high": regret.high,
                "regret_iqm": interquartile_mean(measured.column(place, "regret")),
                "violations": rate.violations,
                "violations_per_1000": 1000 * rate.rate,
                "violations_per_1000_low": 1000 * rate.interval.low,
                "violations_per_1000_high": 1000 * rate.interval.high,
                "violations_per_1000_seeds_low": 1000 * over_seeds.low,
                "violations_per_1000_seeds_high": 1000 * over_seeds.high,
                "runs_with_violations": rate.broken_runs,
                "violations_frozen": int(measured.column(place, "violations_frozen").sum()),
                "true_deficit_max": float(measured.column(place, "true_deficit_max").max()),
                "signed_deficit": signed.value,
                "signed_deficit_low": signed.low,
                "signed_deficit_high": signed.high,
                "exploring_steps": measured.mean(place, "exploring_steps").value,
                "deviating_steps": measured.mean(place, "deviating_steps").value,
                "chains_finished": measured.mean(place, "chains_finished").value,
                "exponent": measured.exponent(place).value,
                "seconds": _mean(measured.known(place, "seconds").tolist()),
            }
        )
    return rows


def summary_table(measured: Measured, places: Sequence[Place]) -> Table:
    """Return the page's table of some places, one row each."""
    headings = (
        "algorithm",
        "regret, mean (95\N{NO-BREAK SPACE}%)",
        "regret, IQM",
        "violations per 1,000 (95\N{NO-BREAK SPACE}%)",
        "runs with any",
        "… frozen baseline",
        "largest z*",
        "signed deficit an episode (95\N{NO-BREAK SPACE}%)",
        "exploring steps",
        "standing",
        "seconds",
    )
    rows = []
    for place in places:
        rate = measured.rate(place)
        frozen = measured.column(place, "violations_frozen").sum() / rate.episodes
        rows.append(
            (
                place.algorithm,
                say(measured.mean(place, "regret")),
                _text(interquartile_mean(measured.column(place, "regret"))),
                say_rate(rate),
                f"{rate.broken_runs} of {rate.runs}",
                _text(1000 * float(frozen)),
                _text(float(measured.column(place, "true_deficit_max").max())),
                say(measured.mean(place, "signed_deficit_mean")),
                f"{measured.mean(place, 'exploring_steps').value:,.0f}",
                measured.text(place, "standing"),
                _text(_mean(measured.known(place, "seconds").tolist())),
            )
        )
    return Table(headings, tuple(rows))


def key_table(measured: Measured) -> Table:
    """Return regret and violations of every algorithm at the smallest and at the largest budget."""
    budgets = measured.budgets()
    ends = list(dict.fromkeys([*budgets[:1], *budgets[-1:]]))
    headings = ["algorithm"]
    for budget in ends:
        headings += [f"η = {budget:g}: regret", f"η = {budget:g}: violations per 1,000 episodes"]
    rows = []
    for label in measured.algorithms():
        cells = [label]
        for budget in ends:
            place = Place(label, budget)
            there = measured.has(place)
            cells += (
                [say(measured.mean(place, "regret")), say_rate(measured.rate(place))] if there else ["", ""]
            )
        rows.append(tuple(cells))
    return Table(tuple(headings), tuple(rows))


def difference_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return paired differences at equal seeds: every algorithm less UCBVI, ours less the paper's variant."""

    def compared(place: Place, role: str) -> bool:
        return role != "paper" or measured.role(place) in ("ours", "chosen", "naive")

    return paired_rows(measured, COMPARED_WITH, MEASURES, compared)


def paired_rows(
    measured: Measured,
    roles: Sequence[str],
    measures: Sequence[str],
    compared: Callable[[Place, str], bool] = lambda place, role: True,
) -> list[dict[str, Any]]:
    """Return paired differences of some measures: every algorithm less the first that has a role."""
    rows = []
    for place in measured.places:
        for role in roles:
            if not compared(place, role):
                continue
            for label in measured.algorithms(place.study, place.variant, roles=(role,))[:1]:
                other = place._replace(algorithm=label)
                if label == place.algorithm or not measured.has(other):
                    continue
                found = {name: measured.difference(place, other, name) for name in measures}
                if None in found.values():
                    continue
                row: dict[str, Any] = {
                    "study": place.study,
                    "variant": place.variant,
                    "budget": place.budget,
                    "algorithm": place.algorithm,
                    "less": label,
                    "pairs": len(measured.common(place, other)),
                }
                for name, estimate in found.items():
                    assert estimate is not None
                    row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
                rows.append(row)
    return rows


def difference_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the page's table of paired differences."""

    def cell(row: Mapping[str, Any], name: str, factor: float = 1.0) -> str:
        ends = (factor * row[key] for key in (name, f"{name}_low", f"{name}_high"))
        return say(Estimate(*ends))

    return Table(
        ("budget η", "algorithm", "less", "pairs", "regret", "violations per 1,000", "exploring steps"),
        tuple(
            (
                f"{row['budget']:g}",
                str(row["algorithm"]),
                str(row["less"]),
                str(row["pairs"]),
                cell(row, "regret"),
                cell(row, "violation_rate", 1000.0),
                cell(row, "exploring_steps"),
            )
            for row in rows
        ),
    )


def claim_rows(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return one row a claim, its numbers left out."""
    names = ("key", "source", "statement", "verdict", "answer", "rule")
    return [{name: getattr(claim, name) for name in names} for claim in claims]


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV with a heading; a number that is not finite is left empty.

    Example:
        >>> csv_bytes([{"a": 1, "b": 0.5}, {"a": 2, "b": float("nan")}]).split()
        [b'a,b', b'1,0.5', b'2,']
    """
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    names = list(rows[0]) if rows else []
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if _unknown(row[name]) else row[name] for name in names])
    return target.getvalue().encode()


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _text(value: float) -> str:
    return say(Estimate(value, math.nan, math.nan))
