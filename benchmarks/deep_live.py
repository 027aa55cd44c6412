"""How long a step of the deep learner's step API takes: act and observe, an update of all networks included.

python benchmarks/deep_live.py [--episodes 5] [--to FILE]

Patient 5 outside JAX, 200 steps per episode; the first episode compiles and does not count. Times are those
of the processor, which other processes disturb less, and by the clock. The simulator is not part of them.

Writes benchmarks/results/deep-live.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import chary
from chary.deep import DeepAgent, DeepOptions
from chary.envs.hiv import HORIZON
from chary.envs.hiv.environment import HIVEnv

RESULTS = Path(__file__).resolve().parent / "results"
AGENTS = ("chary", "paper")


def spread(seconds: list[float]) -> dict[str, float]:
    """Return median, 99th percentile and most, in milliseconds."""
    found = np.percentile(1000.0 * np.array(seconds), [50, 99, 100])
    return dict(zip(("median", "p99", "max"), found.tolist(), strict=True))


def measure(name: str, episodes: int) -> dict[str, Any]:
    """Return the times of every step after the first episode."""
    env = HIVEnv(patient=5)
    agent = DeepAgent.for_env(env, DeepOptions(agent=name), horizon=HORIZON)
    own: list[float] = []
    clock: list[float] = []
    for k in range(episodes + 1):
        observation, _ = env.reset()
        agent.begin(k, observation)
        for t in range(HORIZON):
            started, processor = time.perf_counter(), time.process_time()
            action = agent.act(k, t, observation).action
            seconds, used = time.perf_counter() - started, time.process_time() - processor
            reached, reward, ended, _, _ = env.step(action)
            step = chary.Transition(observation, action, float(reward), reached, ended)
            started, processor = time.perf_counter(), time.process_time()
            agent.observe(k, step)
            if k:
                clock.append(seconds + time.perf_counter() - started)
                own.append(used + time.process_time() - processor)
            observation = reached
        agent.finish(k)
    return {"processor_milliseconds": spread(own), "milliseconds": spread(clock), "steps": len(own)}


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-live.json")
    arguments = parser.parse_args()
    load = os.getloadavg()
    found = {name: measure(name, arguments.episodes) for name in AGENTS}
    result = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "command": f"python benchmarks/deep_live.py --episodes {arguments.episodes}",
        "versions": {name: metadata.version(name) for name in ("chary", "jax", "jaxlib", "numpy")},
        "cores_of_the_machine": os.cpu_count(),
        "load_average": {"before": load, "after": os.getloadavg()},
        "agents": found,
    }
    for name, each in found.items():
        own, clock = each["processor_milliseconds"], each["milliseconds"]
        print(
            f"{name}: {own['median']:.2f} ms of processor time per step (99 %: {own['p99']:.2f}), "
            f"{clock['median']:.2f} ms by the clock (99 %: {clock['p99']:.2f})"
        )
    arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
