"""One environment whose actions are proposals."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import gymnasium

from chary.agents.protocol import EpisodeId, Transition
from chary.errors import CharyError, OutOfOrder, check_type
from chary.wrappers.guard import Guard, Numbers, Question, Referee, abandon
from chary.wrappers.spaces import Mask, action_mask, as_seed, state_of


class Shielded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose actions are proposals; a guard decides what is played.

    Observations, rewards and endings are the environment's own. An episode of the guard begins with `reset`,
    is finished by the step that ends it (`terminated`, `truncated`, or the guard's horizon, which truncates),
    and is abandoned by a `reset` or `close` before that. A time limit belongs inside: one outside cuts
    episodes off without the guard's knowledge, so they are abandoned.

    After a step `info` contains these entries, which replace entries of the environment with the same name:

    - `proposal`: the action given to `step`;
    - `action`: the action played;
    - `explored`: whether the budget afforded the proposal, be it the baseline's own action or another;
    - `refused`: None if so; `"budget"` if the guard could not afford it; `"not allowed"` if the setting
      or the environment's `info["action_mask"]` excludes it. Then the baseline is played; its action may
      be the same;
    - `charge`, `deficit`, `remaining`: the cost of the step, the episode's ledger after it and the budget
      left, in the guard's units of reward;
    - `vote`: how posterior worlds voted, in a sentence, where there are any.

    Args:
        env: An environment with Discrete actions from 0, and Discrete observations from 0 for a TabularAgent.
        guard: A TabularAgent, a CriticShield, or any other Guard.
        horizon: Steps after which an episode is truncated; None takes the horizon of a TabularAgent's
            setting or of a CriticShield, and otherwise leaves this to the environment.
        numbers: Names for the episodes, 0, 1, 2, ... by default; environments that share a guard have to
            share one iterator.

    Raises:
        InvalidSetting: if the guard was made for another environment.

    Example:
        >>> import chary
        >>> from chary.wrappers import setting_of
        >>> env = chary.envs.TabularEnv(chary.envs.riverswim())
        >>> agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.0), setting_of(env))
        >>> shielded = Shielded(env, agent)
        >>> observation, _ = shielded.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = shielded.step(1)
        >>> info["refused"], info["charge"]
        ('budget', 0.0)
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        guard: Guard[Any],
        *,
        horizon: int | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        way_out = "Use ShieldedVector for a vector environment."
        check_type("env", env, gymnasium.Env, "a gymnasium.Env", way_out=way_out)
        super().__init__(env)
        spaces = {"actions": env.action_space, "observations": env.observation_space}
        self._referee = Referee(guard, **spaces, horizon=horizon, numbers=numbers)
        self.guard = guard
        self._episode: EpisodeId | None = None
        self._t = 0
        self._state: Any = None
        self._mask: Mask | None = None

    @property
    def episode(self) -> EpisodeId | None:
        """The name of the open episode, None between episodes."""
        return self._episode

    @property
    def spec(self) -> None:  # type: ignore[override]
        """None: the guard is a live object, so Gymnasium cannot build this environment again from a spec."""
        return

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; an open one is abandoned.

        Raises:
            InvalidSetting: if the seed is not a whole number >= 0; then nothing has changed.
        """
        checked = as_seed(seed)
        self._abandon()
        observation, info = self.env.reset(seed=checked, options=options)
        state = self._read(observation, info)
        # The name is noted first: an interrupt may come just after the guard has opened the episode.
        self._episode, self._t = self._referee.name(), 0
        try:
            self.guard.begin(self._episode, state)
        except CharyError:
            self._episode = None
            raise
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Pass a proposal to the guard and play its decision.

        Raises:
            OutOfOrder: if no episode has begun, or the last one is over.
            InvalidAction: if `action` is not an action, or the mask excludes the baseline's; then nothing
                has changed.
            InvalidData: if the environment's outcome contradicts the guard's setting. After this and any
                other failure once the environment was called, the episode is abandoned: call reset().
        """
        episode, t, state = self._episode, self._t, self._state
        if episode is None:
            raise OutOfOrder(
                "'step' must follow 'reset' and come before the end of the episode. Call reset() first."
            )
        question = Question(episode, t, state, self._referee.check(action), self._mask)
        (verdict,) = self._referee.decide([question])
        played = verdict.decision.action
        # Steps of the environment cannot be undone.
        with ExitStack() as failed:
            failed.callback(self._abandon)
            observation, reward, terminated, truncated, info = self.env.step(played)
            ended = bool(terminated)
            truncated = bool(truncated) or (t + 1 == self._referee.horizon and not ended)
            reached = self._read(observation, info)
            self.guard.observe(episode, Transition(state, played, float(reward), reached, ended))
            self._t = t + 1
            if ended or truncated:
                self.guard.finish(episode)
                self._episode = None
            failed.pop_all()
        return observation, reward, ended, truncated, {**info, **verdict.as_info()}

    def close(self) -> None:
        """Abandon the open episode and close the environment."""
        self._abandon()
        super().close()

    def _read(self, observation: Any, info: dict[str, Any]) -> Any:
        """Store and return the present state, with its mask."""
        mask = info.get("action_mask")
        self._mask = None if mask is None else action_mask(mask, self._referee.n_actions)
        self._state = state_of(self.env.observation_space, observation)
        return self._state

    def _abandon(self) -> None:
        if self._episode is not None:
            abandon(self.guard, self._episode)
            self._episode = None
