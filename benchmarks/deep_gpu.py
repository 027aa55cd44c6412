"""Training speed of the deep learner on a GPU, in environment steps per second, with ODE and audit sample.

python benchmarks/deep_gpu.py [--lanes 64 128 256] [--repeats 5] [--to FILE]

Every lane is a separate run on patient 5: its own seed, one of four budgets, networks of 2 x 64, batches of
64, all three updated at every step. A repeat is one compiled call: ten episodes of 200 steps in every lane,
the last of them audited by rollouts of its baseline, and one more episode held out and audited. `without
audit` is the same call without audits. Compilation is timed separately. Writes
benchmarks/results/deep-gpu.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import jax

from chary.deep import DeepOptions
from chary.deep.simulation import DeepSimulation
from chary.deep.simulation.hiv import hiv
from chary.deep.simulation.lanes import DeepLanes
from chary.envs.hiv import HORIZON

RESULTS = Path(__file__).resolve().parent / "results"
ETAS = (40.0, 60.0, 80.0, 100.0)
EPISODES_A_CALL = 10


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def measured(agent: str, lanes: int, repeats: int, audit_every: int) -> dict[str, Any]:
    """Time `repeats` calls, after one that compiles."""
    options = [DeepOptions(agent=agent, eta=ETAS[lane % len(ETAS)], episodes=1000) for lane in range(lanes)]
    batch = DeepLanes(
        [
            DeepSimulation(hiv(5), each, seed=lane, audit_every=audit_every)
            for lane, each in enumerate(options)
        ]
    )
    began = time.perf_counter()
    batch.start()
    batch.advance()
    compiled = time.perf_counter() - began
    rates = []
    for _ in range(repeats):
        before, began = batch.done, time.perf_counter()
        steps = (batch.advance() - before) * HORIZON * lanes
        rates.append(steps / (time.perf_counter() - began))
    batch.settle()
    booked = max(float(one.state()["log.deficit"].max()) for one in batch.simulations)
    assert booked <= max(ETAS), "a ledger beyond its budget: nothing was measured"
    return {"steps_a_second": spread(rates), "first_call_seconds": compiled, "largest_deficit": booked}


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--agent", choices=("chary", "paper"), default="chary")
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-gpu.json")
    arguments = parser.parse_args()
    rows = []
    for lanes in arguments.lanes:
        row = {
            "lanes": lanes,
            "with_audit": measured(arguments.agent, lanes, arguments.repeats, EPISODES_A_CALL),
        }
        rows.append(row)
        rate = row["with_audit"]["steps_a_second"]
        print(
            f"{lanes:4} lanes: {rate['median']:9.0f} steps/s ({rate['min']:.0f} to {rate['max']:.0f})",
            flush=True,
        )
    rows[0]["without_audit"] = measured(arguments.agent, arguments.lanes[0], arguments.repeats, 0)
    numbers = " ".join(map(str, arguments.lanes))
    result = {
        "question": (__doc__ or "").splitlines()[0],
        "command": f"python benchmarks/deep_gpu.py --lanes {numbers} --repeats {arguments.repeats}"
        f" --agent {arguments.agent}",
        "device": jax.devices()[0].device_kind,
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "optax", "numpy")},
        "rows": rows,
    }
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(arguments.to)


if __name__ == "__main__":
    main()
