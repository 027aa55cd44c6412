"""The form of a linear agent's observations and transitions, checked where they enter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chary.agents._episodes import Played
from chary.agents._steps import as_transition
from chary.agents.protocol import Transition
from chary.arrays import Floats
from chary.errors import CharyError, InvalidData
from chary.linear.worlds import Steps, no_steps
from chary.texts import shown


class LinearForm(NamedTuple):
    """The shape of observations, the number A of actions, the horizon H, and the range of rewards."""

    shape: tuple[int, ...]
    n_actions: int
    horizon: int
    low: float
    high: float

    @property
    def size(self) -> int:
        """The length of an observation as a vector."""
        return math.prod(self.shape)

    def observation(self, name: str, observation: ArrayLike) -> Floats:
        """Return a copy of an observation as a vector.

        Raises:
            InvalidData: if it is not made of finite numbers, or has another shape.
        """
        try:
            array = np.asarray(observation)
        except (TypeError, ValueError, OverflowError, RuntimeError) as problem:
            raise InvalidData(
                f"{name!r} must be numbers, got {type(observation).__name__}: {problem}."
            ) from problem
        if array.dtype.kind not in "biuf":
            raise InvalidData(f"{name!r} must be numbers, got {type(observation).__name__} of {array.dtype}.")
        if array.shape not in (self.shape, (self.size,)):
            raise InvalidData(
                f"{name!r} must be an observation of shape {self.shape}, got {array.shape}. "
                "All observations of an agent have the same shape."
            )
        vector: Floats = np.array(array, np.float64).reshape(-1)
        if not np.isfinite(vector).all():
            raise InvalidData(f"{name!r} must be finite, got {float(vector[~np.isfinite(vector)][0])!r}.")
        return vector

    def transition(self, transition: Transition) -> Transition:
        """Return a transition with vectors as states and plain numbers.

        Raises:
            InvalidData: if it is not a Transition of finite numbers, or its reward is out of range.
            InvalidAction: if its action is not one of the A.
        """
        step = as_transition(transition, self.n_actions, self.observation)
        if not self.low <= step.reward <= self.high:
            raise InvalidData(
                f"'reward' must lie in [{self.low:g}, {self.high:g}], as 'low' and 'high' declare, got "
                f"{shown(step.reward)}. Values are clipped to what that range allows."
            )
        return step

    def logged(self, episodes: Iterable[Sequence[Transition]]) -> Steps:
        """Return the transitions of logged episodes, checked; the time of one is its place in its episode.

        Raises:
            InvalidData: if a transition is not sound, or an episode goes on after its end.
        """
        try:
            told = [list(episode) for episode in episodes]
        except TypeError as problem:
            raise InvalidData(
                f"'episodes' must be lists of transitions, got {type(episodes).__name__}: {problem}."
            ) from problem
        steps: list[tuple[int, Transition]] = []
        for k, episode in enumerate(told):
            if len(episode) > self.horizon:
                raise InvalidData(
                    f"logged episode {k} must have at most {self.horizon} steps, got {len(episode)}. "
                    "Declare a longer horizon, or cut it."
                )
            for t, transition in enumerate(episode):
                try:
                    step = self.transition(transition)
                except CharyError as problem:
                    raise InvalidData(f"step {t} of logged episode {k} must be sound: {problem}") from problem
                if step.terminated and t + 1 < len(episode):
                    raise InvalidData(
                        f"logged episode {k} must end with its terminal step, got {len(episode) - t - 1} "
                        f"steps after step {t}."
                    )
                steps.append((t, step))
        return as_steps(steps, self.size)

    def played(self, steps: Sequence[tuple[int, Played[Floats]]]) -> Steps:
        """Return decided steps and their times as columns; one without an outcome is lost."""
        found = [
            (t, step.outcome or Transition(step.state, step.played, 0.0, step.state, False))
            for t, step in steps
        ]
        lost = np.array([step.outcome is None for _, step in steps], dtype=bool)
        return as_steps(found, self.size)._replace(lost=lost)


def as_steps(steps: Sequence[tuple[int, Transition]], size: int) -> Steps:
    """Return checked transitions with their times as columns."""
    if not steps:
        return no_steps(size)
    times, told = zip(*steps, strict=True)
    states, actions, rewards, after, ended = zip(*told, strict=True)
    return Steps(
        np.array(states, dtype=np.float64),
        np.array(actions, dtype=np.int64),
        np.array(rewards, dtype=np.float64),
        np.array(after, dtype=np.float64),
        np.array(ended, dtype=bool),
        np.array(times, dtype=np.int64),
        np.zeros(len(steps), dtype=bool),
    )
