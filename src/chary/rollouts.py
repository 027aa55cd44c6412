"""The step-by-step driver: any agent on any Gymnasium environment with discrete spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from chary.agents.protocol import Agent, Transition
from chary.errors import InvalidSetting, check_integer
from chary.shield import Decision

if TYPE_CHECKING:
    import gymnasium

__all__ = ["Episode", "rollout"]


class Episode(NamedTuple):
    """One episode as it was played: transitions and the decisions behind them, in order."""

    number: int
    transitions: tuple[Transition, ...]
    decisions: tuple[Decision, ...]


def rollout(
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    *,
    episodes: int,
    first: int = 0,
    seed: int | None = None,
    horizon: int | None = None,
    before_finish: Callable[[Episode], None] | None = None,
) -> Iterator[Episode]:
    """Play `episodes` episodes and yield each once it is finished.

    Args:
        env: An environment with Discrete observations and actions that start at 0.
        agent: Any agent with the step API.
        episodes: How many episodes to play.
        first: The number of the first one.
        seed: Given to the first `reset`; None leaves the environment's generator alone.
        horizon: Steps after which an episode is cut; None leaves that to the environment.
        before_finish: Called with each episode while it is still open.

    Raises:
        InvalidSetting: if a space is not Discrete from 0.
    """
    check_integer("episodes", episodes, minimum=0)
    for name, space in (("observation_space", env.observation_space), ("action_space", env.action_space)):
        if not _is_discrete(space):
            raise InvalidSetting(f"{name!r} must be Discrete, got {space!r}.")
        if int(space.start) != 0:  # type: ignore[attr-defined]
            raise InvalidSetting(f"{name!r} must start at 0, got {space!r}.")
    for k in range(first, first + episodes):
        observation, _ = env.reset(seed=seed if k == first else None)
        state = int(observation)
        agent.begin(k, state)
        transitions: list[Transition] = []
        decisions: list[Decision] = []
        done = False
        while not done:
            t = len(transitions)
            decision = agent.act(k, t, state)
            observation, reward, terminated, truncated, _ = env.step(decision.action)
            step = Transition(state, decision.action, float(reward), int(observation), bool(terminated))
            agent.observe(k, step)
            transitions.append(step)
            decisions.append(decision)
            state = step.next_state
            done = bool(terminated or truncated) or t + 1 == horizon
        episode = Episode(k, tuple(transitions), tuple(decisions))
        if before_finish is not None:
            before_finish(episode)
        agent.finish(k)
        yield episode


def _is_discrete(space: object) -> bool:
    from gymnasium.spaces import Discrete

    return isinstance(space, Discrete)
