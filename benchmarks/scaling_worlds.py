"""Growth of the time of a plan and of memory with states, actions, horizon and worlds, on random sparse MDPs.

python benchmarks/scaling_worlds.py [--quick] [--big-only]

The sibling of scaling.py for `bonus = "posterior"`. One quantity changes at a time around 1,000 states, 5
actions, horizon 20 and 32 judging worlds (16 more explore); a pair has 5 successors and 8 visits on average.
A plan is what one growth of the data costs: teaching the worlds, and the joint backward induction. Each point
is measured in a process of its own that compiled before; exponents are least squares in log-log. Time is
processor time, the median of three plans.

The large point, 20,000 states, 10 actions, horizon 20 and 32 worlds after 20,000 random episodes, must stay
below 4 GiB, the whole process included.

Writes benchmarks/results/scaling-worlds.json; --big-only replaces the large point there, and --quick writes
nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

import numpy as np

from _jobs import RESULTS, provenance, record, table
from chary._workers import worker_pool

CENTRE = {"states": 1_000, "actions": 5, "horizon": 20, "worlds": 32}
AXES = {
    "states": [250, 1_000, 4_000],
    "actions": [2, 5, 20],
    "horizon": [5, 20, 80],
    "worlds": [8, 32, 128],
}
BIG = {"states": 20_000, "actions": 10, "horizon": 20, "worlds": 32, "warmup": 20_000}
LIMIT_MIB = 4096
SUCCESSORS, VISITS, PLANS = 5, 8, 3


def peak_mib() -> float:
    """Return the largest resident set of this process so far."""
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(job: str) -> dict[str, Any]:
    """Measure one point in this process, described in JSON."""
    import chary
    from chary.simulation import Simulation

    def agent(horizon: int, worlds: int) -> chary.CharyUCBVI:
        return chary.CharyUCBVI(
            eta=0.02 * horizon, bonus="posterior", worlds=worlds, growth=1e-9, pool=10, patience=None
        )

    told = json.loads(job)
    tiny = chary.envs.random(n_states=80, n_actions=2, horizon=4, successors=3)
    chary.simulate(tiny, agent(4, 4), episodes=4, warmup=10)
    before = peak_mib()
    S, A, H = told["states"], told["actions"], told["horizon"]
    warmup = told.get("warmup", max(1, round(VISITS * S * A / H)))
    mdp = chary.envs.random(n_states=S, n_actions=A, horizon=H, successors=SUCCESSORS)
    began = time.process_time()
    simulation = Simulation(mdp, agent(H, told["worlds"]), episodes=PLANS + 1, warmup=warmup)
    simulation.start()
    started, seconds, done = time.process_time() - began, [], 0
    # With so little growth every episode is planned for.
    while done < PLANS + 1:
        now = time.process_time()
        was, done = done, simulation.advance()
        seconds.append((time.process_time() - now) / (done - was))
    return {
        **told,
        "warmup": warmup,
        "start_seconds": started,
        "plan_seconds": float(np.median(seconds)),
        "memory_mib": peak_mib() - before,
        "process_mib": peak_mib(),
    }


def alone(point: dict[str, int]) -> dict[str, Any]:
    """Measure one point in a fresh process."""
    with worker_pool(1) as pool:
        found = pool.submit(measure, json.dumps(point)).result()
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}, file=sys.stderr)
    return found


def exponent(x: list[int], y: list[float]) -> float:
    """Return the slope of the least-squares line through log x and log y."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small points alone; records nothing")
    parser.add_argument("--big-only", action="store_true", help="measure the large point alone again")
    told = parser.parse_args()
    results, rows = [], []
    if not told.big_only:
        points = {axis: values[:2] if told.quick else values for axis, values in AXES.items()}
        for axis, values in points.items():
            runs = [alone({**CENTRE, axis: value}) for value in values]
            results += [{"axis": axis, **run} for run in runs]
            slopes = [exponent(values, [r[name] for r in runs]) for name in ("plan_seconds", "memory_mib")]
            rows.append([axis, ", ".join(f"{value:,}" for value in values), *(f"{s:.2f}" for s in slopes)])
        print(table(["", "values", "exponent of the time of a plan", "exponent of memory"], rows))
    if told.quick:
        return
    big = alone(BIG)
    kept = big["process_mib"] < LIMIT_MIB
    print(
        f"\n{big['states']:,} states, {big['actions']} actions, horizon {big['horizon']}, {big['worlds']} "
        f"worlds: "
        f"{big['start_seconds']:.0f} s to start, {big['plan_seconds']:.1f} s per plan, peak "
        f"{big['process_mib']:,.0f} MiB, limit {LIMIT_MIB:,}: {'kept' if kept else 'BROKEN'}."
    )
    measured = {"centre": CENTRE, "runs": results, "exponents": rows}
    if told.big_only:
        measured = json.loads((RESULTS / "scaling-worlds.json").read_text())
    record("scaling-worlds", {**measured, "big": {**big, "provenance": provenance()}})
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
