"""How long a chain should wait: exploration that stalls, and regret, by patience.

python benchmarks/patience.py --choose [--seeds 4]
python benchmarks/patience.py [--seeds 4]

A chain whose next step no budget affords, or whose target nobody reaches again, keeps its place in the pool
and, at the start of episodes, keeps others from being started. `patience` abandons it after so many episodes
without an advance. Six problems on which exploration can stall are played with four values. A run has stalled
if it explored nothing in its last fifth. The rule, fixed before the runs: among the values with the fewest
stalled runs, the one with the least regret relative to waiting for ever (geometric mean over problems).

`--choose` plays seeds 1000, 1001, ..., on which the default was chosen; without it the seeds are 0, 1, ...
Writes benchmarks/results/patience[-choice].json and the tables of docs/why-chains.md.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, record, table

VALUES: tuple[int | None, ...] = (None, 30, 100, 300)
FIRST_SEED = 1000
# Problem, random episodes before, episodes, and the options of chary. Rewards are known.
CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "riverswim, kl": ("riverswim", 300, 5_000, {"bonus": "kl", "eta": 0.3}),
    "corridor, worlds": ("corridor", 5, 2_000, {"bonus": "posterior", "eta": 0.45}),
    "corridor, worlds, eta 1": ("corridor", 5, 2_000, {"bonus": "posterior", "eta": 1.0}),
    "inventory, worlds": ("inventory", 5, 2_000, {"bonus": "posterior", "eta": 0.1}),
    "random, worlds": ("random", 5, 2_000, {"bonus": "posterior", "eta": 0.1}),
    "clinic, worlds": ("clinic", 20, 3_000, {"bonus": "posterior", "eta": 100.0}),
}


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON, and return what it explored and lost."""
    import chary
    from worlds import clinic_mdp

    told = json.loads(job)
    problem, warmup, episodes, options = CASES[told["case"]]
    mdp = clinic_mdp()[0] if problem == "clinic" else chary.envs.make(problem)
    spec = chary.CharyUCBVI(reward="known", patience=told["patience"], **options)
    run = chary.simulate(mdp, spec, episodes=episodes, warmup=warmup, seed=told["seed"])
    fifths = [int(part.sum()) for part in np.array_split(run.exploring_steps, 5)]
    return {
        **told,
        "regret": float(run.regret.sum()),
        "violations": int(run.violations().sum()),
        "exploring_by_fifth": fifths,
        "started": run.chains.started,
        "finished": run.chains.finished,
        "abandoned": run.chains.abandoned,
    }


def rows_of(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row per value of patience."""
    rows = []
    for value in VALUES:
        mine = [run for run in runs if run["patience"] == value]
        stalled = sum(run["exploring_by_fifth"][-1] == 0 for run in mine)
        rows.append(
            [
                "for ever" if value is None else f"{value:,}",
                f"{stalled} of {len(mine)}",
                f"{relative(runs, value):.2f}",
                *(f"{first:,.0f} → {last:,.0f}" for first, last, _ in [means(runs, c, value) for c in CASES]),
                str(sum(run["violations"] for run in mine)),
            ]
        )
    return rows


def means(runs: list[dict[str, Any]], case: str, value: int | None) -> tuple[float, float, float]:
    """Return the mean exploring steps of the first and the last fifth, and the mean regret."""
    mine = [run for run in runs if (run["case"], run["patience"]) == (case, value)]
    first, last = np.mean([[run["exploring_by_fifth"][i] for i in (0, -1)] for run in mine], axis=0)
    return float(first), float(last), float(np.mean([run["regret"] for run in mine]))


def relative(runs: list[dict[str, Any]], value: int | None) -> float:
    """Return the geometric mean over problems of the regret relative to waiting for ever."""
    ratios = [means(runs, case, value)[2] / means(runs, case, None)[2] for case in CASES]
    return float(np.exp(np.mean(np.log(ratios))))


def main() -> None:
    """Play the runs of one set of seeds and write their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--choose", action="store_true", help="play the seeds of the choice")
    parser.add_argument("--redraw", action="store_true", help="print recorded results, play nothing")
    told = parser.parse_args()
    name = "patience-choice" if told.choose else "patience"
    if told.redraw:
        runs = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
    else:
        first = FIRST_SEED if told.choose else 0
        runs = play_all(
            [
                {"case": case, "patience": value, "seed": seed}
                for case in CASES
                for seed in range(first, first + told.seeds)
                for value in VALUES
            ],
            worker=play,
        )
    header = ["patience", "stalled runs", "regret, relative", *CASES, "violations"]
    text = table(header, rows_of(runs))
    print(text)
    if not told.redraw:
        record(name, {"cases": CASES, "runs": runs})
    fill(ROOT / "docs" / "why-chains.md", name, text)


if __name__ == "__main__":
    main()
