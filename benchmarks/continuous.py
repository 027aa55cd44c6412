"""Facts about the problems with continuous states: returns of simple policies, and the cost of a step.

python benchmarks/continuous.py [--episodes 20]

Writes benchmarks/results/continuous.json and the tables of docs/continuous.md.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np

from _jobs import ROOT, fill, record, table
from chary.deep import environment_of
from chary.envs.continuous import CONTINUOUS, ContinuousEnv, Equations

LANES, REPEATS = 128, 5
FIRST_SEED = 1000


def returns_of(equations: Equations, action: int | None, episodes: int) -> list[float]:
    """Return the sums of rewards of one action throughout, or of random ones."""
    env = ContinuousEnv(equations)
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + episodes):
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            played = rng.integers(0, len(equations.actions)) if action is None else action
            _, reward, terminated, truncated, _ = env.step(np.int64(played))
            total, over = total + reward, terminated or truncated
        found.append(total)
    return found


def microseconds(equations: Equations, lanes: int) -> float:
    """Return the median processor time of one step of one lane, in one scan over an episode."""
    with jax.enable_x64(True):
        environment = environment_of(equations)
        keys = jax.random.split(jax.random.key(0), lanes)
        states = jax.vmap(environment.reset)(keys)
        shape = (equations.horizon, lanes)
        actions = jax.random.randint(jax.random.key(1), shape, 0, environment.n_actions)

        def play(states: Any, actions: Any) -> Any:
            def body(state: Any, action: Any) -> Any:
                after, reward, _ = jax.vmap(environment.step)(state, action)
                return after, reward

            return jax.lax.scan(body, states, actions)

        compiled = jax.jit(play)
        jax.block_until_ready(compiled(states, actions))
        taken = []
        for _ in range(REPEATS):
            began = time.process_time()
            jax.block_until_ready(compiled(states, actions))
            taken.append(time.process_time() - began)
    return float(np.median(taken)) / (equations.horizon * lanes) * 1e6


def main() -> None:
    """Measure, record, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    episodes = parser.parse_args().episodes
    found: dict[str, Any] = {}
    for name, kind in CONTINUOUS.items():
        equations = kind()
        policies = {"random": returns_of(equations, None, episodes)}
        for action, label in enumerate(equations.actions):
            policies[label] = returns_of(equations, action, episodes)
        found[name] = {
            "returns": {label: float(np.mean(values)) for label, values in policies.items()},
            "microseconds": {str(lanes): microseconds(equations, lanes) for lanes in (1, LANES)},
        }
    record("continuous", {"episodes": episodes, "lanes": LANES, "problems": found})
    rows = [
        [name, label, f"{value:.1f}"]
        for name, facts in found.items()
        for label, value in facts["returns"].items()
    ]
    page = ROOT / "docs" / "continuous.md"
    fill(page, "returns", table(["problem", "policy", "sum of rewards, mean"], rows))
    costs = [
        [name, *(f"{each:.2g}" for each in facts["microseconds"].values())] for name, facts in found.items()
    ]
    fill(
        page, "cost", table(["problem", "one lane, µs per step", f"{LANES} lanes, µs per step of one"], costs)
    )


if __name__ == "__main__":
    main()
