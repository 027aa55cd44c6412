"""A deep agent on a Gymnasium environment: its sizes, and episodes played one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chary.agents._spaces import spaces_of
from chary.agents.protocol import Transition
from chary.errors import InvalidSetting

if TYPE_CHECKING:
    import gymnasium

    from chary.deep.agent import DeepAgent


class EpisodeSummary(NamedTuple):
    """The result of one episode on a Gymnasium environment.

    Args:
        number: Episodes begun before it.
        returns: Discounted sum of rewards.
        rewards: Plain sum of rewards.
        steps: Steps played.
        deficit: The deficit booked in the ledger; 0 for agents without one.
        explored: Steps that the explorer, or chance, chose.
        terminated: Whether it ended in a terminal state.
    """

    number: int
    returns: float
    rewards: float
    steps: int
    deficit: float
    explored: int
    terminated: bool


def play_on(
    agent: DeepAgent, env: gymnasium.Env[Any, Any], number: int, seed: int | None
) -> Iterator[EpisodeSummary]:
    """Play and learn from that many episodes; one that an error breaks off is abandoned."""
    for first in range(number):
        observation, _ = env.reset(seed=None if first else seed)
        k = agent.episodes_begun
        agent.begin(k, observation)
        try:
            summary = _played(agent, env, k, observation)
        except BaseException:
            # Whatever the error: the next call of `play` needs an agent without an open episode.
            if not agent.poisoned:
                agent.abandon(k)
            raise
        agent.finish(k)
        yield summary


def _played(agent: DeepAgent, env: gymnasium.Env[Any, Any], k: int, observation: Any) -> EpisodeSummary:
    so_far = EpisodeSummary(k, 0.0, 0.0, 0, 0.0, 0, False)
    for t in range(agent.horizon):
        # Environments may overwrite an array that they have returned.
        here = np.array(observation)
        decision = agent.act(k, t, here)
        observation, reward, terminated, truncated, _ = env.step(decision.action)
        step = (here, decision.action, reward, observation, bool(terminated))
        agent.observe(k, Transition._make(step))
        so_far = so_far._replace(
            returns=so_far.returns + agent.options.discount**t * float(reward),
            rewards=so_far.rewards + float(reward),
            steps=t + 1,
            deficit=decision.deficit,
            explored=so_far.explored + decision.explored,
            terminated=bool(terminated),
        )
        if terminated or truncated:
            break
    return so_far


def check_sizes(agent: DeepAgent, env: gymnasium.Env[Any, Any]) -> None:
    """Raise InvalidSetting unless an environment has an agent's observations and actions."""
    shape, n_actions = spaces_of(env)
    if (math.prod(shape), n_actions) != (agent.observation_size, agent.n_actions):
        raise InvalidSetting(
            f"'env' must have {agent.observation_size} numbers per observation and {agent.n_actions} "
            f"actions, as the agent has, got {math.prod(shape)} and {n_actions}."
        )
