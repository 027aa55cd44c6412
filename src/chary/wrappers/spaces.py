"""Gymnasium's spaces, observations and masks in the form that the step API takes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from chary.errors import InvalidAction, InvalidData, InvalidSetting, check_seed
from chary.texts import shown

Mask = NDArray[np.bool_]


def discrete_size(name: str, space: object) -> int:
    """Return n of a space Discrete(n).

    Raises:
        InvalidSetting: if it is not such a space, or does not start at 0.
    """
    if not isinstance(space, Discrete):
        raise InvalidSetting(
            f"{name!r} must be Discrete, got {shown(space)}. Wrap the environment in "
            f"gymnasium.wrappers.{'TransformAction' if name == 'action_space' else 'TransformObservation'}."
        )
    if int(space.start) != 0:
        raise InvalidSetting(f"{name!r} must start at 0, got {shown(space)}. Shift it by a wrapper.")
    return int(space.n)


def as_seed(seed: object) -> int | None:
    """Return a seed in the form that Gymnasium takes.

    Raises:
        InvalidSetting: if it is neither None nor a whole number >= 0.
    """
    return None if seed is None else check_seed(seed)


def state_of(space: object, observation: Any) -> Any:
    """Return the guard's state of an observation: a whole number, or a copy of anything else.

    A copy, because environments may overwrite an array that they have returned.
    """
    return int(observation) if isinstance(space, Discrete) else copy.deepcopy(observation)


def action_mask(mask: object, n_actions: int) -> Mask:
    """Return an environment's `info["action_mask"]` as (A,) booleans.

    Raises:
        InvalidData: if it is not one number per action.
    """
    table = np.asarray(mask)
    if table.shape != (n_actions,) or table.dtype.kind not in "biuf":
        raise InvalidData(
            f"info['action_mask'] must contain one number for each of {n_actions} actions, got {shown(mask)}."
        )
    return np.asarray(table != 0)


def check_in_mask(where: object, action: int, mask: Mask | None) -> None:
    """Raise InvalidAction if the environment's mask excludes an agent's action."""
    if mask is not None and not (0 <= action < len(mask) and mask[action]):
        offered = ", ".join(str(a) for a in np.flatnonzero(mask)) or "none"
        raise InvalidAction(
            f"'action' must be one that {where} allows now ({offered}), got {action}. "
            "Declare the allowed actions in the agent's setting."
        )
