"""The separate state of early endings, which `Setting.declare(early_endings=True)` adds after all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Bools, Floats, Ints
from chary.errors import InvalidMDP


def with_ending(mask: Bools, ends: Bools, offset: bool) -> tuple[Bools, Bools]:
    """Return the allowed actions (S, A) and the terminal states (S,) with one more state.

    With an `offset` of rewards an early ending would be an advantage or a loss by itself: episodes go on in
    that state, with action 0 and reward 0. Otherwise it is terminal.
    """
    only = (np.arange(mask.shape[1]) == 0) & offset
    return np.vstack([mask, only]), np.append(ends, not offset)


def support_with_ending(support: Ints, offset: bool) -> Ints:
    """Return the number of successors of each pair, (P,), where each may lead to one more state."""
    return np.append(support + 1, [1] * offset).astype(np.int64)


def reward_with_ending(table: Floats | None) -> Floats | None:
    """Return known rewards with one more state, in which nothing is earned.

    Raises:
        InvalidMDP: if they depend on the next state, which an ending replaces.
    """
    if table is None:
        return None
    if table.ndim == 3:
        raise InvalidMDP(
            "'reward' must be by state and action where episodes may end early, got it by next state, which "
            "an ending replaces. Leave it out: rewards are then estimated."
        )
    return np.vstack([table, np.zeros((1, table.shape[1]))])


def policy_with_ending(
    table: NDArray[Any], n_states: int, n_actions: int, ending: int | None
) -> NDArray[Any]:
    """Return a policy that leaves out the separate state of endings, with action 0 there; others as they are.

    A policy is actions (S,) or (H, S), or probabilities (S, A), of `n_states` S with that state.
    """
    if ending is None or table.ndim not in (1, 2):
        return table
    whole = np.issubdtype(table.dtype, np.integer)
    if whole and table.shape[-1] == n_states - 1:
        return np.append(table, np.zeros((*table.shape[:-1], 1), dtype=table.dtype), axis=-1)
    if table.shape == (n_states - 1, n_actions):
        return np.vstack([table, np.arange(n_actions) == 0])
    return table
