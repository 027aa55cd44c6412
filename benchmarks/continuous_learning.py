"""What is learnt on the continuous problems: returns, violations, and what chains change in the plane.

chary reproduce plane && chary reproduce glucose --seeds 3
python benchmarks/continuous_learning.py [--within results]

Writes benchmarks/results/continuous-learning.json and tables of docs/continuous.md from the sweeps' folders.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from _jobs import ROOT, fill, record, table
from chary.envs.continuous import ContinuousEnv, Plane
from chary.envs.continuous.plane import DRIFT
from chary.results import load_results
from chary.statistics import Estimate, bootstrap_mean, paired_difference

PROBLEMS = ("plane", "glucose")
COMPARED = (("chains", "chains off"), ("chains", "DQN"), ("ensemble, chains", "ensemble, chains off"))
DISCOUNT = 0.95


def told(estimate: Estimate) -> str:
    """Return a number with its interval."""
    if np.isnan(estimate.low):
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def largest_drift(seeds: int = 100) -> float:
    """Return the largest discounted return of drifting alone, over starts: more takes the top."""
    env, best = ContinuousEnv(Plane()), 0.0
    for seed in range(seeds):
        env.reset(seed=seed)
        rewards = [env.step(np.int64(DRIFT))[1] for _ in range(Plane.horizon)]
        best = max(best, float(np.dot(rewards, DISCOUNT ** np.arange(Plane.horizon))))
    return best


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return one row per algorithm and budget of a sweep, with one number per seed."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for run in load_results(folder).sort("seed").iter_rows(named=True):
        found.setdefault((run["algorithm"], run["budget"]), []).append(run)
    return [
        {
            "algorithm": label,
            "budget": budget,
            "shielded": runs[0]["agent"] in ("chary", "paper"),
            "seeds": [run["seed"] for run in runs],
            "late": [run["late_return"] for run in runs],
            "best": [run["max_return"] for run in runs],
            "mean": [run["mean_return"] for run in runs],
            "violations": sum(run["violations"] for run in runs),
            "audited": sum(run["audited"] for run in runs),
            "largest": max(run["true_deficit_max"] for run in runs),
            "deviating": sum(run["deviating_steps"] for run in runs) / sum(run["steps"] for run in runs),
            "held_out": sum(run["held_out_covered"] for run in runs) / sum(run["held_out"] for run in runs),
            "seconds": float(np.mean([run["cpu_seconds"] for run in runs])),
            "commit": runs[0]["commit"],
        }
        for (label, budget), runs in found.items()
    ]


def cells(row: dict[str, Any], reached: str | None) -> list[str]:
    """Return a row of a table."""
    return [
        row["algorithm"],
        f"{row['budget']:g}",
        str(len(row["seeds"])),
        told(bootstrap_mean(row["mean"])),
        told(bootstrap_mean(row["late"])),
        f"{np.mean(row['best']):.2f}",
        *([] if reached is None else [reached]),
        f"{row['violations']} of {row['audited']}",
        f"{row['largest']:.2f}",
        f"{100 * row['deviating']:.2g}",
        f"{100 * row['held_out']:.1f}",
        f"{row['seconds']:.0f}",
    ]


def main() -> None:
    """Read the sweeps, record, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--within", type=Path, default=ROOT / "results")
    within = parser.parse_args().within
    found = {name: rows_of(within / name) for name in PROBLEMS if (within / name).is_dir()}
    page, drift = ROOT / "docs" / "continuous.md", largest_drift()
    differences = []
    for name, rows in found.items():
        header = ["algorithm", "budget η", "seeds", "mean return (95 %)", "last tenth (95 %)", "best"]
        header += ["seeds that reached the top"] if name == "plane" else []
        header += ["violations", "largest z*", "deviating, %", "held-out coverage, %", "seconds per run"]
        lines = []
        for row in rows:
            top = f"{sum(best > drift + 1e-9 for best in row['best'])} of {len(row['best'])}"
            lines.append(cells(row, top if name == "plane" else None))
        fill(page, f"{name}-learning", table(header, lines))
    by = {row["algorithm"]: row for row in found.get("plane", [])}
    for ours, theirs in COMPARED:
        if ours in by and theirs in by:
            estimates = [paired_difference(by[ours][of], by[theirs][of]) for of in ("mean", "late")]
            seeds = len(by[ours]["late"])
            differences.append([f"{ours} minus {theirs}", *map(told, estimates), str(seeds)])
    if differences:
        header = ["difference", "mean return (95 %)", "last tenth (95 %)", "seeds"]
        fill(page, "plane-differences", table(header, differences))
    record("continuous-learning", {"drift": drift, "problems": found, "differences": differences})


if __name__ == "__main__":
    main()
