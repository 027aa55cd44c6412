"""The engine of the decision service: one deployment, one writer, every answer durable before it leaves.

All methods are called on one thread, that of the event loop, except where they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from chary.service.answers import Answer, Refused

__all__ = ["Answer", "Engine", "Refused"]

# A state or an action as requests name it: its number, or the label that the setting declares.
Named = int | str


@final
class Engine:
    """A deployment at work.

    Every call that changes something decides in memory, queues its events for the disk, and returns an
    `Answer`; send it only after `await engine.durable(answer.seq)`. A call that raises `Refused` has changed
    nothing; await `durable(refused.seq)` for it too. If a commit fails, the process ends with status 70.

    Example:
        engine = Engine.open("clinic")
        answer = engine.begin("bed 7", state=0)
        engine.wait(answer.seq)
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
        raise NotImplementedError

    # What it is.
    @property
    def about(self) -> dict[str, Any]:
        """What a start should say: versions of SQLite and chary, epoch, mode, head, seconds of recovery."""
        raise NotImplementedError

    @property
    def head(self) -> int:
        """The number of the last event, durable or not."""
        raise NotImplementedError

    @property
    def durable_seq(self) -> int:
        """The number of the last event on the disk."""
        raise NotImplementedError

    @property
    def mode(self) -> str:
        """apprentice, budgeted, frozen or stopped."""
        raise NotImplementedError

    @property
    def open_episodes(self) -> int:
        """The number of episodes that are neither complete nor abandoned."""
        raise NotImplementedError

    @property
    def counters(self) -> dict[str, float]:
        """Numbers for metrics, by name: events, decisions, explored, commits, rows, plans, snapshots, ..."""
        raise NotImplementedError

    # When an answer may leave.
    async def durable(self, seq: int) -> None:
        """Return once all events up to `seq` are on the disk."""
        raise NotImplementedError

    def wait(self, seq: int) -> None:
        """Block until all events up to `seq` are on the disk; for callers without an event loop."""
        raise NotImplementedError

    # The calls of a client.
    def begin(
        self, episode: str, state: Named, *, eta: float | None = None, payload: Any = None
    ) -> Answer:
        """Open an episode, 201; the same request again returns the same bytes, 200.

        Args:
            episode: A name that was never used before.
            state: Where it starts.
            eta: Its own budget, in the user's units; by default that of the deployment.
            payload: Anything JSON can express that belongs to the person; kept apart, and can be erased.
        """
        raise NotImplementedError

    def decide(
        self, episode: str, t: int, state: Named, *, fallback_action: Named | None = None
    ) -> Answer:
        """Decide step `t` of an episode, 200.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the same bytes are returned.
            state: The state it is in.
            fallback_action: What the people in charge would do; where the incumbent decides (modes apprentice
                and stopped), it is the action of the answer.
        """
        raise NotImplementedError

    def decide_many(self, rows: Sequence[tuple[str, int, Named]]) -> list[Answer | Refused]:
        """Decide the steps of several episodes, in order: each row an answer or why it was refused."""
        raise NotImplementedError

    def taken(self, episode: str, t: int, action: Named | None) -> Answer:
        """Note what was really played at a decided step; None if nothing is known to have been played."""
        raise NotImplementedError

    def outcome(
        self, episode: str, t: int, action: Named, reward: float, next_state: Named, terminated: bool
    ) -> Answer:
        """Note what a decided step led to, in any order; the same outcome again is the same answer."""
        raise NotImplementedError

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
        raise NotImplementedError

    def close(self, episode: str) -> Answer:
        """Take no more decisions in an episode; outcomes may still come."""
        raise NotImplementedError

    def abandon(self, episode: str, *, reason: str = "") -> Answer:
        """Give an episode up: its missing outcomes are lost."""
        raise NotImplementedError

    def fallback(self, episode: str, steps: Sequence[Mapping[str, Any]]) -> Answer:
        """Note the steps that a client played by the cached baseline while the service was away.

        Each step has `t`, `state`, `action` and, where they are known, `reward`, `next_state` and
        `terminated`.
        """
        raise NotImplementedError

    # The calls of an operator.
    def set_mode(self, mode: str, *, author: str, reason: str) -> Answer:
        """Change the mode, from the next decision on."""
        raise NotImplementedError

    def stop(self, *, author: str, reason: str) -> Answer:
        """Stop: from now on the incumbent alone decides."""
        raise NotImplementedError

    def set_eta(self, eta: float, *, author: str, reason: str) -> Answer:
        """Change the budget of episodes that begin later."""
        raise NotImplementedError

    def tighten(self, episode: str, eta: float, *, author: str, reason: str) -> Answer:
        """Lower the budget of an open episode."""
        raise NotImplementedError

    def erase(self, episode: str, *, author: str, reason: str) -> Answer:
        """Erase the name and the payload of an episode that has ended; the chain of events stays whole."""
        raise NotImplementedError

    # Tokens: this module keeps their hashes; `tokens.py` makes and checks them.
    def add_token(
        self, token: str, digest: str, *, scopes: Sequence[str], label: str, expires: str | None, author: str
    ) -> Answer:
        """Keep a token: its id and the sha256 of its secret."""
        raise NotImplementedError

    def revoke_token(self, token: str, *, author: str, reason: str) -> Answer:
        """Revoke a token."""
        raise NotImplementedError

    @property
    def tokens(self) -> Mapping[str, Mapping[str, Any]]:
        """The tokens that are not revoked, by id: digest, scopes, label, created, expires."""
        raise NotImplementedError

    # Views from memory; the others are in `views.Views`, with connections of their own.
    def explanation(self, episode: str, t: int) -> dict[str, Any] | None:
        """Return values and charges of all actions at a step of an open episode; None where it has ended."""
        raise NotImplementedError

    def baseline(self) -> dict[str, Any]:
        """Return the table that a client plays when the service is away: {"actions": (H, S), "plan": n}."""
        raise NotImplementedError

    def deployment(self) -> dict[str, Any]:
        """Return what this deployment is: setting, agent, standing, budget, mode, versions."""
        raise NotImplementedError

    def finish(self) -> None:
        """Commit what is queued, write a snapshot, and give the lock back; blocks."""
        raise NotImplementedError
