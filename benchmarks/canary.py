"""The canary: whether its promise breaks, and what it reaches on ICU-Sepsis from usual care. docs/canary.md.

Coins: policies are coins with known means, candidates are named by an adversary, and returns arrive late or
never depending on what they are. A run is broken if in any episode p (V_incumbent - V_candidate) > eta.
`as they arrive` is the control: it counts returns when they arrive, in place of the order of starts.

Sepsis: 50,000 episodes after 500 random ones, eta 0.1, delta 0.1, from the clinicians' most frequent actions.

    python benchmarks/canary.py --runs 1000 --seeds 10

Runs are seeded 0, 1, ...; tables go to stdout, the numbers to benchmarks/results/canary.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from chary.agents._release import Release, Slot
from chary.audit import Truth
from chary.statistics import bootstrap_mean, clopper_pearson

ETA, DELTA = 0.1, 0.1
EPISODES, WARMUP = 50_000, 500
BATCH = 25

# The number of episodes after which a return is known, None for never.
Delay = Callable[[float, np.random.Generator], int | None]


class Case(NamedTuple):
    """An incumbent, its candidates in order, and what happens to returns.

    With `every` a candidate is replaced after so many episodes. `arrival` counts returns as they arrive.
    """

    incumbent: float
    candidates: tuple[float, ...]
    delay: Delay = lambda value, chance: 0
    spread: bool = False
    every: int = 0
    arrival: bool = False


def _late(when: Callable[[float], bool], wait: int | None, share: float = 1.0) -> Delay:
    return lambda value, chance: wait if when(value) and chance.random() < share else 0


def _bad(value: float) -> bool:
    return value < 0.5


def _good(value: float) -> bool:
    return value >= 0.5


CASES = {
    "terrible candidates": Case(0.8, (0.0, 0.1, 0.0)),
    "as good as the incumbent": Case(0.5, (0.5, 0.5, 0.5)),
    "slightly worse": Case(0.9, (0.75, 0.78, 0.7)),
    "better, then terrible": Case(0.3, (0.8, 0.1, 0.2)),
    "fifty candidates": Case(0.8, (0.2,) * 50, every=8),
    "failures arrive late": Case(0.7, (0.3, 0.2, 0.4), _late(_bad, 60)),
    "successes arrive late": Case(0.7, (0.3, 0.2, 0.4), _late(_good, 60)),
    "failures get lost": Case(0.7, (0.3, 0.2, 0.4), _late(_bad, None, 0.7)),
    "successes get lost": Case(0.7, (0.3, 0.2, 0.4), _late(_good, None, 0.7)),
    "returns between 0 and 1": Case(0.7, (0.4, 0.3, 0.5), spread=True),
    "failures arrive late, as they arrive": Case(0.7, (0.2,), _late(_bad, 5000), arrival=True),
}


def coins(
    case: Case, chance: np.random.Generator, *, episodes: int, delta: float = DELTA
) -> tuple[Release, float]:
    """Play a run, and return the largest expected loss before a coin."""
    nothing = np.zeros((1, 1), dtype=np.int64)
    release = Release(nothing, eta=ETA, delta=delta, share=1.0)
    worth, left, worst, since = [case.incumbent], list(case.candidates), 0.0, 0
    late: dict[int, list[tuple[int, Slot, float]]] = {}
    for k in range(episodes):
        since += 1
        if left and (release.candidate is None or (case.every and since > case.every)):
            release.propose(nothing)
            worth.append(left.pop(0))
            since = 0
        candidate = release.candidate or release.incumbent
        loss = worth[release.incumbent.number - 1] - worth[candidate.number - 1]
        worst = max(worst, release.probability * loss)
        assigned, slot = release.begin(chance.random())
        mean = worth[assigned.policy - 1]
        value = chance.beta(4 * mean, 4 * (1 - mean)) if case.spread else float(chance.random() < mean)
        wait = case.delay(value, chance)
        if wait is None:
            slot.resolve(None)
        else:
            late.setdefault(k + wait, []).append((assigned.policy, slot, value))
        for policy, arrived, known in late.pop(k, []):
            if case.arrival:
                release.numbered(policy).add(known, known)
            else:
                arrived.resolve(known)
        release.settle()
    return release, worst


def play(job: str) -> dict[str, Any]:
    """Play a batch of runs with coins, or one run of sepsis."""
    import chary

    told = json.loads(job)
    if "case" in told:
        found = [
            coins(CASES[told["case"]], np.random.default_rng(seed), episodes=told["episodes"])
            for seed in range(told["seed"], told["seed"] + BATCH)
        ]
        changes = [change.kind for release, _ in found for change in release.changes]
        return {
            "broken": sum(worst > ETA + 1e-12 for _, worst in found),
            "worst": max(worst for _, worst in found),
            **{kind: changes.count(kind) for kind in ("promoted", "dropped")},
        }
    spec = chary.Canary(eta=ETA, delta=DELTA, prior="recorded", **told["options"])
    mdp = chary.envs.sepsis()
    run = chary.simulate(mdp, spec, episodes=told["episodes"], warmup=WARMUP, seed=told["seed"])
    assert run.canary is not None
    truth = Truth(mdp)
    best = truth.value_of_start(truth.optimal_value)
    changes = run.canary.changes
    promoted = [change for change in changes if change.kind == "promoted"]
    return {
        "regret": float(run.regret.sum()),
        "promoted": len(promoted),
        "first_promotion": promoted[0].episode if promoted else None,
        "candidates": len(changes),
        "first_value": run.incumbent_value,
        "last_value": float(run.baseline_value[-1]),
        "max_loss": float(run.canary.loss.max()),
        "breaches": run.canary.summary(ETA, 1.0)["breaches"],
        "violations": int(run.violations().sum()),
        "seconds": run.seconds,
        "usual_care": run.episodes * (best - run.incumbent_value),
    }


SPECS: dict[str, dict[str, Any]] = {
    "posterior worlds": {"reward": "known"},
    "lower bounds (hoeffding, scale 0.0005)": {
        "reward": "known", "candidates": "lower", "bonus": "hoeffding", "bonus_scale": 0.0005
    },
    "lower bounds (kl)": {"reward": "known", "candidates": "lower"},
}  # fmt: skip


def main() -> None:
    """Play everything, print two tables, and keep the numbers."""
    from _jobs import play_all, record, table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    given = parser.parse_args()
    batches = [range(0, given.runs, BATCH), CASES]
    jobs = [{"case": case, "seed": seed, "episodes": 1000} for case in batches[1] for seed in batches[0]]
    played = play_all(jobs, worker=play)
    per_case = {}
    for case in CASES:
        mine = [found for job, found in zip(jobs, played, strict=True) if job["case"] == case]
        sums = {name: sum(each[name] for each in mine) for name in ("broken", "promoted", "dropped")}
        runs = BATCH * len(mine)
        interval = clopper_pearson(sums["broken"], runs)
        per_case[case] = {
            "runs": runs, **sums, "interval": list(interval), "worst": max(each["worst"] for each in mine)
        }  # fmt: skip
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    jobs = [
        {"spec": name, "options": options, "seed": seed, "episodes": given.episodes}
        for name, options in SPECS.items()
        for seed in seeds
    ]
    played = play_all(jobs, worker=play)
    sepsis = {
        name: [found for job, found in zip(jobs, played, strict=True) if job["spec"] == name]
        for name in SPECS
    }
    record("canary", {"eta": ETA, "delta": DELTA, "coins": per_case, "sepsis": sepsis})
    print(table(["case", "runs", "broken", "95 % interval", "worst loss", "promoted", "dropped"], [
        [name, f"{row['runs']}", f"{row['broken']}", "{:.4f} to {:.4f}".format(*row["interval"]),
         f"{row['worst']:.3f}", f"{row['promoted']}", f"{row['dropped']}"]
        for name, row in per_case.items()
    ]))  # fmt: skip
    rows = []
    for name, runs_ in sepsis.items():
        regret = bootstrap_mean([run["regret"] for run in runs_]) if len(runs_) > 1 else None
        rows.append([
            name,
            f"{np.mean([run['regret'] for run in runs_]):,.0f}"
            + (f" ({regret.low:,.0f} to {regret.high:,.0f})" if regret else ""),
            f"{sum(run['promoted'] > 0 for run in runs_)} of {len(runs_)}",
            f"{np.mean([run['last_value'] for run in runs_]):.4f}",
            f"{max(run['max_loss'] for run in runs_):.4f}",
            f"{sum(run['breaches'] for run in runs_)}",
            f"{1000 * np.mean([run['violations'] for run in runs_]) / given.episodes:.1f}",
            f"{np.median([run['seconds'] for run in runs_]):.1f}",
        ])  # fmt: skip
    print(table(["candidates", "regret", "promoted", "last value", "worst loss", "breaches",
                 "violations per 1,000", "seconds"], rows))  # fmt: skip
    print(f"usual care: regret {sepsis['posterior worlds'][0]['usual_care']:,.0f}")


if __name__ == "__main__":
    main()
