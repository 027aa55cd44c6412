"""Drafts: plans that are made beside the agent, and put in force when they are adopted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.planner.deferred import Deferred


@final
class Draft:
    """A plan of what an agent had learnt when `TabularAgent.draft` was called.

    It rests on counts that nobody changes any more, and has room of its own to compute in. So `make` may run
    in any thread while the agent goes on, without the agent's lock. A draft that was not made is adopted all
    the same: its plan is made when it is first needed.

    Example:
        >>> import chary
        >>> told = chary.Setting.declare(n_states=2, n_actions=2, horizon=1)
        >>> agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), told, replan="adopt")
        >>> draft = agent.draft()
        >>> draft.make()
        >>> agent.adopt(draft)
        >>> draft.made, agent.drafted is None
        (True, True)
    """

    def __init__(self, plan: Deferred, version: int, rests_on: Callable[[], dict[str, Any]]) -> None:
        self._plan = plan
        self._rests_on = rests_on
        self.version = version

    @property
    def plan(self) -> Any:
        """The plan, whose values are made when they are first needed."""
        return self._plan

    @property
    def made(self) -> bool:
        """Whether the plan was made."""
        return self._plan.is_made

    def make(self) -> None:
        """Make the plan; may be called in any thread, and more than once.

        Raises:
            InvalidData: if what was learnt contradicts the declared value cap: such a plan cannot be used.
        """
        self._plan.make()

    def __eq__(self, other: object) -> bool:
        """Return whether both drafts are of the same agent at the same place of its history."""
        if not isinstance(other, Draft):
            return NotImplemented
        return self is other or (self.version, self.digest) == (other.version, other.digest)

    def __hash__(self) -> int:
        """Return a hash that equal drafts share."""
        return hash(self.version)

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of all that the plan follows from; the same history gives the same one."""
        return digest_of(self._rests_on())


def digest_of(values: Mapping[str, NDArray[Any] | Any]) -> str:
    """Return a SHA-256 of arrays and plain values by name."""
    total = hashlib.sha256()
    for name in sorted(values):
        value = values[name]
        if isinstance(value, np.ndarray):
            total.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
            total.update(value.tobytes())
        else:
            total.update(f"{name} {json.dumps(value, sort_keys=True)}\n".encode())
    return total.hexdigest()
