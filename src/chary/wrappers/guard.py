"""Guards, which decide about proposals, and the checks of a proposal before it reaches one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from chary.agents._atomic import Atomic
from chary.agents.protocol import EpisodeId, Transition
from chary.agents.tabular import TabularAgent
from chary.critics.shield import CriticShield
from chary.errors import InvalidAction, InvalidSetting, OutOfOrder, check_index, check_integer, check_type
from chary.shield import Decision, Plan
from chary.wrappers.spaces import Mask, discrete_size

S_contra = TypeVar("S_contra", contravariant=True)
Numbers = Iterator[EpisodeId]


@runtime_checkable
class Guard(Protocol[S_contra]):
    """The step API with proposals, for states of type S: a TabularAgent, or shielding with external critics.

    The states of the transitions are of type S too; the results of `observe`, `finish` and `abandon` are
    ignored.
    """

    def begin(self, episode: EpisodeId, state: S_contra) -> None:
        """Open an episode that starts in `state`."""

    def act(self, episode: EpisodeId, t: int, state: S_contra, *, proposal: int | None = None) -> Decision:
        """Decide at step `t`: play `proposal` if the budget affords it, else the baseline's action."""

    def act_many(
        self,
        episodes: Sequence[EpisodeId],
        t: Sequence[int],
        states: Sequence[S_contra],
        proposals: Sequence[int] | None = None,
    ) -> list[Decision]:
        """Decide for many episodes at once, as `act` would for one after the other."""

    def observe(self, episode: EpisodeId, transition: Transition) -> object:
        """Process the outcome of the played action."""

    def finish(self, episode: EpisodeId) -> object:
        """Close an episode that has ended."""

    def abandon(self, episode: EpisodeId) -> object:
        """Close an episode that was broken off."""

    def plan_of(self, episode: EpisodeId) -> Plan[S_contra]:
        """Return the plan of an open episode: its baseline replaces proposals that are not allowed.

        Raises:
            OutOfOrder: if the episode is not open.
        """


class Verdict(NamedTuple):
    """The result of a proposal.

    `refused` is None if the budget afforded it, `"budget"` if it did not, and `"not allowed"` if the action
    does not exist in that state; in the last two cases the baseline was played.
    """

    proposal: int
    refused: str | None
    decision: Decision

    def as_info(self) -> dict[str, Any]:
        """Return the entries of `info`, see `Shielded`."""
        vote = self.decision.vote
        return {
            "proposal": self.proposal,
            "action": self.decision.action,
            "explored": self.refused is None,
            "refused": self.refused,
            **{name: getattr(self.decision, name) for name in ("charge", "deficit", "remaining")},
            **({} if vote is None else {"vote": vote.describe(self.decision.span)}),
        }


class Question(NamedTuple):
    """A proposal at one step of an open episode; `mask` is the environment's, None if it has none."""

    episode: EpisodeId
    t: int
    state: Any
    proposal: int
    mask: Mask | None


class Referee:
    """The step between proposals and a guard: it checks proposals and replaces those that are not allowed.

    Args:
        guard: The guard that decides.
        actions: The action space of one environment.
        observations: Its observation space.
        horizon: Steps after which an episode is cut off; None takes the guard's own, if it has one.
        numbers: Names for the episodes; None stands for 0, 1, 2, ...

    Raises:
        InvalidSetting: if the guard lacks a method, or was made for other spaces, or `numbers` is not an
            iterator.
    """

    def __init__(
        self,
        guard: Guard[Any],
        *,
        actions: object,
        observations: object,
        horizon: int | None,
        numbers: Numbers | None,
    ) -> None:
        if not isinstance(guard, Guard):
            raise InvalidSetting(
                "'guard' must have begin, act, act_many, observe, finish, abandon and plan_of, got "
                f"{type(guard).__name__}. Use a TabularAgent."
            )
        self.guard = guard
        self.n_actions = discrete_size("action_space", actions)
        self._allowed: Mask | None = None
        self.horizon = horizon_of(guard, horizon)
        if isinstance(guard, CriticShield) and guard.n_actions != self.n_actions:
            raise InvalidSetting(
                f"'guard' must have the environment's {self.n_actions} actions, got {guard.n_actions}."
            )
        if isinstance(guard, TabularAgent):
            if not guard.spec.shielded:
                raise InvalidSetting(
                    f"'guard' must have a budget, got agent {guard.spec.name!r}. Use CharyUCBVI(eta=...)."
                )
            setting = guard.setting
            sizes = (discrete_size("observation_space", observations), self.n_actions)
            if sizes != (setting.n_states, setting.n_actions):
                raise InvalidSetting(
                    f"'guard' must have the environment's {sizes[0]} states and {sizes[1]} actions, got a "
                    f"setting of {setting.n_states} and {setting.n_actions}. Use setting_of(env)."
                )
            self._allowed = setting.allowed
        if numbers is not None:
            check_type("numbers", numbers, Iterator, "an iterator", way_out="Use itertools.count(first).")
        self._numbers = itertools.count() if numbers is None else numbers

    def name(self) -> EpisodeId:
        """Return the name of the next episode.

        Raises:
            InvalidSetting: if there are no names left.
        """
        for number in self._numbers:
            return number
        raise InvalidSetting(
            "'numbers' must name every episode, but it has ended. Use itertools.count(first)."
        )

    def check(self, proposal: object) -> int:
        """Return a proposal as an action.

        Raises:
            InvalidAction: if it is not an action.
        """
        return check_index("proposal", proposal, self.n_actions, error=InvalidAction)

    def decide(self, questions: Sequence[Question]) -> list[Verdict]:
        """Pass the proposals to the guard, all at once, and return the results.

        Raises:
            InvalidAction: if a mask excludes the baseline's action and the guard takes no masks.
        """
        if not questions:
            return []
        episodes, steps, states, proposals, masks = map(list, zip(*questions, strict=True))
        guard = self.guard
        if isinstance(guard, CriticShield):
            offered = [q.mask is None or bool(q.mask[q.proposal]) for q in questions]
            wanted = [a if there else None for a, there in zip(proposals, offered, strict=True)]
            decisions = guard.act_many(episodes, steps, states, wanted, masks=masks)
        else:
            actions, offered = map(list, zip(*map(self._admit, questions), strict=True))
            if len(questions) == 1:
                # Preparing a batch is not worth it for a single question.
                decisions = [guard.act(episodes[0], steps[0], states[0], proposal=actions[0])]
            else:
                decisions = guard.act_many(episodes, steps, states, actions)
        return [self._judge(*row) for row in zip(questions, offered, decisions, strict=True)]

    def _admit(self, question: Question) -> tuple[int, bool]:
        """Return the action to pass to the guard, and whether it is the proposal.

        A proposal that is not allowed is replaced by the baseline's own action, which costs nothing.
        """
        episode, t, state, proposal, mask = question
        declared = self._allowed is None or bool(self._allowed[state, proposal])
        offered = mask is None or bool(mask[proposal])
        if declared and offered and (mask is None or mask.all()):
            return proposal, True
        baseline = self.guard.plan_of(episode).baseline(t, state)
        if mask is not None and not mask[baseline]:
            raise InvalidAction(
                f"'action_mask' must leave the baseline's action, got a mask without {baseline} in state "
                f"{state!r}. Declare the allowed actions in the guard's setting."
            )
        return (proposal, True) if declared and offered else (baseline, False)

    def _judge(self, question: Question, offered: bool, decision: Decision) -> Verdict:
        refused = None if decision.explored else "budget"
        if refused and offered and isinstance(self.guard, CriticShield) and question.mask is None:
            # Only the plan has its own masks: an action that it does not allow has no finite price.
            plan = self.guard.plan_of(question.episode)
            offered = math.isfinite(plan.charge(question.t, question.state, question.proposal))
        return Verdict(question.proposal, refused if offered else "not allowed", decision)


def abandon(guard: Guard[Any], episode: EpisodeId) -> None:
    """Abandon an episode, unless a call that was interrupted never opened it, or has closed it already.

    A poisoned guard is left as it is: its last save knows nothing of what was interrupted.
    """
    if isinstance(guard, Atomic) and guard.poisoned:
        return
    try:
        guard.plan_of(episode)
    except (OutOfOrder, LookupError):
        return
    guard.abandon(episode)


def horizon_of(guard: object, horizon: int | None) -> int | None:
    """Return the steps of an episode: those given, otherwise the guard's own, if it has a horizon.

    Raises:
        InvalidSetting: if more are given than the guard decides about.
    """
    given = None if horizon is None else check_integer("horizon", horizon, minimum=1)
    own = guard.horizon if isinstance(guard, (TabularAgent, CriticShield)) else None
    if own is not None and given is not None and given > own:
        raise InvalidSetting(
            f"'horizon' must not exceed the guard's own, {own}, got {given}. Declare more to the guard."
        )
    return own if given is None else given
