"""Columns of the tidy tables as values: each has a type and a function of a stored run."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats, Ints
from chary.standing import Standing
from chary.sweeps.folder import StoredRun

# Points of a learning curve; the last is the last episode.
POINTS = 100
# Early and late in a run are its first and its last tenth.
TENTH = 10

R = TypeVar("R", bound="Judged")
# By name: the Polars type, and the value for a run (one per point, for curves).
Columns: TypeAlias = Mapping[str, tuple[str, Callable[[R], Any]]]


class Judged(ABC):
    """A stored run, judged at one budget; curves have one value per window of episodes."""

    def __init__(self, stored: StoredRun, budget: float) -> None:
        self.spec, self.summary, self.arrays = stored.spec, stored.summary, stored.arrays
        self.budget = budget

    def floats(self, name: str) -> Floats:
        """Return a stored array as floats."""
        return np.asarray(self.arrays[name], dtype=np.float64)

    def ints(self, name: str) -> Ints:
        """Return a stored array as integers."""
        return np.asarray(self.arrays[name], dtype=np.int64)

    @property
    @abstractmethod
    def standing(self) -> Standing:
        """The standing of the promise that the run's budget is kept."""

    @property
    @abstractmethod
    def at(self) -> Ints:
        """The last episode of each window, counted from 1."""

    @property
    def tenth(self) -> int:
        """Episodes of a tenth."""
        return max(1, int(self.at[-1]) // TENTH)

    @property
    def starts(self) -> Ints:
        """The first episode of each window, counted from 0."""
        return np.concatenate(([0], self.at[:-1]))

    def summed(self, values: ArrayLike) -> Any:
        """Return the sums over each window of one value per episode, or one row per episode."""
        return np.add.reduceat(np.asarray(values), self.starts)

    def over(self, top: ArrayLike, bottom: ArrayLike) -> Floats:
        """Return one sum per window divided by another; NaN where that is 0."""
        below = np.asarray(bottom, dtype=np.float64)
        return np.asarray(np.divide(top, below, out=np.full(len(self.at), np.nan), where=below > 0))

    def mean(self, name: str) -> Floats:
        """Return the mean over each window of a stored array."""
        return self.per_episode(self.floats(name))

    def per_episode(self, values: ArrayLike) -> Floats:
        """Return the mean over each window of one value per episode."""
        return np.asarray(self.summed(values) / np.diff(self.at, prepend=0))


# The promise of a run: in a few words, by its parts, and all that it leans on as a list in JSON.
STANDING: Columns[Judged] = {
    "standing": ("String", lambda run: run.standing.label),
    "level": ("String", lambda run: run.standing.level),
    "per": ("String", lambda run: run.standing.per),
    "probability": ("Float64", lambda run: run.standing.probability),
    "given": ("String", lambda run: json.dumps(run.standing.given)),
    "about": ("String", lambda run: run.standing.about),
}


class Schema(NamedTuple, Generic[R]):
    """The tables of a family of problems: how a run is judged, and the columns of `runs` and of `curves`."""

    judged: Callable[[StoredRun, float], R]
    runs: Columns[R]
    curves: Columns[R]


def points_of(episodes: int, points: int = POINTS) -> Ints:
    """Return up to `points` whole numbers, evenly spaced, the last of them `episodes`.

    Example:
        >>> points_of(3), points_of(1000)[[0, 1, -1]]
        (array([1, 2, 3]), array([  10,   20, 1000]))
    """
    count = max(1, min(points, episodes))
    return np.unique(np.round(np.arange(1, count + 1) * (episodes / count)).astype(np.int64))
