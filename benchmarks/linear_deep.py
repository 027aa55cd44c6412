"""Linear worlds next to the paired ensemble, on HIV and on the plane: returns, violations, processor seconds.

python benchmarks/linear_deep.py hiv --seeds 0 1 2 --etas 40 60 100 --episodes 1000
python benchmarks/linear_deep.py hiv --learner ensemble --seeds 0 --etas 60 --episodes 60

Every run is added to benchmarks/results/linear-deep.json as soon as it is done, in place of one with the same
settings, and the table of docs/linear.md is written again. Settings were chosen on seeds 100 and 101. Seconds
are those of one process after the warm-up and compilation of the first chunk, audits included.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, record, table
from chary.deep import DeepOptions, DeepSimulation, hiv, plane
from chary.linear.algebra import steps_left
from chary.linear.features import Features
from chary.linear.options import linear_model
from chary.linear.residuals import misfit
from chary.linear.worlds import Coefficients, Steps

NAME = "linear-deep"
PROBLEMS = {"hiv": hiv, "plane": plane}
MODELS: dict[str, dict[str, Any]] = {
    "hiv": {
        "low": -10.0, "high": 30.0, "features": 192, "worlds": 12, "explorers": 12, "pessimism": 1.0,
        "margin": 10.0, "risk": 0.01,
    },
    "plane": {
        "low": 0.0, "high": 1.0, "features": 128, "length_scale": 0.7, "worlds": 24, "explorers": 8,
        "pessimism": 0.0, "prior": 0.001, "risk": 0.01,
    },
}  # fmt: skip
SHARED: dict[str, dict[str, Any]] = {
    "hiv": {"discount": 0.99, "warm_up": 50},
    "plane": {"discount": 0.95, "warm_up": 300},
}
ENSEMBLES: dict[str, dict[str, Any]] = {
    "hiv": {},
    "plane": {"ensemble": {"floor": 0.4, "offset": 0.05, "margin": 0.3, "window": 10}, "width": 32},
}


def options_of(problem: str, learner: str, eta: float, episodes: int, chains: bool) -> DeepOptions:
    """Return the options of one run."""
    shared = {**SHARED[problem], "eta": eta, "episodes": episodes, "chains": chains}
    if learner == "linear":
        return DeepOptions(
            learner="linear", linear=linear_model(MODELS[problem]), pretraining=0, batch=1, replay=1, **shared
        )  # fmt: skip
    return DeepOptions(learner="ensemble", **ENSEMBLES[problem], **shared)


def run(
    problem: str, learner: str, eta: float, seed: int, episodes: int, chains: bool, audit_every: int
) -> dict[str, Any]:
    """Return the summary of one run."""
    options = options_of(problem, learner, eta, episodes, chains)
    simulation = DeepSimulation(PROBLEMS[problem](), options, seed=seed, audit_every=audit_every)
    simulation.start()
    simulation.advance()
    began, before = time.process_time(), simulation.done
    while simulation.done < episodes:
        simulation.advance()
    seconds = (time.process_time() - began) * episodes / max(episodes - before, 1)
    found = simulation.result().summary()
    rewards = np.asarray(simulation.result().log.rewards)
    kept = {
        name: value
        for name, value in found.items()
        if isinstance(value, (int, float, type(None))) and not isinstance(value, bool)
    }
    return {
        **kept,
        "problem": problem, "learner": learner, "eta": eta, "seed": seed, "episodes": episodes,
        "chains_on": chains, "processor_seconds": seconds, "first_rewards": float(rewards[:50].mean()),
        "last_rewards": float(rewards[-50:].mean()),
        "misfit": misfit_of(simulation) if learner == "linear" else None,
    }  # fmt: skip


def misfit_of(simulation: Any) -> dict[str, Any]:
    """Return the residual test of a run's last plan."""
    state, options = simulation.learner, simulation.options
    model, d = options.linear, state.frequency.shape[0]
    held = np.asarray(state.held.rows)[np.asarray(state.held.priority) >= 0.0]
    no = np.zeros(len(held), dtype=bool)
    steps = Steps(
        held[:, :d], held[:, 2 * d].astype(int), held[:, 2 * d + 1], held[:, d : 2 * d],
        held[:, 2 * d + 2] > 0, held[:, 2 * d + 3].astype(int), no,
    )  # fmt: skip
    theta = np.concatenate([np.asarray(state.plan.theta), np.asarray(state.theta)], axis=2)
    weight = np.array(steps_left(len(theta), options.discount))
    values = Coefficients(theta, np.zeros((0, 0, 0, 0)), model.low * weight, model.high * weight)
    scale = float(state.scale)
    features = Features(
        "fourier", d, model.features, np.asarray(state.plan.frequency), np.asarray(state.phase), scale
    )
    return {**misfit(steps, values, features, model, options.discount)._asdict(), "length_scale": scale}


def key_of(row: dict[str, Any]) -> list[Any]:
    """Return what tells runs apart."""
    return [row[name] for name in ("problem", "learner", "eta", "chains_on", "episodes", "seed")]


def rows_of(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table, one row per problem, learner, budget and number of episodes."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(runs, key=lambda row: json.dumps(key_of(row))):
        groups.setdefault(json.dumps(key_of(each)[:-1]), []).append(each)
    lines = []
    for name, group in groups.items():
        problem, learner, eta, chains, episodes = json.loads(name)
        audited = sum(row["audited"] for row in group)
        broken = sum(row["violations"] for row in group)
        steps, deviated = (sum(row[each] for row in group) for each in ("steps", "deviated"))
        unit = 1e6 if problem == "hiv" else 1.0
        best = np.mean([row["best_raw_return"] for row in group]) / unit
        last = np.mean([row["last_raw_return"] for row in group]) / unit
        told = [row["misfit"] for row in group if row["misfit"]]
        test = f"{np.median([each['p'] for each in told]):.2g}" if told else "-"
        wide = f"{np.median([each['systematic'] for each in told]):.2g}" if told else "-"
        lines.append(
            [
                f"{problem}, eta {eta:g}", f"{learner}{', chains' if chains else ''}",
                f"{len(group)} x {episodes}", f"{best:.2f}", f"{last:.2f}", f"{100 * deviated / steps:.2f}",
                f"{broken} of {audited}", f"{max(row['max_true_deficit'] for row in group):.3g}",
                f"{sum(row['covered'] for row in group)} of {sum(row['deviations'] for row in group)}",
                f"{test}; {wide}", f"{np.mean([row['processor_seconds'] for row in group]):.0f}",
            ]
        )  # fmt: skip
    return lines


HEADER = [
    "problem", "learner", "seeds x episodes", "best return", "mean of the last tenth", "deviating steps, %",
    "violations of audited episodes", "largest z*", "steps covered", "residual test: p; systematic",
    "processor seconds",
]  # fmt: skip


def main() -> None:
    """Play, record, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--learner", choices=("linear", "ensemble"), default="linear")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--etas", type=float, nargs="+", default=[60.0])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--chains", action="store_true")
    parser.add_argument("--audit-every", type=int, default=10)
    told = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    for seed in told.seeds:
        for eta in told.etas:
            found = run(told.problem, told.learner, eta, seed, told.episodes, told.chains, told.audit_every)
            runs = json.loads(path.read_text())["runs"] if path.exists() else []
            runs = [row for row in runs if key_of(row) != key_of(found)]
            record(NAME, {"models": MODELS, "runs": [*runs, found]})
            fill(ROOT / "docs" / "linear.md", NAME, table(HEADER, rows_of([*runs, found])))
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
