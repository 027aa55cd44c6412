"""A problem with continuous states as a value: its equations, its actions, and the bounds of what is seen."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

from chary.envs.continuous.arithmetic import Arithmetic

State = tuple[Any, ...]


@runtime_checkable
class Equations(Protocol):
    """A problem whose only randomness is the start of an episode, so that values of policies are exact.

    Equal values are the same problem: implementations are frozen dataclasses whose fields are its options.

    Attributes:
        name: Its name, see `chary problems`.
        actions: The names of its actions.
        horizon: The steps of an episode.
        quantities: The names of the numbers of a state, with their units.
        draws: The number of uniforms that a start consumes.
        low: The least value of each number of an observation.
        high: The largest value of each number of an observation.
    """

    name: ClassVar[str]
    actions: ClassVar[tuple[str, ...]]
    horizon: ClassVar[int]
    quantities: ClassVar[tuple[str, ...]]
    draws: ClassVar[int]
    low: ClassVar[tuple[float, ...]]
    high: ClassVar[tuple[float, ...]]

    def __hash__(self) -> int:
        """Return the hash of its options."""

    @property
    def spread(self) -> float:
        """The size of the region in which episodes start; 0 for one start."""

    def start(self, uniforms: Any) -> State:
        """Return the start of an episode from `draws` uniforms in [0, 1)."""

    def step(self, do: Arithmetic, state: State, action: Any) -> tuple[State, Any, Any]:
        """Return the next state, the reward, and whether the episode ends there."""

    def observe(self, do: Arithmetic, state: State) -> State:
        """Return the observation of a state: a vector of numbers of size about 1."""
