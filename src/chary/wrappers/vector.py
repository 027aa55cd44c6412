"""A vector of environments whose actions are proposals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from chary.agents.protocol import EpisodeId
from chary.errors import InvalidAction
from chary.texts import shown
from chary.wrappers.guard import Guard, Numbers, Question, Referee, Verdict, abandon
from chary.wrappers.lanes import Answer, VectorLanes


# Gymnasium 1.0 to 1.3 have no type parameters here.
class ShieldedVector(VectorWrapper):
    """A vector environment whose actions are proposals; a guard decides what is played.

    Each lane has one open episode. All autoreset modes work. With NEXT_STEP the step after an ending
    resets the lane, so its proposal is ignored and nothing is decided. With SAME_STEP the episode ends
    in `info["final_obs"]` and the next begins in the same step. With DISABLED lanes that ended must be reset
    by `reset(options={"reset_mask": ...})`. After a step `info` contains the entries of `Shielded` as arrays,
    each with its mask of lanes, as `proposal` and `_proposal`: false where nothing was decided.

    A single lane cannot be cut off from outside, so the environments must end their episodes within the
    guard's horizon: use TimeLimit.

    Args:
        envs: A vector environment with Discrete actions from 0.
        guard: A TabularAgent, a CriticShield, or any other Guard; it decides for all lanes at once.
        horizon: Steps within which an episode must end; None takes the guard's own.
        numbers: Names for the episodes, 0, 1, 2, ... by default, in the order in which they begin.

    Raises:
        InvalidSetting: if the guard was made for other environments.

    Example:
        >>> import chary
        >>> from gymnasium.vector import SyncVectorEnv
        >>> mdp = chary.envs.riverswim()
        >>> envs = SyncVectorEnv([lambda: chary.envs.TabularEnv(mdp)] * 3)
        >>> agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.0), mdp.setting)
        >>> shielded = ShieldedVector(envs, agent)
        >>> observations, _ = shielded.reset(seed=0)
        >>> shielded.step([1, 1, 1])[4]["refused"].tolist()
        ['budget', 'budget', 'budget']
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        guard: Guard[Any],
        *,
        horizon: int | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self._lanes = VectorLanes(envs)
        super().__init__(envs)
        spaces = {"actions": envs.single_action_space, "observations": envs.single_observation_space}
        self._referee = Referee(guard, **spaces, horizon=horizon, numbers=numbers)
        self.guard = guard
        # By lane, the names of the open episodes.
        self._episodes: dict[int, EpisodeId] = {}
        self._t = [0] * self._lanes.n

    @property
    def episodes(self) -> tuple[EpisodeId | None, ...]:
        """The name of each lane's open episode, None if it has none."""
        return tuple(self._episodes.get(i) for i in range(self._lanes.n))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every lane, or in those of `options["reset_mask"]`; open ones are abandoned.

        Raises:
            InvalidSetting: if the mask is not one boolean per lane, or a seed not a whole number >= 0; then
                nothing has changed.
        """
        seeds, which = self._lanes.seeds(seed), self._lanes.which(options)
        with ExitStack() as failed:
            failed.callback(self._abandon_all)
            for i in np.flatnonzero(which):
                self._abandon(int(i))
            observations, infos, begun = self._lanes.reset(seeds, options)
            self._begin(begun)
            failed.pop_all()
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Pass one proposal per lane to the guard and play its decisions.

        Raises:
            OutOfOrder: if lanes wait for a reset.
            InvalidAction: if a proposal is not an action; then nothing has changed.
            InvalidSetting: if an episode continues beyond the horizon; then nothing has changed.
            InvalidData: if an environment's outcome contradicts the guard's setting. After this and any
                other failure in the middle of a step, all episodes are abandoned and all lanes must be reset.
        """
        self._lanes.check_ready(self._referee.horizon, self._t)
        verdicts = self._decide(actions)
        played = [verdicts[i].decision.action if i in verdicts else 0 for i in range(self._lanes.n)]
        # Steps of environments cannot be undone.
        with ExitStack() as failed:
            failed.callback(self._abandon_all)
            answer = self._lanes.step(played)
            self._take_in(answer)
            failed.pop_all()
        observations, rewards, terminated, truncated, infos = answer.raw
        return observations, rewards, terminated, truncated, {**infos, **self._as_infos(verdicts)}

    def close(self, **kwargs: Any) -> None:
        """Abandon the open episodes and close the environments."""
        self._abandon_all()
        super().close(**kwargs)

    def _decide(self, actions: Any) -> dict[int, Verdict]:
        """Return the verdict on the proposal of every lane that is in an episode."""
        lanes = self._lanes
        listed = isinstance(actions, (list, tuple)) or (isinstance(actions, np.ndarray) and actions.ndim)
        if not listed or len(actions) != lanes.n:
            raise InvalidAction(
                f"'actions' must be a list or an array, one proposal for each of {lanes.n} lanes, got "
                f"{shown(actions)}."
            )
        playing = [int(i) for i in np.flatnonzero(lanes.playing)]
        proposals = [self._referee.check(actions[i]) for i in playing]
        questions = [
            Question(self._episodes[i], self._t[i], lanes.state[i], proposal, lanes.mask[i])
            for i, proposal in zip(playing, proposals, strict=True)
        ]
        return dict(zip(playing, self._referee.decide(questions), strict=True))

    def _take_in(self, answer: Answer) -> None:
        """Pass the outcomes to the guard, lane by lane, and begin the next episodes."""
        for move in answer.moves:
            self.guard.observe(self._episodes[move.lane], move.transition)
            self._t[move.lane] += 1
            if move.ended:
                self.guard.finish(self._episodes[move.lane])
                del self._episodes[move.lane]
        self._begin(answer.begun)

    def _begin(self, lanes: list[int]) -> None:
        for i in lanes:
            # The name is noted first: an interrupt may come just after the guard has opened the episode.
            self._episodes[i], self._t[i] = self._referee.name(), 0
            self.guard.begin(self._episodes[i], self._lanes.state[i])

    def _abandon(self, lane: int) -> None:
        if lane in self._episodes:
            abandon(self.guard, self._episodes[lane])
            del self._episodes[lane]

    def _abandon_all(self) -> None:
        self._lanes.halt()
        for i in range(self._lanes.n):
            self._abandon(i)

    def _as_infos(self, verdicts: dict[int, Verdict]) -> dict[str, Any]:
        """Return the verdicts in the form of a vector environment's infos."""
        infos: dict[str, Any] = {}
        for i, verdict in verdicts.items():
            infos = self._add_info(infos, verdict.as_info(), i)
        return infos
