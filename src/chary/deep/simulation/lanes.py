"""Training runs side by side: those that differ in seed and budget alone share one compiled call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from chary.deep.simulation import DeepSimulation
from chary.deep.simulation.chunks import compiled_begin, compiled_chunk, compiled_incumbent
from chary.errors import InvalidData, InvalidSetting


@final
class DeepLanes:
    """Several DeepSimulations that are advanced together, one per lane.

    On an accelerator a lane costs little. Results differ from those of a run on its own by rounding.

    Args:
        simulations: Runs that differ in seed and budget alone, and have played equally many episodes.

    Attributes:
        failed: By lane, the error of each run that cannot go on; `simulations` has it as it was before.

    Raises:
        InvalidSetting: if there is none, or they differ in anything else.

    Example:
        >>> from chary.deep import DeepOptions, hiv
        >>> small = DeepOptions(episodes=2, warm_up=1, pretraining=0, width=4, features=4, batch=4)
        >>> DeepLanes([DeepSimulation(hiv(5), small, seed=seed, audit_every=0) for seed in range(3)]).done
        0
    """

    def __init__(self, simulations: Sequence[DeepSimulation]) -> None:
        kinds = {(one.kind, one.done) for one in simulations}
        if len(kinds) != 1:
            raise InvalidSetting(
                f"'simulations' must be runs that differ in seed and budget alone, got {len(kinds)} kinds."
            )
        self.simulations = tuple(simulations)
        self.failed: dict[int, InvalidData] = {}
        first = self.simulations[0]
        self.done, self.episodes = first.done, first.episodes
        self._kind = first.kind
        with jax.enable_x64(True):
            self._rules = _stacked([one.rule for one in self.simulations])
            learners = [one.learner for one in self.simulations]
            self._learners: Any = None if None in learners else _stacked(learners)
            self._incumbent: Any = (
                None if None in learners else _stacked([one.incumbent for one in simulations])
            )

    def start(self) -> None:
        """Play the warm-up of every lane and learn from it; not for simulations that were restored."""
        with jax.enable_x64(True):
            keys = jnp.stack([jax.random.key(one.seed) for one in self.simulations])
            self._learners = compiled_begin(self._kind, lanes=True)(keys)
            # A copy: chunks write into the state they are given.
            incumbents = compiled_incumbent(self._kind, lanes=True)(self._learners)
            self._incumbent = jax.tree.map(jnp.copy, incumbents)
            for i, one in enumerate(self.simulations):
                one.incumbent = _lane(self._incumbent, i)

    def advance(self) -> int:
        """Play one more chunk of episodes in every lane, and return how many are done.

        A lane with a reward or an audit that is not finite is noted in `failed`, and the others go on.
        """
        began = time.perf_counter()
        number, audits = self._kind.next_chunk(self.done)
        with jax.enable_x64(True):
            play = compiled_chunk(self._kind, number, audits, lanes=True)
            self._learners, chunks = play(self._learners, self._rules, self._incumbent)
            chunks = jax.tree.map(np.asarray, chunks)
        share = (time.perf_counter() - began) / len(self.simulations)
        for i, one in enumerate(self.simulations):
            if i not in self.failed:
                try:
                    one.keep(_lane(chunks, i), share)
                except InvalidData as problem:
                    self.failed[i] = problem
        self.done += number
        return self.done

    def settle(self) -> None:
        """Give every simulation the state of its lane, so that it can be saved or return its result."""
        with jax.enable_x64(True):
            for i, one in enumerate(self.simulations):
                if i not in self.failed:
                    one.learner = _lane(self._learners, i)


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _lane(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)
