"""Anyone's proposals under a budget that critics keep: the step API for observations of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from chary.agents.protocol import EpisodeId, Transition, check_episode_id
from chary.arrays import Floats
from chary.critics.bounds import CriticBounds
from chary.critics.plan import Allowed, CriticPlan
from chary.critics.protocol import Array, as_masks, as_numbers
from chary.errors import InvalidAction, InvalidData, OutOfOrder, check_integer, check_real
from chary.model.bounds import weaker
from chary.shield import Decision, Ledger, Rule, Shield

__all__ = ["CriticShield"]


class _Priced(NamedTuple):
    """An observation as the shield sees it: what was said about it, once."""

    baseline: int
    charges: Floats


class _AsPriced:
    """The plan that reads the prices off the state; proposals are the only candidates."""

    def explore(self, chain: int, clock: int, s: _Priced) -> int:
        raise OutOfOrder("'explore' is never asked of critics: decide with a proposal.")

    def baseline(self, t: int, s: _Priced) -> int:
        return s.baseline

    def charge(self, t: int, s: _Priced, a: int) -> float:
        return float(s.charges[a])


@dataclass(slots=True)
class _Open:
    """One open episode: where it is, and what was decided there."""

    plan: CriticPlan
    observation: Array
    t: int = 0
    decision: Decision | None = None
    terminated: bool = False


class _Question(NamedTuple):
    """One checked question of a batch; `mask` is None where the plan knows."""

    episode: EpisodeId
    now: _Open
    proposal: int | None
    mask: Array | None


@final
class CriticShield:
    """Lets anyone propose actions, and plays the baseline where critics say the budget cannot afford them.

    A proposal costs what `CriticPlan` charges for it; the ledger of the episode and `rule` decide. The budget
    is in the units of the critics, which are those of the rewards. Any number of episodes may be open at
    once, and every call that raises leaves the shield as it was. Critics must not be trained while one is
    open.

    Args:
        bounds: The lower and the upper critic.
        rule: Which steps the budget affords.
        n_actions: The number A of actions.
        horizon: H, after how many steps an episode ends at the latest.
        allowed: Which actions may be played at an observation, as (A,) booleans; all by default.
        memory: How many observations to remember the critics' answers for.

    Raises:
        InvalidSetting: if an option is out of range or of another kind.

    Example:
        >>> from chary.critics import CriticBounds, FunctionCritic
        >>> q = FunctionCritic(lambda x: x * [0.0, 1.0], n_actions=2)
        >>> bounds = CriticBounds.from_point(q, accept="uncertified")
        >>> shield = CriticShield(bounds, Rule.strict(0.7), n_actions=2, horizon=2)
        >>> shield.begin(0, np.array([0.5]))
        >>> shield.act(0, 0, np.array([0.5]), proposal=0).action
        0
        >>> shield.observe(0, Transition(np.array([0.5]), 0, 0.0, np.array([0.4]), terminated=False))
        >>> shield.act(0, 1, np.array([0.4]), proposal=0).action
        1
    """

    def __init__(
        self,
        bounds: CriticBounds,
        rule: Rule,
        *,
        n_actions: int,
        horizon: int,
        allowed: Allowed | None = None,
        memory: int = 1024,
    ) -> None:
        self._new_plan = partial(CriticPlan, bounds, n_actions=n_actions, allowed=allowed, memory=memory)
        self._plan = self._new_plan()
        self._plans = 0
        self._rule = rule
        self._horizon = check_integer("horizon", horizon, minimum=1)
        # Proposals leave chains alone, so that no state is ever a target.
        self._shield: Shield[_Priced] = Shield(rule, horizon=self._horizon, match=_no_target)
        self._open: dict[EpisodeId, _Open] = {}
        self._shape: tuple[int, ...] | None = None

    @property
    def bounds(self) -> CriticBounds:
        """The lower and the upper critic."""
        return self._plan.bounds

    @property
    def n_actions(self) -> int:
        """The number A of actions."""
        return self._plan.n_actions

    @property
    def horizon(self) -> int:
        """H, after how many steps an episode ends at the latest."""
        return self._horizon

    @property
    def standing(self) -> str:
        """How sure the budget is: the weaker of the critics' standing and the rule's."""
        return weaker(self.bounds.standing, _standing_of(self._rule))

    def plan_of(self, episode: EpisodeId) -> CriticPlan:
        """Return the plan an open episode is pinned to."""
        return self._opened("plan_of", episode).plan

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return what an open episode has spent.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        self._opened("ledger", episode)
        return self._shield.ledger(episode)

    def begin(self, episode: EpisodeId, state: ArrayLike) -> None:
        """Open an episode that starts with the observation `state`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` is no name, or `state` no array of numbers of the usual shape.
        """
        if check_episode_id(episode) in self._open:
            raise OutOfOrder(
                f"'begin' must open a new episode, got {episode!r}, which is open. Finish it first."
            )
        observation = self._observation("state", state)
        if not self._open:
            # What the critics said before may be out of date: they may be trained between episodes.
            self._plan = self._new_plan()
            self._plans += 1
        self._shield.begin(episode, _AsPriced(), self._plans)
        self._open[episode] = _Open(self._plan, observation)
        self._shape = observation.shape

    def act(
        self,
        episode: EpisodeId,
        t: int,
        state: ArrayLike,
        *,
        proposal: int | None = None,
        mask: ArrayLike | None = None,
    ) -> Decision:
        """Decide about `proposal` at step `t`, and book what it costs.

        It is played if the budget affords it, else the baseline is. Asked again for the same step before it
        is observed, the answer is the same, whatever is proposed, and nothing more is booked.

        Args:
            episode: An open episode.
            t: Its next step.
            state: The observation it is at: that observed last.
            proposal: The action someone would like to play; None plays the baseline.
            mask: Which actions are allowed now, (A,), in place of what `allowed` says.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidAction: if the proposal is no action, or `mask` excludes it.
            InvalidData: if `state` is not the observation observed last, or a critic's answer is not what it
                must be.
        """
        masks = None if mask is None else [mask]
        return self.act_many([episode], [t], [state], [proposal], masks=masks)[0]

    def act_many(
        self,
        episodes: Sequence[EpisodeId],
        t: Sequence[int],
        states: Sequence[ArrayLike],
        proposals: Sequence[int | None] | None = None,
        *,
        masks: Sequence[ArrayLike | None] | None = None,
    ) -> list[Decision]:
        """Decide for many episodes, as `act` would for one after the other, with one call of the critics.

        Where one question is refused, none is answered and nothing is booked.

        Raises:
            InvalidData: if the lists are not of one length, or as `act` does.
            InvalidAction: as `act` does.
            OutOfOrder: as `act` does.
        """
        columns = [_listed("episodes", episodes), _listed("t", t), _listed("states", states)]
        columns.append([None] * len(columns[0]) if proposals is None else _listed("proposals", proposals))
        columns.append([None] * len(columns[0]) if masks is None else _listed("masks", masks))
        if len({len(column) for column in columns}) > 1:
            raise InvalidData(
                "'episodes', 't', 'states', 'proposals' and 'masks' must be of one length, got "
                f"{', '.join(str(len(column)) for column in columns)}."
            )
        questions = [self._question(*row) for row in zip(*columns, strict=True)]
        # The first of several questions about one episode decides for all of them.
        fresh = list({q.episode: q for q in reversed(questions) if q.now.decision is None}.values())
        if fresh:
            for question, priced in zip(fresh, self._priced(fresh), strict=True):
                self._decide(question, priced)
        decisions = [question.now.decision for question in questions]
        return [decision for decision in decisions if decision is not None]

    def observe(self, episode: EpisodeId, transition: Transition) -> None:
        """Take in where the played action led; `state` and `next_state` of the transition are observations.

        Raises:
            OutOfOrder: if no action is outstanding.
            InvalidAction: if another action was played than the one decided.
            InvalidData: if the transition does not start where the action was decided, or is not made of
                finite numbers.
        """
        now = self._opened("observe", episode)
        if now.decision is None:
            raise OutOfOrder(
                f"'observe' must follow an action, got none outstanding in episode {episode!r}. Call act "
                "first."
            )
        if not isinstance(transition, Transition):
            raise InvalidData(f"'transition' must be a Transition, got {type(transition).__name__}.")
        action = check_integer("action", transition.action, minimum=0, error=InvalidAction)
        if action != now.decision.action:
            raise InvalidAction(f"'action' must be the one decided, {now.decision.action}, got {action}.")
        self._check_same("state", self._observation("state", transition.state), now, episode)
        reached = self._observation("next_state", transition.next_state)
        check_real(
            "reward", transition.reward, low=-math.inf, open_low=True, open_high=True, error=InvalidData
        )
        if not isinstance(transition.terminated, (bool, np.bool_)):
            raise InvalidData(f"'terminated' must be True or False, got {transition.terminated!r}.")
        ended = bool(transition.terminated)
        self._shield.observe(episode, _Priced(0, np.zeros(0)), terminated=ended)
        now.observation, now.decision, now.terminated = reached, None, ended
        now.t += 1

    def finish(self, episode: EpisodeId) -> None:
        """Close an episode that has come to its end.

        Raises:
            OutOfOrder: if it is not open, or its last action was not observed.
        """
        if self._opened("finish", episode).decision is not None:
            raise OutOfOrder(
                f"'finish' must follow an observation, got one outstanding in episode {episode!r}. Call "
                "observe, or abandon the episode."
            )
        self._shield.finish(episode)
        del self._open[episode]

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode that was broken off; what it has spent stays spent.

        Raises:
            OutOfOrder: if it is not open.
        """
        self._opened("abandon", episode)
        self._shield.abandon(episode)
        del self._open[episode]

    def _question(
        self, episode: EpisodeId, t: int, state: ArrayLike, proposal: int | None, mask: ArrayLike | None
    ) -> _Question:
        """Return one question, checked against where its episode stands; nothing is changed."""
        now = self._opened("act", episode)
        step = check_integer("t", t, minimum=0, error=OutOfOrder)
        over = now.terminated or now.t == self._horizon
        if step != now.t or (over and now.decision is None):
            expected = "finish, for it is over" if over else f"act with t = {now.t}"
            raise OutOfOrder(f"'t' must be the next step of episode {episode!r}, got {t!r}. Call {expected}.")
        self._check_same("state", self._observation("state", state), now, episode)
        allowed = None if mask is None else as_masks("mask", mask, (self.n_actions,))
        if proposal is None:
            return _Question(episode, now, None, allowed)
        action = check_integer("proposal", proposal, minimum=0, error=InvalidAction)
        if action >= self.n_actions or (allowed is not None and not allowed[action]):
            options = range(self.n_actions) if allowed is None else np.flatnonzero(allowed)
            raise InvalidAction(
                f"'proposal' must be an allowed action, one of {', '.join(str(a) for a in options)}, got "
                f"{action}."
            )
        return _Question(episode, now, action, allowed)

    def _priced(self, questions: list[_Question]) -> list[_Priced]:
        """Ask the critics once for all questions, or once for those with masks and once for the others."""
        answers: dict[int, _Priced] = {}
        for masked in (False, True):
            group = [i for i, q in enumerate(questions) if (q.mask is not None) is masked]
            if not group:
                continue
            plan = questions[group[0]].now.plan
            masks = [m for i in group if (m := questions[i].mask) is not None]
            prices = plan.price(np.stack([questions[i].now.observation for i in group]), masks or None)
            for row, i in enumerate(group):
                answers[i] = _Priced(int(prices.baseline[row]), prices.charges[row])
        return [answers[i] for i in range(len(questions))]

    def _decide(self, question: _Question, priced: _Priced) -> None:
        now = question.now
        wanted = priced.baseline if question.proposal is None else question.proposal
        decision = self._shield.decide(question.episode, now.t, priced, proposal=wanted)
        # Nobody wanted anything: the baseline is played, and nothing was explored.
        now.decision = decision if question.proposal is not None else decision._replace(explored=False)

    def _opened(self, call: str, episode: EpisodeId) -> _Open:
        now = self._open.get(check_episode_id(episode))
        if now is None:
            raise OutOfOrder(f"{call!r} must name an open episode, got {episode!r}. Call begin first.")
        return now

    def _observation(self, name: str, state: ArrayLike) -> Array:
        """Return an observation as an array of our own, of the shape that all have had so far."""
        array = np.array(as_numbers(name, state))
        if self._shape is not None and array.shape != self._shape:
            raise InvalidData(
                f"{name!r} must be an observation of shape {self._shape}, as those before, got {array.shape}."
            )
        return array

    @staticmethod
    def _check_same(name: str, observation: Array, now: _Open, episode: EpisodeId) -> None:
        if not np.array_equal(observation, now.observation):
            raise InvalidData(
                f"{name!r} must be the observation that episode {episode!r} is at, got another. Finish the "
                "episode before deciding at the next one's first observation."
            )


def _no_target(target: _Priced, s: _Priced) -> bool:
    return False


def _listed(name: str, values: Any) -> list[Any]:
    listed = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not listed and not (isinstance(values, np.ndarray) and values.ndim > 0):
        raise InvalidData(f"{name!r} must be a list, an entry for each episode, got {type(values).__name__}.")
    return list(values)


def _standing_of(rule: Rule) -> str:
    """How sure a budget can be under a rule, whatever the critics: see docs/algorithm.md section 2."""
    if rule.limit == math.inf:
        return "uncertified"
    strict = rule.lookahead == 1.0 and rule.step_bound == Rule.strict(0.0).step_bound
    return "certified" if strict or rule.limit < 0 else "conditional"
