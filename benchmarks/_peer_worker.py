"""Time rlberry-scool's UCBVI on one MDP: the half of peers.py that runs in the peer's own environment.

It reads plain arrays from an .npz (P, R, start, terminal, horizon, discount), plays, and prints one JSON
object as the last line of stdout. It imports nothing of chary, whose gymnasium is too new for the peer.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import time
from importlib import metadata
from types import FrameType
from typing import Any

import numba
import numpy as np
import rlberry_scool.agents.ucbvi.ucbvi as peer
from rlberry.envs.finite_mdp import FiniteMDP

ROW_SUM_TOLERANCE = 1e-9
PACKAGES = ("rlberry-scool", "rlberry", "gymnasium", "numpy", "numba")


class World(FiniteMDP):  # type: ignore[misc]
    """The peer's own finite MDP, with terminal states, a clock around its steps and a sum of its rewards."""

    def __init__(self, P: Any, R: Any, start: Any, terminal: Any) -> None:
        self.terminal = terminal
        self.seconds = 0.0
        self.rewards = 0.0
        FiniteMDP.__init__(self, R, P, start)
        self.reward_range = (0.0, 1.0)

    def is_terminal(self, state: int) -> bool:
        """Return whether an episode ends in `state`."""
        return bool(self.terminal[state])

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Step as the peer does, but end on entering a terminal state; rlberry 0.7.3 ends on leaving it."""
        began = time.perf_counter()
        state, reward, _, truncated, info = FiniteMDP.step(self, action)
        self.rewards += reward
        ended = self.is_terminal(state)
        self.seconds += time.perf_counter() - began
        return state, reward, ended, truncated, info

    def _check(self) -> None:
        # rlberry 0.7.3 wants sums within 1e-15 of 1, which rows of hundreds of probabilities do not meet.
        for sums in (self.P.sum(axis=2), self.initial_state_distribution.sum()):
            if (np.abs(sums - 1.0) > ROW_SUM_TOLERANCE).any():
                raise ValueError("'P' and 'start' must sum to 1 over the next state.")


class OutOfTimeError(Exception):
    """The hard limit came in the middle of an episode."""


def _stop(signum: int, frame: FrameType | None) -> None:
    raise OutOfTimeError


def new_agent(world: World, horizon: int, discount: float, seed: int) -> Any:
    """Return the peer's agent with its own defaults, without the log that it keeps of every episode."""
    agent = peer.UCBVIAgent(
        world, gamma=discount, horizon=horizon, stage_dependent=False, copy_env=False, seeder=seed
    )
    agent.set_writer(None)
    return agent


def warm_up(horizon: int, discount: float) -> None:
    """Play two episodes of two states, so that nothing is compiled or imported while the clock runs."""
    world = World(
        np.full((2, 2, 2), 0.5), np.full((2, 2), 0.5), np.array([1.0, 0.0]), np.zeros(2, dtype=bool)
    )
    new_agent(world, horizon, discount, 0).fit(budget=2)


def main() -> None:
    """Play until the episodes or the seconds are used up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", help="the .npz")
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="start no episode after this time")
    parser.add_argument("--at-most", type=float, required=True, help="break an episode off after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="compile the peer's backward induction")
    told = parser.parse_args()
    with np.load(told.problem, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    horizon, discount = int(arrays["horizon"]), float(arrays["discount"])
    if told.compiled:
        peer.backward_induction_reward_sd = numba.njit(peer.backward_induction_reward_sd)
    warm_up(horizon, discount)
    world = World(arrays["P"], arrays["R"], arrays["start"], arrays["terminal"])
    agent = new_agent(world, horizon, discount, told.seed)

    # The body of the peer's `fit`, which can stop at no time limit and then plans once more without bonuses.
    episodes, seconds, broken_off, returns, in_world = 0, 0.0, False, 0.0, 0.0
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, told.at_most)
    began = time.perf_counter()
    try:
        while episodes < told.episodes and seconds < told.seconds:
            agent._run_episode()
            episodes, seconds = episodes + 1, time.perf_counter() - began
            returns, in_world = world.rewards, world.seconds
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    except OutOfTimeError:
        broken_off = True
    waited = time.perf_counter() - began
    print(
        json.dumps(
            {
                "episodes": episodes,
                "seconds": seconds,
                "world_seconds": in_world,
                "mean_return": returns / episodes if episodes else None,
                "broken_off_after": waited if broken_off else None,
                "versions": {
                    "python": platform.python_version(),
                    **{name: metadata.version(name) for name in PACKAGES},
                },
            }
        )
    )


if __name__ == "__main__":
    main()
