"""The form of an agent's observations, actions and transitions, checked where they enter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._steps import as_transition
from chary.agents.protocol import Transition
from chary.deep.learners import Observed
from chary.errors import CharyError, InvalidData
from chary.texts import shown

Floats = NDArray[np.float32]


class Form(NamedTuple):
    """The shape of observations, the number A of actions, and the horizon H."""

    shape: tuple[int, ...]
    n_actions: int
    horizon: int

    @property
    def size(self) -> int:
        """The length of an observation as a vector."""
        return math.prod(self.shape)

    def observation(self, name: str, observation: ArrayLike) -> Floats:
        """Return a copy of an observation as a vector in float32, which networks read.

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
        with np.errstate(over="ignore"):
            vector: Floats = np.array(array, np.float32).reshape(-1)
        if not np.isfinite(vector).all():
            worst = array.reshape(-1)[~np.isfinite(vector)][0]
            raise InvalidData(f"{name!r} must be finite in float32, got {float(worst)!r}.")
        return vector

    def transition(self, transition: Transition) -> Transition:
        """Return a transition with vectors as states and plain numbers.

        Raises:
            InvalidData: if it is not a Transition of finite numbers.
            InvalidAction: if its action is not one of the A.
        """
        step = as_transition(transition, self.n_actions, self.observation)
        # The replay keeps float32.
        if not abs(step.reward) <= float(np.finfo(np.float32).max):
            raise InvalidData(f"'reward' must be a finite number in float32, got {shown(transition.reward)}.")
        return step

    def logged(self, episodes: Iterable[Sequence[Transition]]) -> tuple[list[Observed], list[int]]:
        """Return the transitions of logged episodes, checked, and their times.

        Raises:
            InvalidData: if a transition is not sound, or an episode goes on after its end.
        """
        steps: list[Observed] = []
        times: list[int] = []
        try:
            told = [list(episode) for episode in episodes]
        except TypeError as problem:
            raise InvalidData(
                f"'episodes' must be lists of transitions, got {type(episodes).__name__}: {problem}."
            ) from problem
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
                steps.append(as_observed(step))
                times.append(t)
        return steps, times


def as_observed(step: Transition) -> Observed:
    """Return a checked transition in the types that compiled calls take."""
    numbers = (np.int32(step.action), np.float64(step.reward), step.next_state, np.bool_(step.terminated))
    return Observed._make((step.state, *numbers))
