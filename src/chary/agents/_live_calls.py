"""What a service asks of a tabular agent besides the protocol: reports, budgets of single episodes."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from chary.agents._episodes import EpisodeId, Transition
from chary.agents._tabular_core import Open, TabularCore
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.draft import Draft
from chary.agents.explanation import ActionView, Explanation, moments, worth_in_units
from chary.errors import (
    InvalidBudget,
    InvalidData,
    InvalidSetting,
    OutOfOrder,
    check_real,
    check_truth,
    check_type,
)
from chary.planner.joint import JointPlan
from chary.shield import Decision, Ledger, Rule
from chary.shield.decision import plain_decision, room
from chary.shield.pricing import put
from chary.shield.watch import BUDGET, CLOSED
from chary.texts import shown

# Plans come into force when they are adopted.
ADOPT = "adopt"
# The rules whose promise holds for any budget, so that an episode may have its own.
OWN_BUDGETS = ("strict", "capped")


class LiveCalls(TabularCore, ABC):
    """Calls of a tabular agent in live use."""

    def learn(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Learn logged or shadow episodes, at any time: those that another policy decided.

        They are checked and counted as with `warm_start`, and need no place among the agent's own. Open
        episodes keep their plans. Learn all of them, whatever came of them, or what is learnt is biased.

        Raises:
            InvalidData: if a transition contradicts the setting or another one; nothing is counted then.
            InvalidSetting: if there are more than the bounds were declared for.
        """
        if not self.episodes_begun:
            self._learn_first(episodes)
            return
        found = self._logged(episodes)
        if found is None:
            return
        columns, facts = found
        self._changing = True
        self._facts.take(facts)
        self._logged_steps += len(columns[0])
        self._learner.learn_log(columns, self._pinned_plans())
        self._trim()

    def apply(
        self,
        episode: EpisodeId,
        t: int,
        state: int,
        decision: Decision,
        *,
        proposal: int | None = None,
        explore: bool = True,
    ) -> None:
        """Take a recorded decision as made: afterwards the agent is as if `act` had returned it.

        Nothing is planned and no step is priced, so that a history is replayed quickly. Whether the action is
        the one that the plan would have chosen is not checked; play it with `act` for that.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before, by the same decision.
            state: The state it was in.
            decision: What `act` returned, with the same arguments.
            proposal: The action that was suggested then.
            explore: Whether it was to explore then.

        Raises:
            OutOfOrder: as `act` does.
            InvalidData: as `act` does, or if the decision cannot have been made here: another step was
                decided otherwise, a chain is not there, or more is booked than the budget affords.
            InvalidAction: if its action, or the proposal, is not allowed in the state.
        """
        now = self._episodes.named("apply", episode)
        explores = check_truth("explore", explore)
        check_type("decision", decision, Decision, "a Decision", error=InvalidData)
        s = self._facts.state("state", state)
        decided = self._episodes.ask(now, t, s)
        if decided is not None:
            if decided != decision:
                raise InvalidData(
                    f"'decision' must be the one made at step {t} before, got {shown(decision)}."
                )
            return
        suggested = None if proposal is None else self._proposed(s, proposal, explores)
        told = plain_decision(decision._replace(action=self._allowed("action", s, decision.action)))
        shield, plan = self.shield, now.pinned.plan
        if shield is None:
            plain = Decision(told.action, told.explored, 0.0, 0.0, math.inf, now.pinned.number, -1)
            if plain != told or (plain.explored and not explores):
                raise InvalidData(
                    f"'decision' must be one of an agent without a budget, got {shown(decision)}."
                )
            self._changing = True
            self._note_decision(now, s, plain)
            return
        weighed = shield.recall(
            now.name, now.t, s, told, proposal=suggested, explore=explores, ahead=now.late
        )
        self._changing = True
        started = shield.started
        self._arrive(now, s)
        proposed = suggested is not None
        made = shield.apply(now.name, now.t, s, weighed, proposed=proposed, explore=explores)
        if isinstance(plan, JointPlan):
            if made.chain >= 0:
                plan.freeze(made.chain)
        elif shield.started > started:
            plan.start(started)
        self._note_decision(now, s, made)

    @property
    def drafted(self) -> Draft | None:
        """The draft made last, until it is adopted or discarded; it is saved and loaded with the agent."""
        return self._learner.drafted

    def draft(self) -> Draft:
        """Return a plan of all that was learnt, to be made in any thread and put in force by `adopt`.

        It replaces the draft made last, if that was not adopted. Posterior worlds learn here what has waited,
        so that what an agent decides depends on when drafts are taken, and not on how long they are made.

        Raises:
            InvalidSetting: unless the agent was made with replan="adopt".
        """
        self._check_adopts("draft")
        self._changing = True
        draft = self._learner.draft(self._pinned_plans())
        self._trim()
        return draft

    def adopt(self, draft: Draft) -> None:
        """Put a draft in force for the episodes that begin from now on; open ones keep their plans.

        Args:
            draft: The agent's `drafted`. One that was not made is made when it is first needed.

        Raises:
            InvalidSetting: unless the agent was made with replan="adopt".
            OutOfOrder: if it is not the draft made last, or was adopted before.
        """
        self._check_latest("adopt", draft)
        self._changing = True
        self._learner.adopt()
        self._trim()

    def discard(self, draft: Draft) -> None:
        """Drop a draft, such as one that cannot be made; the plan in force stays.

        Args:
            draft: The agent's `drafted`.

        Raises:
            InvalidSetting: unless the agent was made with replan="adopt".
            OutOfOrder: if it is not the draft made last, or was adopted before.
        """
        self._check_latest("discard", draft)
        self._changing = True
        self._learner.discard()
        self._trim()

    def _check_latest(self, call: str, draft: Draft) -> None:
        self._check_adopts(call)
        check_type("draft", draft, Draft, "a Draft")
        if self._learner.drafted != draft:
            raise OutOfOrder("'draft' must be the one made last, not adopted yet, got another. Call draft.")

    def _check_adopts(self, call: str) -> None:
        if not self._learner.adopts:
            raise InvalidSetting(
                f"'replan' must be 'adopt' for {call!r}, got 'episode'. Make the agent with replan='adopt'."
            )

    def _learn_first(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Learn logged episodes before the first one begins: no plan is in use yet."""
        found = self._logged(episodes)
        if found is not None:
            columns, facts = found
            self._changing = True
            self._facts.take(facts)
            self._logged_steps += len(columns[0])
            self._learner.begin_with(columns)
        self._chooser.thaw()

    def recommend(self, episode: EpisodeId, t: int, state: int, *, proposal: int | None = None) -> Decision:
        """Return what `act` would return, and change nothing: nothing is booked and no chain moves.

        Raises:
            OutOfOrder: as `act` does.
            InvalidData: as `act` does.
            InvalidAction: as `act` does.
        """
        now = self._episodes.named("recommend", episode)
        s, suggested, decided = self._ready(now, t, state, proposal, True)
        return self._preview(now, s, suggested)[0] if decided is None else decided

    def explain(self, episode: EpisodeId, t: int, state: int) -> Explanation:
        """Return what the decision of a step depends on, and change nothing.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            t: Its next step, or one decided before: then the ledger is the one before that step.
            state: The state it is in.

        Raises:
            OutOfOrder: as `act` does.
            InvalidData: as `act` does.
        """
        now = self._episodes.named("explain", episode)
        s, _, decided = self._ready(now, t, state, None, True)
        step = now.t if decided is None else int(t)
        if decided is None:
            _, proposals = self._preview(now, s, None)
        else:
            proposals = (decided.action,) if decided.explored else ()
        plan, scale = now.pinned.plan, self.setting.scale
        before = self._ledger_before(now, step)
        actions = [int(a) for a in np.flatnonzero(self.setting.pair_index[s] >= 0)]
        left = float((self.setting.discount ** np.arange(self.horizon - step)).sum())
        return Explanation(
            episode=now.name,
            t=step,
            state=s,
            plan=now.pinned.number,
            baseline=plan.baseline(step, s),
            deficit=before.deficit * scale.span,
            remaining=room(self._rule_at(now, step), before.deficit) * scale.span,
            actions=tuple(self._view(now, step, s, a, before, left) for a in actions),
            proposals=proposals,
            decision=decided,
            span=scale.span,
        )

    def tighten(self, episode: EpisodeId, eta: float) -> None:
        """Lower the budget of an open episode, from its next step on.

        A budget below what the episode has spent is allowed: then nothing more is afforded, not even steps
        that cost nothing. The same budget again changes nothing.

        Args:
            episode: An open episode.
            eta: The new budget, in the user's units, not above the present one.

        Raises:
            OutOfOrder: if the episode is not open.
            InvalidBudget: if `eta` is not finite and >= 0, or above the episode's budget.
            InvalidSetting: if the agent's rule is neither `strict` nor `capped`.
        """
        now = self._episodes.named("tighten", episode)
        limit, had = self._limit(eta), self._limit_of(now)
        if limit > had:
            raise InvalidBudget(
                f"'eta' must be at most the budget of the episode, {self.eta_of(episode):g}, got "
                f"{shown(eta)}. A budget is never raised."
            )
        if limit == had:
            return
        self._changing = True
        now.pinned.limits.append((now.t, limit))
        if self.shield is not None and not now.released:
            self.shield.tighten(now.name, limit)
            if now.pinned.closed_at < 0 and self.shield.ledger(now.name).closed:
                now.pinned.closed_at = now.t

    def _preview(self, now: Open, s: int, proposal: int | None) -> tuple[Decision, tuple[int, ...]]:
        """Return the decision of a step that is ready and what chains propose there, without making it."""
        if self.shield is None:
            action, explored = self._chooser.choose(now.pinned, now.t, s)
            decision = Decision(action, explored, 0.0, 0.0, math.inf, now.pinned.number, -1)
            return decision, (action,) if explored else ()
        fresh, explorers = self.shield.started, self._learner.explorers
        known = fresh in explorers
        self._changing = True
        answer = self.shield.preview(now.name, now.t, s, proposal=proposal)
        if not known:
            # A chain that might start here has not.
            explorers.forget(fresh)
        return answer

    def _rule_at(self, now: Open, t: int) -> Rule:
        """Return the rule that held at a step of an episode."""
        return Rule.unlimited() if self.shield is None else self.shield.rule_with(self._limit_of(now, t))

    def _ledger_before(self, now: Open, t: int) -> Ledger:
        """Return the ledger of an episode before its step `t`, in scaled units."""
        deficit = now.steps[t - 1].decision.deficit_scaled if t else 0.0
        return Ledger(0 <= now.pinned.closed_at <= t, deficit)

    def _deficits_before(self, now: Open, t: int, worlds: int) -> Any:
        """Return what was booked in each world before step `t` of an episode."""
        deficits = np.zeros(worlds)
        for i, step in enumerate(now.steps[:t]):
            if step.decision.explored:
                deficits += now.pinned.plan.charges(i, step.state, step.decision.action)
        return deficits

    def _view(self, now: Open, t: int, s: int, a: int, before: Ledger, left: float) -> ActionView:
        """Return one action at a step whose ledger was `before`, with the discounted time left."""
        plan, scale, rule = now.pinned.plan, self.setting.scale, self._rule_at(now, t)
        mine = plan.baseline(t, s) == a
        lower = upper = mean = sd = None
        if isinstance(plan, JointPlan):
            worth, sd = moments(plan.values(t, s, a) * scale.span)
            mean = worth + scale.low * left
        else:
            bounds = (float(each[a]) for each in plan.values(t, s))
            lower, upper = (worth_in_units(bound, left, scale.low, scale.span) for bound in bounds)
        if self.shield is None:
            return ActionView(a, mine, lower, upper, mean, sd, 0.0, None, True, None)
        votes = self.shield.votes
        deficits: Any = [] if votes is None else self._deficits_before(now, t, votes.worlds)
        afforded, _, _, vote = put(plan, t, s, a, before, deficits, rule, votes)
        charge = min(plan.charge(t, s, a), rule.step_bound) if vote is None else vote.deficit - before.deficit
        why_not = None if afforded else CLOSED if before.closed else BUDGET
        return ActionView(a, mine, lower, upper, mean, sd, charge * scale.span, vote, afforded, why_not)

    def _limit(self, eta: object) -> float:
        """Return an episode's own budget in scaled units."""
        spec = self.spec
        if not isinstance(spec, CharyUCBVI) or spec.rule not in OWN_BUDGETS:
            rule = spec.rule if isinstance(spec, CharyUCBVI) else "none"
            raise InvalidSetting(
                f"'eta' of one episode can be given with rules {' and '.join(OWN_BUDGETS)}, got {shown(eta)} "
                f"with rule {rule!r}, whose promise holds for the budget declared or for none."
            )
        budget = check_real("eta", eta, low=0.0, open_high=True, error=InvalidBudget)
        if spec.calibration is not None and spec.eta is not None and budget > spec.eta:
            raise InvalidBudget(
                f"'eta' of one episode must be at most {spec.eta:g}, which was calibrated, got {shown(eta)}."
            )
        return budget / self.setting.scale.span
