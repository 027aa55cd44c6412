"""Compare rules, charges, clocks and pools: one choice at a time differs from the defaults, on equal seeds.

python benchmarks/choices.py inventory
python benchmarks/choices.py sepsis

Writes benchmarks/results/choices-PROBLEM.json and the tables of docs/deviations.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from _jobs import ROOT, fill, play_all, provenance, record, table
from chary.presets import preset
from chary.standing import Standing

# Where the budget binds: with the preset's warm-up every variant affords everything on inventory. Sepsis is
# played at the length that its scale is calibrated for.
STUDIES: dict[tuple[str, str], dict[str, Any]] = {
    ("inventory", "kl"): {"eta": 0.4, "warmup": 300, "episodes": 3000, "seeds": 10},
    ("inventory", "hoeffding"): {"eta": 0.05, "warmup": 100, "episodes": 3000, "seeds": 10},
    ("sepsis", "hoeffding"): {"eta": 0.1, "warmup": 500, "episodes": 2000, "seeds": 4},
}


def variants(problem: str, eta: float) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (label, agent, what differs from the defaults)."""
    chary = [
        ("chary, defaults", {}),
        ("rule capped, step bound eta/2", {"rule": "capped", "step_bound": eta / 2}),
        ("rule capped, step bound eta", {"rule": "capped", "step_bound": eta}),
        ("rule paper", {"rule": "paper"}),
        ("rule paper, close", {"rule": "paper", "after_refusal": "close"}),
        ("close", {"after_refusal": "close"}),
        ("charge paper", {"charge": "paper"}),
        *([("charge difference", {"charge": "difference"})] if problem == "inventory" else []),
        ("clock meta", {"clock": "meta"}),
        ("pool 1", {"pool": 1}),
        ("pool 10", {"pool": 10}),
        ("pool 100", {"pool": 100}),
        ("pool 1, close", {"pool": 1, "after_refusal": "close"}),
        ("pool 1, clock meta", {"pool": 1, "clock": "meta"}),
        ("patience 100", {"patience": 100}),
        ("data meta", {"data": "meta"}),
        ("chains off", {"chains": False}),
        (
            "the paper's own (paper rule and charge, close, pool 1)",
            {"rule": "paper", "charge": "paper", "after_refusal": "close", "pool": 1},
        ),
    ]
    others = [("UCBVI", "ucbvi"), ("baseline, replanned", "baseline"), ("baseline, frozen", "frozen")]
    return [(label, "chary", changed) for label, changed in chary] + [
        (label, name, {}) for label, name in others
    ]


def main() -> None:
    """Run the study of one problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=sorted({problem for problem, _ in STUDIES}))
    parser.add_argument("--bonus", help="another family of bounds than the preset's, at its calibrated scale")
    arguments = parser.parse_args()
    problem = arguments.problem
    chosen = preset(problem)
    bonus = arguments.bonus or chosen.bounds
    size = STUDIES[problem, bonus]
    common: dict[str, Any] = {
        "eta": size["eta"],
        "bonus": bonus,
        "reward": chosen.reward,
        "delta": chosen.delta,
    }
    if bonus in chosen.scale:
        common["bonus_scale"] = chosen.scale[bonus]
    jobs = [
        {
            "label": label,
            "problem": problem,
            "agent": agent,
            # Chains waited for ever by default when these tables were played.
            "settings": {**common, **({"patience": None} if agent == "chary" else {}), **changed},
            "episodes": size["episodes"],
            "warmup": size["warmup"],
            "seed": seed,
        }
        for label, agent, changed in variants(problem, size["eta"])
        for seed in range(size["seeds"])
    ]
    results = play_all(jobs)
    rows, summary = [], []
    for label, _, _ in variants(problem, size["eta"]):
        runs = [r for r in results if r["label"] == label]
        entry: dict[str, Any] = {"label": label, "runs": len(runs)}
        for key in (
            "regret",
            "violations",
            "max_true_deficit",
            "max_deficit",
            "exploring_steps",
            "deviating_steps",
            "chains_finished",
            "chains_blocked",
        ):
            values = np.array([r[key] for r in runs], dtype=float)
            entry[key] = {"mean": values.mean(), "sd": values.std(ddof=1), "max": values.max()}
        summary.append(entry)
        rows.append(
            [
                label,
                f"{entry['regret']['mean']:.1f} ± {entry['regret']['sd']:.1f}",
                f"{1000 * entry['violations']['mean'] / size['episodes']:.2f}",
                f"{entry['max_true_deficit']['max']:.3f}",
                f"{entry['exploring_steps']['mean']:.0f}",
                f"{entry['deviating_steps']['mean']:.0f}",
                f"{entry['chains_finished']['mean']:.0f}",
                f"{entry['chains_blocked']['mean']:.0f}",
            ]
        )
    name = f"choices-{problem}-{bonus}"
    path = record(name, {"settings": common, **size, "variants": summary})
    header = [
        "variant",
        "regret",
        "violations / 1,000",
        "worst z*",
        "exploring",
        "deviating",
        "finished",
        "blocked",
    ]
    standing = Standing.from_json(results[0]["standing"]).label
    caption = (
        f"{problem}, {size['episodes']:,} episodes after {size['warmup']:,} random ones, "
        f"eta {size['eta']:g}, bonus {bonus} (scale {common.get('bonus_scale', 1.0):.4g}), "
        f"{common['reward']} rewards, {size['seeds']} seeds; mean ± standard deviation, worst z* over all "
        "seeds; the steps and chains are means per run. Ties are shuffled. The standing of the defaults is "
        f"{standing}. Made by `{provenance()['command']}` at commit `{provenance()['commit']}`, "
        f"recorded in `{path.relative_to(ROOT)}`."
    )
    text = f"{caption}\n\n{table(header, rows)}"
    print(text)
    fill(ROOT / "docs" / "deviations.md", name, text)


if __name__ == "__main__":
    main()
