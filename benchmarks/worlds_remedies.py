"""Three options of posterior worlds, tried on seeds from 1000 on: tables of docs/worlds-measured.md.

python benchmarks/worlds_remedies.py --part risk          a larger risk after five random episodes
python benchmarks/worlds_remedies.py --part world_prior   one prior in place of `auto`
python benchmarks/worlds_remedies.py --part patience      how long chains wait on ICU-Sepsis

All else is as by default. Runs that benchmarks/results/worlds-remedies.json has are not played again.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, record, table
from worlds import BUDGETS, EPISODES

NAME = "worlds-remedies"
RISKS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5)
SMALL = ("corridor", "inventory", "riverswim")
PRIORS = ("flat", "shrunk")
PATIENCE = (100, 300, 1_000, 3_000, None)
SMALL_PARTS: dict[str, tuple[Any, ...]] = {"risk": RISKS, "world_prior": PRIORS}
# What tells one run from another.
KEY = ("part", "problem", "seed", "risk", "world_prior", "patience")


def jobs(part: str) -> list[dict[str, Any]]:
    """Return the runs of a part."""
    if part in SMALL_PARTS:
        return [
            {
                "part": part, "problem": problem, "seed": seed, "episodes": EPISODES, "warmup": 5,
                "settings": {"eta": BUDGETS[problem], part: value},
            }
            for problem in SMALL for value in SMALL_PARTS[part] for seed in range(1000, 1010)
        ]  # fmt: skip
    return [
        {
            "part": part, "problem": "sepsis", "seed": seed, "episodes": 50_000, "warmup": 500,
            "settings": {"eta": 0.1, "patience": patience},
        }
        for seed in (1000, 1001) for patience in PATIENCE
    ]  # fmt: skip


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells a run, or a job, from others."""
    flat = {**row.get("settings", {}), **row}
    return tuple(flat.get(name) for name in KEY)


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON."""
    import chary

    told = json.loads(job)
    spec = chary.CharyUCBVI(bonus="posterior", reward="known", **told["settings"])
    mdp = chary.envs.make(told["problem"])
    run = chary.simulate(mdp, spec, episodes=told["episodes"], warmup=told["warmup"], seed=told["seed"])
    return {
        **{name: told[name] for name in ("part", "problem", "seed")},
        **told["settings"],
        "regret": float(run.regret.sum()),
        "violations_per_1000": 1000.0 * float(run.violations().mean()),
        "deviating_percent": 100.0 * float(run.deviating_steps.sum() / run.length.sum()),
    }


def small_table(part: str, runs: list[dict[str, Any]]) -> str:
    """Return mean regret and violations by problem and value of the option."""

    def cell(problem: str, value: Any) -> str:
        rows = [row for row in runs if (row["problem"], row[part]) == (problem, value)]
        regret, broken = (np.mean([row[name] for row in rows]) for name in ("regret", "violations_per_1000"))
        return f"{regret:.0f}; {broken:.1f}"

    values = SMALL_PARTS[part]
    rows = [[problem, *(cell(problem, value) for value in values)] for problem in SMALL]
    return table(["regret; violations per 1,000", *(f"{part} {value}" for value in values)], rows)


def patience_table(runs: list[dict[str, Any]]) -> str:
    """Return regret, violations and deviating steps of both seeds by patience."""
    lines = (("regret", "regret", ",.0f"), ("violations per 1,000", "violations_per_1000", ".2f"))
    lines = (*lines, ("deviating steps, %", "deviating_percent", ".1f"))
    rows = [
        [title, *("; ".join(f"{row[name]:{form}}" for row in runs if row["patience"] == p) for p in PATIENCE)]
        for title, name, form in lines
    ]
    return table(["patience", *("for ever" if p is None else f"{p:,}" for p in PATIENCE)], rows)


def main() -> None:
    """Play what is missing of a part, record it, and fill in its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=(*SMALL_PARTS, "patience"), required=True)
    part = parser.parse_args().part
    path = RESULTS / f"{NAME}.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else []
    known, wanted = {key(row) for row in kept}, jobs(part)
    kept += play_all([job for job in wanted if key(job) not in known], worker=play)
    record(NAME, {"runs": kept})
    runs = [row for row in kept if row["part"] == part]
    text = patience_table(runs) if part == "patience" else small_table(part, runs)
    print(text)
    fill(ROOT / "docs" / "worlds-measured.md", f"{NAME}-{part}", text)


if __name__ == "__main__":
    main()
