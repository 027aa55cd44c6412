"""Plans that are made when they are first needed, or in another thread before that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Deferred:
    """A plan some of whose attributes, `MADE`, may come later: from the plan that `_later` returns.

    Two threads may make it at once: what they find is the same.
    """

    __slots__ = ("_later",)

    MADE: ClassVar[tuple[str, ...]] = ()
    _later: Callable[[], Any] | None

    @property
    def is_made(self) -> bool:
        """Whether nothing is put off any more."""
        return self._later is None

    def make(self) -> None:
        """Make what was put off."""
        later = self._later
        if later is not None:
            whole = later()
            for name in self.MADE:
                setattr(self, name, getattr(whole, name))
            self._later = None

    def __getattr__(self, name: str) -> Any:
        """Make what was put off once it is needed: called for attributes that are not set."""
        if name not in self.MADE:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        self.make()
        return object.__getattribute__(self, name)
