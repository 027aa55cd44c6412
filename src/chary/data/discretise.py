"""Continuous observations as states: a grid of bins, or the nearest point of a fitted codebook."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents.protocol import AGENT_FILE
from chary.arrays import Bools, Floats, Ints, frozen
from chary.data._columns import OBSERVED, Places, shown
from chary.data._kmeans import fitted_centres, nearest
from chary.errors import (
    CharyError,
    InvalidData,
    InvalidSetting,
    check_choice,
    check_integer,
    check_truth,
    check_type,
)
from chary.storage.files import as_path, read_file, understood, write_new
from chary.storage.sealed import kind_of, pack, under, unpack
from chary.texts import shown as shown_whole

OUTSIDE = ("clamp", "refuse")
KIND = "discretiser"
# A grid of more cells than this is a mistake.
MOST_CELLS = 2**31


@runtime_checkable
class Discretiser(Protocol):
    """A function from observations to states; `Bins` and `Codebook` are two, and you can write your own."""

    @property
    def n_states(self) -> int:
        """The number of states, numbered from 0."""

    def __call__(self, observations: ArrayLike, /) -> Ints:
        """Return the states of observations, (N, D) to (N,)."""


class OutsideBinsError(InvalidData):
    """Observations outside a grid that refuses them, with a sentence about the first."""

    def __init__(self, wrong: Bools, dimension: int, low: float, high: float, value: float) -> None:
        super().__init__(
            f"'observations' must lie in [{low:g}, {high:g}] in dimension {dimension}, got {shown(value)} in "
            f"observation {int(np.argmax(wrong))}. Use wider edges, or outside='clamp'."
        )
        self.wrong, self.dimension, self.low, self.high = wrong, dimension, low, high


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A grid: one list of edges per dimension; every cell is a state, and the last dimension counts fastest.

    A value v is in bin i if edges[i] <= v < edges[i + 1]; the last bin contains its upper edge, too.

    Args:
        edges: The edges of each dimension, ascending, one more than there are bins; the outermost may be
            infinite.
        outside: `clamp` puts values beyond the outermost edges into the nearest bin, `refuse` raises.

    Raises:
        InvalidSetting: if edges do not ascend.

    Example:
        >>> grid = Bins([[0, 1, 2], [0, 10, 20, 30]])
        >>> grid.n_states, grid([[0.5, 10.0], [7.0, -1.0]]).tolist()
        (6, [1, 3])
    """

    edges: tuple[Floats, ...]
    outside: str

    def __init__(self, edges: Sequence[ArrayLike], *, outside: str = "clamp") -> None:
        try:
            arrays = tuple(frozen(_floats(each)) for each in edges)
        except (TypeError, ValueError, OverflowError) as problem:
            raise InvalidSetting(
                f"'edges' must be one list of numbers per dimension, got {shown(edges)}."
            ) from problem
        if not arrays:
            raise InvalidSetting("'edges' must describe at least one dimension, got 0.")
        for d, each in enumerate(arrays):
            if each.ndim != 1 or len(each) < 2 or not (each[:-1] < each[1:]).all():
                raise InvalidSetting(
                    f"'edges' must be two ascending numbers or more in every dimension, got "
                    f"{shown(each.tolist())} in dimension {d}."
                )
        _check_cells("edges", [len(each) - 1 for each in arrays])
        object.__setattr__(self, "edges", arrays)
        object.__setattr__(self, "outside", check_choice("outside", outside, OUTSIDE))

    @classmethod
    def uniform(
        cls, low: ArrayLike, high: ArrayLike, counts: Sequence[int], *, outside: str = "clamp"
    ) -> Bins:
        """Return a grid of bins of equal width, `counts[d]` of them from `low[d]` to `high[d]`.

        Raises:
            InvalidSetting: if there is no such grid.

        Example:
            >>> Bins.uniform([0], [1], [4]).edges[0].tolist()
            [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        try:
            lows, highs = (_floats(bound) for bound in (low, high))
            numbers = [check_integer("counts", count, minimum=1) for count in counts]
        except (TypeError, ValueError, OverflowError) as problem:
            if isinstance(problem, CharyError):
                raise
            raise InvalidSetting(
                f"'low', 'high' and 'counts' must contain one number per dimension, got {shown(low)}, "
                f"{shown(high)} and {shown(counts)}."
            ) from problem
        if not lows.shape == highs.shape == (len(numbers),) or not np.isfinite([lows, highs]).all():
            raise InvalidSetting(
                f"'low', 'high' and 'counts' must contain one finite number per dimension, got {shown(low)}, "
                f"{shown(high)} and {shown(counts)}."
            )
        _check_cells("counts", numbers)
        grid = zip(lows, highs, numbers, strict=True)
        return cls([np.linspace(a, b, n + 1) for a, b, n in grid], outside=outside)

    @property
    def n_states(self) -> int:
        """The number of cells."""
        return math.prod(len(each) - 1 for each in self.edges)

    def __call__(self, observations: ArrayLike, /) -> Ints:
        """Return the cells of observations, (N, D) to (N,).

        Raises:
            InvalidData: if one is not finite, has another dimension, or lies outside and is refused.
        """
        points = _as_points(observations, len(self.edges))
        cells = np.zeros(len(points), dtype=np.int64)
        for d, edges in enumerate(self.edges):
            values = points[:, d]
            wrong = (values < edges[0]) | (values > edges[-1])
            if self.outside == "refuse" and wrong.any():
                raise OutsideBinsError(
                    wrong, d, float(edges[0]), float(edges[-1]), float(values[np.argmax(wrong)])
                )
            found = np.searchsorted(edges, values, side="right") - 1
            cells = cells * (len(edges) - 1) + np.clip(found, 0, len(edges) - 2)
        return cells

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays, to be saved."""
        named = {f"edges_{d}": each for d, each in enumerate(self.edges)}
        return {"kind": np.array("bins"), "outside": np.array(self.outside), **named}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Bins:
        """Return the discretiser that `to_arrays` described.

        Raises:
            InvalidData: if it is something else.
        """
        with _saved("Bins", arrays):
            edges = [arrays[f"edges_{d}"] for d in range(len(arrays) - 2)]
            return cls(edges, outside=str(arrays["outside"]))


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """Typical observations, one per state; every observation has the state of the nearest one.

    The distance is Euclidean after each dimension is divided by its `scale`. It is summed dimension by
    dimension, so that the state of an observation does not depend on the others; of centres equally near, the
    first counts.

    Args:
        centres: The typical observations, (K, D), in the units of observations.
        scale: What each dimension is divided by, (D,), > 0; 1 by default.

    Raises:
        InvalidSetting: if they are not finite, or not arrays of these shapes.

    Example:
        >>> Codebook([[0.0, 0.0], [1.0, 1.0]])([[0.2, 0.1], [0.9, 2.0]]).tolist()
        [0, 1]
    """

    centres: Floats
    scale: Floats

    def __init__(self, centres: ArrayLike, *, scale: ArrayLike | None = None) -> None:
        try:
            points = _floats(centres)
            widths = np.ones(points.shape[-1:]) if scale is None else _floats(scale)
        except (TypeError, ValueError, OverflowError) as problem:
            raise InvalidSetting(
                f"'centres' must be numbers, shape (K, D), got {shown(centres)}."
            ) from problem
        if points.ndim != 2 or not points.size or not np.isfinite(points).all():
            raise InvalidSetting(
                f"'centres' must be finite numbers, shape (K, D), got {shown(centres)} of shape "
                f"{points.shape}."
            )
        if widths.shape != points.shape[1:] or not (np.isfinite(widths) & (widths > 0)).all():
            raise InvalidSetting(
                f"'scale' must be one finite number > 0 per dimension, {points.shape[1]} of them, got "
                f"{shown(scale)}."
            )
        object.__setattr__(self, "centres", frozen(points))
        object.__setattr__(self, "scale", frozen(widths))

    @classmethod
    def fit(
        cls,
        observations: ArrayLike,
        n_states: int,
        *,
        generator: np.random.Generator,
        iterations: int = 100,
        sample: int = 20_000,
        standardise: bool = True,
    ) -> Codebook:
        """Return the codebook that k-means finds, begun by k-means++: the same generator, the same codebook.

        Args:
            observations: (N, D) observations.
            n_states: The number K of states.
            generator: The source of the random draws.
            iterations: The largest number of times that centres are moved; fewer once nothing changes.
            sample: The largest number of observations that are used, drawn without replacement.
            standardise: Whether dimensions are divided by their standard deviations.

        Raises:
            InvalidData: if observations are not finite, or fewer than K of them differ.
        """
        points = _as_points(observations, None)
        K = check_integer("n_states", n_states, minimum=1)
        check_integer("iterations", iterations, minimum=1)
        check_integer("sample", sample, minimum=K, way_out="It must contain one observation per state.")
        way_out = "Use numpy.random.default_rng(seed)."
        check_type("generator", generator, np.random.Generator, "a numpy Generator", way_out=way_out)
        check_truth("standardise", standardise)
        if len(points) > sample:
            points = points[np.sort(generator.choice(len(points), sample, replace=False))]
        scale = np.ones(points.shape[1])
        if standardise and len(points):
            with np.errstate(over="ignore", invalid="ignore"):
                spread = points.std(axis=0)
            # Dimensions that do not vary, or vary beyond the range of floats, are left as they are.
            scale = np.where(np.isfinite(spread) & (spread > 1e-150), spread, 1.0)
        points = points / scale
        if len(np.unique(points, axis=0)) < K:
            raise InvalidData(
                f"'n_states' must not exceed the number of different observations, got {K} for "
                f"{len(np.unique(points, axis=0))}. Use fewer states."
            )
        return cls(fitted_centres(points, K, generator, iterations) * scale, scale=scale)

    @property
    def n_states(self) -> int:
        """The number of centres."""
        return len(self.centres)

    def __call__(self, observations: ArrayLike, /) -> Ints:
        """Return the nearest centres of observations, (N, D) to (N,).

        Raises:
            InvalidData: if one is not finite or has another dimension.
        """
        points = _as_points(observations, len(self.scale))
        return nearest(points / self.scale, self.centres / self.scale)[0]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays, to be saved."""
        return {"kind": np.array("codebook"), "centres": self.centres, "scale": self.scale}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Codebook:
        """Return the discretiser that `to_arrays` described.

        Raises:
            InvalidData: if it is something else.
        """
        with _saved("a Codebook", arrays):
            return cls(arrays["centres"], scale=arrays["scale"])


def discretiser_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Bins | Codebook:
    """Return the discretiser, of either kind, that `to_arrays` described.

    Raises:
        InvalidData: if it is something else.
    """
    _check_named(arrays)
    kind = str(arrays.get("kind", "none"))
    if kind not in KINDS:
        raise InvalidData(f"'kind' must be one of {', '.join(KINDS)}, got {kind!r}.")
    return KINDS[kind].from_arrays(arrays)


KINDS: dict[str, type[Bins] | type[Codebook]] = {"bins": Bins, "codebook": Codebook}


@contextmanager
def _saved(kind: str, arrays: object) -> Iterator[None]:
    """Turn what goes wrong while a discretiser is made from arrays into InvalidData."""
    _check_named(arrays)
    try:
        yield
    except (KeyError, CharyError) as problem:
        raise InvalidData(f"'arrays' must be those of {kind}, got others: {problem}.") from problem


def _check_named(arrays: object) -> None:
    check_type("arrays", arrays, Mapping, "arrays by name", error=InvalidData)


def save_discretiser(discretiser: Bins | Codebook, path: str | Path, *, overwrite: bool = False) -> None:
    """Save a discretiser in chary's own format: arrays, and no code.

    Raises:
        InvalidSetting: if it is of another class, the file exists, or it cannot be written.
    """
    check_type("discretiser", discretiser, (Bins, Codebook), "Bins or a Codebook to be saved")
    write_new(path, pack(KIND, discretiser.to_arrays(), {}), overwrite=overwrite)


def load_discretiser(path: str | Path) -> Bins | Codebook:
    """Load a discretiser that `save_discretiser` wrote, or that an agent was saved with.

    Raises:
        InvalidData: if the file cannot be read, is truncated, of another kind or schema, or was changed.
    """
    with understood(f"'path' must be a saved discretiser, got {shown_whole(str(path))}"):
        content = read_file(as_path("path", path))
        kind = kind_of(content)
        _, arrays = unpack(AGENT_FILE if kind == AGENT_FILE else KIND, content)
        if kind == AGENT_FILE:
            arrays = under("discretiser.", arrays)
            if not arrays:
                raise InvalidData("an agent that was saved without one.")
        return discretiser_from_arrays(arrays)


def discretise(discretiser: Discretiser, columns: dict[str, NDArray[Any]], places: Places) -> None:
    """Put states in place of the observations among some columns, and endings into a state of their own."""
    for name in OBSERVED:
        observed, states = columns[name], np.zeros(len(columns[name]), dtype=np.int64)
        # Entries with a fault have no observation; a discretiser may refuse others, and then again.
        found, clean = -1, ~places.faulty()
        while clean.any() and found != len(places.faults or ()):
            found = len(places.faults or ())
            states[clean] = cells_of(discretiser, name, observed[clean], places.among(clean))
            clean &= ~places.faulty()
        columns[name] = states
    ended = columns["terminated"].astype(bool)
    columns["next_state"] = np.where(ended, discretiser.n_states, columns["next_state"])


def cells_of(discretiser: Discretiser, name: str, observed: Floats, places: Places) -> Ints:
    """Return the states of observations; those that a discretiser refuses are faults with their rows."""
    if not isinstance(discretiser, Discretiser):
        raise InvalidSetting(
            f"'discretiser' must have n_states and be callable, got {type(discretiser).__name__}. "
            "Use Bins or Codebook."
        )
    S = check_integer("n_states", discretiser.n_states, minimum=1)
    try:
        cells = np.asarray(discretiser(observed))
    except OutsideBinsError as problem:
        d = problem.dimension
        places.refuse(
            f"{name}_{d}",
            f"lie in [{problem.low:g}, {problem.high:g}]",
            problem.wrong,
            lambda i: shown(observed[i, d]),
            "Use wider edges, or outside='clamp'.",
        )
        return np.zeros(len(observed), dtype=np.int64)
    if cells.shape != (len(observed),) or cells.dtype.kind not in "iu":
        raise InvalidData(
            f"'discretiser' must return one whole number per observation, shape ({len(observed)},), got "
            f"{cells.dtype} of shape {cells.shape}."
        )
    wrong = (cells < 0) | (cells >= S)
    places.refuse("discretiser", f"return states 0..{S - 1}", wrong, lambda i: str(cells[i]))
    return cells.astype(np.int64)


def _check_cells(name: str, counts: Sequence[int]) -> None:
    if math.prod(counts) > MOST_CELLS:
        raise InvalidSetting(
            f"{name!r} must make no more than {MOST_CELLS} cells, got {math.prod(counts)}. Use a Codebook."
        )


def _floats(values: ArrayLike) -> Floats:
    """Return numbers as an array.

    Raises:
        TypeError: if they are not real numbers.
    """
    given = np.asarray(values)
    if given.dtype.kind in "cUSMmV":
        raise TypeError(f"coordinates must be real numbers, not {given.dtype}")
    return np.asarray(given, dtype=np.float64)


def _as_points(observations: ArrayLike, dimensions: int | None) -> Floats:
    try:
        points = _floats(observations)
    except (TypeError, ValueError, OverflowError) as problem:
        raise InvalidData(
            f"'observations' must be numbers, shape (N, D), got {shown(observations)}."
        ) from problem
    wanted = "D" if dimensions is None else dimensions
    if points.ndim != 2 or points.shape[1] != (points.shape[1] if dimensions is None else dimensions):
        raise InvalidData(f"'observations' must have shape (N, {wanted}), got {points.shape}.")
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        raise InvalidData(
            f"'observations' must be finite, got {shown(points[first].tolist())} in observation {first} and "
            f"{int((~finite).sum()) - 1} more."
        )
    return points
