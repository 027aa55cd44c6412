"""An episode between its beginning and the day when all of its outcomes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chary.agents.protocol import Transition
from chary.arrays import Floats, Ints
from chary.planner.plan import TabularPlan
from chary.shield import Decision

__all__ = ["OpenEpisode", "Played"]


@dataclass(slots=True, eq=False)
class Played:
    """A decided step; `outcome` has a scaled reward and may come late, or never: `lost` with its episode."""

    decision: Decision
    state: int
    outcome: Transition | None = None
    lost: bool = False


@dataclass(slots=True)
class OpenEpisode:
    """One open episode, pinned to the plan it began with.

    `version` is how many batches had been learnt when that plan was made. `closing` says that no more
    decisions will be asked for, `released` that the shield has closed the episode.
    """

    plan: TabularPlan
    number: int
    version: int
    state: int
    uniforms: Floats
    explorer: Ints | None = None
    switch: int = 0
    steps: list[Played] = field(default_factory=list)
    terminated: bool = False
    closing: bool = False
    released: bool = False

    @property
    def outstanding(self) -> list[int]:
        """The steps whose outcomes are not known yet."""
        return [t for t, step in enumerate(self.steps) if step.outcome is None]

    def record(self, number: Callable[[Played], int | None]) -> list[Any]:
        """Return the episode as plain values, for `restored`; `number` tells the steps."""
        steps = [number(step) for step in self.steps]
        flags = [self.terminated, self.closing, self.released]
        return [self.number, self.version, self.state, self.switch, steps, *flags]

    @classmethod
    def restored(
        cls,
        plan: TabularPlan,
        record: Sequence[Any],
        uniforms: Floats,
        recall: Callable[[object], Played | None],
    ) -> OpenEpisode:
        """Return the episode that `record` was asked of."""
        number, version, state, switch, steps, terminated, closing, released = record
        played = [step for step in map(recall, steps) if step is not None]
        return cls(
            plan,
            int(number),
            int(version),
            state,
            uniforms,
            switch=int(switch),
            steps=played,
            terminated=bool(terminated),
            closing=bool(closing),
            released=bool(released),
        )
