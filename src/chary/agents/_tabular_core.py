"""The machinery of the tabular step API: decisions booked, outcomes counted, plans kept."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents import _endings
from chary.agents._choosing import Chooser, Pinned
from chary.agents._episodes import NOT_TAKEN, EpisodeId, OpenEpisode, Played, Transition
from chary.agents._facts import Columns, Noted, ObservedFacts, placed
from chary.agents._learner import Learner
from chary.agents._step_api import Reports
from chary.agents._visits import Visits, lesson
from chary.agents._world_learner import WorldLearner
from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.errors import InvalidSetting, OutOfOrder
from chary.mdp import Setting
from chary.planner.joint import JointPlan
from chary.shield import Decision, EpisodeEnd, Ledger
from chary.standing import Standing
from chary.texts import shown

Open = OpenEpisode[int, Pinned]


class TabularCore(Reports[int, Pinned], ABC):
    """What all calls of a tabular agent share; `chary.TabularAgent` sets the attributes and has the calls."""

    spec: AgentSpec
    setting: Setting
    n_actions: int
    horizon: int
    overrides: str
    losses: bool
    episodes_begun: int
    last_end: EpisodeEnd[int] | None
    _learner: Learner | WorldLearner
    _chooser: Chooser
    _facts: ObservedFacts
    _visits: Visits
    _discretiser: dict[str, NDArray[Any]]
    # Meta-rollouts some of whose outcomes are still to come, where explorers learn from them.
    _late_rollouts: list[list[Played[int]]]
    # Whether a step was reported as not taken.
    _untaken: bool
    # The number of episodes declared for logs, and the steps learnt from them so far.
    _warmup: int
    _logged_steps: int

    @property
    def plan(self) -> Any:
        """The plan that an episode begun now would be pinned to: a TabularPlan, or a JointPlan of worlds."""
        return self._learner.plan

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise, with all that was used so far."""
        told = replace(
            self._learner.grounds,
            overrides=self.overrides,
            untaken=self._untaken,
            discretised=bool(self._discretiser),
        )
        return told.standing

    @property
    def frozen_baseline(self) -> Ints:
        """The baseline that the warm-up's data gives, (H, S); fixed from the first episode on."""
        return self._chooser.frozen_baseline

    def plan_of(self, episode: EpisodeId) -> Any:
        """Return the plan an open episode is pinned to."""
        return self._episodes.named("plan_of", episode).pinned.plan

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return what an open episode has spent, in the user's units; nothing without a budget.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        now = self._episodes.named("ledger", episode)
        if self.shield is None or now.released:
            # The shield has closed an episode that waits for outcomes; its last decision tells.
            return Ledger(now.released, now.steps[-1].decision.deficit if now.steps else 0.0)
        closed, deficit = self.shield.ledger(now.name)
        return Ledger(closed, deficit * self.setting.scale.span)

    def eta_of(self, episode: EpisodeId) -> float:
        """Return the budget of an open episode in the user's units; inf without one.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        now = self._episodes.named("eta_of", episode)
        if now.pinned.limits:
            return now.pinned.limits[-1][1] * self.setting.scale.span
        return math.inf if self.shield is None or self.spec.eta is None else float(self.spec.eta)

    def _limit_of(self, now: Open, t: int | None = None) -> float:
        """Return the limit of an episode in scaled units, now or as it was at step `t`."""
        own = [limit for step, limit in now.pinned.limits if t is None or step <= t]
        if own:
            return own[-1]
        return math.inf if self.shield is None else self.shield.limit

    def _ready(
        self, now: Open, t: object, state: object, proposal: object, explore: object
    ) -> tuple[int, int | None, Decision | None]:
        """Return state and proposal as checked, and the decision made at step `t` before, if there is one."""
        s = self._facts.state("state", state)
        self._check_not_ended(now, t, s)
        decided = self._episodes.ask(now, t, s)
        if decided is None:
            # A plan that was adopted before it was made; nothing has changed yet if it cannot be.
            now.pinned.plan.make()
        fresh = decided is None and proposal is not None
        return s, self._proposed(s, proposal, explore) if fresh else None, decided

    def _check_not_ended(self, now: Open, t: object, s: int) -> None:
        """Raise OutOfOrder for a step that an episode has not reached because it ended early."""
        ending = self.setting.ending
        if ending in (None, s) or not now.steps or now.steps[-1].state != ending:
            return
        first = next(i for i, step in enumerate(now.steps) if step.state == ending)
        if isinstance(t, (int, np.integer)) and t >= first:
            raise OutOfOrder(
                f"'t' must be a step of episode {now.name!r}, got {shown(t)}. It ended at step {first - 1}: "
                "call finish, and begin another one."
            )

    def _fill_up(self, now: Open, over: Transition) -> None:
        """Fill an episode that ended early up to the horizon; `stats` does not count these steps."""
        episodes, shield = self._episodes, self.shield
        counted = (episodes.steps, episodes.explored, episodes.compared, episodes.deviating)
        watch = None if shield is None else shield.watch.copied()
        while now.t < self.horizon:
            self._decide(now, over.state, None, True)
            self._take(now, now.t - 1, over)
        episodes.steps, episodes.explored, episodes.compared, episodes.deviating = counted
        if shield is not None and watch is not None:
            shield.watch = watch

    def _proposed(self, s: int, proposal: object, explore: object) -> int:
        if not explore:
            raise InvalidSetting(
                f"'proposal' must be None with explore=False, which plays the baseline, got "
                f"{shown(proposal)}."
            )
        if not self.spec.shielded:
            raise InvalidSetting(
                f"'proposal' must be None for agent {self.spec.name!r}, without a budget, got "
                f"{shown(proposal)}."
            )
        return self._allowed("proposal", s, proposal)

    def _allowed(self, name: str, s: int, action: object) -> int:
        return self._facts.allowed(name, s, action)

    def _decide(self, now: Open, s: int, proposal: int | None, explore: bool) -> Decision:
        """Make the decision of a step that is ready."""
        self._changing = True
        t = now.t
        if self.shield is not None:
            self._arrive(now, s)
            decision = self.shield.decide(now.name, t, s, proposal=proposal, explore=explore)
            if decision.chain >= 0 and isinstance(now.pinned.plan, JointPlan):
                now.pinned.plan.freeze(decision.chain)
        else:
            action, explored = self._chooser.choose(now.pinned, t, s, explore=explore)
            decision = Decision(action, explored, 0.0, 0.0, float("inf"), now.pinned.number, -1)
        self._note_decision(now, s, decision)
        return decision

    def _arrive(self, now: Open, s: int) -> None:
        """Tell the shield where the last step led, which is known now, though its reward is not."""
        if now.late and self.shield is not None:
            self.shield.observe(now.name, s, terminated=False, transition=now.steps[-1])

    def _note_decision(self, now: Open, s: int, decision: Decision) -> None:
        """Note a decision that the shield has made, or has taken for made."""
        shield, pinned = self.shield, now.pinned
        self._facts.left[s] = True
        # A plan that was not made yet is not made for the statistics.
        baseline = pinned.plan.baseline(now.t, s) if pinned.plan.is_made else None
        self._episodes.decide(now, s, decision, baseline)
        self._visits.decided(now.steps[-1])
        if shield is not None and shield.closes and pinned.closed_at < 0 and shield.ledger(now.name).closed:
            pinned.closed_at = now.t

    def _take(self, now: Open, t: int, step: Transition) -> None:
        """Take in the outcome of a step, as checked."""
        if self.shield is not None and now.is_last(t):
            played = now.steps[t]
            self.shield.observe(
                now.name, step.next_state, terminated=step.terminated, transition=played, taken=step.action
            )
        self._facts.note(step)
        self._episodes.note(now, t, step)
        self._visits.resolved(now.steps[t])

    def _reported(self, now: Open, t: int) -> None:
        step = now.steps[t]
        self._untaken |= step.taken == NOT_TAKEN
        if not step.overruled:
            return
        if self.shield is not None and now.is_last(t):
            self.shield.part(now.name)
        self._visits.resolved(step)
        if self.overrides == "counted" and step.taken != NOT_TAKEN:
            self._visits.overruled(step)

    def _settle(self, now: Open) -> None:
        """Count an episode that is closing once all of its outcomes are known."""
        if self._episodes.settle(now, self._release):
            self._learn_late_rollouts()
            self._count(renew=not now.steps)

    def _count(self, *, renew: bool = False) -> None:
        """Count the outcomes whose turn has come, and keep no more than the plans in use need.

        `renew` makes a new plan where there are none.
        """
        steps = self._visits.release()
        if steps or renew:
            self._learner.learn(list(map(lesson, steps)), self._pinned_plans())
        self._trim()

    def _pinned_plans(self) -> list[Any]:
        return [now.pinned.plan for now in self._episodes]

    def _trim(self) -> None:
        """Keep no more of what was learnt than the plans in use need."""
        versions = (now.pinned.version for now in self._episodes)
        self._learner.trim(min(versions, default=self._learner.version))

    def _logged(self, episodes: Iterable[Sequence[Transition]]) -> tuple[Columns, Noted] | None:
        """Return logged episodes as columns with the facts after them, once all agree; None for no steps."""
        logged = placed(_endings.with_endings(self.setting, episodes))
        steps = [step for _, _, step in logged]
        most = self._warmup * self.setting.horizon
        if self.spec.bonus == "l1" and self._logged_steps + len(steps) > most:
            raise InvalidSetting(
                f"'warmup' must cover all that is learnt from logs with bonus 'l1', got {self._warmup} "
                f"episodes of {self.setting.horizon} steps. Declare more, or use bonus 'kl', which needs no "
                "number."
            )
        if not steps:
            return None
        return self._facts.checked_columns(steps, lambda i: f"episode {logged[i][0]}, step {logged[i][1]}")

    def _release(self, now: Open) -> None:
        if self.shield is not None:
            # A step that was not taken is never observed.
            close = self.shield.abandon if now.late else self.shield.finish
            self._take_outcome(close(now.name))

    def _take_outcome(self, outcome: EpisodeEnd[int]) -> None:
        self.last_end = outcome
        self._learner.forget(outcome.ended)
        if self._learner.apart:
            for rollout in outcome.finished:
                steps = [step.transition for step in rollout.steps]
                self._late_rollouts.append([step for step in steps if isinstance(step, Played)])

    def _learn_late_rollouts(self) -> None:
        """Let explorers learn from the meta-rollouts whose outcomes are all known by now."""
        waiting: list[list[Played[int]]] = []
        for rollout in self._late_rollouts:
            if any(step.lost for step in rollout):
                continue
            outcomes = [step.outcome for step in rollout if step.outcome is not None]
            if len(outcomes) < len(rollout):
                waiting.append(rollout)
            else:
                self._learner.learn_rollout(outcomes)
        self._late_rollouts = waiting
