"""Agents of the user's own: any class with begin, act, observe and finish, played like those of chary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import numpy as np

from chary.agents.comparison import Baseline
from chary.agents.protocol import Agent, AgentSpec, EpisodeId, Transition
from chary.errors import InvalidAction, InvalidData, InvalidSetting, as_float, check_integer, check_type
from chary.extensions import check_options, is_reference, load, parameters_of, theirs
from chary.mdp import Setting
from chary.shield import Decision
from chary.texts import shown

__all__ = ["OwnAgent", "WarmStarts", "as_decision"]

# What an agent is made with where its class or function takes it, besides the setting and its options.
OFFERED = ("generator", "eta", "episodes")
METHODS = "begin, act, observe and finish"


@runtime_checkable
class WarmStarts(Protocol):
    """An agent that can learn from episodes that were played before its first one."""

    def warm_start(self, episodes: Sequence[Sequence[Transition]]) -> None:
        """Learn from whole episodes, in order."""


class Learns(Agent, WarmStarts, Protocol):
    """An agent that can be told that another action was played than the one it decided."""

    def observe(self, episode: EpisodeId, transition: Transition, *, taken: int | None = None) -> None:
        """Take in the outcome of the action that was `taken`."""


def as_decision(answer: object, *, state: object = None) -> Decision:
    """Return what an agent's `act` returned as a Decision: a plain action is one without a ledger.

    Raises:
        InvalidAction: if it is neither an action nor a Decision with one.
        InvalidData: if a number of the Decision's is negative or not finite.

    Example:
        >>> as_decision(np.int64(2)).action
        2
    """
    place = f"This was in state {shown(state)}."
    if not isinstance(answer, Decision):
        action = check_integer("act", answer, minimum=0, error=InvalidAction, way_out=place)
        return Decision(action, True, 0.0, 0.0, float("inf"), 0, -1)
    if type(answer.action) is int and answer.action >= 0:
        action = answer.action
    else:
        action = check_integer("act", answer.action, minimum=0, error=InvalidAction, way_out=place)
    # Where worlds vote, what their panel decides by may also fall: no world's own deficit does.
    amounts = (("charge", answer.charge_scaled), ("deficit", answer.deficit_scaled))
    for name, value in amounts if answer.vote is None else ():
        if not 0 <= as_float(value) < float("inf"):
            raise InvalidData(f"{name!r} of a Decision must be finite and >= 0, got {shown(value)}. {place}")
    return answer if answer.action is action else answer._replace(action=action)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnAgent(AgentSpec):
    """The specification of an agent of your own, which `simulate` and sweeps play step by step.

    `agent` is called with the setting, by keyword with its `arguments`, and with those of `generator`, `eta`
    and `episodes` (their number) that it has parameters for. It returns an object with `begin`, `act`,
    `observe` and `finish`, and with `warm_start` where runs have a warm-up; `act` returns an action, or a
    Decision where the agent keeps a ledger of its own. The options that all agents have describe the bounds
    of the pessimistic baseline, learnt from the same data, that its episodes are judged by.

    Args:
        agent: A class or function, or "module:name" of one. The module of a name is imported when a run
            begins, and not before.
        arguments: What it is called with besides, by name.

    Example:
        >>> class Lowest:
        ...     def __init__(self, setting): self.allowed = setting.allowed
        ...     def begin(self, episode, state): ...
        ...     def act(self, episode, t, state): return self.allowed[state].argmax()
        ...     def observe(self, episode, transition): ...
        ...     def finish(self, episode): ...
        >>> import chary
        >>> len(chary.simulate(chary.envs.riverswim(), OwnAgent(Lowest), episodes=3).regret)
        3
    """

    name: ClassVar[str] = "own"
    summary: ClassVar[str] = "an agent of your own, with begin, act, observe and finish"

    agent: str | Callable[..., Any] = field(kw_only=False)
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range; imports nothing."""
        if isinstance(self.agent, str):
            if not is_reference(self.agent):
                raise InvalidSetting(f"'agent' must be of the form 'module:name', got {shown(self.agent)}.")
        elif not callable(self.agent):
            raise InvalidSetting(
                f"'agent' must be a class or function that makes an agent, or 'module:name' of one, got a "
                f"{type(self.agent).__name__}."
            )
        check_type("arguments", self.arguments, Mapping, "a dictionary by name")
        for name in self.arguments:
            if name in ("setting", *OFFERED):
                raise InvalidSetting(
                    f"'arguments' must be the agent's own, got {name!r}, which is passed to every agent that "
                    "takes it."
                )
        AgentSpec.check(self)

    @property
    def label(self) -> str:
        """What results call it: "module:name"."""
        if isinstance(self.agent, str):
            return self.agent
        module = getattr(self.agent, "__module__", None)
        return f"{module}:{getattr(self.agent, '__qualname__', type(self.agent).__qualname__)}"

    def options(self) -> dict[str, Any]:
        """Return the options as results list them; arguments that are not plain values as text."""
        plain = (str, int, float, bool, type(None))
        told = {
            name: value if isinstance(value, plain) else shown(value)
            for name, value in self.arguments.items()
        }
        return {**AgentSpec.options(self), "arguments": told}

    def judged_by(self) -> Baseline:
        """Return the agent whose plan, of the same data, is the baseline that episodes are judged by."""
        return Baseline(**{each.name: getattr(self, each.name) for each in fields(AgentSpec)})

    def made(
        self, setting: Setting, *, generator: np.random.Generator, episodes: int, warmup: int = 0
    ) -> Agent:
        """Return a new agent, which has seen nothing.

        Raises:
            InvalidSetting: if it lacks a method, or an argument does not fit.
            FailedCode: if its own code raises.
        """
        make = load("agent", self.agent) if isinstance(self.agent, str) else self.agent
        what = f"agent {self.label!r}"
        offered = {"generator": generator, "eta": self.eta, "episodes": episodes}
        taken = {name: offered[name] for name in parameters_of(make) if name in offered}
        if self.eta is None and "eta" in taken:
            if parameters_of(make)["eta"].default is parameters_of(make)["eta"].empty:
                raise InvalidSetting(
                    f"'eta' must be given for {what}, which keeps a budget, got None. In a sweep, add "
                    "keeps_budget = true."
                )
            del taken["eta"]
        check_options(what, make, {**taken, **self.arguments}, taken=1)
        with theirs(what):
            agent = make(setting, **taken, **self.arguments)
        if not isinstance(agent, Agent):
            raise InvalidSetting(f"{what} must have the methods {METHODS}, got a {type(agent).__name__}.")
        if warmup and not isinstance(agent, WarmStarts):
            raise InvalidSetting(
                f"'warmup' must be 0 with {what}, which has no method warm_start(episodes), got {warmup}. "
                "Pass 0, or add the method."
            )
        return agent


@final
class Beside:
    """An agent of the user's own, with another one that learns from the same data and decides nothing.

    Whatever the first one raises becomes one sentence that names it.
    """

    def __init__(self, label: str, own: Agent, judge: Learns) -> None:
        self._label, self._own, self._judge = f"agent {label!r}", own, judge

    def warm_start(self, episodes: Sequence[Sequence[Transition]]) -> None:
        """Let both learn from whole episodes."""
        self._judge.warm_start(episodes)
        if episodes and isinstance(self._own, WarmStarts):
            with theirs(self._label):
                self._own.warm_start(episodes)

    def begin(self, episode: EpisodeId, state: int) -> None:
        """Open an episode."""
        self._judge.begin(episode, state)
        with theirs(self._label):
            self._own.begin(episode, state)

    def act(self, episode: EpisodeId, t: int, state: int) -> Decision:
        """Return the decision of the user's agent."""
        self._judge.act(episode, t, state)
        with theirs(self._label):
            answer = self._own.act(episode, t, state)
        return as_decision(answer, state=state)

    def observe(self, episode: EpisodeId, transition: Transition) -> None:
        """Let both learn of an outcome."""
        self._judge.observe(episode, transition, taken=transition.action)
        with theirs(self._label):
            self._own.observe(episode, transition)

    def finish(self, episode: EpisodeId) -> None:
        """Close the episode."""
        self._judge.finish(episode)
        with theirs(self._label):
            self._own.finish(episode)
