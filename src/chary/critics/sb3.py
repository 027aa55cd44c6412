"""Live DQN models of Stable-Baselines3 as critics."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from chary.arrays import Floats
from chary.critics.protocol import Array, installed, refuse_paths
from chary.errors import InvalidData, InvalidSetting
from chary.texts import shown


@final
class SB3Critic:
    """The Q network of a live Stable-Baselines3 DQN model; needs `pip install 'chary[sb3]'`.

    Observations are those that the model's own `predict` takes, with the same preprocessing. The network is
    put in evaluation mode, as by `predict`.

    Args:
        model: A `stable_baselines3.DQN` in memory, never a path.

    Raises:
        InvalidSetting: if it is a path, another kind of model, has no network yet, or was trained on rewards
            that VecNormalize had scaled.
    """

    def __init__(self, model: Any) -> None:
        refuse_paths("model", model)
        sb3 = installed("stable_baselines3", "sb3")
        if not isinstance(model, sb3.DQN):
            raise InvalidSetting(
                f"'model' must be a stable_baselines3.DQN, which values every action, got "
                f"{type(model).__module__.partition('.')[0]}'s {type(model).__name__}. "
                "Wrap others in FunctionCritic."
            )
        # Absent, not None, before SB3 sets a model up.
        if getattr(model, "policy", None) is None:
            raise InvalidSetting("'model' must have a network, got one that was not set up. Train it first.")
        if not isinstance(model.observation_space.shape, tuple):
            raise InvalidSetting(
                f"'model' must take arrays, got {type(model.observation_space).__name__} observations. "
                "Flatten them with gymnasium.wrappers.FlattenObservation."
            )
        if int(model.action_space.start) != 0:
            raise InvalidSetting(f"'model' must have actions from 0, got {shown(model.action_space)}.")
        normalised = model.get_vec_normalize_env()
        if normalised is not None and normalised.norm_reward:
            raise InvalidSetting(
                "'model' must be trained on rewards in your own units, got VecNormalize with "
                "norm_reward=True: its values are not in the units of a budget. Train with "
                "norm_reward=False."
            )
        self.model = model
        self.n_actions = int(model.action_space.n)
        self._no_grad = installed("torch", "sb3").no_grad

    def __repr__(self) -> str:
        return "SB3Critic(DQN)"

    def q_values(self, observations: Array, /) -> Floats:
        """Return the network's values, (B, A).

        Raises:
            InvalidData: if the observations are not (B, ...) of the model's space.
        """
        policy = self.model.policy
        policy.set_training_mode(False)
        try:
            tensor, batched = policy.obs_to_tensor(observations)
        except ValueError as error:
            raise InvalidData(f"'observations' of {self!r} must fit its space, got {error}") from error
        if not batched:
            raise InvalidData(
                f"'observations' of {self!r} must have one row per observation, got a single one of shape "
                f"{observations.shape}."
            )
        with self._no_grad():
            values = policy.q_net(tensor)
        return np.asarray(values.cpu().numpy(), dtype=np.float64)
