"""The engine of the decision service: one deployment, one writer, every answer durable before it leaves.

All methods are called on one thread, that of the event loop, except where they say otherwise.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, final

import chary
from chary.errors import CharyError, InvalidAction, OutOfOrder
from chary.service import describing, events
from chary.service.answers import Answer, Refused
from chary.service.asking import Asking, Named
from chary.service.committer import STATUS, Committer, Truncation
from chary.service.connection import sqlite_version
from chary.service.deployment import Deployment, new_store
from chary.service.events import Body, Decided, Fresh, encode
from chary.service.live import Live
from chary.service.modes import INCUMBENTS, STOPPED, check_mode
from chary.service.planning import Planner
from chary.service.points import reached
from chary.service.records import ABANDONED, OPEN, Kept, Record, record_of
from chary.service.recovery import load
from chary.service.snapshots import Snapshots
from chary.service.store import Reader
from chary.texts import shown

__all__ = ["Answer", "Engine", "Refused"]


@final
class Engine:
    """A deployment at work.

    Every call that changes something decides in memory, queues its events for the disk, and returns an
    `Answer`; send it only after `await engine.durable(answer.seq)`. A call that raises `Refused` has changed
    nothing; await `durable(refused.seq)` for it too. If a commit fails, the process ends with status 70.

    `open` makes one.
    """

    def __init__(
        self, deployment: Deployment, lock: int, live: Live, committer: Committer, reader: Reader
    ) -> None:
        self.deployment_of = deployment
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
        self._tally = dict.fromkeys(("begun", "decided", "explored", "observed", "repeated", "refused"), 0)

    @classmethod
    def open(cls, directory: str | Path, *, connection: str = "sqlite3", vfs: str | None = None) -> Engine:
        """Take the lock of a deployment, check what is on the disk, and load it.

        Args:
            directory: What `Deployment.create` made.
            connection: `sqlite3`, of the standard library, or `apsw`.
            vfs: The name of a file system of apsw's, for tests.

        Raises:
            CharyError: one sentence, where the deployment is locked, damaged, of a newer schema, another one,
                or contradicts its declaration.
        """
        began = time.perf_counter()
        deployment = Deployment.open(directory)
        lock = deployment.take_lock()
        try:
            store = new_store(deployment, connection=connection, vfs=vfs)
            reader = Reader(deployment.database, engine=connection, vfs=vfs)
            loaded = load(deployment, reader)
            epoch = store.take_over(deployment.number)
        except BaseException:
            os.close(lock)
            raise
        committer = Committer(store, loaded.head.seq)
        engine = cls(deployment, lock, loaded.live, committer, reader)
        version = sqlite_version(connection)
        engine._happened(events.Opened(epoch=epoch, sqlite=version, version=chary.__version__))
        engine._started = {
            "version": chary.__version__, "sqlite": f"{connection} {version}", "epoch": epoch,
            "snapshot": loaded.snapshot, "replayed": loaded.tail,
            "seconds": round(time.perf_counter() - began, 3),
        }  # fmt: skip
        engine.wait(engine.head)
        return engine

    # What it is.
    @property
    def about(self) -> dict[str, Any]:
        """What a start should say: versions of SQLite and chary, epoch, mode, head, seconds of recovery."""
        declared = self.deployment_of.declaration
        return {"name": declared.name, "mode": self.mode, "head": self.head, **self._started}

    @property
    def head(self) -> int:
        """The number of the last event, durable or not."""
        return self._live.seq

    @property
    def durable_seq(self) -> int:
        """The number of the last event on the disk."""
        return self._committer.durable

    @property
    def mode(self) -> str:
        """apprentice, budgeted, frozen or stopped."""
        return self._live.mode

    @property
    def open_episodes(self) -> int:
        """The number of episodes that are neither complete nor abandoned."""
        return self._live.open_episodes

    @property
    def counters(self) -> dict[str, float]:
        """Numbers for metrics, by name; those of calls count from the start of the process."""
        committer, live = self._committer, self._live
        return {
            **self._tally,
            "head": live.seq, "durable": committer.durable, "queued": committer.queued,
            "open_episodes": live.open_episodes, "completed": live.completed, "plans": live.plans,
            "plan_failures": self._planner.failures, "commits": committer.commits, "rows": committer.rows,
            "snapshots": committer.snapshots, "checkpoints": committer.checkpoints,
            "commit_seconds": describing.median(committer.seconds),
        }  # fmt: skip

    # When an answer may leave.
    async def durable(self, seq: int) -> None:
        """Return once all events up to `seq` are on the disk."""
        await self._committer.until(seq)

    def wait(self, seq: int) -> None:
        """Block until all events up to `seq` are on the disk; for callers without an event loop."""
        self._committer.wait(seq)

    # The calls of a client.
    def begin(self, episode: str, state: Named, *, eta: float | None = None, payload: Any = None) -> Answer:
        """Open an episode, 201; the same request again returns the same bytes, 200.

        Args:
            episode: A name that was never used before.
            state: Where it starts.
            eta: Its own budget, in the user's units; by default that of the deployment.
            payload: Anything JSON can express that belongs to the person; kept apart, and can be erased.
        """
        name = self._named(episode)
        s = self._checked(self._asking.state, "state", state)
        own = self._checked(self._asking.eta, eta)
        content = self._checked(self._asking.payload, episode, payload)
        now = self._found(name)
        if now is not None:
            return self._again_begun(now, s, own, content)
        live = self._live
        if live.open_episodes >= self._most_open:
            self._refuse(
                429,
                "too_many_open",
                f"No more than {self._most_open} episodes may be open at once; close some.",
            )
        self._plan()
        if len(self._salts) < 16:
            self._salts = secrets.token_bytes(4096)
        salt, self._salts = self._salts[:16], self._salts[16:]
        facts = events.Begun(
            eta=live.eta if own is None else own, payload=events.digest_apart(salt, content), state=s
        )
        answer = self._happened(facts, name, apart=(salt, content), status=201)
        self._tally["begun"] += 1
        return answer

    def decide(self, episode: str, t: int, state: Named, *, fallback_action: Named | None = None) -> Answer:
        """Decide step `t` of an episode, 200.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the same bytes are returned.
            state: The state it is in.
            fallback_action: What the people in charge would do; where the incumbent decides (modes apprentice
                and stopped), it is the action of the answer.
        """
        name = self._identity(episode) if type(episode) is str else self._named(episode)
        live = self._live
        now = live.records.get(name) or self._known(name)
        s = self._checked(self._asking.state, "state", state)
        own = None
        if fallback_action is not None:
            own = self._checked(self._asking.allowed, "fallback_action", s, fallback_action)
        steps = now.steps
        if t != len(steps) or type(t) is not int:
            return self._again_decided(now, t, s, own)
        if now.status != OPEN:
            self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
        self._check_goes_on(now, s)
        try:
            facts = live.decide(name, t, s, own)
        except CharyError as problem:
            self._refuse_by(problem)
        answer = self._queued(facts, encode(facts), name, t, now.begun.seq)
        live.note(answer.seq, name, t, facts, answer.body)
        self._tally["decided"] += 1
        self._tally["explored"] += facts.explored
        self._snapshots.after(live)
        return answer

    def decide_many(self, rows: Sequence[tuple[str, int, Named]]) -> list[Answer | Refused]:
        """Decide the steps of several episodes, in order: each row an answer or why it was refused."""
        answers: list[Answer | Refused] = []
        for episode, t, state in rows:
            try:
                answers.append(self.decide(episode, t, state))
            except Refused as refused:
                answers.append(refused)
        return answers

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
        last = now.corrections.get(t)
        if last is not None and last.facts == facts:
            return self._repeated(last)
        return self._happened(facts, name, t, begun=now.begun.seq)

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
        `terminated`. A step that is refused leaves those before it noted; the same request goes on there.
        """
        name = self._named(episode)
        self._known(name)
        told = self._checked(self._asking.fallbacks, steps)
        seq = self.head
        for t, state, action, outcome in told:
            now = self._known(name)
            if t < len(now.steps):
                played = now.steps[t]
                if (played.state, played.action) != (state, action):
                    self._contradiction(f"step {t}", (played.state, played.action), (state, action))
            else:
                if t > len(now.steps):
                    self._wrong_step(now, t)
                if now.status != OPEN:
                    self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
                self._check_goes_on(now, state)
                self._happened(self._live.played_alone(name, t, state, action), name, t)
            if outcome is not None:
                self.outcome(episode, t, action, *outcome)
            seq = self.head
        return Answer(200, encode({"steps": [step[0] for step in told]}), seq)

    # The calls of an operator.
    def set_mode(self, mode: str, *, author: str, reason: str) -> Answer:
        """Change the mode, from the next decision on."""
        wanted = self._checked(check_mode, mode)
        facts = events.ModeSet(
            author=self._checked(self._asking.author, author),
            before=self.mode,
            mode=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        last = self._live.policy.get("mode")
        if last is not None and last.facts.mode == wanted:
            same = (last.facts.author, last.facts.reason) == (facts.author, facts.reason)
            if same:
                return self._repeated(last)
        return self._happened(facts)

    def stop(self, *, author: str, reason: str) -> Answer:
        """Stop: from now on the incumbent alone decides."""
        return self.set_mode(STOPPED, author=author, reason=reason)

    def set_eta(self, eta: float, *, author: str, reason: str) -> Answer:
        """Change the budget of episodes that begin later."""
        wanted = self._checked(self._asking.eta, eta)
        if wanted is None:
            self._refuse(422, "invalid", "'eta' must be a number, got nothing.")
        facts = events.EtaSet(
            author=self._checked(self._asking.author, author),
            before=self._live.eta,
            eta=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        last = self._live.policy.get("eta")
        if last is not None and (last.facts.eta, last.facts.author, last.facts.reason) == (
            wanted, facts.author, facts.reason
        ):  # fmt: skip
            return self._repeated(last)
        return self._happened(facts)

    def tighten(self, episode: str, eta: float, *, author: str, reason: str) -> Answer:
        """Lower the budget of an open episode."""
        name = self._named(episode)
        now = self._known(name)
        wanted = self._checked(self._asking.eta, eta)
        if wanted is None:
            self._refuse(422, "invalid", "'eta' must be a number, got nothing.")
        facts = events.Tightened(
            author=self._checked(self._asking.author, author),
            eta=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        if now.tightened is not None and now.tightened.facts == facts:
            return self._repeated(now.tightened)
        if now.status != OPEN:
            self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
        return self._happened(facts, name)

    def erase(self, episode: str, *, author: str, reason: str) -> Answer:
        """Erase the name of an episode and what came with it; the chain of events stays whole."""
        name = self._named(episode)
        now = self._known(name)
        if now.erased is not None:
            return self._repeated(now.erased)
        facts = events.Erased(
            author=self._checked(self._asking.author, author),
            reason=self._checked(self._asking.text, "reason", reason),
        )
        answer = self._happened(facts, name, begun=now.begun.seq)
        # Without this, what was erased could still be read in the write-ahead log.
        self._committer.besides(Truncation(answer.seq))
        return answer

    # Tokens: this module keeps their hashes; `tokens.py` makes and checks them.
    def add_token(
        self, token: str, digest: str, *, scopes: Sequence[str], label: str, expires: str | None, author: str
    ) -> Answer:
        """Keep a token: its id and the sha256 of its secret."""
        if token in self._live.tokens:
            self._refuse(409, "contradiction", f"'token' must be new, got {shown(token)}.")
        facts = events.TokenAdded(
            author=author, digest=digest, expires=expires, label=label, scopes=tuple(scopes), token=token
        )
        return self._happened(facts, status=201)

    def revoke_token(self, token: str, *, author: str, reason: str) -> Answer:
        """Revoke a token."""
        if token not in self._live.tokens:
            self._refuse(404, "unknown_token", f"'token' must be one in use, got {shown(token)}.")
        return self._happened(events.TokenRevoked(author=author, reason=reason, token=token))

    @property
    def tokens(self) -> Mapping[str, Mapping[str, Any]]:
        """The tokens that are not revoked, by id: digest, scopes, label, created, expires."""
        return self._live.tokens

    # Views from memory; the others are in `views.Views`, with connections of their own.
    def explanation(self, episode: str, t: int) -> dict[str, Any] | None:
        """Return values and charges of all actions at a step of an open episode; None where it has ended."""
        now = self._live.records.get(self._named(episode))
        if now is None or type(t) is not int or not 0 <= t < len(now.steps):
            return None
        return describing.explanation(self._live, now.identity, t, now.steps[t].state)

    def baseline(self) -> dict[str, Any]:
        """Return the table that a client plays when the service is away: {"actions": (H, S), "plan": n}."""
        return describing.baseline(self._live)

    def deployment(self) -> dict[str, Any]:
        """Return what this deployment is: setting, agent, standing, budget, mode, versions."""
        return {**describing.deployment(self._live, self.deployment_of), **self.about}

    def finish(self) -> None:
        """Commit what is queued, write a snapshot, and give the lock back; blocks."""
        self._planner.finish()
        if self._live.draft is None:
            self._snapshots.now(self._live)
        self._snapshots.finish()
        self._committer.finish()
        self._reader.close()
        os.close(self._lock)

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
        try:
            live.apply(seq, name, t, facts, body)
        except CharyError as problem:
            self._refuse_by(problem)
        if begun is None:
            begun = 0 if name is None else live.records[name].begun.seq
        answer = self._queued(facts, body, name, t, begun, seq=seq, apart=apart, status=status)
        live.prune(self._committer.durable)
        self._snapshots.after(live)
        return answer

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
        """Adopt the plan that was made meanwhile, or draft one if it is due."""
        live, planner = self._live, self._planner
        if live.draft is None:
            if not planner.is_due(live.completed, live.drafted):
                return
            draft = live.begin_draft()
            self._noted(events.Drafted(counts=draft.digest))
            if not planner.inline:
                planner.start(draft)
                return
            draft.make()
        elif not planner.is_made(live.draft):
            return
        draft = live.draft
        assert draft is not None
        reached("before-adopt")
        self._happened(events.Adopted(counts=draft.digest))
        reached("after-adopt")

    def _noted(self, facts: Body) -> None:
        """Queue an event that has taken effect already."""
        answer = self._queued(facts, encode(facts))
        self._live.note(answer.seq, None, None, facts, answer.body)

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

    def _step(self, now: Record, t: object) -> Any:
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
        same = facts.state == s and (eta is None or facts.eta == eta)
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
        if fallback is not None and facts.mode in INCUMBENTS and fallback != facts.action:
            self._contradiction(f"the fallback action of step {t}", facts.action, fallback)
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
        if self._live.agent.poisoned:
            os.write(2, b"chary serve: a change of the agent was interrupted halfway; the process ends.\n")
            os._exit(STATUS)
        if isinstance(problem, OutOfOrder):
            self._refuse(409, "out_of_order", str(problem))
        self._refuse(422, "invalid", str(problem))

    def _refuse(self, status: int, code: str, message: str) -> NoReturn:
        self._tally["refused"] += 1
        raise Refused(status, code, message, self.head)
