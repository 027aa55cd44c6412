"""Callbacks: told of every episode, of plans and of warnings, in runs, sweeps, training and live use.

The numbers of a run are the same with and without them. Nothing is called from compiled code: a run tells of
the episodes of a block once the block is played, which takes about a tenth of a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from chary.errors import CharyError, InvalidSetting, check_type
from chary.extensions import theirs
from chary.texts import shown

__all__ = ["Blocks", "Callback", "Closes", "Told", "play"]

log = logging.getLogger("chary")


@runtime_checkable
class Callback(Protocol):
    """What is called; a class that inherits from this one needs only the methods it cares for."""

    # Each returns explicitly: to type checkers, an empty body in a protocol is an abstract method.

    def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
        """Take in an episode that is over: its number from 0 on, and numbers by name."""
        return None

    def on_plan(self, plan: int, values: Mapping[str, float]) -> None:
        """Take in that plans were made, or networks trained: how far that is, and numbers by name."""
        return None

    def on_warning(self, message: str) -> None:
        """Take in a warning of chary's, which is logged as well."""
        return None


@runtime_checkable
class Closes(Protocol):
    """A callback that has something to finish, such as a file."""

    def close(self) -> None:
        """Write what is left, and end."""


class Blocks(Protocol):
    """A run in blocks of episodes: a Simulation, or a DeepSimulation."""

    episodes: int

    @property
    def done(self) -> int:
        """The number of episodes played."""

    def start(self) -> None:
        """Play what comes before the first episode."""

    def advance(self) -> int:
        """Play one more block, and return how many episodes are done."""

    def rows(self, first: int) -> Mapping[str, NDArray[Any]]:
        """Return the columns of the episodes from `first` on that are done, in the user's units."""

    def planned(self) -> Mapping[str, float]:
        """Return numbers about the planning so far, none where there are none."""

    def result(self) -> Any:
        """Return the result of all episodes."""


class _Forward(logging.Handler):
    """Passes warnings of the logger on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@final
class Told:
    """Some callbacks, called one after the other; one that raises is left out from then on, with a warning.

    While it is entered as a context, warnings that chary logs are passed on.

    Raises:
        InvalidSetting: if something is not a callback.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
            raise InvalidSetting(f"'callbacks' must be a list of callbacks, got {shown(callbacks)}.")
        self._left = list(callbacks)
        for each in self._left:
            check_type(
                "callbacks",
                each,
                Callback,
                "objects with on_episode, on_plan and on_warning",
                way_out="Inherit from chary.callbacks.Callback.",
            )
        self._handler = _Forward(self.warning)
        self._entered = 0

    def __bool__(self) -> bool:
        return bool(self._left)

    def __enter__(self) -> Told:
        self._entered += 1
        if self._entered == 1 and self._left:
            log.addHandler(self._handler)
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered -= 1
        if not self._entered:
            log.removeHandler(self._handler)

    def episodes(self, first: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Tell of episodes by their columns, all of one length; the first has the number `first`."""
        if not self._left:
            return
        cells = [np.asarray(column).tolist() for column in columns.values()]
        for k, row in enumerate(zip(*cells, strict=True), start=first):
            self._call("on_episode", k, MappingProxyType(dict(zip(columns, row, strict=True))))

    def plan(self, plan: int, values: Mapping[str, float]) -> None:
        """Tell of plans, unless there are no numbers about them."""
        if values:
            self._call("on_plan", plan, MappingProxyType(dict(values)))

    def warning(self, message: str) -> None:
        """Tell of a warning."""
        self._call("on_warning", message)

    def close(self) -> None:
        """Close the callbacks that can be closed."""
        for each in tuple(self._left):
            if isinstance(each, Closes):
                self._call_one(each, "close")

    def _call(self, name: str, *arguments: object) -> None:
        for each in tuple(self._left):
            self._call_one(each, name, *arguments)

    def _call_one(self, each: object, name: str, *arguments: object) -> None:
        try:
            with theirs(f"callback {type(each).__name__!r}"):
                getattr(each, name)(*arguments)
        except CharyError as problem:
            self._left = [other for other in self._left if other is not each]
            log.warning("%s It is not called any more.", problem)


def play(
    simulation: Blocks,
    callbacks: Sequence[Callback] = (),
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Play a simulation to its end, and return its result.

    After each block, callbacks are told of its episodes in order, in the user's units, and of the planning.

    Args:
        simulation: A `Simulation` or a `DeepSimulation` that has not started.
        callbacks: What is told.
        progress: Called now and then with episodes done and episodes in all.

    Example:
        >>> import chary
        >>> from chary.callbacks import Callback, play
        >>> class Print(Callback):
        ...     def on_episode(self, episode, values): print(episode, values["length"])
        >>> simulation = chary.simulation.Simulation(chary.envs.riverswim(), chary.UCBVI(), episodes=2)
        >>> run = play(simulation, [Print()])
        0 20
        1 20
    """
    report = progress or (lambda done, total: None)
    with Told(callbacks) as told:
        simulation.start()
        done = 0
        report(done, simulation.episodes)
        while done < simulation.episodes:
            first, done = done, simulation.advance()
            if told:
                told.episodes(first, simulation.rows(first))
                told.plan(done, simulation.planned())
            report(done, simulation.episodes)
    return simulation.result()
