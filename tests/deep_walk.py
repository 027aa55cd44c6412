"""A small walk for the deep learner's step API: by NumPy alone, inside JAX, and as a Gymnasium environment.

Six numbers and four actions, as in the HIV simulator, so that both share what was compiled for them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from chary import Transition
from chary.arrays import Floats

__all__ = [
    "HORIZON",
    "START",
    "broken_walk_in_jax",
    "go_on",
    "logged",
    "move",
    "new_agent",
    "small",
    "the_open",
    "walk_env",
    "walk_in_jax",
]


HORIZON = 6
# Sums of powers of two: nothing is rounded, whoever adds them.
MOVES = np.array([[1, 0, 0, 1, 0, 0], [-1, 0.5, 0, 0, 1, 0], [0, -1, 1, 0, 0, 1], [0.5, 0, -1, -1, 0, 0]]) / 2
START = np.array([0.25, -0.5, 0.0, 0.5, 0.0, -0.25])
SMALL: dict[str, Any] = {
    "learner": "networks",
    "episodes": 8,
    "eta": 0.75,
    "discount": 0.9,
    "beta": 1.0,
    "optimism": 1.0,
    "length_scale": 1.0,
    "width": 8,
    "features": 4,
    "batch": 4,
    "fresh": 2,
    "replay": 40,
    "radius": 0.1,
    "warm_up": 1,
    "pretraining": 3,
    "learning_rate": 1e-2,
}


def small(agent: str = "chary", **changes: Any) -> Any:
    """Return options of which everything compiles within seconds."""
    from chary.deep import DeepOptions

    return DeepOptions(**{**SMALL, "agent": agent, **changes})


def new_agent(agent: str = "chary", seed: int = 3, **changes: Any) -> Any:
    """Return a new agent for the walk."""
    from chary.deep import DeepAgent

    return DeepAgent(small(agent, **changes), observation_size=6, n_actions=4, horizon=HORIZON, seed=seed)


def move(state: Floats, action: int) -> tuple[Floats, float]:
    """Return where an action leads, and what leaving the state pays."""
    return np.clip(state + MOVES[action], -2.0, 2.0), float(1.0 - state[0] * state[0] + 0.25 * action)


@cache
def walk_in_jax() -> Any:
    """Return the walk as a `chary.deep.Environment`, the same value at every call."""
    import jax.numpy as jnp

    from chary.deep import Environment

    def step(state: Any, action: Any) -> Any:
        after = jnp.clip(state + jnp.asarray(MOVES)[action], -2.0, 2.0)
        return after, 1.0 - state[0] * state[0] + 0.25 * action, jnp.bool_(False)

    return Environment(lambda key: jnp.asarray(START), lambda state: state, step, 4, HORIZON)


@cache
def broken_walk_in_jax(share: float) -> Any:
    """Return the walk with a share of episodes in which rewards are NaN; its state has two parts."""
    import jax
    import jax.numpy as jnp

    whole = walk_in_jax()

    def reset(key: Any) -> Any:
        return whole.reset(key), jax.random.bernoulli(key, share)

    def step(state: Any, action: Any) -> Any:
        after, reward, ended = whole.step(state[0], action)
        return (after, state[1]), jnp.where(state[1], jnp.nan, reward), ended

    return whole._replace(reset=reset, observe=lambda state: state[0], step=step)


def walk_env(*, ends_at: int = 0, cut_at: int = 0, fails_at: int = 0, shape: tuple[int, ...] = (6,)) -> Any:
    """Return the walk in Gymnasium: terminal, truncated or broken after so many steps; 0 for never."""
    import gymnasium
    from gymnasium.spaces import Box, Discrete

    class Walk(gymnasium.Env[Any, Any]):
        observation_space = Box(-np.inf, np.inf, shape, np.float64)
        action_space = Discrete(4)
        seeds: list[int | None]

        def __init__(self) -> None:
            self.seeds = []
            self._seen = np.zeros(shape)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.seeds.append(seed)
            self._t, self._state = 0, START
            self._seen[...] = START.reshape(shape)
            return self._seen, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self._t += 1
            if self._t == fails_at:
                raise RuntimeError("the world broke")
            self._state, reward = move(self._state, action)
            # The same array again and again, as environments do that save memory.
            self._seen[...] = self._state.reshape(shape)
            return self._seen, reward, self._t == ends_at, self._t == cut_at, {}

    return Walk()


def the_open(agent: Any) -> Any:
    """Return the one open episode of an agent."""
    (now,) = agent._episodes
    return now


def go_on(agent: Any, decisions: int) -> list[Any]:
    """Play on with an agent, wherever it is, for so many decisions, and return them; episodes are numbers.

    Where an episode is open, its observation says where the walk is. An action that is outstanding is
    requested again.
    """
    made: list[Any] = []
    while len(made) < decisions:
        if agent.open_episode is None:
            agent.begin(agent.episodes_begun, START)
        now = the_open(agent)
        if now.t == HORIZON and not now.late:
            agent.finish(now.name)
            continue
        state = np.asarray(now.state, np.float64)
        decision = agent.act(now.name, now.t - now.late, state)
        after, reward = move(state, decision.action)
        agent.observe(now.name, Transition._make((state, decision.action, reward, after, False)))
        made.append(decision)
    return made


def logged(episodes: int = 3, seed: int = 5) -> list[list[Transition]]:
    """Return random walks as somebody may have logged them."""
    rng, told = np.random.default_rng(seed), []
    for _ in range(episodes):
        state, steps = START, []
        for _ in range(HORIZON):
            action = int(rng.integers(4))
            after, reward = move(state, action)
            steps.append(Transition._make((state, action, reward, after, False)))
            state = after
        told.append(steps)
    return told
