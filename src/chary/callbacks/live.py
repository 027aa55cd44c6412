"""An agent with callbacks: the same step API, for `rollout`, wrappers and live use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from chary.agents.own import as_decision
from chary.callbacks import Callback, Told

__all__ = ["WithCallbacks"]


@dataclass(slots=True)
class _Episode:
    """What is known of an open episode: decisions and rewards by step."""

    decisions: dict[int, Any] = field(default_factory=dict)
    rewards: dict[int, float] = field(default_factory=dict)


@final
class WithCallbacks:
    """An agent whose episodes callbacks are told of: any with the step API, such as a TabularAgent.

    Every call goes to the agent first, which never notices; one that raises tells of nothing. At `finish`,
    callbacks are told of `length`, `exploring_steps`, the `deficit` booked, `returns` (the plain sum of the
    rewards that were observed by then) and `outstanding` (the outcomes that were not). `on_plan` has the
    number of the plan of a decision that is newer than those before, and the `episodes` finished by then.

    Args:
        agent: The agent; `with_callbacks.agent` gives it back.
        callbacks: What is told.

    Example:
        >>> import chary
        >>> from chary.callbacks import Callback
        >>> from chary.callbacks.live import WithCallbacks
        >>> class Print(Callback):
        ...     def on_episode(self, episode, values): print(values["length"], values["deficit"])
        >>> env = chary.envs.TabularEnv(chary.envs.riverswim())
        >>> agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.5), env.mdp.setting)
        >>> played = list(chary.rollout(env, WithCallbacks(agent, [Print()]), episodes=1, seed=0))
        20 0.0
    """

    def __init__(self, agent: Any, callbacks: Iterable[Callback]) -> None:
        self.agent = agent
        self._told = Told(callbacks)
        self._open: dict[Hashable, _Episode] = {}
        self._finished, self._plan = 0, -1

    def begin(self, episode: Hashable, state: Any) -> None:
        """Open an episode."""
        with self._told:
            self.agent.begin(episode, state)
        self._open[episode] = _Episode()

    def act(self, episode: Hashable, t: int, state: Any, **options: Any) -> Any:
        """Return the agent's decision."""
        with self._told:
            decision = self.agent.act(episode, t, state, **options)
            self._note(episode, t, decision)
        return decision

    def act_many(
        self,
        episodes: Sequence[Hashable],
        t: Sequence[int],
        states: Sequence[Any],
        *rest: Any,
        **options: Any,
    ) -> Any:
        """Return the agent's decisions."""
        with self._told:
            decisions = self.agent.act_many(episodes, t, states, *rest, **options)
            for episode, step, decision in zip(episodes, t, decisions, strict=True):
                self._note(episode, step, decision)
        return decisions

    def observe(self, episode: Hashable, transition: Any, **options: Any) -> Any:
        """Pass on an outcome."""
        with self._told:
            answer = self.agent.observe(episode, transition, **options)
        if (now := self._open.get(episode)) is not None:
            waiting = [step for step in now.decisions if step not in now.rewards]
            t = options.get("t")
            t = min(waiting, default=None) if t is None else int(t)
            if t is not None:
                now.rewards.setdefault(t, float(transition.reward))
        return answer

    def finish(self, episode: Hashable) -> Any:
        """Close an episode, and tell of it."""
        with self._told:
            answer = self.agent.finish(episode)
            now = self._open.pop(episode, _Episode())
            decisions = [now.decisions[t] for t in sorted(now.decisions)]
            values: dict[str, float] = {
                "length": len(decisions),
                "exploring_steps": sum(bool(each.explored) for each in decisions),
                "deficit": float(decisions[-1].deficit) if decisions else 0.0,
                "returns": float(sum(now.rewards.values())),
                "outstanding": len(now.decisions) - len(now.rewards),
            }
            columns = {name: np.array([value]) for name, value in values.items()}
            self._told.episodes(self._finished, columns)
            self._finished += 1
        return answer

    def abandon(self, episode: Hashable) -> Any:
        """Close an episode that was broken off; callbacks are not told of it."""
        with self._told:
            answer = self.agent.abandon(episode)
        self._open.pop(episode, None)
        return answer

    def plan_of(self, episode: Hashable) -> Any:
        """Return the agent's plan of an open episode."""
        return self.agent.plan_of(episode)

    def close(self) -> None:
        """Close the callbacks that can be closed."""
        with self._told:
            self._told.close()

    def _note(self, episode: Hashable, t: int, decision: Any) -> None:
        made = as_decision(decision)
        self._open[episode].decisions[int(t)] = made
        if made.plan > self._plan:
            self._plan = made.plan
            self._told.plan(made.plan, {"episodes": self._finished})
