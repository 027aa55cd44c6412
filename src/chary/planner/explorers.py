"""The frozen explorers of open chains, some of which may be made when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

# Explorers of open chains are kept in 16 bits per action.
Shorts = NDArray[np.int16]
# The most explorers that wait to be made.
MOST_PUT_OFF = 32


@final
class Explorers(dict[int, Shorts]):
    """Policies (H, S) by chain; one that was put off is made when it is asked for by its chain.

    Example:
        >>> explorers = Explorers()
        >>> explorers.put_off(3, lambda: np.zeros((1, 2), dtype=np.int16))
        >>> 3 in explorers, len(explorers), int(explorers[3].sum()), len(explorers)
        (True, 0, 0, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: dict[int, Callable[[], Shorts]] = {}

    def put_off(self, chain: int, make: Callable[[], Shorts]) -> None:
        """Have the explorer of a chain made once it is needed."""
        if len(self._later) >= MOST_PUT_OFF:
            # Each keeps alive what it is to be made from.
            self[next(iter(self._later))]
        self._later[chain] = make

    def make_all(self) -> None:
        """Make all that were put off."""
        for chain in tuple(self._later):
            self[chain]

    def __missing__(self, chain: int) -> Shorts:
        """Make what was put off."""
        if chain not in self._later:
            raise KeyError(chain)
        self[chain] = self._later[chain]()
        del self._later[chain]
        return self[chain]

    def __contains__(self, chain: object) -> bool:
        """Return whether a chain has an explorer, made or not."""
        return super().__contains__(chain) or chain in self._later

    def get(self, chain: int, default: Any = None) -> Any:
        """Return the explorer of a chain, `default` where it has none."""
        return self[chain] if chain in self else default

    def forget(self, chain: int) -> None:
        """Forget the explorer of a chain, if it has one."""
        self._later.pop(chain, None)
        self.pop(chain, None)
