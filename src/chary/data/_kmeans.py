"""k-means, begun by k-means++: distances, nearest centres, and centres that fit some points."""

from __future__ import annotations

import numpy as np

from chary.arrays import Floats, Ints

# Distances kept in memory at a time.
BLOCK = 1 << 20


def _squares(points: Floats, centres: Floats) -> Floats:
    """Return squared distances (N, K), summed in an order that does not depend on the number of points."""
    total = np.zeros((len(points), len(centres)))
    with np.errstate(over="ignore", invalid="ignore"):
        for d in range(points.shape[1]):
            gap = points[:, d, None] - centres[None, :, d]
            total += gap * gap
    return total


def nearest(points: Floats, centres: Floats) -> tuple[Ints, Floats]:
    """Return the nearest centre of each point and the squared distance to it."""
    cells = np.empty(len(points), dtype=np.int64)
    squares = np.empty(len(points))
    size = max(1, BLOCK // len(centres))
    for begin in range(0, len(points), size):
        span = slice(begin, begin + size)
        block = _squares(points[span], centres)
        cells[span] = block.argmin(axis=1)
        squares[span] = block[np.arange(len(block)), cells[span]]
    return cells, squares


def _plus_plus(points: Floats, K: int, generator: np.random.Generator) -> Floats:
    """Return K different points, each drawn with a chance that grows with the square of its distance."""
    chosen = [int(generator.integers(len(points)))]
    squares = _squares(points, points[chosen])[:, 0]
    for _ in range(1, K):
        heights = np.cumsum(squares)
        drawn = int(np.searchsorted(heights, generator.random() * heights[-1], side="right"))
        # Rounding may lead beyond the end, or to a point chosen before: the farthest is neither.
        if drawn >= len(points) or squares[drawn] == 0:
            drawn = int(np.argmax(squares))
        chosen.append(drawn)
        squares = np.minimum(squares, _squares(points, points[[drawn]])[:, 0])
    return points[chosen]


def fitted_centres(points: Floats, K: int, generator: np.random.Generator, iterations: int) -> Floats:
    """Return K centres of some points, (K, D): the same generator gives the same centres.

    They begin as different points, and move to the means of their cells until no point changes its cell.
    """
    centres = _plus_plus(points, K, generator)
    cells = np.full(len(points), -1)
    for _ in range(iterations):
        now, squares = nearest(points, centres)
        for k in np.flatnonzero(np.bincount(now, minlength=K) == 0):
            # A cell without points takes the point that is farthest from its centre.
            farthest = int(np.argmax(squares))
            now[farthest], squares[farthest] = k, 0.0
        if np.array_equal(now, cells):
            break
        cells = now
        sizes = np.maximum(np.bincount(cells, minlength=K), 1)
        sums = [np.bincount(cells, weights=points[:, d], minlength=K) for d in range(points.shape[1])]
        centres = np.stack(sums, axis=1) / sizes[:, None]
    return centres
