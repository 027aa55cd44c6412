"""Episodes extended to the horizon, for rewards with which an early end would be an advantage."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from chary.errors import OutOfOrder, check_integer, check_type
from chary.wrappers.spaces import discrete_size


class Padded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose endings lead to an extra state, with reward 0 until the horizon.

    Bounds are on rewards scaled to [0, 1]. If rewards can be negative, ending early would look better than
    it is, and agents refuse it. Here a step that terminates leads to state n, one more than the environment
    has, in which all actions earn 0; the horizon then truncates. Episodes that the environment truncates
    are not changed. `Log.padded` does the same to logged data.

    Args:
        env: An environment with Discrete observations and actions from 0.
        horizon: The steps of an episode.

    Raises:
        InvalidSetting: if a space is not Discrete from 0.

    Example:
        >>> env = Padded(gymnasium.make("FrozenLake-v1"), horizon=60)
        >>> int(env.observation_space.n)
        17
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, horizon: int) -> None:
        check_type("env", env, gymnasium.Env, "a gymnasium.Env")
        super().__init__(env)
        self._n_actions = discrete_size("action_space", env.action_space)
        self._end = discrete_size("observation_space", env.observation_space)
        self.horizon = check_integer("horizon", horizon, minimum=1)
        self.observation_space = Discrete(self._end + 1)
        self._t = self.horizon
        self._over = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the environment."""
        self._t, self._over = self.horizon, False
        answer = self.env.reset(seed=seed, options=options)
        self._t = 0
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one step, or wait if the environment's episode has ended.

        Raises:
            OutOfOrder: if no episode has begun, or the last one is over.
        """
        if self._t == self.horizon:
            raise OutOfOrder("'step' must follow 'reset' and come before the horizon. Call reset() first.")
        observation: Any = None
        reward: Any = 0.0
        cut, info = False, dict[str, Any]()
        if not self._over:
            observation, reward, terminated, cut, info = self.env.step(action)
            self._over = bool(terminated)
        self._t += 1
        if self._over:
            observation, cut = np.int64(self._end), False
            info = {**info, "action_mask": np.ones(self._n_actions, dtype=np.int8)}
        if cut:
            self._t = self.horizon
        return observation, reward, False, self._t == self.horizon, info
