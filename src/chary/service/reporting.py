"""What clients report to the engine: what was taken, what came of it, and how episodes end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chary.service import events
from chary.service.answers import Answer
from chary.service.asking import Named
from chary.service.desk import Desk
from chary.service.events import encode
from chary.service.modes import FALLBACK
from chary.service.records import ABANDONED, OPEN


class Reports(Desk):
    """The reports of clients."""

    def taken(self, episode: str, t: int, action: Named | None) -> Answer:
        """Note what was really played at a decided step; None if nothing is known to have been played."""
        name = self._named(episode)
        now = self._known(name)
        step = self._step(now, t)
        a = None
        if action is not None:
            a = self._checked(self._asking.allowed, "action", step.state, action)
        if step.taken is not None:
            if step.taken.facts.action != a:
                self._contradiction(f"what was taken at step {t}", step.taken.facts.action, a)
            return self._repeated(step.taken)
        if step.outcome is not None and step.outcome.facts.action != a:
            self._contradiction(f"what was taken at step {t}", step.outcome.facts.action, a)
        self._check_reports(now)
        return self._happened(events.Taken(action=a, t=t), name, t)

    def outcome(
        self, episode: str, t: int, action: Named, reward: float, next_state: Named, terminated: bool
    ) -> Answer:
        """Note what a decided step led to, in any order; the same outcome again is the same answer."""
        name = self._named(episode)
        now = self._known(name)
        step = self._step(now, t)
        facts = self._outcome(step.state, t, action, reward, next_state, terminated)
        if step.outcome is not None:
            if step.outcome.facts != facts:
                self._refuse(
                    409, "contradiction",
                    f"The outcome of step {t} must be the one reported before, got another one. If that one "
                    "was wrong, report a correction.",
                )  # fmt: skip
            return self._repeated(step.outcome)
        taken = step.taken
        if taken is not None and taken.facts.action != facts.action:
            self._contradiction(f"what was taken at step {t}", taken.facts.action, facts.action)
        self._check_reports(now)
        answer = self._happened(facts, name, t)
        self._tally["observed"] += 1
        return answer

    def correct(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        terminated: bool,
        *,
        reason: str,
    ) -> Answer:
        """Note that an outcome was reported wrongly; what was learnt from it stays learnt."""
        name = self._named(episode)
        now = self._known(name)
        step = self._step(now, t)
        told = self._outcome(step.state, t, action, reward, next_state, terminated)
        if step.outcome is None:
            self._refuse(
                409, "no_outcome", f"A correction must follow an outcome, got one of step {t} without any. "
                "Report the outcome.",
            )  # fmt: skip
        facts = events.Corrected(
            action=told.action, next_state=told.next_state, reward=told.reward, t=t,
            terminated=told.terminated, reason=self._checked(self._asking.text, "reason", reason),
        )  # fmt: skip
        for before in now.corrections:
            if before.facts == facts:
                return self._repeated(before)
        self._live.recall(now)
        return self._happened(facts, name, t)

    def close(self, episode: str) -> Answer:
        """Take no more decisions in an episode; outcomes may still come."""
        name = self._named(episode)
        now = self._known(name)
        if now.closed is not None:
            return self._repeated(now.closed)
        if now.status == ABANDONED:
            self._refuse(409, "abandoned", "The episode must be open, got one that was abandoned.")
        return self._happened(events.Closed(steps=len(now.steps)), name)

    def abandon(self, episode: str, *, reason: str = "") -> Answer:
        """Give an episode up: its missing outcomes are lost."""
        name = self._named(episode)
        now = self._known(name)
        said = self._checked(self._asking.text, "reason", reason)
        if now.status == ABANDONED and now.ended is not None:
            if now.ended.facts.reason != said:
                self._contradiction("the reason", now.ended.facts.reason, said)
            return self._repeated(now.ended)
        if not self._live.is_open(name):
            self._refuse(409, "complete", "The episode must be open, got one that is complete.")
        return self._happened(events.Abandoned(lost=now.outstanding, reason=said), name)

    def fallback(self, episode: str, steps: Sequence[Mapping[str, Any]]) -> Answer:
        """Note the steps that a client played by the cached baseline while the service was away.

        Each step has `t`, `state`, `action` and, where they are known, `reward`, `next_state` and
        `terminated`. At a step that was decided, whose reply was lost, the action is what was taken in its
        place. A step that is refused leaves those before it noted; the same request goes on there.
        """
        name = self._named(episode)
        self._known(name)
        told = self._checked(self._asking.fallbacks, steps)
        for t, state, action, outcome in told:
            now = self._known(name)
            if t < len(now.steps):
                self._played_after_all(episode, t, state, action)
            elif t > len(now.steps):
                self._wrong_step(now, t)
            else:
                if now.status != OPEN:
                    self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
                self._check_goes_on(now, state)
                self._happened(self._live.played_alone(name, t, state, action), name, t)
            if outcome is not None:
                self.outcome(episode, t, action, *outcome)
        return Answer(200, encode(events.FallbacksNoted(steps=tuple(step[0] for step in told))), self.head)

    def _played_after_all(self, episode: str, t: int, state: int, action: int) -> None:
        """Take in what a client played by itself at a step that was decided: the reply had been lost."""
        now = self._known(self._named(episode))
        step = now.steps[t]
        if step.state != state:
            self._contradiction(f"the state of step {t}", step.state, state)
        if step.decided.facts.mode == FALLBACK:
            if step.action != action:
                self._contradiction(f"the action of step {t}", step.action, action)
        else:
            self.taken(episode, t, action)
