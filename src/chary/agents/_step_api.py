"""The part that all step APIs share, over the open episodes of `_episodes.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic

from chary.agents._atomic import Atomic
from chary.agents._episodes import EpisodeId, Episodes, OpenEpisode, P, S
from chary.agents._stats import Stats, shield_stats
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
