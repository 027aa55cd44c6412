"""Parts of a learner as arrays of a file and back: batches of transitions, explorers, the order of ties."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents._facts import Columns
from chary.agents.protocol import AgentSpec, Transition
from chary.arrays import Ints
from chary.errors import InvalidData, InvalidSetting, check_integer
from chary.mdp.setting import Setting
from chary.model.rows import LOST, pair_states, rank_by_index
from chary.planner.explorers import Shorts
from chary.storage.sealed import as_array

COLUMNS = ("states", "pairs", "nexts", "rewards", "terminated")


def as_columns(steps: Sequence[Transition], setting: Setting) -> Columns:
    """Return transitions with scaled rewards by column."""
    states, actions, rewards, nexts, ended = (np.array(column) for column in zip(*steps, strict=True))
    return states, setting.pair_index[states, actions], nexts, rewards.astype(float), ended


def batch_arrays(name: str, batches: Collection[Columns]) -> dict[str, NDArray[Any]]:
    """Return batches of transitions one after the other, for `batches_from`."""
    arrays = {}
    for i, column in enumerate(COLUMNS):
        parts = [each[i] for each in batches]
        arrays[f"{name}.{column}"] = np.concatenate(parts) if parts else np.zeros(0)
    return arrays


def batches_from(
    name: str, arrays: Mapping[str, NDArray[Any]], lengths: Sequence[int], setting: Setting
) -> list[Columns]:
    """Return the batches of these lengths, once they can be counted.

    Raises:
        InvalidData: if they are not transitions of this problem.
    """
    states, pairs, nexts, rewards, ended = (arrays[f"{name}.{column}"] for column in COLUMNS)
    if not lengths:
        return []
    S, P = setting.n_states, setting.n_pairs
    whole = all(np.issubdtype(each.dtype, np.integer) for each in (states, pairs, nexts))
    sizes = {each.shape for each in (states, pairs, nexts, rewards, ended)}
    fits = whole and sizes == {(sum(lengths),)} and rewards.dtype == np.float64 and ended.dtype == bool
    fits = fits and bool(((rewards >= 0) & (rewards <= 1)).all())
    for column, low, size in ((states, 0, S), (pairs, 0, P), (nexts, LOST, S)):
        fits = fits and bool(((column >= low) & (column < size)).all())
    if not fits:
        raise InvalidData(f"{name!r} must hold transitions of this problem, got others.")
    ends = np.cumsum(lengths)[:-1]
    split = [np.split(each, ends) for each in (states, pairs, nexts, rewards, ended)]
    return list(zip(*split, strict=True))


def explorer_arrays(
    explorers: Mapping[int, Shorts], setting: Setting
) -> tuple[NDArray[np.int16], list[list[int]]]:
    """Return the different explorers, (n, H, S), and for every chain the number of its own."""
    # Chains that started with the same counts share an explorer, or have one that is the same.
    chains = sorted(explorers)
    shared = {explorers[chain].tobytes(): explorers[chain] for chain in chains}
    places = {key: i for i, key in enumerate(shared)}
    none = np.zeros((0, setting.horizon, setting.n_states), dtype=np.int16)
    stacked = np.stack(list(shared.values())) if shared else none
    return stacked, [[chain, places[explorers[chain].tobytes()]] for chain in chains]


def explorers_from(
    stacked: NDArray[Any], chains: Sequence[Sequence[int]], setting: Setting
) -> dict[int, Shorts]:
    """Return the explorers by chain that `explorer_arrays` was called with.

    Raises:
        InvalidData: if they are not of this problem.
    """
    shape = (setting.horizon, setting.n_states)
    fits = stacked.ndim == 3 and stacked.shape[1:] == shape and stacked.dtype == np.int16
    if not (fits and bool(((stacked >= 0) & (stacked < setting.n_actions)).all())):
        raise InvalidData("'explorers' must be policies of this problem, got others.")
    policies = [np.array(each) for each in stacked]
    found = {}
    for chain, place in chains:
        check_integer("explorers", chain, minimum=0, error=InvalidData)
        if check_integer("explorers", place, minimum=0, error=InvalidData) >= len(policies):
            raise InvalidData(f"'explorers' must be {len(policies)} policies, got number {place}.")
        found[chain] = policies[place]
    return found


def rank_from(arrays: Mapping[str, NDArray[Any]], spec: AgentSpec, setting: Setting) -> Ints:
    """Return the saved order of ties, (P,).

    Raises:
        InvalidData: if it is not an order of every state's actions.
    """
    rank = rank_by_index(setting)
    if spec.ties != "index":
        rank = as_array("rank", arrays, rank.shape, np.int64, below=setting.n_actions)
        first = setting.n_actions * pair_states(setting)
        if (np.sort(rank + first) != rank_by_index(setting) + first).any():
            raise InvalidData("'rank' must order the actions of every state, got another array.")
    return rank


def generator_values(generator: np.random.Generator | None) -> dict[str, Any] | None:
    """Return the state of a generator as JSON has it.

    Raises:
        InvalidSetting: if it is not of the kind that chary uses.
    """
    if generator is None:
        return None
    state = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise InvalidSetting(
            f"'generator' must be of kind PCG64 to be saved, got {state['bit_generator']}. "
            "Use numpy.random.default_rng."
        )
    return dict(state)


def generator_from(state: Mapping[str, Any] | None) -> np.random.Generator | None:
    """Return the generator whose state this is."""
    if state is None:
        return None
    bits = np.random.PCG64()
    bits.state = dict(state)  # type: ignore[assignment]
    return np.random.Generator(bits)
