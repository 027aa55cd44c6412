"""The tables of a tabular sweep: rows of plain values for CSV, and columns of text for the page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from chary.pages import Table
from chary.report.claims import say, say_rate, say_value
from chary.report.measured import Measured, Place
from chary.report.tables import Cells, ends, paired_rows, place_row, violation_cells, violation_row
from chary.statistics import interquartile_mean

# Paired differences are taken to the first algorithm with each of these roles.
COMPARED_WITH = ("unconstrained", "paper")
# What they compare: column and factor, by heading.
DIFFERENCES = {
    "regret": ("regret", 1.0),
    "violations per 1,000": ("violation_rate", 1000.0),
    "exploring steps": ("exploring_steps", 1.0),
    "deviating steps": ("deviating_steps", 1.0),
}


def summary_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return one row per place: regret, violations and effort over its seeds."""
    return [
        {
            **place_row(measured, place),
            "seeds": len(measured.seeds(place)),
            "episodes": measured.rate(place).episodes,
            **ends("regret", measured.mean(place, "regret")),
            "regret_iqm": interquartile_mean(measured.column(place, "regret")),
            **violation_row(measured, place),
            "violations_incumbent": int(measured.column(place, "violations_incumbent").sum()),
            "true_deficit_max": float(measured.column(place, "true_deficit_max").max()),
            **ends("signed_deficit", measured.mean(place, "signed_deficit_mean")),
            "exploring_steps": measured.mean(place, "exploring_steps").value,
            "deviating_steps": measured.mean(place, "deviating_steps").value,
            **_baseline(measured, place),
            "chains_finished": measured.mean(place, "chains_finished").value,
            "exponent": measured.exponent(place).value,
            "seconds": _seconds(measured, place),
        }
        for place in measured.places
    ]


def summary_cells(measured: Measured) -> Cells:
    """Return the columns of the summary on the page."""

    def incumbent(place: Place) -> str:
        total = measured.column(place, "violations_incumbent").sum()
        return say_value(1000 * float(total / measured.rate(place).episodes))

    def baseline(place: Place) -> str:
        found = _baseline(measured, place)
        first, last = (say_value(found[f"baseline_value_{end}"]) for end in ("first", "last"))
        falls = found["baseline_falls"]
        return f"{first} → {last} ({falls:,.0f})" if math.isfinite(falls) else "unknown"

    return (
        ("algorithm", lambda place: place.algorithm),
        ("regret, mean (95\N{NO-BREAK SPACE}%)", lambda place: say(measured.mean(place, "regret"))),
        *violation_cells(measured),
        ("… incumbent", incumbent),
        ("largest z*", lambda place: say_value(float(measured.column(place, "true_deficit_max").max()))),
        (
            "signed deficit per episode (95\N{NO-BREAK SPACE}%)",
            lambda place: say(measured.mean(place, "signed_deficit_mean")),
        ),
        ("exploring steps", lambda place: f"{measured.mean(place, 'exploring_steps').value:,.0f}"),
        ("deviating steps", lambda place: f"{measured.mean(place, 'deviating_steps').value:,.0f}"),
        ("baseline's value, first → last (falls)", baseline),
        ("standing", lambda place: measured.text(place, "standing")),
    )


def key_cells(measured: Measured) -> Cells:
    """Return the columns of the most important numbers."""
    return (
        ("regret", lambda place: say(measured.mean(place, "regret"))),
        ("violations per 1,000 episodes", lambda place: say_rate(measured.rate(place))),
    )


def canary_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return one row per place of a canary: what its coin risked, and what became of its candidates."""
    rows = []
    for place in measured.places:
        losses = measured.known(place, "canary_max_loss")
        if len(losses):
            promoted = measured.known(place, "canary_promoted")
            rows.append(
                {
                    **{name: getattr(place, name) for name in ("study", "variant", "budget", "algorithm")},
                    "runs": len(losses),
                    "breaches": int(measured.known(place, "canary_breaches").sum()),
                    "max_loss": float(losses.max()),
                    "runs_promoted": int((promoted > 0).sum()),
                    "promoted": float(promoted.mean()),
                    "dropped": float(measured.known(place, "canary_dropped").mean()),
                    "probability": float(measured.known(place, "canary_probability").mean()),
                    "incumbent_first": measured.mean(place, "baseline_value_first").value,
                    "incumbent_last": measured.mean(place, "baseline_value_last").value,
                }
            )
    return rows


def canary_table(rows: list[dict[str, Any]]) -> Table | None:
    """Return the rows of canaries as a table of the page, None without any."""
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("canary", lambda row: row["algorithm"]),
        ("study", lambda row: row["variant"] or row["study"]),
        ("budget η", lambda row: f"{row['budget']:g}"),
        ("breaches", lambda row: f"{row['breaches']:,}"),
        ("largest expected loss", lambda row: say_value(row["max_loss"])),
        ("runs with a promotion", lambda row: f"{row['runs_promoted']} of {row['runs']}"),
        ("promotions per run", lambda row: say_value(row["promoted"])),
        ("drops per run", lambda row: say_value(row["dropped"])),
        ("probability of the candidate, mean", lambda row: say_value(row["probability"])),
        (
            "incumbent's value, first → last",
            lambda row: f"{say_value(row['incumbent_first'])} → {say_value(row['incumbent_last'])}",
        ),
    ]
    return Table.of(columns, rows) if rows else None


def difference_rows(measured: Measured) -> list[dict[str, Any]]:
    """Return paired differences: every algorithm minus UCBVI, our variants minus the paper's variant.

    Experiments without these compare with their first algorithm.
    """

    def compared(place: Place, role: str) -> bool:
        return role != "paper" or measured.role(place) in ("ours", "chosen", "naive")

    return paired_rows(measured, COMPARED_WITH, DIFFERENCES, compared)


def _baseline(measured: Measured, place: Place) -> dict[str, float]:
    """Return the course of the baseline's true value: means, and the worst of all runs; NaN if unknown."""
    means = ("incumbent_value", "baseline_value_first", "baseline_value_last", "baseline_falls")
    lowest, below = (
        measured.known(place, f"baseline_{name}") for name in ("value_lowest", "below_incumbent")
    )
    return {
        **{name: measured.mean(place, name).value for name in means},
        "baseline_value_lowest": float(lowest.min()) if len(lowest) else math.nan,
        "baseline_below_incumbent": float(below.max()) if len(below) else math.nan,
    }


def _seconds(measured: Measured, place: Place) -> float:
    known = measured.known(place, "seconds")
    return sum(known.tolist()) / len(known) if len(known) else math.nan
