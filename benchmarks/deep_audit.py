"""Cost of the exact audit of the deep learner by lanes, in microseconds of one core per baseline step.

python benchmarks/deep_audit.py [--repeats 7] [--to FILE]

Patient 5, networks of 2 x 64, after several numbers of episodes played at random and learnt from. An episode
of random actions is then audited by the compiled simulator, for several numbers of lanes. `all` treats every
step as a deviation, like an agent that explores almost always; `few` treats one step in twenty so. Numbers of
lanes take turns within each repeat. Times are processor time; compilation is timed separately. The process is
bound to one core before JAX is loaded.

Also recorded: the largest difference between numbers of lanes, and the number of visited states at which the
baseline's action depends on how the network was computed: one state at a time as in the training loop, all at
once, or by NumPy.

Writes benchmarks/results/deep-audit.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

CORE = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from chary.deep import DeepOptions, begin, proceed  # noqa: E402
from chary.deep.networks import LOWER, Networks, forward, one, with_time  # noqa: E402
from chary.deep.simulation.audit import audit_episode  # noqa: E402
from chary.deep.simulation.hiv import hiv  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
PATIENT = 5
STAGES = (1, 20, 60, 150)
LANES = (8, 16, 24, 32, 64, 200)
FEW = 20


def ready(value: Any) -> Any:
    """Wait for a result and return it."""
    return jax.block_until_ready(value)  # type: ignore[no-untyped-call]


def processor_seconds(call: Any) -> float:
    """Return the processor time of one call."""
    started = time.process_time()
    ready(call())
    return time.process_time() - started


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def deviating(steps: Any, every: int) -> Any:
    """Return the log as if another action than the baseline's had been played at each `every`-th step."""
    where = np.arange(len(steps.action)) % every == 0
    return steps._replace(action=jnp.where(where, (steps.baseline + 1) % 4, steps.baseline))


def flips(plan: Networks, steps: Any) -> dict[str, int]:
    """Return the number of states (H,) at which the baseline's action differs from the log."""
    lower, horizon = one(plan, LOWER), len(steps.action)
    inputs = jax.vmap(partial(with_time, horizon=horizon))(steps.observation, jnp.arange(horizon))
    at_once = jnp.argmax(forward(lower, inputs)[0], axis=-1)
    w1, b1, w2, b2, w3, b3 = (np.asarray(leaf)[0] for leaf in lower)
    hidden = np.maximum(np.maximum(np.asarray(inputs) @ w1 + b1, 0) @ w2 + b2, 0)
    by_numpy = np.argmax(hidden @ w3.T + b3, axis=1)
    return {
        "states": horizon,
        "all_at_once": int(np.sum(np.asarray(at_once) != steps.baseline)),
        "by_numpy": int(np.sum(by_numpy != steps.baseline)),
    }


def measure(repeats: int) -> dict[str, Any]:
    """Train, and audit at every stage."""
    environment, options = hiv(PATIENT), DeepOptions(agent="random", learner="networks", episodes=max(STAGES))
    state = jax.jit(partial(begin, environment, options))(jax.random.key(0))
    play = jax.jit(lambda state: proceed(environment, options, state, 1, record=True), donate_argnums=0)
    audits: dict[str, Any] = {
        f"jax, {lanes} lanes": jax.jit(partial(audit_episode, environment, options, lanes=lanes))
        for lanes in LANES
    }
    compile_seconds: dict[str, float] = {}
    stages, turned, played = [], {"states": 0, "all_at_once": 0, "by_numpy": 0}, 0
    for stage in STAGES:
        while played < stage:
            state, log, steps = play(state)
            played += 1
            episode = jax.tree.map(lambda leaf: leaf[0], steps)
            for name, number in flips(state.plan, episode).items():
                turned[name] += number
        found: dict[str, Any] = {"episodes": played, "deviated": int(log.deviated[0])}
        for kind, every in (("all", 1), ("few", FEW)):
            case = deviating(episode, every)
            starts = np.arange(0, environment.horizon, every)
            baseline_steps = int(np.sum(environment.horizon - starts))
            seconds: dict[str, list[float]] = {name: [] for name in audits}
            results = {}
            for name, audit in audits.items():
                started = time.perf_counter()
                results[name] = ready(audit(state.plan, case))
                compile_seconds.setdefault(name, time.perf_counter() - started)
            for _ in range(repeats):
                for name, audit in audits.items():
                    seconds[name].append(processor_seconds(partial(audit, state.plan, case)))
            exact = float(next(iter(results.values())).deficit)
            found[kind] = {
                "baseline_steps": baseline_steps,
                "deficit": exact,
                "largest_relative_difference_of_deficits": max(
                    abs(float(result.deficit) - exact) / abs(exact) for result in results.values()
                ),
                "microseconds_a_baseline_step": {
                    name: spread([1e6 * each / baseline_steps for each in times])
                    for name, times in seconds.items()
                },
            }
        stages.append(found)
    return {"first_call_seconds": compile_seconds, "stages": stages, "flips": turned}


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-audit.json")
    arguments = parser.parse_args()
    load_before = os.getloadavg()
    measured = measure(arguments.repeats)
    result = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "command": f"python benchmarks/deep_audit.py --repeats {arguments.repeats}",
        "versions": {name: metadata.version(name) for name in ("chary", "jax", "jaxlib", "numba", "numpy")},
        "core": CORE,
        "cores_of_the_machine": os.cpu_count(),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "repeats": arguments.repeats,
        **measured,
    }
    for stage in measured["stages"]:
        for kind in ("all", "few"):
            times = stage[kind]["microseconds_a_baseline_step"]
            told = ", ".join(f"{name} {each['median']:.2f}" for name, each in times.items())
            print(f"after {stage['episodes']:3} episodes, {kind}: microseconds per baseline step: {told}")
    print("flips:", measured["flips"])
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(arguments.to)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
