"""Training speed of the deep learner on one CPU core, in environment steps per second.

python benchmarks/deep_training.py [--repeats 7] [--episodes 20] [--processes 2] [--agents A ...]
    [--alone] [--to FILE]

Networks of 2 x 64, batches of 64, all of them updated at every step: three of `paper`, ten of `chary`, and
one more of `dqn` and `cql`. The agents take turns, and a ratio is of two neighbouring turns. The process is
bound to one core before JAX is loaded, so that its thread pools have one thread. Each repeat is one call of
the compiled loop; compilation is timed separately. Rates are by processor time, which other processes disturb
less, and by wall time. `point` is a small task that costs almost nothing, `hiv` is patient 5.

Where Stable-Baselines3 is installed, its DQN trains on the same patient in turn with ours: one network of
2 x 64, an update of 64 transitions at every step, one thread. A ratio is of two neighbouring turns.

With `--processes N`, N processes train on the patient at the same time, one per core, after one alone.

`--alone` measures the patient alone, without Stable-Baselines3. Writes benchmarks/results/deep-training.json,
or FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

CORES = sorted(os.sched_getaffinity(0))
CORE = CORES[0]
os.sched_setaffinity(0, {CORE})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from chary.deep import DeepOptions, Environment, begin, proceed  # noqa: E402
from chary.deep.simulation.hiv import hiv  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
# `paper` has three networks, `chary` an ensemble of ten, and the others one network more.
AGENTS = ("paper", "chary", "dqn", "cql")
# Steps of Stable-Baselines3 in one turn, about a second.
STEPS_OF_SB3 = 1_000


def point() -> Environment:
    """Return a point in a square that is paid for being at its centre, with six numbers to observe."""
    moves = ((0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1))

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after = jnp.clip(state + jnp.asarray(moves)[action], -1.0, 1.0)
        return after, -jnp.sum(jnp.square(after)), jnp.bool_(False)

    def reset(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (2,), jnp.float64, -1.0, 1.0)

    return Environment(reset, lambda state: jnp.tile(state, 3), step, 4, 200)


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": median(values), "min": min(values), "max": max(values)}


class Trainer:
    """A compiled training loop and its current state."""

    def __init__(self, environment: Environment, agent: str, episodes: int, repeats: int) -> None:
        options = DeepOptions(agent=agent, episodes=episodes * (repeats + 1), warm_up=50, pretraining=1)
        self.steps = episodes * environment.horizon
        self.state = jax.jit(partial(begin, environment, options))(jax.random.key(0))
        # The state is donated: its ring is written in place.
        loop = jax.jit(lambda state: proceed(environment, options, state, episodes), donate_argnums=0)
        started = time.perf_counter()
        self.compiled = loop.lower(self.state).compile()
        self.compile_seconds = time.perf_counter() - started
        self.turn()

    def turn(self) -> tuple[float, float]:
        """Continue training, and return the steps per second of processor time and of wall time."""
        processor, clock = time.process_time(), time.perf_counter()
        self.state, _ = jax.block_until_ready(self.compiled(self.state))
        return self.steps / (time.process_time() - processor), self.steps / (time.perf_counter() - clock)


def measure(
    environment: Environment, agents: Sequence[str], episodes: int, repeats: int
) -> dict[str, dict[str, Any]]:
    """Time the compiled loops of agents in turn."""
    trainers = {agent: Trainer(environment, agent, episodes, repeats) for agent in agents}
    rates: dict[str, list[tuple[float, float]]] = {agent: [] for agent in agents}
    for _ in range(repeats):
        for agent, trainer in trainers.items():
            rates[agent].append(trainer.turn())
    reference = [own for own, _ in rates[agents[0]]]
    return {
        agent: {
            "steps_a_repeat": trainer.steps,
            "compile_seconds": trainer.compile_seconds,
            "steps_a_processor_second": spread([own for own, _ in rates[agent]]),
            "steps_a_second": spread([clock for _, clock in rates[agent]]),
            f"times_{agents[0]}": spread(
                [base / own for base, (own, _) in zip(reference, rates[agent], strict=True)]
            ),
        }
        for agent, trainer in trainers.items()
    }


def against_sb3(episodes: int, repeats: int) -> dict[str, Any]:
    """Time Stable-Baselines3's DQN and our agents in turn, by processor time."""
    import gymnasium
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        gymnasium.make("chary/HIV-v0", patient=5),
        policy_kwargs={"net_arch": [64, 64]},
        buffer_size=100_000,
        batch_size=64,
        train_freq=1,
        gradient_steps=1,
        learning_starts=64,
        device="cpu",
        seed=0,
    )
    trainers = {agent: Trainer(hiv(5), agent, episodes, repeats) for agent in ("chary", "dqn")}

    def turn() -> float:
        processor = time.process_time()
        model.learn(STEPS_OF_SB3, reset_num_timesteps=False)
        return STEPS_OF_SB3 / (time.process_time() - processor)

    turn()
    theirs: list[float] = []
    ours: dict[str, list[float]] = {agent: [] for agent in trainers}
    for _ in range(repeats):
        theirs.append(turn())
        for agent, trainer in trainers.items():
            ours[agent].append(trainer.turn()[0])
    return {
        "versions": {name: metadata.version(name) for name in ("stable_baselines3", "torch", "gymnasium")},
        "sb3_steps_a_processor_second": spread(theirs),
        "ours_steps_a_processor_second": {agent: spread(rates) for agent, rates in ours.items()},
        "ratio": {
            agent: spread([own / their for own, their in zip(rates, theirs, strict=True)])
            for agent, rates in ours.items()
        },
    }


def side_by_side(number: int, episodes: int, repeats: int) -> list[float]:
    """Return the steps per second of wall time of each of several processes that train at the same time."""
    command = [sys.executable, __file__, "--worker", "--repeats", str(repeats), "--episodes", str(episodes)]
    workers = []
    for core in CORES[:number]:
        os.sched_setaffinity(0, {core})
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    os.sched_setaffinity(0, {CORE})
    # No process starts before all have compiled.
    for worker in workers:
        worker.stdout.readline()
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    return [float(worker.communicate()[0]) for worker in workers]


def work(episodes: int, repeats: int) -> None:
    """Run one of the processes of `side_by_side`."""
    trainer = Trainer(hiv(5), "chary", episodes, repeats)
    print("ready", flush=True)
    sys.stdin.readline()
    print(median(trainer.turn()[1] for _ in range(repeats)), flush=True)


def scaling(number: int, episodes: int, repeats: int) -> dict[str, Any]:
    """Compare one process alone with several, each on its own core."""
    alone = side_by_side(1, episodes, repeats)[0]
    together = side_by_side(number, episodes, repeats)
    return {
        "processes": number,
        "alone_steps_a_second": alone,
        "together_steps_a_second": together,
        "sum_over_alone": sum(together) / alone,
    }


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--alone", action="store_true", help="the patient alone, without Stable-Baselines3")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-training.json")
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.episodes, arguments.repeats)
        return
    if not 1 <= arguments.processes <= len(CORES):
        parser.error(f"--processes must lie in 1..{len(CORES)}, the cores there are")
    problems = {"hiv": hiv(5)} if arguments.alone else {"point": point(), "hiv": hiv(5)}
    load_before = os.getloadavg()
    rates = {
        problem: measure(environment, arguments.agents, arguments.episodes, arguments.repeats)
        for problem, environment in problems.items()
    }
    result = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "command": "python benchmarks/deep_training.py "
        f"--repeats {arguments.repeats} --episodes {arguments.episodes} --processes {arguments.processes}"
        + (f" --agents {' '.join(arguments.agents)} --alone" if arguments.alone else ""),
        "versions": {name: metadata.version(name) for name in ("chary", "jax", "jaxlib", "optax", "numpy")},
        "core": CORE,
        "cores_of_the_machine": os.cpu_count(),
        "load_average": {"before": load_before},
        "repeats": arguments.repeats,
        "rates": rates,
    }
    if find_spec("stable_baselines3") is not None and not arguments.alone:
        result["sb3"] = against_sb3(arguments.episodes, arguments.repeats)
    if arguments.processes > 1:
        result["scaling"] = scaling(arguments.processes, arguments.episodes, arguments.repeats)
    result["load_average"]["after"] = os.getloadavg()
    for problem, agents in rates.items():
        for agent, rate in agents.items():
            own, clock = rate["steps_a_processor_second"], rate["steps_a_second"]
            print(
                f"{problem:6} {agent:6} {own['median']:7.0f} steps per second of processor time "
                f"({own['min']:.0f} to {own['max']:.0f}), {clock['median']:.0f} per second of wall time, "
                f"compiled in {rate['compile_seconds']:.1f} s, a step takes "
                f"{rate[f'times_{arguments.agents[0]}']['median']:.2f} times that of {arguments.agents[0]}"
            )
    if "sb3" in result:
        theirs = result["sb3"]["sb3_steps_a_processor_second"]
        print(f"hiv    sb3    {theirs['median']:7.0f} steps per second of processor time")
        for agent, ratio in result["sb3"]["ratio"].items():
            print(f"{agent} / sb3: {ratio['median']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})")
    if "scaling" in result:
        together = result["scaling"]
        print(
            f"{together['processes']} processes together: {together['sum_over_alone']:.2f} times one alone "
            f"({together['alone_steps_a_second']:.0f} steps per second of wall time)"
        )
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(arguments.to)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
