"""The risk that linear worlds keep, on linear MDPs with known truth: with right features and with wrong ones.

python benchmarks/linear_risk.py [--runs 15]

Every run has a random linear MDP of its own, logged episodes of random actions, and 60 episodes of 8 steps.
All true deficits are exact. Writes benchmarks/results/linear-risk.json and the table of docs/linear.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from _jobs import ROOT, fill, play_all, record, table
from chary.agents.protocol import Transition
from chary.envs.linear_mdp import linear_mdp
from chary.linear import LinearAgent, LinearModel, LinearOptions, one_hot, own
from chary.statistics.binomial import clopper_pearson, violation_rate

HORIZON, ACTIONS, EPISODES, ETA = 8, 3, 60, 0.3
# The columns of the features that a learner has, of four; a constant is always there.
FEATURES = {"all four": 4, "two of four": 2, "one of four": 1}


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON."""
    import json

    told = json.loads(job)
    seed, columns = told["seed"], told["columns"]
    mdp = linear_mdp(seed=seed)
    states = len(mdp.phi)
    model = LinearModel(low=0, high=1, worlds=40, explorers=8, risk=told["risk"], prior=1.0, held_out=0.25)
    agent = LinearAgent(
        LinearOptions(model=model, eta=ETA, radius=0.0, discount=1.0), observation_size=1,
        n_actions=ACTIONS, horizon=HORIZON, features=own(lambda x: mdp.features(x)[:, :columns], 1),
        ahead=one_hot(states), seed=seed,
    )  # fmt: skip
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))

    def step(s: int, a: int) -> int:
        return int(rng.choice(states, p=mdp.p[s, a]))

    log = []
    for _ in range(told["logged"]):
        s, episode = int(rng.integers(states)), []
        for _ in range(HORIZON):
            a = int(rng.integers(ACTIONS))
            x = step(s, a)
            episode.append(Transition([s], a, mdp.r[s, a], [x], False))
            s = x
        log.append(episode)
    agent.warm_start(log)
    deficits, deviating, last = [], 0, None
    for k in range(EPISODES):
        s = int(rng.integers(states))
        agent.begin(k, [s])
        plan = agent.plan_of(k)
        if plan is not last:
            last = plan
            policy = np.array(
                [[plan.baseline(t, np.array([float(x)])) for x in range(states)] for t in range(HORIZON)]
            )
            v, q = mdp.value(policy, 1.0)
        lost = 0.0
        for t in range(HORIZON):
            a = agent.act(k, t, [s]).action
            lost += max(v[t, s] - q[t, s, a], 0.0)
            deviating += int(a != policy[t, s])
            x = step(s, a)
            agent.observe(k, Transition([s], a, mdp.r[s, a], [x], False))
            s = x
        agent.finish(k)
        deficits.append(lost)
    found = agent.misfit
    return {
        "violations": int(np.sum(np.array(deficits) > ETA + 1e-9)),
        "largest": max(deficits),
        "deviating": deviating,
        "p": found.p,
        "contradicted": found.found,
        "level": agent.standing.level,
    }


def main() -> None:
    """Play, record, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    cells = [
        (name, columns, risk, logged)
        for logged in (20, 300)
        for risk in (0.05, 0.01)
        for name, columns in FEATURES.items()
    ]
    jobs = [
        {"seed": 10_000 + seed, "columns": columns, "risk": risk, "logged": logged}
        for _, columns, risk, logged in cells
        for seed in range(runs)
    ]
    played = play_all(jobs, worker=play, workers=1)
    found = []
    for i, (name, columns, risk, logged) in enumerate(cells):
        mine = played[i * runs : (i + 1) * runs]
        rate = violation_rate([each["violations"] for each in mine], [EPISODES] * runs)
        found.append(
            {
                "features": name, "columns": columns, "risk": risk, "logged": logged, "runs": runs,
                "violations": rate.rate, "low": rate.interval[0], "high": rate.interval[1],
                "largest": max(each["largest"] for each in mine),
                "deviating": sum(each["deviating"] for each in mine) / (runs * EPISODES * HORIZON),
                "contradicted": sum(each["contradicted"] for each in mine),
            }
        )  # fmt: skip
    record("linear-risk", {"episodes": EPISODES, "eta": ETA, "cells": found})
    fill(ROOT / "docs" / "linear.md", "linear-risk", table(HEADER, [row_of(each) for each in found]))


def row_of(cell: dict[str, Any]) -> list[str]:
    """Return a row of the table; the upper limit is the larger one of whole runs and of all episodes."""
    episodes, runs = cell["runs"] * EPISODES, cell["runs"]
    broken = round(cell["violations"] * episodes)
    high = max(cell["high"], clopper_pearson(broken, episodes).high)
    return [
        cell["features"], str(cell["logged"]), f"{100 * cell['risk']:g}",
        f"{100 * cell['violations']:.2f} (at most {100 * high:.2f})", f"{cell['largest']:.2f}",
        f"{100 * cell['deviating']:.1f}", f"{cell['contradicted']} of {runs}",
    ]  # fmt: skip


HEADER = [
    "features", "logged episodes", "risk, %", "violations, % of episodes (95 % limit)", "largest z*",
    "deviating steps, %", "residual test contradicts",
]  # fmt: skip


if __name__ == "__main__":
    main()
