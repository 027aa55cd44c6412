"""From a CSV file of lessons to a live agent that teaches better than the rule in the file.

    python examples/tutor.py

A tutoring product logs what its rule and its teachers chose: states and exercises are words, lessons are
counted from 1, pupils leave early, and a lesson is worth what it gains in the test, which may be negative. No
pupil may lose more than ETA points by trying something, in expectation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from data.make_lessons import Pupil, rule

import chary
from chary.data import Log

ETA, LESSONS, WORST, BEST = 1.5, 6, -2, 8  # points
COLUMNS = {"episode": "pupil", "t": "lesson", "state": "level", "action": "exercise", "reward": "gain"}
COLUMNS |= {"next_state": "level after", "terminated": "left"}


def learnt(frame: pd.DataFrame, seed: int) -> tuple[chary.TabularAgent, list[str], list[str]]:
    """Return an agent that has learnt the file, and the words for states and actions."""
    states, exercises = sorted(set(frame["level"])), sorted(set(frame["exercise"]))
    labels = {"state": states, "action": exercises}
    log = Log.from_dataframe(frame, columns=COLUMNS, labels=labels, first_step=1)
    setting = chary.Setting.declare(
        n_states=len(states),
        n_actions=len(exercises),
        horizon=LESSONS,
        reward_range=(WORST, BEST),
        early_endings=True,
    )
    today = [exercises.index(rule(state)) for state in states]
    agent = chary.TabularAgent(
        chary.CharyUCBVI(eta=ETA, bonus="posterior", risk=0.01),
        setting,
        own=chary.OwnBaseline.declare(today, setting, role="floor"),
        generator=np.random.default_rng(seed),
    )
    agent.warm_start(log.episodes())
    return agent, states, exercises


def teach(agent: chary.TabularAgent, states: list[str], exercises: list[str], name: str, pupil: Pupil) -> int:
    """Teach a pupil and return the points gained."""
    gained = 0
    agent.begin(name, states.index(pupil.state))
    for t in range(LESSONS):
        state = states.index(pupil.state)
        action = agent.act(name, t, state).action
        gain, after, left = pupil.lesson(exercises[action])
        agent.observe(name, chary.Transition(state, action, gain, states.index(after), left))
        gained += gain
        if left:
            break
    agent.finish(name)
    return gained


def main() -> None:
    """Learn from the file, teach, and compare."""
    options = argparse.ArgumentParser(description="A tutoring product, from its records to a live agent.")
    options.add_argument("--seed", type=int, default=0, help="random seed of agent and pupils")
    options.add_argument("--quick", action="store_true", help="teach 100 pupils instead of 500")
    given = options.parse_args()
    frame = pd.read_csv(Path(__file__).parent / "data" / "lessons.csv")
    agent, states, exercises = learnt(frame, given.seed)
    chance = np.random.default_rng([given.seed, 1])
    gains = [
        teach(agent, states, exercises, f"pupil {k}", Pupil(chance))
        for k in range(100 if given.quick else 500)
    ]
    print(f"In the file a pupil gained {frame.groupby('pupil')['gain'].sum().mean():.2f} points.")
    print(f"Taught by the agent, {len(gains)} pupils gained {np.mean(gains):.2f} on average.")
    print(agent.stats().describe())
    print(agent.standing.describe())


if __name__ == "__main__":
    main()
