"""Calls that happen or do not: what every step API does around each of its public calls.

Checks come first and change nothing. Just before its first change a call sets `_changing`; `atomic`, which
wraps the call, clears it once the change is whole. An exception that arrives in between (Ctrl-C, no memory, a
defect of ours) leaves it set: the agent is `poisoned` then, since half of a change is made, and refuses every
further call. A call that is interrupted before has not happened, and can be made again.

A second call, of another thread or from within the first one (by a critic or the handler of a signal), is
refused. A call that was interrupted where it was about to give the place back is found to have ended.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from chary.errors import OutOfOrder

Q = ParamSpec("Q")
R = TypeVar("R")
A = TypeVar("A", bound="Atomic")

# The calls that change a step API or read all of it.
CALLS = (
    *("warm_start", "begin", "act", "act_many", "observe", "finish", "abandon", "save"),
    *("taken", "tighten", "recommend", "explain", "learn", "apply", "draft", "adopt", "discard"),
)
TAKING_OVER = threading.Lock()


class Atomic:
    """A step API whose calls are made one at a time, each of them whole or not at all."""

    _changing = False
    # The call that is inside, under the only key: a list of its own, with its thread.
    _inside: dict[int, list[int]]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Return a step API that no call is inside of."""
        new = super().__new__(cls)
        new._inside = {}
        return new

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in CALLS:
            if name in cls.__dict__:
                setattr(cls, name, atomic(cls.__dict__[name]))

    @property
    def poisoned(self) -> bool:
        """Whether a call was interrupted in the middle of a change: load the last save instead."""
        holder = self._inside.get(0)
        return self._changing and (holder is None or not under_way(holder))

    def _enter(self, call: str, mine: list[int]) -> None:
        """Take over from a call that has ended without giving the place back, or refuse this one."""
        with TAKING_OVER:
            holder = self._inside.setdefault(0, mine)
            if holder is not mine and under_way(holder):
                if holder[0] == mine[0]:
                    raise OutOfOrder(
                        f"{call!r} must not be called from within another call of the same "
                        f"{type(self).__name__}. Call it once that one has returned."
                    )
                raise OutOfOrder(
                    f"{call!r} must not be called while another thread is inside {type(self).__name__}. "
                    "Use one lock for all calls, or one agent per thread."
                )
            self._inside[0] = mine
        if self._changing:
            self._inside.clear()
            raise OutOfOrder(
                f"{call!r} must be called on an agent that is whole, got one whose last change was "
                "interrupted halfway. Load the last save."
            )


def atomic(method: Callable[Concatenate[A, Q], R]) -> Callable[Concatenate[A, Q], R]:
    """Return a method that one call is inside of at a time, and that happens or does not."""
    name = method.__name__

    @wraps(method)
    def call(self: A, *args: Q.args, **kwargs: Q.kwargs) -> R:
        mine = [get_ident()]
        # One operation, which no other thread can be in the middle of.
        if self._inside.setdefault(0, mine) is not mine or self._changing:
            self._enter(name, mine)
        try:
            result = method(self, *args, **kwargs)
            self._changing = False
            return result
        finally:
            self._inside.clear()

    return cast("Callable[Concatenate[A, Q], R]", call)


# All wrapped calls run this code.
CALL = atomic(Atomic._enter).__code__


def under_way(holder: list[int]) -> bool:
    """Return whether the call that took this place is still running: in its thread, whatever it called."""
    frame = sys._current_frames().get(holder[0])
    while frame is not None:
        if frame.f_code is CALL and frame.f_locals.get("mine") is holder:
            return True
        frame = frame.f_back
    return False
