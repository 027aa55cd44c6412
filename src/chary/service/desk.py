"""The desk of the engine: where events come about, requests find their episodes, and refusals are made."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from chary.errors import CharyError, InvalidAction, OutOfOrder
from chary.service import events
from chary.service.answers import Answer, Refused
from chary.service.asking import Asking, Named
from chary.service.committer import Committer, die
from chary.service.deployment import Deployment
from chary.service.events import Body, Decided, Fresh, encode
from chary.service.live import Live
from chary.service.logs import SERVICE
from chary.service.modes import INCUMBENTS
from chary.service.planning import Planner
from chary.service.points import reached
from chary.service.records import OPEN, Kept, Record, Step, record_of
from chary.service.snapshots import Snapshots
from chary.service.store import Reader
from chary.texts import shown

_log = logging.getLogger(SERVICE)


class Desk:
    """What all calls of an engine share."""

    def __init__(
        self, deployment: Deployment, lock: int, live: Live, committer: Committer, reader: Reader
    ) -> None:
        self._deployment = deployment
        self._lock = lock
        self._live = live
        self._committer = committer
        self._reader = reader
        self._asking = Asking(live.problem)
        declared = deployment.declaration
        self._planner = Planner(**declared.plans)
        self._most_open = int(declared.bounds["open_episodes"])
        self._snapshots = Snapshots(committer, live.seq, every=int(declared.bounds["snapshot_every"]))
        self._identity = deployment.identity
        self._salts = b""
        self._started: dict[str, Any] = {}
        counted = ("begun", "decided", "explored", "observed", "repeated", "refused", "plans_refused")
        self._tally = dict.fromkeys(counted, 0)

    @property
    def head(self) -> int:
        """The number of the last event, durable or not."""
        return self._live.seq

    @property
    def mode(self) -> str:
        """apprentice, budgeted, frozen or stopped."""
        return self._live.mode

    # How events come about.
    def _happened(
        self,
        facts: Body,
        name: str | None = None,
        t: int | None = None,
        *,
        apart: tuple[bytes, str] | None = None,
        begun: int | None = None,
        status: int = 200,
    ) -> Answer:
        """Let the agent take an event in, queue it, and return its answer."""
        live = self._live
        seq, body = live.seq + 1, encode(facts)
        with self._whole():
            live.apply(seq, name, t, facts, body)
            if begun is None:
                now = None if name is None else live.records[name]
                begun = 0 if now is None else now.begun.seq
                if now is not None and apart is not None:
                    now.apart = apart
            answer = self._queued(facts, body, name, t, begun, seq=seq, apart=apart, status=status)
        live.prune(self._committer.durable)
        self._snapshots.after(live)
        return answer

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Refuse what the agent refuses inside; anything else ends the process.

        Memory may then be ahead of the log, and no later answer could be trusted.
        """
        whole = False
        try:
            yield
            whole = True
        except CharyError as problem:
            whole = not self._live.agent.poisoned
            if whole:
                self._refuse_by(problem)
            raise
        finally:
            if not whole:
                die(f"a decision failed, a mistake in chary: {traceback.format_exc()}")

    def _queued(
        self,
        facts: Body,
        body: bytes,
        name: str | None = None,
        t: int | None = None,
        begun: int = 0,
        *,
        seq: int = 0,
        apart: tuple[bytes, str] | None = None,
        status: int = 200,
    ) -> Answer:
        """Queue an event, by default the one after the last that was noted, and return its answer."""
        number = seq or self._live.seq + 1
        at = time.time_ns() // 1000
        self._committer.put(Fresh(number, facts.kind, name, t, body, at, facts, begun, apart))
        return Answer(status, body, number)

    def _plan(self) -> None:
        """Adopt the plan that was made meanwhile, or refuse it; without any, draft one if it is due."""
        live, planner = self._live, self._planner
        draft = live.agent.drafted
        if draft is None:
            if not planner.is_due(live.completed, live.drafted):
                return
            with self._whole():
                draft = live.begin_draft()
                facts = events.Drafted(counts=draft.digest)
                answer = self._queued(facts, encode(facts))
                live.note(answer.seq, None, None, facts, answer.body)
        try:
            if planner.inline:
                draft.make()
            elif not planner.is_made(draft):
                return
        except CharyError as problem:
            # Episodes go on under the last plan that nothing contradicts.
            self._happened(events.PlanRefused(counts=draft.digest, reason=str(problem)))
            self._tally["plans_refused"] += 1
            _log.error("plan refused", extra={"fields": {"reason": str(problem)}})
            return
        reached("before-adopt")
        self._happened(events.Adopted(counts=draft.digest))
        reached("after-adopt")

    # Finding what a request is about.
    def _named(self, episode: object) -> str:
        return self._identity(self._checked(self._asking.name, episode))

    def _found(self, name: str) -> Record | None:
        """Return an episode, read from the disk where it has ended; None if there is none."""
        now = self._live.records.get(name)
        return now if now is not None else record_of(self._reader.of_episode(name))

    def _known(self, name: str) -> Record:
        now = self._found(name)
        if now is None:
            self._refuse(
                404, "unknown_episode", "The episode must have begun, got a name that was never used."
            )
        return now

    def _step(self, now: Record, t: object) -> Step:
        if type(t) is not int or not 0 <= t < len(now.steps):
            self._refuse(
                409, "wrong_step", f"'t' must be a step that was decided, got {shown(t)} of {len(now.steps)}."
            )
        return now.steps[t]

    def _outcome(
        self, state: int, t: int, action: Named, reward: float, next_state: Named, terminated: bool
    ) -> events.Observed:
        asking = self._asking
        return events.Observed(
            action=self._checked(asking.allowed, "action", state, action),
            next_state=self._checked(asking.state, "next_state", next_state),
            reward=self._checked(asking.reward, reward),
            t=t,
            terminated=self._checked(asking.truth, "terminated", terminated),
        )

    def _check_goes_on(self, now: Record, s: int) -> None:
        """Refuse a next step in a state that the last outcome did not lead to, or after the end."""
        if now.terminated or len(now.steps) == self._live.setting.horizon:
            self._refuse(409, "over", f"The episode is over after {len(now.steps)} steps; close it.")
        last = now.steps[-1].outcome if now.steps else None
        if last is not None and last.facts.next_state != s:
            self._contradiction("'state'", last.facts.next_state, s)
        if not now.steps and now.begun.facts.state != s:
            self._contradiction("'state'", now.begun.facts.state, s)

    def _check_reports(self, now: Record) -> None:
        if not self._live.is_open(now.identity):
            self._refuse(410, "ended", f"The episode must be open, got one that was {now.status}.")

    # Answers that were given before.
    def _repeated(self, kept: Kept) -> Answer:
        self._tally["repeated"] += 1
        return Answer(200, kept.body, kept.seq)

    def _again_begun(self, now: Record, s: int, eta: float | None, content: str) -> Answer:
        facts: events.Begun = now.begun.facts
        if now.erased is not None:
            self._refuse(410, "erased", "The episode must be a new one, got one that was erased.")
        apart = now.apart or self._reader.apart(now.identity)
        # The same budget said in another way is the same request: left out where it was the deployment's.
        budget = self._live.problem.spec.eta if facts.eta is None else facts.eta
        same = facts.state == s and (not facts.own if eta is None else eta == budget)
        if apart is None or not same or events.digest_apart(apart[0], content) != facts.payload:
            self._refuse(
                409, "contradiction",
                "The episode must be a new one, got a name that was used with another state, budget or "
                "payload. Names are never used again.",
            )  # fmt: skip
        return self._repeated(now.begun)

    def _again_decided(self, now: Record, t: object, s: int, fallback: int | None) -> Answer:
        if type(t) is not int or not 0 <= t < len(now.steps):
            self._wrong_step(now, t)
        step = now.steps[t]
        facts: Decided = step.decided.facts
        if step.state != s:
            self._contradiction(f"the state of step {t}", step.state, s)
        if facts.mode in INCUMBENTS:
            # Left out, it stands for the action of the incumbent that is declared.
            meant = int(self._live.incumbent[t, s]) if fallback is None else fallback
            if meant != facts.action:
                self._contradiction(f"the fallback action of step {t}", facts.action, meant)
        return self._repeated(step.decided)

    # Refusals.
    def _checked(self, check: Any, *values: Any) -> Any:
        try:
            return check(*values)
        except CharyError as problem:
            code = "invalid_action" if isinstance(problem, InvalidAction) else "invalid"
            self._refuse(422, code, str(problem))

    def _wrong_step(self, now: Record, t: object) -> NoReturn:
        if now.status != OPEN:
            self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
        self._refuse(409, "wrong_step", f"'t' must be the next step, {len(now.steps)}, got {shown(t)}.")

    def _contradiction(self, what: str, before: object, now: object) -> NoReturn:
        self._refuse(
            409,
            "contradiction",
            f"{what} must be what was reported before, {shown(before)}, got {shown(now)}.",
        )

    def _refuse_by(self, problem: CharyError) -> NoReturn:
        """Refuse what the agent refused."""
        if isinstance(problem, OutOfOrder):
            self._refuse(409, "out_of_order", str(problem))
        self._refuse(422, "invalid", str(problem))

    def _refuse(self, status: int, code: str, message: str) -> NoReturn:
        self._tally["refused"] += 1
        raise Refused(status, code, message, self.head)
