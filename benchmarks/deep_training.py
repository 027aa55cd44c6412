"""How many environment steps a second the deep learner trains on one CPU core.

python benchmarks/deep_training.py [--repeats 7] [--episodes 20] [--to FILE]

Networks of 2 x 64, batches of 64, all three updated at every step. The process is bound to one core before
JAX is loaded, so that its thread pools have one thread. Each repeat is one call of the compiled loop;
compiling is timed apart. Rates are by processor time, which other processes disturb less, and by the clock.
`point` is a small task that costs next to nothing, `hiv` patient 5.

Writes benchmarks/results/deep-training.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

CORE = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from chary.deep import DeepOptions, Environment, begin, proceed  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
AGENTS = ("chary", "dqn", "cql")


def point() -> Environment:
    """Return a point in a square that is paid for being at its centre, with six numbers to observe."""
    moves = ((0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1))

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after = jnp.clip(state + jnp.asarray(moves)[action], -1.0, 1.0)
        return after, -jnp.sum(jnp.square(after)), jnp.bool_(False)

    def reset(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (2,), jnp.float64, -1.0, 1.0)

    return Environment(reset, lambda state: jnp.tile(state, 3), step, 4, 200)


def hiv(name: str | int = 5) -> Environment:
    """Return a patient's treatment, observation and reward standardised."""
    from chary.envs.hiv import EFFICACIES, HORIZON, START, jax_step, patient

    treated = patient(name)

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, reward, _ = jax_step.step(jnp.asarray(treated.vector), state, action)
        return after, (reward - treated.reward_mean) / treated.reward_std, jnp.bool_(False)

    return Environment(lambda key: jnp.asarray(START), jax_step.observe, step, len(EFFICACIES), HORIZON)


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def measure(environment: Environment, agent: str, episodes: int, repeats: int) -> dict[str, Any]:
    """Time the compiled loop."""
    options = DeepOptions(agent=agent, episodes=episodes * (repeats + 1), warm_up=50, pretraining=1)
    state = jax.jit(partial(begin, environment, options))(jax.random.key(0))
    # The state is given away: its ring is written in place.
    loop = jax.jit(lambda state: proceed(environment, options, state, episodes), donate_argnums=0)
    started = time.perf_counter()
    compiled = loop.lower(state).compile()
    compile_seconds = time.perf_counter() - started
    state, _ = jax.block_until_ready(compiled(state))
    steps = episodes * environment.horizon
    by_processor, by_clock = [], []
    for _ in range(repeats):
        processor, clock = time.process_time(), time.perf_counter()
        state, _ = jax.block_until_ready(compiled(state))
        by_processor.append(steps / (time.process_time() - processor))
        by_clock.append(steps / (time.perf_counter() - clock))
    return {
        "steps_a_repeat": steps,
        "compile_seconds": compile_seconds,
        "steps_a_processor_second": spread(by_processor),
        "steps_a_second": spread(by_clock),
    }


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-training.json")
    arguments = parser.parse_args()
    problems = {"point": point()}
    if find_spec("chary.envs.hiv.jax_step") is not None:
        problems["hiv"] = hiv()
    load_before = os.getloadavg()
    rates = {
        problem: {
            agent: measure(environment, agent, arguments.episodes, arguments.repeats) for agent in AGENTS
        }
        for problem, environment in problems.items()
    }
    result = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "command": "python benchmarks/deep_training.py "
        f"--repeats {arguments.repeats} --episodes {arguments.episodes}",
        "versions": {name: metadata.version(name) for name in ("chary", "jax", "jaxlib", "optax", "numpy")},
        "core": CORE,
        "cores_of_the_machine": os.cpu_count(),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "repeats": arguments.repeats,
        "rates": rates,
    }
    for problem, agents in rates.items():
        for agent, rate in agents.items():
            own, clock = rate["steps_a_processor_second"], rate["steps_a_second"]
            print(
                f"{problem:6} {agent:6} {own['median']:7.0f} steps a processor second "
                f"({own['min']:.0f} to {own['max']:.0f}), {clock['median']:.0f} a second by the clock, "
                f"compiled in {rate['compile_seconds']:.1f} s"
            )
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(arguments.to)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
