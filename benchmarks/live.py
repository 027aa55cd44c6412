"""Speed of live decisions and memory use over time: ICU-Sepsis, 716 states, one core.

    python benchmarks/live.py
    python benchmarks/live.py --episodes 50000 --json

Three measurements in one run: `act_many` over 1,000 open episodes, the single `act`, both over whole episodes
with what was learnt in between; and the resident memory while episodes come and go with 100 open at a time.
`--worlds` measures posterior worlds (K = 64) instead: `act_many` and `act` with a proposal at every step, so
that every decision is put to the vote; the single `act` where the agent explores itself; and, compiled,
pricing one step in all worlds and voting on it. Batches of worlds are timed by the processor's clock, which
other programs do not stop.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import chary
from chary.agents import CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.envs import make
from chary.envs.tabular_env import TabularEnv
from chary.mdp import FiniteMDP
from chary.planner._worlds import price_worlds_into
from chary.planner.joint import vote_lanes_into
from chary.presets import preset
from chary.randomness import generator_for, seed_for
from chary.shield import Ledger, Rule
from chary.shield.worlds import Panel

# Proposals for the states of a batch.
Proposed = Callable[[list[int]], list[int]]

OPEN = 1000
OPEN_FOR_MEMORY = 100


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5000, help="episodes of the memory measurement")
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that 1,000 episodes are opened and played"
    )
    parser.add_argument("--worlds", action="store_true", help="measure posterior worlds instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mdp = make("sepsis")
    if options.worlds:
        show(worlds(mdp, options.rounds), as_json=options.json)
        return
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
    show(figures, as_json=options.json)


def show(figures: dict[str, Any], *, as_json: bool) -> None:
    """Print figures as a table or as one JSON object."""
    if as_json:
        print(json.dumps(figures))
        return
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:,.4g}" if isinstance(value, float) else f"{name:<{width}}  {value}")


def worlds(mdp: FiniteMDP, rounds: int) -> dict[str, Any]:
    """Measure decisions of posterior worlds: every one is put to the vote, but for those of `own`."""
    spec = CharyUCBVI(eta=preset("sepsis").eta, bonus="posterior")
    agent = learner(mdp, spec)
    agent.begin("first", int(np.flatnonzero(mdp.start)[0]))
    agent.abandon("first")
    gc.freeze()
    rng = np.random.default_rng(0)

    def proposed(states: list[int]) -> list[int]:
        return [int(rng.choice(np.flatnonzero(mdp.setting.allowed[s]))) for s in states]

    alone = single(agent, mdp, 300, proposed)
    own = single(agent, mdp, 300)
    return {
        "version": chary.__version__,
        "python": platform.python_version(),
        "states": mdp.n_states,
        "worlds": spec.worlds,
        "open_at_once": OPEN,
        **compiled_us(agent, mdp, rng),
        **{f"voting_{name}": value for name, value in alone.items() if name.startswith("act_us")},
        **{f"exploring_{name}": value for name, value in own.items() if name.startswith("act_us")},
        "world_step_us_median": own["world_step_us_median"],
        **many(agent, mdp, rounds, proposed, time.process_time),
        "transitions_learnt": agent.plan.worlds.learnt,
        "resident_mb": resident_mb(),
    }


def compiled_us(agent: TabularAgent, mdp: FiniteMDP, rng: np.random.Generator) -> dict[str, float]:
    """Return how long it takes to price a step in all worlds, one of many in a call, and to vote on it."""
    plan, n = agent.plan, 2000
    states = rng.choice(np.flatnonzero(~mdp.setting.terminal), n)
    actions = [int(rng.choice(np.flatnonzero(mdp.setting.allowed[s]))) for s in states]
    steps = np.stack([rng.integers(mdp.horizon, size=n), states, actions], axis=1)
    prices = np.empty((n, plan.arrays.judges))
    rule, panel = Rule.strict(0.1), Panel.of(0.0001, worlds=plan.arrays.judges)
    deficits, pricing, voting = np.zeros(plan.arrays.judges), [], []
    for _ in range(5):
        began = time.process_time()
        price_worlds_into(prices, plan.arrays, plan.worlds.rows, plan.shape, steps)
        priced = time.process_time()
        for row in prices:
            vote_lanes_into(deficits, row, Ledger(False, 0.0), rule, panel)
            deficits[:] = 0.0
        voting.append((time.process_time() - priced) / n)
        pricing.append((priced - began) / n)
    return {
        "price_us_median": 1e6 * statistics.median(pricing),
        "vote_us_median": 1e6 * statistics.median(voting),
    }


def learner(mdp: FiniteMDP, spec: CharyUCBVI | None = None) -> TabularAgent:
    """Return an agent after the paper's warm-up of 500 random episodes."""
    options = preset("sepsis")
    if spec is None:
        spec = CharyUCBVI(**options.of_agent("hoeffding"))
    agent = TabularAgent(spec, mdp.told("estimated"), max_episodes=1_000_000)
    dice = TabularAgent(chary.Random(), mdp.setting, generator=generator_for(0, "warmup agent"))
    played = chary.rollout(TabularEnv(mdp), dice, episodes=500, seed=seed_for(0, "warmup world"))
    agent.warm_start([episode.transitions for episode in played])
    return agent


def many(
    agent: TabularAgent,
    mdp: FiniteMDP,
    rounds: int,
    proposed: Proposed | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
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
            places = [states[i] for i in going]
            proposals = None if proposed is None else proposed(places)
            began = clock()
            answers = agent.act_many([names[i] for i in going], [t] * len(going), places, proposals)
            seconds += clock() - began
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


def single(
    agent: TabularAgent, mdp: FiniteMDP, episodes: int = 1000, proposed: Proposed | None = None
) -> dict[str, float]:
    """Play one episode after the other, replanning after each, and time every call of `act`."""
    calls: list[float] = []
    steps: list[float] = []
    for began, ended, stepped in play_singly(agent, mdp, episodes, proposed):
        calls.append(ended - began)
        steps.append(stepped - ended)
    median, world = statistics.median(calls), statistics.median(steps)
    return {
        "act_us_median": 1e6 * median,
        "act_us_p90": 1e6 * float(np.quantile(calls, 0.9)),
        "world_step_us_median": 1e6 * world,
        "act_per_world_step": median / world,
    }


def play_singly(
    agent: TabularAgent, mdp: FiniteMDP, episodes: int, proposed: Proposed | None = None
) -> Iterator[tuple[float, float, float]]:
    """Yield, for every step, the times of calling `act`, of its return, and of the world's next state."""
    env = TabularEnv(mdp)
    for k in range(episodes):
        s = int(env.reset(seed=10**6 + k)[0])
        agent.begin(k, s)
        for t in range(mdp.horizon):
            proposal = None if proposed is None else proposed([s])[0]
            began = time.perf_counter()
            decision = agent.act(k, t, s, proposal=proposal)
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
