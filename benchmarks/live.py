"""Speed of live decisions and memory use over time: ICU-Sepsis, 716 states, one core.

    python benchmarks/live.py
    python benchmarks/live.py --episodes 50000 --json

Three measurements in one run: `act_many` over 1,000 open episodes, the single `act`, both over whole episodes
with what was learnt in between; and the resident memory while episodes come and go with 100 open at a time.
Ratios are relative to the simulator's own steps in the same run, because machines differ. `gc.freeze`
excludes objects from before the first decision from garbage collection; docs/live.md gives the reason.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import chary
from chary.agents import CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.envs import make
from chary.envs.tabular_env import TabularEnv
from chary.mdp import FiniteMDP
from chary.presets import preset
from chary.randomness import generator_for, seed_for

OPEN = 1000
OPEN_FOR_MEMORY = 100


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5000, help="episodes of the memory measurement")
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that 1,000 episodes are opened and played"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mdp = make("sepsis")
    agent = learner(mdp)
    # As a service would do: numba's hundreds of thousands of objects are not scanned again at every garbage
    # collection.
    gc.freeze()
    figures = {
        "version": chary.__version__,
        "python": platform.python_version(),
        "states": mdp.n_states,
        "open_at_once": OPEN,
        **many(agent, mdp, options.rounds),
        **single(agent, mdp),
        **memory(mdp, options.episodes),
    }
    if options.json:
        print(json.dumps(figures))
        return
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:,.4g}" if isinstance(value, float) else f"{name:<{width}}  {value}")


def learner(mdp: FiniteMDP) -> TabularAgent:
    """Return an agent after the paper's warm-up of 500 random episodes."""
    options = preset("sepsis")
    spec = CharyUCBVI(eta=options.eta, bonus="hoeffding", bonus_scale=options.bonus_scale("hoeffding"))
    agent = TabularAgent(spec, mdp.told("estimated"), max_episodes=1_000_000)
    dice = TabularAgent(chary.Random(), mdp.setting, generator=generator_for(0, "warmup agent"))
    played = chary.rollout(TabularEnv(mdp), dice, episodes=500, seed=seed_for(0, "warmup world"))
    agent.warm_start([episode.transitions for episode in played])
    return agent


def many(agent: TabularAgent, mdp: FiniteMDP, rounds: int) -> dict[str, float]:
    """Open 1,000 episodes at a time and play them to their ends in step with one another."""
    rates, decisions = [], 0
    for number in range(rounds):
        envs = [TabularEnv(mdp) for _ in range(OPEN)]
        states = [int(env.reset(seed=number * OPEN + i)[0]) for i, env in enumerate(envs)]
        names = [f"round {number} episode {i}" for i in range(OPEN)]
        for name, state in zip(names, states, strict=True):
            agent.begin(name, state)
        going = list(range(OPEN))
        seconds, asked = 0.0, 0
        for t in range(mdp.horizon):
            began = time.perf_counter()
            answers = agent.act_many([names[i] for i in going], [t] * len(going), [states[i] for i in going])
            seconds += time.perf_counter() - began
            asked += len(going)
            still = []
            for i, decision in zip(going, answers, strict=True):
                x, reward, terminated, truncated, _ = envs[i].step(np.int64(decision.action))
                agent.observe(names[i], Transition(states[i], decision.action, reward, int(x), terminated))
                states[i] = int(x)
                if not (terminated or truncated):
                    still.append(i)
            going = still
        for name in names:
            agent.finish(name)
        rates.append(asked / seconds)
        decisions += asked
    return {
        "act_many_decisions": decisions,
        "act_many_per_second": statistics.median(rates),
        "act_many_per_second_lowest": min(rates),
        "act_many_per_second_highest": max(rates),
    }


def single(agent: TabularAgent, mdp: FiniteMDP, episodes: int = 1000) -> dict[str, float]:
    """Play one episode after the other, replanning after each, and time every call of `act`."""
    calls: list[float] = []
    steps: list[float] = []
    for began, ended, stepped in play_singly(agent, mdp, episodes):
        calls.append(ended - began)
        steps.append(stepped - ended)
    median, world = statistics.median(calls), statistics.median(steps)
    return {
        "act_us_median": 1e6 * median,
        "act_us_p90": 1e6 * float(np.quantile(calls, 0.9)),
        "world_step_us_median": 1e6 * world,
        "act_per_world_step": median / world,
    }


def play_singly(agent: TabularAgent, mdp: FiniteMDP, episodes: int) -> Iterator[tuple[float, float, float]]:
    """Yield, for every step, the times of calling `act`, of its return, and of the world's next state."""
    env = TabularEnv(mdp)
    for k in range(episodes):
        s = int(env.reset(seed=10**6 + k)[0])
        agent.begin(k, s)
        for t in range(mdp.horizon):
            began = time.perf_counter()
            decision = agent.act(k, t, s)
            ended = time.perf_counter()
            x, reward, terminated, truncated, _ = env.step(np.int64(decision.action))
            yield began, ended, time.perf_counter()
            agent.observe(k, Transition(s, decision.action, reward, int(x), terminated))
            s = int(x)
            if terminated or truncated:
                break
        agent.finish(k)


def memory(mdp: FiniteMDP, episodes: int) -> dict[str, float]:
    """Keep 100 episodes open, each begun when another ends, and read the resident memory on the way."""
    agent = learner(mdp)
    envs = {}
    begun = 0
    readings: list[float] = []
    began = time.perf_counter()
    while begun < episodes or envs:
        while begun < episodes and len(envs) < OPEN_FOR_MEMORY:
            env = TabularEnv(mdp)
            state = int(env.reset(seed=begun)[0])
            agent.begin(begun, state)
            envs[begun] = [env, state, 0]
            begun += 1
            if begun % max(episodes // 10, 1) == 0:
                readings.append(resident_mb())
        for k, (env, s, t) in list(envs.items()):
            decision = agent.act(k, t, s)
            x, reward, terminated, truncated, _ = env.step(np.int64(decision.action))
            agent.observe(k, Transition(s, decision.action, reward, int(x), terminated))
            envs[k] = [env, int(x), t + 1]
            if terminated or truncated:
                agent.finish(k)
                del envs[k]
    seconds = time.perf_counter() - began
    return {
        "memory_episodes": episodes,
        "memory_open_at_once": OPEN_FOR_MEMORY,
        "memory_mb_after_a_tenth": readings[0],
        "memory_mb_at_half": readings[len(readings) // 2 - 1],
        "memory_mb_at_the_end": readings[-1],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ms_per_episode": 1000 * seconds / episodes,
    }


def resident_mb() -> float:
    """Return the memory that this process uses now."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
