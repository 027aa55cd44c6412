"""A plan of linear worlds as a value: what the shield asks, frozen for the episodes begun with it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import final

import numpy as np

from chary.arrays import Floats
from chary.linear.algebra import best
from chary.linear.features import Features
from chary.linear.options import LinearModel
from chary.linear.worlds import Coefficients
from chary.planner.joint import upper_of_lanes


@final
class LinearPlan:
    """One plan for all worlds; `chary.shield.PlanOfWorlds` for observations.

    A chain that has played a step has a frozen explorer in `explorers`, which all plans of an agent share;
    any other one takes one of this plan's.

    Args:
        values: The coefficients of all stages.
        features: Of an observation.
        model: The model that they were planned with.
        explorers: The frozen ones by chain: coefficients (H, A, E, F).
    """

    __slots__ = ("_features", "_last", "_model", "explorers", "values")

    def __init__(
        self,
        values: Coefficients,
        features: Features,
        model: LinearModel,
        explorers: MutableMapping[int, Floats] | None = None,
    ) -> None:
        self.values, self._features, self._model = values, features, model
        self.explorers: MutableMapping[int, Floats] = {} if explorers is None else explorers
        # The features of the state asked about last.
        self._last: tuple[bytes, Floats] = (b"", np.zeros(0))

    def explorer_of(self, chain: int) -> Floats:
        """Return the explorer that a chain gets from this plan, (H, A, E, F)."""
        exploring = self.values.theta[:, :, self._model.worlds :]
        if self._model.explorer == "optimistic":
            return exploring
        lane = chain % exploring.shape[2]
        return exploring[:, :, lane : lane + 1].copy()

    def freeze(self, chain: int) -> None:
        """Keep the explorer of a chain that plays its first step by this plan."""
        if chain not in self.explorers:
            self.explorers[chain] = self.explorer_of(chain)

    def explore(self, chain: int, clock: int, s: Floats) -> int:
        """Return the action of that chain's explorer, pi_hat."""
        theta = self.explorers.get(chain)
        q = self._q((self.explorer_of(chain) if theta is None else theta)[clock], clock, s)
        optimism = self._model.attitude.optimism
        return int(best(np, q, optimism) if optimism is not None else q[:, 0].argmax())

    def baseline(self, t: int, s: Floats) -> int:
        """Return the baseline's action, pi_bar."""
        return int(best(np, self.judged(t, s), -self._model.pessimism))

    def judged(self, t: int, s: Floats) -> Floats:
        """Return Q of every action in every judging world, (A, K)."""
        return self._q(self.values.theta[t, :, : self._model.worlds], t, s)

    def charge(self, t: int, s: Floats, a: int) -> float:
        """Return what the panel takes for an upper bound on the gap of playing `a`."""
        return float(upper_of_lanes(self.charges(t, s, a), self._model.panel))

    def charges(self, t: int, s: Floats, a: int) -> Floats:
        """Return the gap of playing `a` in every judging world, (K,), with the margin."""
        q = self.judged(t, s)
        own = int(best(np, q, -self._model.pessimism))
        if a == own:
            return np.zeros(q.shape[1])
        value = q[own]
        if len(self.values.top):
            value = np.maximum(value, self._q(self.values.top[t], t, s)[own])
        return np.asarray(np.maximum(value - q[a], 0.0) + self._model.margin)

    def _q(self, theta: Floats, t: int, s: Floats) -> Floats:
        known = s.tobytes()
        if known != self._last[0]:
            self._last = known, self._features(np.asarray(s, dtype=np.float64)[None])[0]
        return np.clip(theta @ self._last[1], self.values.low[t], self.values.high[t])
