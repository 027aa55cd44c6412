"""The sizes of a Gymnasium environment with vectors as observations, for step APIs over such vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidSetting, check_type
from chary.texts import shown

if TYPE_CHECKING:
    import gymnasium


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
