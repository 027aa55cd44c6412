"""Findings about posterior worlds and the canary, looked up in the kept tables of sepsis-worlds."""

# ruff: noqa: E501 - prose
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tabular_findings import REPRODUCTIONS, markdown, rows_of, short

NAME = "sepsis-worlds"
HEADINGS = (
    "method",
    "setting",
    "regret (95 %)",
    "violations per 1,000 episodes (95 %)",
    "… against the first day's policy",
    "runs that broke the budget",
    "deviating steps",
    "standing",
)
# At most one violation per 1,000 episodes, and at least one deviating step in a hundred.
MOST_VIOLATIONS, LEAST_DEVIATING = 1.0, 0.01

Row = dict[str, Any]


def worlds(within: Path = REPRODUCTIONS) -> str:
    """Return the section on posterior worlds, nothing where the experiment is not kept."""
    tables = within / NAME / "tables"
    if not (tables / "frontier.csv").is_file():
        return ""
    rows = rows_of(tables / "frontier.csv")
    main = [row for row in rows if row["study"] == "main"]
    own = [row for row in rows if row["study"] == "usual-care"]
    episodes = int(main[0]["episodes"]) // int(main[0]["seeds"])
    seeds = sorted({int(row["seeds"]) for row in main})
    played = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"""## Posterior worlds on ICU-Sepsis

`chary reproduce {NAME}`: {episodes:,} episodes after 500 random ones, {played} seeds, eta {float(main[0]["budget"]):g}, rewards known, ties shuffled; all tables in [{NAME}]({NAME}/README.md).{_missing(within / NAME)}

![Regret against violations, every method over its own settings]({NAME}/figures/frontier.png)

{_table(main)}

{_lines(main)}
{_usual_care(own, tables)}"""


def _missing(kept: Path) -> str:
    """Return how many runs of the experiment are missing, in a sentence, nothing where none is."""
    runs = json.loads((kept / "provenance.json").read_text(encoding="utf-8"))["runs"]
    missing = sum(number for state, number in runs.items() if state != "done")
    return f" {missing} of {sum(runs.values())} runs are still to be played." if missing else ""


def _usual_care(rows: list[Row], tables: Path) -> str:
    """Return the section on runs that start from usual care, nothing where none was played."""
    if not rows:
        return ""
    return f"""
### From usual care

The recorded clinicians' policy is the first day's, and the canary's incumbent.

{_table(rows)}

{_canary(tables)}
"""


def _table(rows: list[Row]) -> str:
    return markdown(HEADINGS, map(_cells, rows))


def _cells(row: Row) -> list[str]:
    return [
        row["group"],
        row["point"],
        _interval(row, "regret"),
        _interval(row, "violations_per_1000"),
        short(row["incumbent_per_1000"]),
        f"{row['runs_with_violations']} of {row['seeds']}",
        f"{100 * float(row['deviating_share']):.3g} %",
        row["standing"],
    ]


def _interval(row: Row, name: str) -> str:
    if not row[f"{name}_low"]:
        return short(row[name])
    return f"{short(row[name])} ({short(row[f'{name}_low'])} to {short(row[f'{name}_high'])})"


def _loses(ours: Row, theirs: Row) -> str:
    if float(ours["regret_high"] or "inf") < float(theirs["regret_low"] or "-inf"):
        return "less than"
    apart = float(ours["regret_low"] or "-inf") > float(theirs["regret_high"] or "inf")
    return "more than" if apart else "about as much as"


def _named(row: Row) -> str:
    return f"{row['group']} at {row['point']}" if row["point"] else row["group"]


def _lines(rows: list[Row]) -> str:
    """Return the comparisons in sentences whose verbs follow from the table."""
    best = min((row for row in rows if row["group"] == "UCBVI"), key=lambda row: float(row["regret"]))
    lines = [
        f"- **The best scale of UCBVI** here is {best['point']}: regret {_interval(best, 'regret')}, {_interval(best, 'violations_per_1000')} violations per 1,000 episodes."
    ]
    for row in rows:
        if row["group"] == "worlds":
            rate, share = float(row["violations_per_1000"]), float(row["deviating_share"])
            kept = "at most one" if rate <= MOST_VIOLATIONS else "more than one"
            real = "at least" if share >= LEAST_DEVIATING else "fewer than"
            lines.append(
                f"- **Worlds at {row['point']}** lose {_loses(row, best)} UCBVI there, with {kept} violation per 1,000 episodes ({short(rate)}; {row['runs_with_violations']} of {row['seeds']} runs have any), and {real} 1 % of the steps deviate ({100 * share:.3g} %)."
            )
    by_group = {row["group"]: row for row in rows if row["group"] in ("posterior baseline alone", "PSRL")}
    safest = min(
        (row for row in rows if row["group"] == "worlds"), key=lambda row: float(row["violations_per_1000"])
    )
    for group, row in by_group.items():
        lines.append(
            f"- **{group}** loses {_loses(row, safest)} {_named(safest)}: {_interval(row, 'regret')}, {_interval(row, 'violations_per_1000')} violations per 1,000 episodes."
        )
    return "\n".join(lines)


def _canary(tables: Path) -> str:
    path = tables / "canary.csv"
    if not path.is_file():
        return ""
    (row,) = rows_of(path)
    breaches = int(row["breaches"])
    broke = "no episode" if breaches == 0 else f"{breaches:,} episodes"
    return (
        f"The canary promised that no episode is expected to lose more than eta before its coin is tossed: {broke} did, and the largest such loss was {short(row['max_loss'])}. A candidate was promoted in "
        f"{row['runs_promoted']} of {row['runs']} runs; the incumbent's value went from {float(row['incumbent_first']):.4g} to {float(row['incumbent_last']):.4g}, mean over runs. An episode that draws the candidate has no budget of its own."
    )
