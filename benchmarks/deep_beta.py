"""Find the weight of the deep learner's bonuses at which charges cover true costs on held-out episodes.

python benchmarks/deep_beta.py --betas 12 --seeds 100 101 102 103
python benchmarks/deep_beta.py --betas 16 32 --seeds 100 101

Every run is 1,000 episodes of chary on patient 5; after every tenth an episode is held out, in which the
baseline plays with random deviations, and the charge of each is compared with its true cost. The seeds are
not those of `chary reproduce hiv`. Rows are added to benchmarks/results/deep-beta.json, or FILE, in place of
earlier ones of the same run. The rows recorded there were played side by side, one process per run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from chary.deep import DeepOptions, DeepSimulation, hiv

RESULTS = Path(__file__).resolve().parent / "results"
ETAS = (40.0, 60.0, 80.0, 100.0)


def measured(beta: float, eta: float, seed: int) -> dict[str, Any]:
    """Play one run."""
    options = DeepOptions(agent="paper", beta=beta, eta=eta, episodes=1000)
    simulation = DeepSimulation(hiv(5), options, seed=seed)
    simulation.start()
    while simulation.done < options.episodes:
        simulation.advance()
    found = simulation.result().summary()
    return {
        "beta": beta,
        "eta": eta,
        "seed": seed,
        "held_out_coverage": found["held_out_covered"] / found["held_out_deviations"],
        "best_return": float(simulation.result().log.returns.max()),
    }


def main() -> None:
    """Play, print a table, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--betas", type=float, nargs="+", default=[16.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-beta.json")
    arguments = parser.parse_args()
    rows = json.loads(arguments.to.read_text())["rows"] if arguments.to.exists() else []
    for beta in arguments.betas:
        for eta in ETAS:
            for seed in arguments.seeds:
                rows = [row for row in rows if (row["beta"], row["eta"], row["seed"]) != (beta, eta, seed)]
                rows.append(measured(beta, eta, seed))
    write(arguments.to, rows)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Record the rows, and print the coverage of each beta by budget."""
    rows = sorted(rows, key=lambda row: (row["beta"], row["eta"], row["seed"]))
    question = (__doc__ or "").splitlines()[0]
    path.write_text(json.dumps({"question": question, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for beta in sorted({row["beta"] for row in rows}):
        by_eta = {
            eta: [row["held_out_coverage"] for row in rows if (row["beta"], row["eta"]) == (beta, eta)]
            for eta in ETAS
        }
        told = ", ".join(f"{100 * fmean(found):.1f} % at {eta:g}" for eta, found in by_eta.items() if found)
        print(f"beta {beta:g}: {told}")


if __name__ == "__main__":
    main()
