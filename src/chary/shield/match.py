"""Matching of a state with a chain's target: exactly, or within a distance of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from chary.errors import InvalidData, as_float, check_real

S = TypeVar("S")

Matcher: TypeAlias = Callable[[S, S], bool]


def same(target: object, s: object) -> bool:
    """Return whether `s` is the target state itself: the paper's test, eq. (5).

    States must be hashable, since the shield looks waiting chains up by their target.

    Example:
        >>> same(3, 3), same((0, 1), (1, 0))
        (True, False)
    """
    return bool(target == s)


@dataclass(frozen=True, slots=True)
class _Within:
    """A class, not a closure, so that a shield can be pickled and shows its radius."""

    radius: float

    def __call__(self, target: Sequence[float], s: Sequence[float]) -> bool:
        if len(target) != len(s):
            raise InvalidData(
                f"'s' must have as many coordinates as the target ({len(target)}), got {len(s)}. "
                "Observations of one problem must all have the same length."
            )
        return math.dist([as_float(x) for x in target], [as_float(x) for x in s]) <= self.radius


def within(radius: float) -> Matcher[Sequence[float]]:
    """Return the matcher that takes any state at Euclidean distance <= `radius` for the target.

    For observations that never repeat exactly. A state with a coordinate that is NaN matches nothing.

    Raises:
        InvalidSetting: if `radius` is not finite and >= 0.

    Example:
        >>> near = within(0.5)
        >>> near((0.0, 0.0), (0.3, 0.4)), near((0.0, 0.0), (0.3, 0.5))
        (True, False)
    """
    return _Within(check_real("radius", radius, low=0.0, open_high=True))
