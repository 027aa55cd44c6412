"""Training runs side by side: those that differ in seed and budget alone share one compiled call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from chary.deep.options import DeepOptions
from chary.deep.simulation import DeepSimulation, _begins, _plays, _shared
from chary.errors import InvalidData, InvalidSetting

__all__ = ["DeepLanes"]


@final
class DeepLanes:
    """Several DeepSimulations that are advanced together, one a lane.

    On an accelerator a lane costs little. Rounding differs from that of a run by itself, so that bits do.

    Args:
        simulations: Runs that differ in seed and budget alone, and have come equally far.

    Raises:
        InvalidSetting: if there is none, or they differ in anything else.

    Example:
        >>> small = DeepOptions(episodes=2, warm_up=1, pretraining=0, width=4, features=4, batch=4)
        >>> DeepLanes([DeepSimulation(small, seed=seed, audit_every=0) for seed in range(3)]).done
        0
    """

    def __init__(self, simulations: Sequence[DeepSimulation]) -> None:
        kinds = {(one.patient, _shared(one.options), one.audit_every, one.done) for one in simulations}
        if len(kinds) != 1:
            raise InvalidSetting(
                f"'simulations' must be runs that differ in seed and budget alone, got {len(kinds)} kinds."
            )
        self.simulations = tuple(simulations)
        self.failed: dict[int, InvalidData] = {}
        first = self.simulations[0]
        self.done, self.episodes = first.done, first.episodes
        self._kind = (first.patient, _shared(first.options))
        with jax.enable_x64(True):
            self._rules = _stacked([one._rule for one in self.simulations])
            self._state = _stacked([one._state for one in self.simulations]) if first._state else None

    def start(self) -> None:
        """Play the warm-up of every lane and learn from it; not for simulations that were restored."""
        with jax.enable_x64(True):
            keys = jnp.stack([jax.random.key(one.seed) for one in self.simulations])
            self._state = _begins_all(*self._kind)(keys)

    def advance(self) -> int:
        """Play one more chunk of episodes in every lane, and return how many are done.

        A lane whose equations could not be integrated is noted in `failed`, and the others go on.
        """
        began = time.perf_counter()
        with jax.enable_x64(True):
            play = _plays_all(*self._kind, *self.simulations[0]._next())
            self._state, chunks = play(self._state, self._rules)
            chunks = jax.tree.map(np.asarray, chunks)
        share = (time.perf_counter() - began) / len(self.simulations)
        for i, one in enumerate(self.simulations):
            chunk = _lane(chunks, i)
            try:
                one._check(chunk)
            except InvalidData as problem:
                self.failed.setdefault(i, problem)
            self.done = one._took(chunk, share)
        return self.done

    def settle(self) -> None:
        """Give every simulation the state of its lane, so that it can be saved, or asked for its result."""
        with jax.enable_x64(True):
            for i, one in enumerate(self.simulations):
                one._state = _lane(self._state, i)


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _lane(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


@lru_cache(maxsize=4)
def _begins_all(patient: str | int, options: DeepOptions) -> Callable[[jax.Array], Any]:
    return jax.jit(jax.vmap(_begins(patient, options)))


@lru_cache(maxsize=8)
def _plays_all(
    patient: str | int, options: DeepOptions, number: int, audits: bool
) -> Callable[[Any, Any], tuple[Any, Any]]:
    return jax.jit(jax.vmap(_plays(patient, options, number, audits)), donate_argnums=0)
