"""All that a running deployment knows: the agent, who decides, the budget, the tokens and the open episodes.

It changes by events alone. The engine and the replay call the same `apply`, except that the engine's agent
decides (`decide`) where the replay's takes a decision as it was made. So both end with the same bytes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._saving import record, restored
from chary.agents.draft import Draft
from chary.agents.protocol import Transition
from chary.agents.tabular import TabularAgent
from chary.arrays import Ints
from chary.errors import InvalidData, OutOfOrder
from chary.service.declaring import Declaration, Problem
from chary.service.events import INFINITY, Body, Decided, Recommended, as_decided, as_decision, decoded
from chary.service.modes import APPRENTICE, BUDGETED, FALLBACK, FROZEN, INCUMBENTS, STOPPED
from chary.service.records import ABANDONED, CLOSED, Kept, Record
from chary.shield import Decision
from chary.shield.decision import room
from chary.standing import UNCONFOUNDED, Standing
from chary.storage.sealed import pack, unpack

# The kind of a sealed file with a snapshot in it.
SNAPSHOT = "service"


@final
class Live:
    """The state of a deployment after the events up to `seq`.

    Args:
        problem: What was declared.
        agent: The agent, new or of a snapshot.
        mode: Who decides.
    """

    def __init__(self, problem: Problem, agent: TabularAgent, mode: str) -> None:
        self.problem = problem
        self.agent = agent
        self.setting = problem.setting
        self.mode = mode
        self.eta: float | None = None
        # The events that set mode and budget last.
        self.policy: dict[str, Kept] = {}
        self.seq = 0
        self.incumbent: Ints = agent.frozen_baseline if problem.incumbent is None else problem.incumbent
        self.records: dict[str, Record] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        # Episodes that the agent has finished with, and the event of that; see `prune`.
        self._ended: deque[tuple[int, str]] = deque()
        self.completed = self.drafted = self.plans = 0
        # Whether people chose actions that were learnt from: they may have seen more than the state.
        self.people = False

    @classmethod
    def new(cls, declaration: Declaration) -> Live:
        """Return the state before the first event: the agent has learnt from the declared log."""
        problem = declaration.problem()
        agent = new_agent(problem, declaration)
        return cls(problem, agent, declaration.mode)

    def decide(self, identity: str, t: int, s: int, fallback: int | None) -> Decided:
        """Make the decision of a step and return it; records are left to `note`.

        Raises:
            CharyError: if the agent refuses; nothing has changed then.
        """
        mode, recommended, requested = self.mode, None, False
        if mode == BUDGETED:
            decision = self.agent.act(identity, t, s)
        elif mode == FROZEN:
            decision = self.agent.act(identity, t, s, explore=False)
        else:
            requested = fallback is not None
            action = int(self.incumbent[t, s]) if fallback is None else fallback
            if mode != STOPPED:
                recommended = self._recommended(identity, t, s)
            decision = self._incumbents(identity, action)
            self.agent.apply(identity, t, s, decision, explore=False)
        label = self._label(decision.action)
        return as_decided(decision, t, s, mode, label=label, recommended=recommended, requested=requested)

    def played_alone(self, identity: str, t: int, s: int, action: int) -> Decided:
        """Return the decision of a step that a client played by itself; nothing changes before `apply`."""
        made = self._incumbents(identity, action)
        return as_decided(made, t, s, FALLBACK, label=self._label(action), requested=True)

    def apply(self, seq: int, identity: str | None, t: int | None, facts: Body, body: bytes) -> None:
        """Take an event as it happened: the agent first, which may refuse it, and then the records.

        Raises:
            CharyError: if the agent refuses; nothing has changed then.
        """
        kind = facts.kind
        f: Any = facts
        agent = self.agent
        if kind == "decided":
            assert identity is not None
            agent.apply(identity, f.t, f.state, as_decision(f), explore=f.mode == BUDGETED)
        elif kind == "observed":
            assert identity is not None
            state = self.records[identity].steps[f.t].state
            outcome = Transition(state, f.action, f.reward, f.next_state, f.terminated)
            agent.observe(identity, outcome, t=f.t, taken=f.action)
        elif kind == "taken":
            assert identity is not None
            agent.taken(identity, f.t, f.action)
        elif kind == "begun":
            assert identity is not None
            agent.begin(identity, f.state, eta=f.eta)
        elif kind == "closed":
            assert identity is not None
            agent.finish(identity)
        elif kind == "abandoned":
            assert identity is not None
            agent.abandon(identity)
        elif kind == "tightened":
            assert identity is not None
            agent.tighten(identity, f.eta)
        else:
            self._apply_to_all(f, seq, body)
        self.note(seq, identity, t, facts, body)

    def note(self, seq: int, identity: str | None, t: int | None, facts: Body, body: bytes) -> None:
        """Note an event that the agent has taken in already."""
        self.seq = seq
        if identity is None:
            return
        kept = Kept(seq, body, facts)
        kind = facts.kind
        if kind == "decided" and not self.people:
            f: Any = facts
            # What a client played by itself is its word: whether the table said so cannot be checked.
            theirs = f.mode == FALLBACK or f.mode in INCUMBENTS
            self.people = theirs and f.action != int(self.incumbent[f.t, f.state])
        if kind == "begun":
            self.records[identity] = Record(identity, kept)
            return
        now = self.records.get(identity)
        if now is None:
            # A correction or an erasure of an episode that has ended.
            return
        now.take(kept, t)
        # A step that was not taken may have been the last that an episode waited for.
        if kind in ("observed", "taken", CLOSED, ABANDONED):
            if now.status != "open" and not self.is_open(identity):
                self.completed += 1
                self._ended.append((seq, identity))

    def _apply_to_all(self, f: Any, seq: int, body: bytes) -> None:
        """Take an event that belongs to no episode."""
        kind = f.kind
        if kind in ("mode", "eta"):
            self._set_policy(Kept(seq, body, f))
        elif kind == "drafted":
            draft = self.begin_draft()
            if draft.digest != f.counts:
                raise InvalidData(
                    f"'counts' must be the hash of what was learnt, {draft.digest}, got {f.counts}."
                )
        elif kind in ("adopted", "plan_refused"):
            latest = self.agent.drafted
            if latest is None or latest.digest != f.counts:
                raise InvalidData(f"'counts' must be those of the last draft, got {f.counts}.")
            if kind == "adopted":
                self.agent.adopt(latest)
                self.plans += 1
            else:
                self.agent.discard(latest)
        elif kind == "token_added":
            self.tokens[f.token] = {
                "digest": f.digest, "scopes": f.scopes, "label": f.label, "expires": f.expires,
            }  # fmt: skip
        elif kind == "token_revoked":
            self.tokens.pop(f.token, None)

    def _set_policy(self, kept: Kept) -> None:
        self.policy[kept.facts.kind] = kept
        if kept.facts.kind == "mode":
            self.mode = kept.facts.mode
        else:
            self.eta = kept.facts.eta

    def begin_draft(self) -> Draft:
        """Draft a plan from the counts of this moment, and return it."""
        self.drafted = self.completed
        return self.agent.draft()

    @property
    def budget(self) -> float | None:
        """The budget of episodes that begin now and are given none of their own."""
        return self.problem.spec.eta if self.eta is None else self.eta

    def check_eta(self, eta: float) -> None:
        """Check that episodes may have this budget.

        Raises:
            CharyError: if the agent's rule takes no other budget than its own, or it was calibrated for less.
        """
        self.agent._limit(eta)

    def prune(self, durable: int) -> None:
        """Forget the episodes that have ended and are on the disk."""
        ended = self._ended
        while ended and ended[0][0] <= durable:
            _, identity = ended.popleft()
            last = self.records[identity].last
            if last <= durable:
                del self.records[identity]
            else:
                # It was corrected, or erased, since it ended.
                ended.append((last, identity))

    def recall(self, now: Record) -> None:
        """Keep an episode that has ended, and was read from the disk, until its next event is there too."""
        if now.identity not in self.records:
            self.records[now.identity] = now
            self._ended.append((self.seq + 1, now.identity))

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise; where people chose actions, it leans on their choices too."""
        standing = self.agent.standing
        if not self.people or UNCONFOUNDED in standing.given:
            return standing
        return replace(standing, given=(*standing.given, UNCONFOUNDED))

    def is_open(self, identity: str) -> bool:
        """Return whether the agent still waits for something in this episode."""
        try:
            self.agent.plan_of(identity)
        except OutOfOrder:
            return False
        return True

    @property
    def open_episodes(self) -> int:
        """The number of episodes that are neither complete nor abandoned."""
        return len(self.records) - len(self._ended)

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all of it as arrays that nothing changes any more, and as plain values."""
        arrays, about = record(self.agent, self.agent._discretiser)
        own = {
            "agent": about,
            "seq": self.seq,
            "policy": [[kind, kept.seq, kept.body.decode()] for kind, kept in sorted(self.policy.items())],
            "tokens": {
                token: {**values, "scopes": list(values["scopes"])} for token, values in self.tokens.items()
            },
            "counters": [self.completed, self.drafted, self.plans],
            "people": self.people,
        }
        return {name: np.array(array) for name, array in arrays.items()}, own

    def packed(self) -> bytes:
        """Return all of it as the bytes of a snapshot."""
        return pack(SNAPSHOT, *self.arrays())

    @classmethod
    def unpacked(cls, content: bytes, problem: Problem) -> Live:
        """Return the state that `packed` returned the bytes of; the records of episodes are not part of it.

        Raises:
            CharyError: or what malformed values lead to, if it is not one.
        """
        about, arrays = unpack(SNAPSHOT, content)
        live = cls(problem, restored(about["agent"], arrays), APPRENTICE)
        live.seq = int(about["seq"])
        for kind, seq, body in about["policy"]:
            live._set_policy(Kept(int(seq), body.encode(), decoded(kind, body, seq)))
        live.tokens = {
            token: {**values, "scopes": tuple(values["scopes"])} for token, values in about["tokens"].items()
        }
        live.completed, live.drafted, live.plans = map(int, about["counters"])
        live.people = bool(about["people"])
        return live

    def _label(self, action: int) -> str:
        return self.problem.actions[action] if self.problem.actions else ""

    def _incumbents(self, identity: str, action: int) -> Decision:
        """Return the decision that plays an action in the incumbent's name: nothing is booked."""
        agent = self.agent
        now = agent._episodes.named("act", identity)
        if agent.shield is None:
            return Decision(action, False, 0.0, 0.0, INFINITY, now.pinned.number, -1)
        spent = agent.shield.ledger(identity).deficit
        left = room(agent._rule_at(now, now.t), spent)
        span = self.setting.scale.span
        return Decision(action, False, 0.0, spent, left, now.pinned.number, -1, span=span)

    def _recommended(self, identity: str, t: int, s: int) -> Recommended:
        """Return what mode budgeted would do at a step; nothing changes."""
        told = self.agent.recommend(identity, t, s)
        return Recommended(
            action=told.action, charge=told.charge, explored=told.explored, label=self._label(told.action)
        )


def new_agent(problem: Problem, declaration: Declaration) -> TabularAgent:
    """Return the agent of a deployment before its first episode, with the declared log learnt."""
    given = declaration.agent
    besides = {
        name: given[name] for name in ("losses", "overrides", "max_episodes", "warmup") if name in given
    }
    agent = TabularAgent(
        problem.spec,
        problem.setting,
        own=problem.own,
        generator=np.random.default_rng(declaration.seed),
        replan="adopt",
        **besides,
    )
    if problem.log is not None:
        agent.warm_start(problem.log.episodes())
    return agent


def table_digest(table: Ints) -> str:
    """Return a hash of a policy."""
    return hashlib.sha256(np.ascontiguousarray(table, dtype=np.int64).tobytes()).hexdigest()
