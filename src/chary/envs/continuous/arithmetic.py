"""The functions that the equations of a problem need, for Python's floats and for JAX.

The equations of `cartpole`, `glucose` and `plane` are written once, for states that are tuples of numbers: of
floats in the Gymnasium environment, of traced values inside a compiled JAX loop. Operators mean the same for
both; everything else is a field of `Arithmetic`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Arithmetic(NamedTuple):
    """The functions of one kind of numbers.

    Args:
        sin: The sine.
        cos: The cosine.
        log: The natural logarithm.
        where: From a condition and two values to the first where it is true, the second elsewhere.
        minimum: The smaller of two numbers.
        maximum: The larger of two numbers.
        repeat: From a whole number n, a function of a state and a state to the n-th iterate.
    """

    sin: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    log: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    repeat: Callable[[int, Callable[[Any], Any], Any], Any]

    def between(self, x: Any, low: float, high: float) -> Any:
        """Return `x` clipped to [low, high]."""
        return self.minimum(self.maximum(x, low), high)

    def one_of(self, values: tuple[float, ...], index: Any) -> Any:
        """Return values[index]; `index` may be traced."""
        chosen = values[0]
        for i, value in enumerate(values[1:], start=1):
            chosen = self.where(index == i, value, chosen)
        return chosen


def _repeated(number: int, function: Callable[[Any], Any], state: Any) -> Any:
    for _ in range(number):
        state = function(state)
    return state


FLOATS = Arithmetic(
    sin=math.sin,
    cos=math.cos,
    log=math.log,
    where=lambda condition, yes, no: yes if condition else no,
    minimum=min,
    maximum=max,
    repeat=_repeated,
)
