"""The part that all step APIs share, over the open episodes of `_episodes.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic

from chary.agents._atomic import Atomic
from chary.agents._episodes import NOT_TAKEN, EpisodeId, Episodes, OpenEpisode, P, S
from chary.agents._stats import Stats, shield_stats
from chary.errors import OutOfOrder, check_integer
from chary.shield import Shield
from chary.standing import Standing


class StepAPI(Atomic, ABC, Generic[S, P]):
    """The part that all step APIs share: calls that are whole, and a view of their open episodes."""

    _episodes: Episodes[S, P]
    # Of agents whose shield is an object.
    shield: Shield[S] | None = None

    @property
    @abstractmethod
    def standing(self) -> Standing:
        """The standing of the budget's promise, with all that was used so far."""

    def stats(self) -> Stats:
        """Return what the agent has done so far, and what keeps it from exploring."""
        episodes = self._episodes
        return Stats(
            episodes=episodes.begun,
            open_episodes=len(episodes),
            outstanding=sum(len(now.outstanding) for now in episodes),
            steps=episodes.steps,
            explored=episodes.explored / max(episodes.steps, 1),
            deviating=episodes.deviating / episodes.compared if episodes.compared else None,
            standing=self.standing,
            **self._of_shield(),
        )

    def _of_shield(self) -> dict[str, Any]:
        """Return what `stats` tells of refusals and chains."""
        return {} if self.shield is None else shield_stats(self.shield)

    @property
    def open_episodes(self) -> tuple[EpisodeId, ...]:
        """The episodes begun and neither complete nor abandoned."""
        return self._episodes.names

    @property
    def outstanding(self) -> dict[EpisodeId, tuple[int, ...]]:
        """The steps of open episodes that were decided and whose outcomes are not known yet."""
        return self._episodes.outstanding

    def finish(self, episode: EpisodeId) -> None:
        """Take no more decisions; the episode is complete, and counts, once all of its outcomes are known.

        Raises:
            OutOfOrder: if it is not open, or was finished before and waits for outcomes.
        """
        now = self._episodes.named("finish", episode)
        self._episodes.check_goes_on(now)
        self._changing = True
        self._episodes.close(now)
        self._settle(now)

    @abstractmethod
    def _settle(self, now: OpenEpisode[S, P]) -> None:
        """Learn from an episode that is closing, once all of its outcomes are known."""


class Reports(StepAPI[S, P], ABC):
    """A step API that is told what was really played before its outcome is known."""

    def taken(self, episode: EpisodeId, t: int, action: int | None) -> None:
        """Take in what was really played at a decided step, before its outcome is known.

        The charge of the decision stays booked whatever was played. The same report again changes nothing,
        and the outcome must agree with it later.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            t: A decided step.
            action: The action decided confirms it. Another one overrules it, as with `observe(..., taken=)`:
                a chain waits where it was. None says that the action was not taken, and that nothing known to
                be was played: the step never counts and has no outcome. It must come before the next
                decision, and must not depend on where the step led.

        Raises:
            OutOfOrder: if step `t` was not decided, or an override comes too late for a chain, or None too
                late.
            InvalidAction: if the action is not allowed, or something else was reported or observed before.
        """
        now = self._episodes.named("taken", episode)
        step = self._episodes.step_of(now, check_integer("t", t, minimum=0, error=OutOfOrder))
        a = NOT_TAKEN if action is None else self._allowed("action", now.steps[step].state, action)
        if not self._episodes.is_report(now, step, a):
            return
        self._changing = True
        self._episodes.report(now, step, a)
        self._reported(now, step)
        self._settle(now)

    @abstractmethod
    def _allowed(self, name: str, s: S, action: object) -> int:
        """Return an action once it can be played in a state."""

    @abstractmethod
    def _reported(self, now: OpenEpisode[S, P], t: int) -> None:
        """Take in what was reported of step `t`."""
