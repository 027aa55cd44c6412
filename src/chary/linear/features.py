"""Features of observations: random Fourier features, one-hot ones, or the user's own function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats
from chary.errors import InvalidData, InvalidSetting, check_integer, check_real
from chary.linear.algebra import waves
from chary.randomness import generator_for
from chary.storage.sealed import as_array
from chary.texts import shown

KINDS = ("fourier", "one_hot", "own")
# Observations among which distances are taken; every pair of them counts.
MEASURED = 256
Function: TypeAlias = Callable[[Floats], ArrayLike]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Features phi of observations (n, d), as (n, F) numbers; made by one of the three functions below.

    Args:
        kind: `fourier`, `one_hot` or `own`.
        size: d, the length of an observation.
        number: F.
        frequency: Of Fourier features, (d, F - 1).
        phase: Of Fourier features, (F - 1,).
        length_scale: Of Fourier features; 0 elsewhere.
        function: The user's own, which returns F - 1 numbers per observation; a constant comes before them.
    """

    kind: str
    size: int
    number: int
    frequency: Floats
    phase: Floats
    length_scale: float = 0.0
    function: Function | None = None

    @property
    def levels(self) -> Bools:
        """Which features stand for a value alone, (F,); the others are waves around a constant."""
        if self.kind == "one_hot":
            return np.ones(self.number, dtype=bool)
        return np.asarray(np.arange(self.number) == 0)

    def __call__(self, observations: Floats) -> Floats:
        """Return the features of observations (n, d).

        Raises:
            InvalidData: if they are not of this size, the index of a one-hot feature is not one, or own
                features are not finite numbers of the right shape.
        """
        x = np.asarray(observations, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.size:
            raise InvalidData(f"'observations' must have shape (n, {self.size}), got {x.shape}.")
        if self.kind == "fourier":
            found: Floats = waves(np, self.frequency, self.phase, x)
            return found
        if self.kind == "one_hot":
            index = x[:, 0].astype(np.int64)
            if ((index != x[:, 0]) | (index < 0) | (index >= self.number)).any():
                raise InvalidData(
                    f"an observation must be a whole number in 0..{self.number - 1}, got {shown(x[:, 0])}."
                )
            return np.eye(self.number)[index]
        return self._own(x)

    def _own(self, x: Floats) -> Floats:
        assert self.function is not None
        try:
            given = np.asarray(self.function(x.copy()), dtype=np.float64)
        except (TypeError, ValueError) as problem:
            raise InvalidData(
                f"'features' must return an array of numbers, got an error: {problem}."
            ) from problem
        if given.shape != (len(x), self.number - 1):
            raise InvalidData(
                f"'features' must return shape {(len(x), self.number - 1)} for {len(x)} observations, got "
                f"{given.shape}."
            )
        if not np.isfinite(given).all():
            raise InvalidData(f"'features' must be finite, got {given[~np.isfinite(given)][0]!r}.")
        return np.concatenate([np.ones((len(x), 1)), given], axis=1)

    def describe(self) -> str:
        """Return the features in words, for the standing."""
        if self.kind == "fourier":
            return f"{self.number} random Fourier features of length scale {self.length_scale:.4g}"
        if self.kind == "one_hot":
            return f"one feature for each of {self.number} states"
        return f"{self.number - 1} features of your own and a constant"

    def record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the features as arrays and plain values; a function is left out."""
        about = {
            "kind": self.kind,
            "size": self.size,
            "number": self.number,
            "length_scale": self.length_scale,
        }
        return {"frequency": self.frequency, "phase": self.phase}, about

    @classmethod
    def restored(
        cls,
        about: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        function: Function | None,
    ) -> Features:
        """Return the features of a file, with the user's own `function` given again.

        Raises:
            InvalidData: if they are malformed, or a function is missing or too many.
        """
        kind, size = about["kind"], check_integer("size", about["size"], minimum=1, error=InvalidData)
        number = check_integer("number", about["number"], minimum=1, error=InvalidData)
        if kind not in KINDS or (kind == "own") != (function is not None):
            raise InvalidData(
                f"'features' must be given again if and only if they are your own, got {shown(function)} for "
                f"features of kind {shown(kind)}."
            )
        waved = number - 1 if kind == "fourier" else 0
        frequency = as_array("frequency", arrays, (size, waved), np.float64)
        phase = as_array("phase", arrays, (waved,), np.float64)
        if not (np.isfinite(frequency).all() and np.isfinite(phase).all()):
            raise InvalidData("'features' of a file must be finite, got others.")
        return cls(
            kind,
            size,
            number,
            frequency,
            phase,
            check_real("length_scale", about["length_scale"], low=0.0, open_high=True, error=InvalidData),
            function,
        )


def fourier(size: int, number: int, length_scale: float, *, seed: int = 0) -> Features:
    """Return random Fourier features of a Gaussian kernel for observations of length `size`.

    Args:
        size: d, the length of an observation.
        number: F >= 2, one of them a constant.
        length_scale: Distance over which features vary, > 0.
        seed: Of the frequencies.

    Raises:
        InvalidSetting: if a number is out of range.

    Example:
        >>> fourier(2, 8, 1.0)(np.zeros((3, 2))).shape
        (3, 8)
    """
    d = check_integer("size", size, minimum=1)
    n = check_integer("number", number, minimum=2)
    scale = check_real("length_scale", length_scale, low=0.0, open_low=True, open_high=True)
    frequency, phase = drawn_waves(d, n, seed)
    return Features("fourier", d, n, frequency / scale, phase, scale)


def drawn_waves(size: int, number: int, seed: int) -> tuple[Floats, Floats]:
    """Return frequencies (d, F - 1) of length scale 1, and phases (F - 1,)."""
    generator = generator_for(seed, "features")
    frequency = generator.standard_normal((size, number - 1))
    return frequency, generator.uniform(0.0, 2.0 * np.pi, number - 1)


def one_hot(states: int) -> Features:
    """Return one feature per state 0..S-1: observations have one number, the state.

    Example:
        >>> one_hot(3)(np.array([[2.0]])).tolist()
        [[0.0, 0.0, 1.0]]
    """
    n = check_integer("states", states, minimum=1)
    return Features("one_hot", 1, n, np.zeros((1, 0)), np.zeros(0))


def own(function: Function, size: int) -> Features:
    """Return the features that `function` computes from observations (n, d), and a constant before them.

    Args:
        function: From observations (n, d) to (n, F - 1) finite numbers of the order of 1.
        size: d, the length of an observation.

    Raises:
        InvalidSetting: if `function` cannot be called.
        InvalidData: if what it returns for observations of zeros is not sound.

    Example:
        >>> own(lambda x: x**2, 2)(np.array([[1.0, 3.0]])).tolist()
        [[1.0, 1.0, 9.0]]
    """
    d = check_integer("size", size, minimum=1)
    if not callable(function):
        raise InvalidSetting(f"'features' must be a function of observations (n, d), got {shown(function)}.")
    tried = np.asarray(function(np.zeros((2, d))))
    if tried.ndim != 2 or tried.shape[0] != 2 or tried.shape[1] < 1:
        raise InvalidData(f"'features' must return shape (n, F) for n observations, got {tried.shape} for 2.")
    made = Features("own", d, tried.shape[1] + 1, np.zeros((d, 0)), np.zeros(0), 0.0, function)
    made(np.zeros((2, d)))
    return made


def median_distance(xp: Any, observations: Any) -> Any:
    """Return the median distance of different observations (n, d), 1 where there are none.

    More than `MEASURED` are thinned out evenly. `xp` is NumPy or JAX.
    """
    n = observations.shape[0]
    some = observations[:: -(-n // MEASURED)] if n > MEASURED else observations
    square = xp.sum((some[:, None, :] - some[None, :, :]) ** 2, axis=-1)
    distances = xp.sqrt(square).ravel()
    found = distances > 0.0
    return xp.nanmedian(xp.where(xp.any(found), xp.where(found, distances, xp.nan), 1.0))
