"""Live d3rlpy models with discrete actions as critics."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from chary.arrays import Floats
from chary.critics.protocol import Array, installed, refuse_paths
from chary.errors import InvalidSetting

# Those of d3rlpy 2 whose `predict_value` is a value of discrete actions.
MODELS = ("NFQ", "DQN", "DoubleDQN", "DiscreteSAC", "DiscreteBCQ", "DiscreteCQL")


@final
class D3RLPyCritic:
    """The Q function of a live d3rlpy model with discrete actions; needs `pip install 'chary[d3rlpy]'`.

    Values are `predict_value`'s: the mean over the model's own ensemble, after its observation scaler.

    Args:
        model: A fitted `DiscreteCQL`, `DQN`, `DoubleDQN`, `NFQ`, `DiscreteSAC` or `DiscreteBCQ` of d3rlpy in
            memory, never a path.

    Raises:
        InvalidSetting: if it is a path, another kind of model, not fitted, or has a reward scaler.
    """

    def __init__(self, model: Any) -> None:
        refuse_paths("model", model)
        algos = installed("d3rlpy", "d3rlpy").algos
        kinds: Any = tuple(getattr(algos, name) for name in MODELS)
        if not isinstance(model, kinds):
            raise InvalidSetting(
                f"'model' must be one of d3rlpy's {', '.join(MODELS)}, which value discrete actions, got "
                f"{type(model).__module__.partition('.')[0]}'s {type(model).__name__}. "
                "Wrap others in FunctionCritic."
            )
        if model.impl is None:
            raise InvalidSetting(
                f"'model' must be fitted, got a {type(model).__name__} without networks. Call fit first."
            )
        if model.reward_scaler is not None:
            raise InvalidSetting(
                f"'model' must be trained on rewards in your own units, got "
                f"{type(model.reward_scaler).__name__}: its values are not in the units of a "
                "budget. Train without a reward scaler."
            )
        self.model = model
        self.n_actions = int(model.action_size)

    def __repr__(self) -> str:
        return f"D3RLPyCritic({type(self.model).__name__})"

    def q_values(self, observations: Array, /) -> Floats:
        """Return the model's values, (B, A): one batch with every observation once for each action."""
        A, B = self.n_actions, len(observations)
        repeated = np.repeat(observations, A, axis=0)
        # Networks use single precision; images stay bytes, because their scalers divide by 255.
        batch = repeated if repeated.dtype == np.uint8 else repeated.astype(np.float32)
        values = self.model.predict_value(batch, np.tile(np.arange(A), B))
        return np.asarray(values, dtype=np.float64).reshape(B, A)
