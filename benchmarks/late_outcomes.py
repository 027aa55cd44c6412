"""Does the promise survive outcomes that come late or never? docs/algorithm.md section 10.

The problem is built to break it. At the start, the baseline's action leads to a cure or to a failure, half
each; the proposed action always fails, so its true gap is 0.5 and no budget below that affords it. A failure
is known at once; a cure takes long to show, or the patient drops out on the way. Counting outcomes as they
arrive counts failures only: the baseline looks worthless, the proposal is played, and the budget is broken.

    python benchmarks/late_outcomes.py --runs 200 --workers 16

Four ways of going wrong, each over independent runs with certified bounds (`kl`, delta 0.1) and role `only`:

- beds: many episodes open at once, cures observed only after `delay` rounds;
- lanes: the same through `ShieldedVector`, one episode per lane;
- survivors: one episode at a time, and half of the patients on the way to a cure are abandoned;
- lossy: 200 beds, delays that depend on the outcome, and 5 % of all outcomes lost.

The last three cases play posterior worlds, whose promise is one per episode: at most 1 % of them.

A run is broken if any proposal was played. `lanes` needs Gymnasium; `--without-lanes` leaves it
out. The table goes to stdout, the numbers to benchmarks/results/late-outcomes.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import chary
from chary._workers import usable_cores, worker_pool
from chary.statistics import binomial_report

if TYPE_CHECKING:
    import gymnasium

DELTA = 0.1
# The credible risk per episode of posterior worlds.
RISK = 0.01
START, ON_THE_WAY, END = range(3)
TREAT, SKIP = range(2)
RESULTS = Path(__file__).parent / "results" / "late-outcomes.json"


class Outcome(NamedTuple):
    """One run: episodes begun, and how many of them broke their budget."""

    episodes: int
    broken: int


def new_agent(eta: float, *, losses: bool = False, bonus: str = "kl") -> chary.TabularAgent:
    """Return an agent whose baseline treats every patient and whose budget is `eta`."""
    setting = chary.Setting.declare(
        n_states=3,
        n_actions=2,
        horizon=2,
        allowed=[[True, True], [True, False], [True, False]],
        terminal=[END],
        value_cap=1.0,
    )
    own = chary.OwnBaseline.declare(np.zeros((2, 3), dtype=int), setting, role="only")
    spec = chary.CharyUCBVI(eta=eta, bonus=bonus, delta=DELTA, risk=RISK, patience=None)
    return chary.TabularAgent(spec, setting, own=own, losses=losses)


def treat(agent: chary.TabularAgent, episode: int, generator: np.random.Generator) -> tuple[bool, bool]:
    """Decide about a new patient, proposing to skip; return whether it was, and whether a cure began."""
    agent.begin(episode, START)
    decision = agent.act(episode, 0, START, proposal=SKIP)
    cured = decision.action == TREAT and generator.random() < 0.5
    reached = ON_THE_WAY if cured else END
    agent.observe(episode, chary.Transition(START, decision.action, 0.0, reached, terminated=not cured))
    if not cured:
        agent.finish(episode)
    return decision.action == SKIP, cured


def cure(agent: chary.TabularAgent, episode: int) -> None:
    """Observe the cure of a patient who is on the way to it."""
    decision = agent.act(episode, 1, ON_THE_WAY)
    agent.observe(episode, chary.Transition(ON_THE_WAY, decision.action, 1.0, END, terminated=True))
    agent.finish(episode)


def beds(
    seed: int, *, eta: float, n_beds: int = 200, delay: int = 50, rounds: int = 120, bonus: str = "kl"
) -> Outcome:
    """Play `n_beds` episodes at once; the outcome of a cure is observed `delay` rounds later."""
    agent, generator = new_agent(eta, bonus=bonus), np.random.default_rng(seed)
    begun = broken = 0
    due: list[tuple[int, int] | None] = [None] * n_beds
    for now in range(rounds):
        for bed, waiting in enumerate(due):
            if waiting is None:
                skipped, cured = treat(agent, begun, generator)
                broken += skipped
                due[bed] = (begun, now + delay) if cured else None
                begun += 1
            elif waiting[1] <= now:
                cure(agent, waiting[0])
                due[bed] = None
    return Outcome(begun, broken)


def lossy(
    seed: int, *, eta: float, n_beds: int = 200, delay: int = 50, rounds: int = 120, bonus: str = "kl"
) -> Outcome:
    """Play `beds` where, besides, one in twenty outcomes is never observed; losses are declared."""
    agent, generator = new_agent(eta, losses=True, bonus=bonus), np.random.default_rng(seed)
    begun = broken = 0
    due: list[tuple[int, int] | None] = [None] * n_beds
    for now in range(rounds):
        for bed, waiting in enumerate(due):
            if waiting is None:
                if generator.random() < 0.05:
                    agent.begin(begun, START)
                    broken += agent.act(begun, 0, START, proposal=SKIP).action == SKIP
                    agent.abandon(begun)
                else:
                    skipped, cured = treat(agent, begun, generator)
                    broken += skipped
                    due[bed] = (begun, now + delay) if cured else None
                begun += 1
            elif waiting[1] <= now:
                if generator.random() < 0.05:
                    agent.act(waiting[0], 1, ON_THE_WAY)
                    agent.abandon(waiting[0])
                else:
                    cure(agent, waiting[0])
                due[bed] = None
    return Outcome(begun, broken)


def survivors(seed: int, *, eta: float, episodes: int = 1500, bonus: str = "kl") -> Outcome:
    """Play one episode at a time; the patients on the way to a cure never come back."""
    agent, generator = new_agent(eta, bonus=bonus), np.random.default_rng(seed)
    broken = 0
    for episode in range(episodes):
        skipped, cured = treat(agent, episode, generator)
        broken += skipped
        if cured:
            agent.abandon(episode)
    return Outcome(episodes, broken)


def new_ward(delay: int) -> gymnasium.Env[Any, Any]:
    """Return the same problem as an environment; Gymnasium is needed here alone."""
    import gymnasium

    class Ward(gymnasium.Env[Any, Any]):
        """The same problem as an environment; a cure takes `delay` steps, through the states 1, 3, 4, ..."""

        def __init__(self, delay: int) -> None:
            self.observation_space = gymnasium.spaces.Discrete(delay + 3)
            self.action_space = gymnasium.spaces.Discrete(2)
            self.delay = delay

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[int, dict[str, Any]]:
            """Admit a patient."""
            super().reset(seed=seed)
            self.state = START
            return self.state, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            """Treat, or skip; a patient on the way moves on."""
            if self.state == START:
                cured = action == TREAT and self.np_random.random() < 0.5
                self.state = ON_THE_WAY if cured else END
            elif self.state == ON_THE_WAY:
                self.state = END + 1
            else:
                self.state += 1
            arrived = self.state == self.delay + 2
            if arrived:
                self.state = END
            return self.state, float(arrived), self.state == END, False, {}

    return Ward(delay)


def lanes(seed: int, *, eta: float, n_lanes: int = 256, delay: int = 30, steps: int = 90) -> Outcome:
    """Play `n_lanes` episodes at once through ShieldedVector, always proposing to skip."""
    from gymnasium.vector import SyncVectorEnv

    from chary.wrappers import ShieldedVector

    S = delay + 3
    allowed = np.zeros((S, 2), dtype=bool)
    allowed[:, TREAT], allowed[START, SKIP] = True, True
    setting = chary.Setting.declare(
        n_states=S, n_actions=2, horizon=delay + 2, allowed=allowed, terminal=[END], value_cap=1.0
    )
    own = chary.OwnBaseline.declare(np.zeros((delay + 2, S), dtype=int), setting, role="only")
    agent = chary.TabularAgent(
        chary.CharyUCBVI(eta=eta, bonus="kl", delta=DELTA, patience=None), setting, own=own
    )
    envs = SyncVectorEnv([lambda: new_ward(delay)] * n_lanes)
    shielded = ShieldedVector(envs, agent)
    states, _ = shielded.reset(seed=seed)
    broken = 0
    for _ in range(steps):
        proposals = np.where(states == START, SKIP, TREAT)
        states, _, _, _, info = shielded.step(proposals)
        broken += int(((info["action"] == SKIP) & info["_action"]).sum())
    return Outcome(agent.episodes_begun, broken)


CASES: dict[str, Callable[[int], Outcome]] = {
    "beds, 200 open, eta 0.1": lambda seed: beds(seed, eta=0.1),
    "beds, 200 open, eta 0.25": lambda seed: beds(seed, eta=0.25),
    "beds, 1,000 open, eta 0.1": lambda seed: beds(seed, eta=0.1, n_beds=1000, rounds=60),
    "beds, 1,000 open, eta 0.25": lambda seed: beds(seed, eta=0.25, n_beds=1000, rounds=60),
    "lanes, 256, eta 0.25": lambda seed: lanes(seed, eta=0.25),
    "survivors abandoned, eta 0.1": lambda seed: survivors(seed, eta=0.1),
    "beds, 200 open, 5 % lost, eta 0.25": lambda seed: lossy(seed, eta=0.25),
    "worlds, beds, 200 open, eta 0.25": lambda seed: beds(seed, eta=0.25, bonus="posterior"),
    "worlds, survivors abandoned, eta 0.1": lambda seed: survivors(seed, eta=0.1, bonus="posterior"),
    "worlds, beds, 5 % lost, eta 0.25": lambda seed: lossy(seed, eta=0.25, bonus="posterior"),
}


def play(task: tuple[str, int]) -> tuple[Outcome, float]:
    """Play one run of a case, and return its CPU seconds too."""
    name, seed = task
    began = time.process_time()
    return CASES[name](seed), time.process_time() - began


def summarise(name: str, played: list[tuple[Outcome, float]]) -> dict[str, Any]:
    """Return how many runs of a case were broken, with the interval against delta."""
    outcomes = [outcome for outcome, _ in played]
    broken = sum(each.broken > 0 for each in outcomes)
    return {
        "case": name,
        "broken_runs": binomial_report(broken, len(outcomes), DELTA)._asdict(),
        "episodes": sum(each.episodes for each in outcomes),
        "broken_episodes": sum(each.broken for each in outcomes),
        "seconds": round(sum(seconds for _, seconds in played), 1),
    }


def measure(name: str, runs: int) -> dict[str, Any]:
    """Play `runs` runs of a case in this process."""
    return summarise(name, [play((name, seed)) for seed in range(runs)])


def main() -> None:
    """Measure all cases, print the table and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes; all cores by default")
    parser.add_argument("--case", action="append", choices=CASES, help="a case; all by default")
    parser.add_argument("--without-lanes", action="store_true", help="leave out what needs Gymnasium")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file for the numbers of all cases")
    options = parser.parse_args()
    names = [
        name for name in options.case or CASES if not (options.without_lanes and name.startswith("lanes"))
    ]
    # One run compiles, so that the processes find everything in the cache.
    play((names[-1], 0))
    rows = []
    with worker_pool(options.workers) as pool:
        tasks = {name: [pool.submit(play, (name, seed)) for seed in range(options.runs)] for name in names}
        for name in names:
            rows.append(summarise(name, [each.result() for each in tasks[name]]))
            row = rows[-1]
            print(
                f"{name:36} {row['broken_runs']['failures']:4} of {options.runs} runs broken, "
                f"{row['broken_episodes']} of {row['episodes']:,} episodes, {row['seconds']:.0f} s of CPU",
                flush=True,
            )
    if options.case is None:
        content = {"delta": DELTA, "runs": options.runs, "chary": chary.__version__, "rows": rows}
        options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
