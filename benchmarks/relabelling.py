"""Does regret depend on the order of the actions' labels? docs/algorithm.md section 5.

On ICU-Sepsis the lowest index is a good policy by accident, and with clipped bounds ties are the rule. Here
the actions of every state get new numbers: at random, or so that the one with the lowest (or highest) true
value comes first. Both rules for ties play all labellings, each with the same seeds.

    python benchmarks/relabelling.py --episodes 8000 --seeds 10

The table goes to stdout, the numbers to benchmarks/results/relabelling.json. `apart` is the difference of the
largest and the smallest mean regret over labellings, in standard errors: with ten seeds, chance alone makes
about 2 of it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import chary
from _jobs import play_all, record
from chary.arrays import Floats, Ints
from chary.audit import Truth
from chary.presets import preset

LABELLINGS = ("given", "best first", "worst first", "random 0", "random 1", "random 2")
TIES = ("index", "shuffled")


def labels_of(mdp: chary.FiniteMDP, labelling: str) -> Ints:
    """Return the new numbers of the actions, (S, A)."""
    S, A = mdp.n_states, mdp.n_actions
    if labelling == "given":
        return np.tile(np.arange(A), (S, 1))
    if labelling.startswith("random"):
        rng = np.random.default_rng(int(labelling.split()[1]))
        return np.array([rng.permutation(A) for _ in range(S)])
    # The number of an action is its place by the optimal Q at the first step; disallowed ones come last.
    q, setting = np.full((S, A), -np.inf), mdp.setting
    sign = 1.0 if labelling == "best first" else -1.0
    truth = Truth(mdp)
    q[truth.pair_state, setting.pair_action] = sign * truth.optimal_q[0]
    return np.argsort(np.argsort(-q, axis=1, kind="stable"), axis=1, kind="stable")


def play(job: str) -> float:
    """Play one run, described in JSON, and return its regret."""
    told = json.loads(job)
    mdp = chary.envs.make(told["problem"])
    mdp = mdp.relabelled(labels_of(mdp, told["labelling"]))
    agent = chary.make_agent(told["agent"], **told["settings"])
    run = chary.simulate(mdp, agent, episodes=told["episodes"], warmup=told["warmup"], seed=told["seed"])
    return float(run.regret.sum())


def main() -> None:
    """Play all labellings, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="sepsis")
    parser.add_argument("--episodes", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--bonus-scale", type=float, default=0.00213, help="factor on the bonus")
    options = parser.parse_args()
    told = preset(options.problem).under("hoeffding")
    shared = {"bonus": "hoeffding", "bonus_scale": options.bonus_scale, "reward": told.reward}
    agents: dict[str, dict[str, Any]] = {
        "ucbvi": {},
        "baseline": {},
        "chary": {"eta": told.eta, "patience": None},
    }
    places = [(agent, ties, labels) for agent in agents for ties in TIES for labels in LABELLINGS]
    jobs = [
        {
            "problem": options.problem,
            "agent": agent,
            "settings": {**agents[agent], **shared, "ties": ties},
            "labelling": labels,
            "episodes": options.episodes,
            "warmup": told.warmup,
            "seed": seed,
        }
        for agent, ties, labels in places
        for seed in range(options.seeds)
    ]
    found = np.array(play_all(jobs, worker=play)).reshape(len(places), options.seeds)
    regret = dict(zip(places, found, strict=True))
    print(f"| agent | ties | {' | '.join(LABELLINGS)} | apart |")
    print("| --- " * (len(LABELLINGS) + 3) + "|")
    rows = []
    for agent in agents:
        for ties in TIES:
            means = [regret[agent, ties, labels] for labels in LABELLINGS]
            apart = spread(means)
            cells = [f"{each.mean():,.0f} ({each.std(ddof=1):,.0f})" for each in means]
            print(f"| {agent} | {ties} | {' | '.join(cells)} | {apart:.1f} |")
            by_labelling = {labels: each.tolist() for labels, each in zip(LABELLINGS, means, strict=True)}
            rows.append({"agent": agent, "ties": ties, "apart": apart, "regret": by_labelling})
    record("relabelling", {"options": {**vars(options), **shared, "warmup": told.warmup}, "rows": rows})


def spread(regrets: list[Floats]) -> float:
    """Return how far the largest and the smallest mean are apart, in standard errors of their difference."""
    first, last = min(regrets, key=np.mean), max(regrets, key=np.mean)
    error = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / len(first))
    return float((last.mean() - first.mean()) / max(error, 1e-12))


if __name__ == "__main__":
    main()
