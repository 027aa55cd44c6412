"""Proposals under a budget that critics guard: the step API for observations of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._batch import batch
from chary.agents._episodes import EpisodeId, Episodes, OpenEpisode, Transition
from chary.agents._stats import refused_shares
from chary.agents._step_api import Reports
from chary.agents._steps import as_transition, observed_steps, steps_from
from chary.arrays import Floats
from chary.critics.bounds import CriticBounds
from chary.critics.plan import Allowed, CriticPlan
from chary.critics.protocol import Array, as_masks, as_numbers
from chary.errors import InvalidAction, InvalidData, InvalidSetting, check_index, check_integer
from chary.shield import Decision, Ledger, Rule
from chary.shield.decision import afford, room
from chary.shield.rule import NO_STEP_BOUND
from chary.shield.watch import BUDGET, CLOSED, Watch
from chary.standing import Grounds, Standing
from chary.storage.files import write_new
from chary.storage.sealed import as_array, load_sealed, pack
from chary.texts import shown

KIND = "critic shield"


@dataclass(slots=True, eq=False)
class _Pinned:
    """The plan of an episode, its number, and what the episode has spent."""

    plan: CriticPlan
    number: int
    ledger: Ledger


_Open = OpenEpisode[Array, _Pinned]


class _Question(NamedTuple):
    """One checked request of a batch; `decided` is the decision made before, if any."""

    now: _Open
    state: Array
    proposal: int | None
    mask: Array | None
    decided: Decision | None


@final
class CriticShield(Reports[Array, _Pinned]):
    """A guard of proposals: plays the baseline wherever the critics find that the budget is too small.

    A proposal costs what `CriticPlan` charges for it; the ledger of the episode and `rule` decide. The budget
    is in the units of the critics, which are those of the rewards. Any number of episodes may be open at
    once. A decision may be requested twice, and outcomes may come late and in any order, as with
    `TabularAgent`. Every call that raises leaves the shield as it was. Critics must not be trained while an
    episode is being decided.

    Args:
        bounds: The lower and the upper critic.
        rule: Decides which steps the budget affords.
        n_actions: The number A of actions.
        horizon: H, the largest number of steps of an episode.
        allowed: Which actions may be played at an observation, as (A,) booleans; all by default.
        memory: How many observations to remember the critics' values for.

    Raises:
        InvalidSetting: if an option is out of range or of another type.

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
        if not isinstance(rule, Rule):
            raise InvalidSetting(f"'rule' must be a Rule, got {shown(rule)}. Use Rule.strict(eta).")
        self.bounds = bounds
        self._new_plan = partial(CriticPlan, bounds, n_actions=n_actions, allowed=allowed, memory=memory)
        self._plan = self._new_plan()
        self.n_actions = self._plan.n_actions
        self._plans = 0
        self.rule = rule
        self.horizon = check_integer("horizon", horizon, minimum=1)
        self._episodes = Episodes.of_arrays(self.horizon)
        self.episodes_begun = 0
        self._watch = Watch()
        self._shape: tuple[int, ...] | None = None

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise, which leans on the critics and on the rule."""
        told = _rule_of(self.rule)
        return replace(told, critics=self.bounds.level).standing

    def plan_of(self, episode: EpisodeId) -> CriticPlan:
        """Return the plan an open episode is pinned to."""
        return self._episodes.named("plan_of", episode).pinned.plan

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return what an open episode has spent.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        return self._episodes.named("ledger", episode).pinned.ledger

    def begin(self, episode: EpisodeId, state: ArrayLike) -> None:
        """Open an episode that starts with the observation `state`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` is not a name, or `state` not an array of numbers of the usual shape.
        """
        name = self._episodes.unused(episode)
        observation = self._observation("state", state)
        self._changing = True
        if all(now.closing for now in self._episodes):
            # The critics may have been trained since: values remembered from before may be out of date.
            self._plan = self._new_plan()
            self._plans += 1
        self._episodes.open(name, observation, _Pinned(self._plan, self._plans, Ledger()))
        self._shape = observation.shape
        self.episodes_begun += 1

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

        It is played if the budget affords it, else the baseline is. A step decided before gets the same
        decision, whatever is proposed, and nothing more is booked.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before.
            state: The observation it is at: the one observed last, or, where that outcome is late, the next.
            proposal: The action someone would like to play; None plays the baseline.
            mask: Which actions are allowed now, (A,), in place of what `allowed` returns.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidAction: if the proposal is not an action, or `mask` excludes it.
            InvalidData: if `state` is not the observation that the episode is at, or the values of a critic
                are not sound.
        """
        masks = None if mask is None else [mask]
        return self._act_all([episode], [t], [state], [proposal], masks)[0]

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

        Where one question is refused, none is decided and nothing is booked.

        Raises:
            InvalidData: if the lists are not of one length, or as `act` does.
            InvalidAction: as `act` does.
            OutOfOrder: as `act` does.
        """
        return self._act_all(episodes, t, states, proposals, masks)

    def _act_all(self, episodes: Any, t: Any, states: Any, proposals: Any, masks: Any) -> list[Decision]:
        rows = batch(
            ("states", "masks"), episodes=episodes, t=t, states=states, proposals=proposals, masks=masks
        )
        questions = [self._question(*row) for row in rows]
        # The first of several questions about one episode decides for all of them.
        fresh = list({q.now.name: q for q in reversed(questions) if q.decided is None}.values())
        prices = self._prices(fresh)
        self._changing = True
        decided = {
            question.now.name: self._decide(question, *price)
            for question, price in zip(fresh, prices, strict=True)
        }
        return [decided[q.now.name] if q.decided is None else q.decided for q in questions]

    def observe(
        self, episode: EpisodeId, transition: Transition, *, t: int | None = None, taken: int | None = None
    ) -> None:
        """Take in what a decided action led to; `state` and `next_state` of the transition are observations.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: What happened.
            t: At which step; may be left out where only one outcome is outstanding.
            taken: The action of the transition, where it is not the one decided. The charge of the decision
                stays booked.

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant.
            InvalidAction: if another action was played than the one decided and `taken` does not name it.
            InvalidData: if the transition contradicts the observations decided at, or is not made of finite
                numbers.
        """
        now = self._episodes.named("observe", episode)
        t = self._episodes.step_of(now, t)
        step = as_transition(transition, self.n_actions, self._observation)
        if self._episodes.is_news(now, t, step, taken):
            self._changing = True
            self._episodes.note(now, t, step)
            self._settle(now)

    def abandon(self, episode: EpisodeId) -> None:
        """Forget an episode that was broken off; what it has spent stays spent.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._episodes.named("abandon", episode)
        self._changing = True
        self._episodes.drop(now)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write all but the critics to a file, open episodes included.

        The file is sealed npz: numbers and texts, no pickle. It is written whole or not at all.

        Args:
            path: Where to.
            overwrite: Whether an existing file may be replaced.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written.
        """
        write_new(path, lambda: pack(KIND, *self._record()), overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        bounds: CriticBounds,
        rule: Rule,
        *,
        n_actions: int,
        horizon: int,
        allowed: Allowed | None = None,
        memory: int = 1024,
    ) -> CriticShield:
        """Return the shield that was saved, with the same critics given again: a file cannot contain them.

        Open episodes go on with the same decisions if `bounds` and `allowed` are those of before.

        Raises:
            InvalidSetting: as the constructor does.
            InvalidData: if the file is missing, truncated, changed, of another kind, or for another rule,
                number of actions or horizon.
        """
        shield = cls(bounds, rule, n_actions=n_actions, horizon=horizon, allowed=allowed, memory=memory)
        load_sealed(path, KIND, "a critic shield", shield._restore)
        return shield

    def _allowed(self, name: str, s: Array, action: object) -> int:
        return check_index(name, action, self.n_actions, error=InvalidAction)

    def _reported(self, now: _Open, t: int) -> None:
        """Do nothing: nobody learns from what was played."""

    def _settle(self, now: _Open) -> None:
        self._episodes.settle(now, _release)

    def _question(
        self, episode: EpisodeId, t: int, state: ArrayLike, proposal: int | None, mask: ArrayLike | None
    ) -> _Question:
        """Return one question, checked against where its episode is; nothing is changed."""
        now = self._episodes.named("act", episode)
        observation = self._observation("state", state)
        decided = self._episodes.ask(now, t, observation)
        allowed = None if mask is None else as_masks("mask", mask, (self.n_actions,))
        if proposal is None:
            return _Question(now, observation, None, allowed, decided)
        action = check_integer("proposal", proposal, minimum=0, error=InvalidAction)
        if action >= self.n_actions or (allowed is not None and not allowed[action]):
            options = range(self.n_actions) if allowed is None else np.flatnonzero(allowed)
            raise InvalidAction(
                f"'proposal' must be an allowed action, one of {', '.join(str(a) for a in options)}, got "
                f"{action}."
            )
        return _Question(now, observation, action, allowed, decided)

    def _prices(self, questions: list[_Question]) -> list[tuple[int, Floats]]:
        """Return baselines and charges by one call of the critics, or one with masks and one without."""
        found: dict[int, tuple[int, Floats]] = {}
        for masked in (False, True):
            group = [i for i, q in enumerate(questions) if (q.mask is not None) is masked]
            if not group:
                continue
            plan = questions[group[0]].now.pinned.plan
            masks = [m for i in group if (m := questions[i].mask) is not None]
            prices = plan.price(np.stack([questions[i].state for i in group]), masks or None)
            for row, i in enumerate(group):
                found[i] = (int(prices.baseline[row]), prices.charges[row])
        return [found[i] for i in range(len(questions))]

    def _decide(self, question: _Question, baseline: int, charges: Floats) -> Decision:
        now, pinned = question.now, question.now.pinned
        wanted = baseline if question.proposal is None else question.proposal
        why_not = CLOSED if pinned.ledger.closed else BUDGET
        afforded, cost, pinned.ledger = afford(pinned.ledger, float(charges[wanted]), self.rule)
        # Without a proposal the baseline is played, and nothing is explored.
        explored = afforded and question.proposal is not None
        self._watch.decided(explored, None if question.proposal is None else why_not)
        deficit = pinned.ledger.deficit
        left = room(self.rule, deficit)
        action = wanted if afforded else baseline
        decision = Decision(action, explored, cost, deficit, left, pinned.number, -1)
        return self._episodes.decide(now, question.state, decision, baseline)

    def _observation(self, name: str, state: ArrayLike) -> Array:
        """Return a copy of an observation, of the shape that all have had so far."""
        array = np.array(as_numbers(name, state))
        if self._shape is not None and array.shape != self._shape:
            raise InvalidData(
                f"{name!r} must be an observation of shape {self._shape}, as those before, got {array.shape}."
            )
        return array

    def _of_shield(self) -> dict[str, Any]:
        return {"refused": refused_shares(self._watch)}

    def _record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all there is to save, as arrays and as plain values."""
        arrays: dict[str, NDArray[Any]] = {"rule": np.array(self.rule, dtype=np.float64)}
        kept = []
        for i, now in enumerate(self._episodes):
            pinned = now.pinned
            arrays[f"open.{i}.now"] = now.state
            arrays |= observed_steps(now.steps, now.state.shape, f"open.{i}.")
            kept.append([now.name, pinned.number, list(pinned.ledger), *now.flags])
        about = {
            "n_actions": self.n_actions,
            "horizon": self.horizon,
            "plans": self._plans,
            "begun": self.episodes_begun,
            "shape": None if self._shape is None else list(self._shape),
            "open": kept,
        }
        return arrays, about

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take on what `_record` returned."""
        if not np.array_equal(as_array("rule", arrays, (4,), np.float64), np.array(self.rule, np.float64)):
            raise InvalidData(f"'rule' must be that of the file, got {self.rule}.")
        for name, mine in (("n_actions", self.n_actions), ("horizon", self.horizon)):
            if about[name] != mine:
                raise InvalidData(f"{name!r} must be that of the file, {about[name]!r}, got {mine}.")
        count = partial(check_integer, minimum=0, error=InvalidData)
        self._plans = count("plans", about["plans"])
        self.episodes_begun = count("begun", about["begun"], minimum=len(about["open"]))
        if about["shape"] is not None:
            self._shape = tuple(count("shape", n) for n in about["shape"])
        for i, (name, number, ledger, *flags) in enumerate(about["open"]):
            state = self._observation("state", arrays[f"open.{i}.now"])
            plan = count("plan", number)
            steps = steps_from(arrays, state.shape, f"open.{i}.", n_actions=self.n_actions, plan=plan)
            closed, deficit = ledger
            whole = plan <= self._plans and isinstance(closed, bool)
            # The deficit is the sum of the charges: a ledger that was refilled is refused.
            spent = 0.0
            for step in steps:
                spent += step.decision.charge_scaled
                whole = whole and step.decision.chain == -1 and step.decision.deficit_scaled == spent
            if not (whole and deficit == spent):
                raise InvalidData(f"'open' must hold episodes of this shield, got another {name!r}.")
            pinned = _Pinned(self._plan, plan, Ledger(closed, spent))
            self._episodes.restore(OpenEpisode.restored(name, state, pinned, steps, flags))


def _release(now: _Open) -> None:
    """Do nothing where an episode is closed: its ledger goes with it."""


def _rule_of(rule: Rule) -> Grounds:
    """Return the name and the assumption of a rule that is given as numbers."""
    if rule.limit < 0:
        return Grounds(rule="closed")
    if rule.lookahead == 0.0:
        return Grounds(rule="paper", eta=2 * rule.limit)
    if rule.step_bound < NO_STEP_BOUND:
        return Grounds(rule="capped", eta=rule.limit, step_bound=rule.step_bound)
    return Grounds(rule="strict", eta=rule.limit)
