"""Regret with and without chains on `corridor`: without them it is linear.

python benchmarks/why_chains.py

Writes benchmarks/results/why-chains.json, docs/figures/why-chains.png and a table of docs/why-chains.md. The
seeds are not those on which the corridor's defaults were chosen (0, 1, 2).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, record, table

SETTINGS = {"eta": 0.4, "bonus": "kl", "reward": "known"}
EPISODES, WARMUP, FIRST_SEED = 6_000, 200, 1000
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    # Chains waited for ever by default when this was played.
    ("chary", "chary", {"patience": None}),
    ("chary, one chain at a time", "chary", {"pool": 1, "patience": None}),
    ("chains off", "chary", {"chains": False}),
    ("baseline", "baseline", {}),
    ("UCBVI", "ucbvi", {}),
]


def main() -> None:
    """Run the study and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--redraw", action="store_true", help="draw recorded results, play nothing")
    arguments = parser.parse_args()
    if arguments.redraw:
        recorded = json.loads((RESULTS / "why-chains.json").read_text())
        draw({label: recorded[label] for label, _, _ in VARIANTS})
        return
    seeds = arguments.seeds
    jobs = [
        {
            "label": label,
            "problem": "corridor",
            "agent": agent,
            "settings": {**SETTINGS, **changed},
            "episodes": EPISODES,
            "warmup": WARMUP,
            "seed": FIRST_SEED + seed,
        }
        for label, agent, changed in VARIANTS
        for seed in range(seeds)
    ]
    results = play_all(jobs)
    curves: dict[str, Any] = {}
    rows = []
    for label, _, _ in VARIANTS:
        runs = [r for r in results if r["label"] == label]
        regret = np.array([r["cumulative_regret"] for r in runs])
        half = regret.shape[1] // 2
        first, last = regret[:, half - 1], regret[:, -1] - regret[:, half - 1]
        curves[label] = {
            "points": runs[0]["points"],
            "regret": regret.tolist(),
            "violations": [r["violations"] for r in runs],
        }
        rows.append(
            [
                label,
                f"{first.mean():.0f} ± {first.std(ddof=1):.0f}",
                f"{last.mean():.0f} ± {last.std(ddof=1):.0f}",
                f"{np.mean([r['violations'] for r in runs]):.1f}",
                f"{np.mean([r['chains_finished'] for r in runs]):.0f}",
            ]
        )
    record(
        "why-chains", {"settings": SETTINGS, "episodes": EPISODES, "warmup": WARMUP, "seeds": seeds, **curves}
    )
    header = ["", "regret, first half", "regret, second half", "violations", "chains finished"]
    text = table(header, rows)
    print(text)
    fill(ROOT / "docs" / "why-chains.md", "why-chains", text)
    draw(curves)


def draw(curves: dict[str, Any]) -> None:
    """Draw cumulative regret: every seed thin, their mean thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), layout="constrained")
    colours = ["#0072B2", "#56B4E9", "#D55E00", "#7F7F7F", "#009E73"]
    for (label, curve), colour in zip(curves.items(), colours, strict=True):
        regret, x = np.array(curve["regret"]), np.array(curve["points"])
        axes.plot(x, regret.T, color=colour, linewidth=0.7, alpha=0.45)
        axes.plot(x, regret.mean(axis=0), color=colour, linewidth=2.4, label=label)
    axes.set_xlabel("episode")
    axes.set_ylabel("cumulative regret")
    axes.set_title("Corridor: what is worth learning lies at the far end", loc="left")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path = ROOT / "docs" / "figures" / "why-chains.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
