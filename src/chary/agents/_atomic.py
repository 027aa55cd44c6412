"""Calls that happen or do not: what every step API does around each of its public calls.

Checks come first and change nothing. Just before its first change a call sets `_changing`; `atomic`, which
wraps the call, clears it once the change is whole. An exception that arrives in between (Ctrl-C, no memory)
leaves it set: the agent is `poisoned` then, since half of a change is made, and refuses every further call.
A call that is interrupted before has not happened, and can be made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from chary.errors import CharyError, OutOfOrder

Q = ParamSpec("Q")
R = TypeVar("R")
A = TypeVar("A", bound="Atomic")

# The calls that change a step API or read all of it.
CALLS = ("warm_start", "begin", "act", "act_many", "observe", "finish", "abandon", "save")


class Atomic:
    """A step API whose calls are made one at a time, each of them whole or not at all."""

    _changing = False
    # The thread that is inside, under the only key.
    _inside: dict[int, int]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Return a step API that no thread is inside of."""
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
        return self._changing and get_ident() not in self._inside.values()

    def _enter(self, call: str, owner: int) -> None:
        """Take over from a thread that has died inside, or refuse a call."""
        # Threads that Python did not start, those of a server in C, are not in `threading.enumerate`.
        if owner != get_ident() and owner in sys._current_frames():
            raise OutOfOrder(
                f"{call!r} must not be called while another thread is inside {type(self).__name__}. "
                "Use one lock for all calls, or one agent per thread."
            )
        self._inside[0] = get_ident()
        if self._changing:
            self._inside.clear()
            raise OutOfOrder(
                f"{call!r} must be called on an agent that is whole, got one whose last change was "
                "interrupted halfway. Load the last save."
            )


def atomic(method: Callable[Concatenate[A, Q], R]) -> Callable[Concatenate[A, Q], R]:
    """Return a method that one thread calls at a time, and that happens or does not."""
    name = method.__name__

    @wraps(method)
    def call(self: A, *args: Q.args, **kwargs: Q.kwargs) -> R:
        me = get_ident()
        # One operation, which no other thread can be in the middle of.
        owner = self._inside.setdefault(0, me)
        if owner != me or self._changing:
            self._enter(name, owner)
        try:
            result = method(self, *args, **kwargs)
            self._changing = False
            return result
        except CharyError:
            # Raised by a check, before anything was changed.
            self._changing = False
            raise
        finally:
            self._inside.clear()

    return cast("Callable[Concatenate[A, Q], R]", call)
