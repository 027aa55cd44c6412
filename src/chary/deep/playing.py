"""A deep agent on a Gymnasium environment: its sizes, and episodes played one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chary.agents.protocol import Transition
from chary.errors import InvalidSetting, check_type
from chary.texts import shown

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


def spaces_of(env: gymnasium.Env[Any, Any]) -> tuple[tuple[int, ...], int]:
    """Return the shape of observations and the number of actions of an environment.

    Raises:
        InvalidSetting: if it is not a Gymnasium environment with Box observations and Discrete actions.
    """
    import gymnasium
    from gymnasium.spaces import Box, Discrete

    check_type("env", env, gymnasium.Env, "a gymnasium.Env")
    seen, played = env.observation_space, env.action_space
    if not isinstance(seen, Box) or math.prod(seen.shape) < 1:
        raise InvalidSetting(
            f"'observation_space' must be a Box with one number at least, got {shown(seen)}. "
            "Wrap the environment in gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(played, Discrete) or int(played.start) != 0:
        raise InvalidSetting(
            f"'action_space' must be Discrete and start at 0, got {shown(played)}. "
            "Wrap the environment in gymnasium.wrappers.TransformAction."
        )
    return tuple(int(n) for n in seen.shape), int(played.n)


def horizon_of(env: gymnasium.Env[Any, Any]) -> int:
    """Return the time limit that an environment was registered with.

    Raises:
        InvalidSetting: if it has none.
    """
    limit = None if env.spec is None else env.spec.max_episode_steps
    if limit is None or limit < 1:
        raise InvalidSetting(
            "'horizon' must be given for an environment without a time limit, got None. "
            "Pass horizon=..., the steps after which an episode ends."
        )
    return limit


def check_sizes(agent: DeepAgent, env: gymnasium.Env[Any, Any]) -> None:
    """Raise InvalidSetting unless an environment has an agent's observations and actions."""
    shape, n_actions = spaces_of(env)
    if (math.prod(shape), n_actions) != (agent.observation_size, agent.n_actions):
        raise InvalidSetting(
            f"'env' must have {agent.observation_size} numbers per observation and {agent.n_actions} "
            f"actions, as the agent has, got {math.prod(shape)} and {n_actions}."
        )
