"""The engine of the decision service: one deployment, one writer, every answer durable before it leaves.

All methods are called on one thread, that of the event loop, except where they say otherwise.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, final

import chary
from chary.errors import Unwritable
from chary.service import describing, events
from chary.service.answers import Answer, Refused
from chary.service.asking import Named
from chary.service.committer import Committer
from chary.service.connection import Failed, sqlite_version
from chary.service.deployment import Deployment, open_store
from chary.service.events import encode
from chary.service.memory import settle
from chary.service.operating import Operations
from chary.service.records import OPEN
from chary.service.recovery import check_first, load
from chary.service.reporting import Reports
from chary.service.store import Reader
from chary.service.warming import warm_up

__all__ = ["Answer", "Engine", "Refused"]


@final
class Engine(Reports, Operations):
    """A deployment at work.

    Every call that changes something decides in memory, queues its events for the disk, and returns an
    `Answer`; send it only after `await engine.durable(answer.seq)`. A call that raises `Refused` has changed
    nothing; await `durable(refused.seq)` for it too. If a commit fails, the process ends with status 70.

    `open` makes one.
    """

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
        with ExitStack() as undone:
            lock = deployment.take_lock()
            undone.callback(os.close, lock)
            undone.enter_context(_writable(deployment))
            store = open_store(deployment, connection=connection, vfs=vfs)
            undone.callback(store.close)
            reader = Reader(deployment.database, engine=connection, vfs=vfs)
            undone.callback(reader.close)
            problem = check_first(deployment, reader)
            # First of all: from here on nobody else writes events.
            epoch = store.take_over(deployment.number)
            loaded = load(deployment, reader, problem)
            warm_up(problem, deployment.declaration)
            undone.pop_all()
        settle()
        committer = Committer(store, loaded.head.seq)
        engine = cls(deployment, lock, loaded.live, committer, reader)
        version = sqlite_version(connection)
        engine._happened(events.Opened(epoch=epoch, sqlite=version, version=chary.__version__))
        engine._started = {
            "version": chary.__version__, "sqlite": f"{connection} {version}", "epoch": epoch,
            "snapshot": loaded.snapshot, "replayed": loaded.tail,
            "seconds": round(time.perf_counter() - began, 3),
            "processor_seconds": round(time.process_time(), 3),
        }  # fmt: skip
        engine.wait(engine.head)
        return engine

    # What it is.
    @property
    def about(self) -> dict[str, Any]:
        """What a start should say: versions of SQLite and chary, epoch, mode, head, seconds of recovery.

        `processor_seconds` is the processor time of the whole process until then.
        """
        declared = self._deployment.declaration
        return {"name": declared.name, "mode": self.mode, "head": self.head, **self._started}

    @property
    def instance(self) -> str:
        """What tells this process apart from every other one that serves, served or will serve anything."""
        return self._deployment.instance(self.about["epoch"])

    @property
    def durable_seq(self) -> int:
        """The number of the last event on the disk."""
        return self._committer.durable

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
            "commits": committer.commits, "rows": committer.rows,
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
    def begin(
        self,
        episode: str,
        state: Named,
        *,
        eta: float | None = None,
        payload: Any = None,
        operator: bool = True,
    ) -> Answer:
        """Open an episode, 201; the same request again returns the same bytes, 200.

        Args:
            episode: A name that was never used before.
            state: Where it starts.
            eta: Its own budget, in the user's units; by default that of the deployment.
            payload: Anything JSON can express that belongs to the person; kept apart, and can be erased.
            operator: Whether the caller may give it a budget above that of the deployment.
        """
        name = self._named(episode)
        s = self._checked(self._asking.state, "state", state)
        own = self._checked(self._asking.eta, eta)
        content = self._checked(self._asking.payload, episode, payload)
        now = self._found(name)
        if now is not None:
            return self._again_begun(now, s, own, content)
        live = self._live
        most = live.budget
        if own is not None and most is not None and own > most and not operator:
            self._refuse(
                403, "scope", f"A budget above the deployment's, {most:g}, needs the scope 'operate', too."
            )
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
            eta=live.eta if own is None else own,
            own=own is not None and own != most,
            payload=events.digest_apart(salt, content),
            state=s,
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
        with self._whole():
            facts = live.decide(name, t, s, own)
            answer = self._queued(facts, encode(facts), name, t, now.begun.seq)
            live.note(answer.seq, name, t, facts, answer.body)
        self._tally["decided"] += 1
        self._tally["explored"] += facts.explored
        self._snapshots.after(live)
        return answer

    def decide_many(self, rows: Sequence[tuple[str, int, Named, Named | None]]) -> list[Answer | Refused]:
        """Decide steps (episode, t, state, fallback action) in order, each answered or refused."""
        answers: list[Answer | Refused] = []
        for episode, t, state, fallback in rows:
            try:
                answers.append(self.decide(episode, t, state, fallback_action=fallback))
            except Refused as refused:
                answers.append(refused)
        return answers

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
        return {**describing.deployment(self._live, self._deployment), **self.about}

    def finish(self) -> None:
        """Commit what is queued, write a snapshot, and give the lock back; blocks."""
        self._planner.finish()
        self._snapshots.now(self._live, last=True)
        self._snapshots.finish()
        self._snapshots.name(self._live)
        self._committer.finish()
        self._reader.close()
        os.close(self._lock)


@contextmanager
def _writable(deployment: Deployment) -> Iterator[None]:
    """Turn what SQLite refuses at the start into one sentence."""
    try:
        yield
    except Failed as problem:
        raise Unwritable(
            f"'directory' must be a deployment that can be written to, got {str(deployment.directory)!r}: "
            f"{problem}."
        ) from problem
