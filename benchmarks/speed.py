"""Fill the tables of docs/speed.md from recorded measurements.

chary bench sepsis --json > benchmarks/results/bench-sepsis.json
chary bench inventory --json > benchmarks/results/bench-inventory.json
python benchmarks/peers.py
python benchmarks/scaling.py
python benchmarks/speed.py
"""

from __future__ import annotations

import json
from typing import Any

from _jobs import RESULTS, ROOT, fill, table

PAGE = ROOT / "docs" / "speed.md"
PLANNERS = ("dense", "full", "incremental")


def microseconds(value: float | None) -> str:
    """Return a time for a table."""
    return "-" if value is None else f"{value:,.0f}"


def bench_table(measured: dict[str, Any]) -> str:
    """Return the table of one problem: a row per configuration and amount of data, and one per whole run."""
    rows = []
    for name, block in measured["configurations"].items():
        times = block["us_per_episode"]
        for amount in times["incremental"]:
            cells = [microseconds((times.get(planner) or {}).get(amount)) for planner in PLANNERS]
            rows.append([name, f"{int(amount):,}", *cells, "", ""])
        slices = block["ratio_vs_full_by_slice"]
        dense = block["ratio_vs_dense"]
        rows.append(
            [
                f"**{name}**",
                "whole run",
                "",
                f"{block['seconds']['full']:.1f} s",
                f"{block['seconds']['incremental']:.2f} s",
                f"**{block['ratio_vs_full']:.1f}** ({slices['min']:.1f} to {slices['max']:.1f})",
                "-" if dense is None else f"{dense:,.0f}",
            ]
        )
    header = [
        "configuration",
        "episodes",
        "dense, us",
        "full, us",
        "incremental, us",
        "full / incr.",
        "dense / incr.",
    ]
    same = all(block["identical"] for block in measured["configurations"].values())
    batches = ", ".join(
        f"{name} {block['episodes_per_batch']:.1f}"
        for name, block in measured["configurations"].items()
        if block.get("episodes_per_batch")
    )
    return (
        f"`chary bench {measured['problem']}`, {measured['episodes']:,} episodes, microseconds per episode; "
        f"in brackets the ratio slice by slice:\n\n{table(header, rows)}\n\n"
        f"Results identical: {'yes' if same else 'NO'}. Correct guesses per batch of sixteen: "
        f"{batches}. Peak memory of the measuring process: {measured['peak_memory_mb']:,.0f} MB."
    )


def peers_table(measured: dict[str, Any]) -> str:
    """Return the peers' times next to ours."""
    rows = []
    for problem in ("inventory", "sepsis"):
        for learner, found in measured[problem]["learners"].items():
            cost = found["microseconds_per_episode"]
            played = sum(run["episodes"] for run in found["runs"])
            shown = microseconds(cost and cost["median"])
            rows.append([problem, learner, f"{played:,}", shown])
    header = ["problem", "learner", "episodes", "us per episode, median"]
    return (
        "`python benchmarks/peers.py`: UCBVI of rlberry-scool in a separate virtual environment, as "
        "published and with its backward induction under numba, next to ours in one run; sepsis with all "
        f"25 actions, as many episodes as a minute allows.\n\n{table(header, rows)}"
    )


def scaling_table(measured: dict[str, Any]) -> str:
    """Return the fitted exponents, and the cost of the largest problem."""
    rows = []
    for axis, planners in measured["summary"].items():
        for planner, curve in planners.items():
            fits = [curve[f"{name}_fit"] for name in ("microseconds", "memory_mib")]
            rows.append([axis, planner, *(f"{fit['exponent']:.2f} +- {fit['error']:.2f}" for fit in fits)])
    big = measured["big"]
    point = big["point"]
    return (
        "`python benchmarks/scaling.py`: exponents of time per episode and of memory, fitted in log-log on "
        f"random sparse MDPs.\n\n{table(['growth with', 'planner', 'time', 'memory'], rows)}\n\n"
        "![time and memory](../benchmarks/results/scaling.png)\n\n"
        f"{point['states']:,} states, {point['actions']} actions: {big['warmup']:,} random episodes counted "
        f"and {big['played']:,} played; {big['entries']:,} transitions observed; peak of the whole process "
        f"{big['process_mib']:,.0f} MiB."
    )


def main() -> None:
    """Fill the page from recorded results."""
    blocks = [
        bench_table(json.loads(path.read_text()))
        for path in sorted(RESULTS.glob("bench-*.json"), reverse=True)
    ]
    fill(PAGE, "bench", "\n\n".join(blocks))
    for name, make in (("peers", peers_table), ("scaling", scaling_table)):
        fill(PAGE, name, make(json.loads((RESULTS / f"{name}.json").read_text())))


if __name__ == "__main__":
    main()
