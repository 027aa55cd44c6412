"""A simulated HIV patient treated by the deep learner, step by step, under a budget for every episode.

    python examples/deep_step.py [--quick] [--seed N] [--save agent.safetensors]

The patient is a Gymnasium environment; nothing here uses JAX directly. The learner starts from a log of
random treatments. Needs `pip install 'chary[deep]'`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

import chary.envs.hiv
from chary import Transition
from chary.deep import DeepAgent, DeepOptions

ETA = 40.0  # what an episode may lose compared with its baseline, in expectation and standardised rewards
OPTIONS = DeepOptions(eta=ETA, width=32, features=32, batch=32, replay=20_000, pretraining=1_000)


def random_treatments(env: gymnasium.Env[Any, Any], episodes: int, seed: int) -> list[list[Transition]]:
    """Return a log of episodes with random treatments."""
    rng, log = np.random.default_rng(seed), []
    for _ in range(episodes):
        observation, _ = env.reset()
        steps, over = [], False
        while not over:
            action = int(rng.integers(4))
            reached, reward, terminated, truncated, _ = env.step(action)
            steps.append(Transition(observation, action, float(reward), reached, terminated))
            observation, over = reached, terminated or truncated
        log.append(steps)
    return log


def main() -> None:
    """Learn from the log, treat some patients, and print the deficit of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two episodes instead of ten")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="file to save the agent to")
    arguments = parser.parse_args()

    env = gymnasium.make("chary/HIV-v0", patient=5)
    agent = DeepAgent.for_env(env, OPTIONS, horizon=chary.envs.hiv.HORIZON, seed=arguments.seed)
    agent.warm_start(random_treatments(env, 10, arguments.seed))
    print(f"{agent.updates} updates from 10 logged episodes; {agent.standing.describe()}")

    for episode in agent.play(env, episodes=2 if arguments.quick else 10):
        print(
            f"episode {episode.number}: return {episode.returns:.1f}, "
            f"deficit {episode.deficit:.2f} of {ETA:g}, explored {episode.explored} of {episode.steps} steps"
        )
    print(f"{agent.updates} updates in all, chains {agent.chains}")
    if arguments.save:
        agent.save(arguments.save)


if __name__ == "__main__":
    main()
