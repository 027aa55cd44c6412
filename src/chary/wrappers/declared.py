"""The setting of an environment, derived from its spaces and its time limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from numpy.typing import ArrayLike

from chary.envs import TabularEnv
from chary.errors import InvalidSetting, check_integer, check_type
from chary.mdp.setting import RewardScale, Setting
from chary.texts import shown
from chary.wrappers.padded import Padded
from chary.wrappers.spaces import discrete_size

# They change neither states, actions nor rewards.
TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit)


def setting_of(
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
    *,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    discount: float | None = None,
    allowed: ArrayLike | None = None,
    terminal: Iterable[int] | None = None,
    value_cap: float | None = None,
    support: ArrayLike | None = None,
) -> Setting:
    """Return the setting of an environment, for use with the step API.

    For a TabularEnv it is the setting of its MDP, which declares everything except the horizon; reward and
    transition functions stay unknown.

    Args:
        env: An environment, or a vector of them, with Discrete observations and actions from 0.
        horizon: Steps of an episode; by default the limit that the environment was registered with, or that
            of `Padded`.
        reward_range: The smallest and the largest reward of a step; (0, 1) by default.
        discount: gamma, in (0, 1]; 1 by default.
        allowed: Which action may be played where, (S, A) booleans; all by default.
        terminal: The states that end an episode; if none are given, agents learn them from observations.
        value_cap: An upper bound on the optimal value, in scaled units; none by default.
        support: The number of possible successors, one number or one for each (s, a); all states by default.

    Raises:
        InvalidSetting: if a space is not Discrete from 0, the horizon is unknown, or an argument is given
            that a TabularEnv declares itself.
        InvalidMDP: if a range or a mask is invalid.

    Example:
        >>> setting = setting_of(gymnasium.make("FrozenLake-v1"))
        >>> setting.n_states, setting.n_actions, setting.horizon
        (16, 4, 100)
    """
    way_out = "Use gymnasium.make for a name."
    check_type("env", env, (VectorEnv, gymnasium.Env), "a Gymnasium environment", way_out=way_out)
    if isinstance(env, VectorEnv):
        states, actions = env.single_observation_space, env.single_action_space
    else:
        states, actions = env.observation_space, env.action_space
    n_states = discrete_size("observation_space", states)
    n_actions = discrete_size("action_space", actions)
    base = env
    while isinstance(base, TRANSPARENT):
        base = base.env
    if isinstance(base, TabularEnv):
        given = {
            "reward_range": reward_range,
            "discount": discount,
            "allowed": allowed,
            "terminal": terminal,
            "value_cap": value_cap,
            "support": support,
        }
        return _told(base.mdp.setting, _limit(env), horizon, given)
    if horizon is None:
        horizon = base.horizon if isinstance(base, Padded) else _limit(env)
    if horizon is None:
        raise InvalidSetting(
            "'horizon' must be given for an environment without a registered time limit, got None. "
            "Pass the largest number of steps of its episodes."
        )
    return Setting.declare(
        n_states=n_states,
        n_actions=n_actions,
        horizon=check_integer("horizon", horizon, minimum=1),
        allowed=allowed,
        terminal=() if terminal is None else terminal,
        discount=1.0 if discount is None else discount,
        value_cap=value_cap,
        support=support,
        scale=RewardScale() if reward_range is None else RewardScale.of(reward_range),
    )


def _told(setting: Setting, limit: int | None, horizon: int | None, given: Mapping[str, object]) -> Setting:
    """Return the setting of a TabularEnv, perhaps with fewer steps."""
    for name, value in given.items():
        if value is not None:
            raise InvalidSetting(
                f"{name!r} must be left to the MDP of a TabularEnv, got {shown(value)}. Change the "
                "MDP instead."
            )
    most = setting.horizon if limit is None else min(limit, setting.horizon)
    steps = most if horizon is None else check_integer("horizon", horizon, minimum=1)
    if steps > most:
        raise InvalidSetting(f"'horizon' must not exceed the environment's own, {most}, got {steps}.")
    return setting if steps == setting.horizon else replace(setting, horizon=steps)


def _limit(env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> int | None:
    """Return the time limit that an environment was registered or wrapped with."""
    if env.spec is None:
        return None
    limit = env.spec.max_episode_steps
    if isinstance(env, VectorEnv):
        # make_vec of Gymnasium 1.4 leaves the registered limit where it is and notes another one here.
        limit = env.spec.kwargs.get("max_episode_steps", limit)
    # Gymnasium's -1 means no limit at all.
    return limit if limit is None or limit > 0 else None
