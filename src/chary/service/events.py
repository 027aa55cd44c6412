"""Events, the durable facts of a deployment: their kinds, their bodies as canonical JSON, and their hashes.

A body has its keys in ascending order, floats in their shortest form, and no spaces. What a reply says and
what the trail says are the same bytes: a body is what the client was sent.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, NamedTuple

import msgspec

from chary.errors import InvalidData
from chary.shield import Decision
from chary.shield.worlds import Vote
from chary.texts import shown

SCHEMA = 1
# The hash before the first event.
NOTHING = bytes(32)
INFINITY = float("inf")

# Fields are in ascending order, so that encoding in the order of definition is canonical.
encode = msgspec.json.Encoder().encode


class Body(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """The body of an event; `kind` is the column of that name."""

    kind: ClassVar[str] = ""


class Deployed(Body, frozen=True, kw_only=True):
    """The first event: what the deployment is."""

    kind: ClassVar[str] = "deployed"

    declaration: str
    deployment: str
    incumbent: str
    log: str = ""
    name: str
    problem: str
    version: str


class Opened(Body, frozen=True, kw_only=True):
    """A process took the deployment over."""

    kind: ClassVar[str] = "opened"

    epoch: int
    sqlite: str
    version: str


class Begun(Body, frozen=True, kw_only=True):
    """An episode began; `payload` is the sha256 of its salt, its name and what came with it.

    `own` says that the request gave it another budget than the deployment's at that time.
    """

    kind: ClassVar[str] = "begun"

    eta: float | None = None
    own: bool = False
    payload: str
    state: int


class Recommended(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What mode budgeted would have done at a step that the incumbent decided."""

    action: int
    charge: float
    explored: bool
    label: str = ""


class Decided(Body, frozen=True, kw_only=True):
    """A decision; `remaining` is null without a budget, `scaled` is left out where a unit is one.

    `requested` says that the action is that of the request and not that of the declared incumbent. `vote` is
    that of the worlds: afforded, within, of how many, deficit, and the worst deficit.
    """

    kind: ClassVar[str] = "decided"

    action: int
    chain: int = -1
    charge: float
    deficit: float
    explored: bool
    label: str = ""
    mode: str
    plan: int
    recommended: Recommended | None = None
    remaining: float | None
    requested: bool = False
    scaled: tuple[float, float, float | None] | None = None
    span: float | None = None
    state: int
    t: int
    vote: tuple[bool, int, int, float | None, float | None] | None = None


class Taken(Body, frozen=True, kw_only=True):
    """What was really played at a step; null where nothing is known to have been."""

    kind: ClassVar[str] = "taken"

    action: int | None
    t: int


class Observed(Body, frozen=True, kw_only=True):
    """What a step led to."""

    kind: ClassVar[str] = "observed"

    action: int
    next_state: int
    reward: float
    t: int
    terminated: bool


class FallbacksNoted(msgspec.Struct, frozen=True):
    """The answer to a report of steps that a client played by itself; each of them is an event."""

    steps: tuple[int, ...]


class Corrected(Body, frozen=True, kw_only=True):
    """What a step led to in truth, where it was reported wrongly; `learnt` is what the agent goes on with."""

    kind: ClassVar[str] = "corrected"

    action: int
    learnt: str = "as first reported"
    next_state: int
    reason: str
    reward: float
    t: int
    terminated: bool


class Closed(Body, frozen=True, kw_only=True):
    """No more decisions are taken in an episode."""

    kind: ClassVar[str] = "closed"

    steps: int


class Abandoned(Body, frozen=True, kw_only=True):
    """An episode was given up; `lost` are the steps whose outcomes were missing."""

    kind: ClassVar[str] = "abandoned"

    lost: tuple[int, ...]
    reason: str


class ModeSet(Body, frozen=True, kw_only=True):
    """The mode changed."""

    kind: ClassVar[str] = "mode"

    author: str
    before: str
    mode: str
    reason: str


class EtaSet(Body, frozen=True, kw_only=True):
    """The budget of episodes that begin later changed; null stands for none."""

    kind: ClassVar[str] = "eta"

    author: str
    before: float | None
    eta: float
    reason: str


class Tightened(Body, frozen=True, kw_only=True):
    """The budget of an open episode was lowered."""

    kind: ClassVar[str] = "tightened"

    author: str
    eta: float
    reason: str


class Erased(Body, frozen=True, kw_only=True):
    """The name of an episode and what came with it were erased."""

    kind: ClassVar[str] = "erased"

    author: str
    reason: str


class Drafted(Body, frozen=True, kw_only=True):
    """A plan is being made of the counts of this moment, whose hash is `counts`."""

    kind: ClassVar[str] = "drafted"

    counts: str


class Adopted(Body, frozen=True, kw_only=True):
    """The plan that was drafted last is in force for episodes that begin later."""

    kind: ClassVar[str] = "adopted"

    counts: str


class PlanRefused(Body, frozen=True, kw_only=True):
    """The plan that was drafted last contradicts what was declared: the one before stays in force."""

    kind: ClassVar[str] = "plan_refused"

    counts: str
    reason: str


class Snapshotted(Body, frozen=True, kw_only=True):
    """A snapshot of the state after event `upto` was packed; `digest` is its sha256.

    It is in the chain before the snapshot is on the disk, and a snapshot that it does not name is not used.
    """

    kind: ClassVar[str] = "snapshot"

    digest: str
    upto: int


class TokenAdded(Body, frozen=True, kw_only=True):
    """A token was made; `digest` is the sha256 of its secret, which is not kept."""

    kind: ClassVar[str] = "token_added"

    author: str
    digest: str
    expires: str | None
    label: str
    scopes: tuple[str, ...]
    token: str


class TokenRevoked(Body, frozen=True, kw_only=True):
    """A token was revoked."""

    kind: ClassVar[str] = "token_revoked"

    author: str
    reason: str
    token: str


KINDS: dict[str, type[Body]] = {
    body.kind: body
    for body in (
        *(Deployed, Opened, Begun, Decided, Taken, Observed, Corrected, Closed, Abandoned),
        *(ModeSet, EtaSet, Tightened, Erased, Drafted, Adopted, PlanRefused),
        *(Snapshotted, TokenAdded, TokenRevoked),
    )
}
_DECODERS = {kind: msgspec.json.Decoder(body).decode for kind, body in KINDS.items()}


class Event(NamedTuple):
    """One event as it is kept; `at` is in microseconds since 1970, `episode` a keyed hash of the name."""

    seq: int
    kind: str
    schema: int
    episode: str | None
    t: int | None
    body: str
    prev: bytes
    hash: bytes
    at: int
    epoch: int

    def facts(self) -> Any:
        """Return the body, checked.

        Raises:
            InvalidData: if it is not of its kind.
        """
        return decoded(self.kind, self.body, self.seq)


class Fresh(NamedTuple):
    """An event on its way to the disk, and the rows that go with it: a salt and a text to be kept apart."""

    seq: int
    kind: str
    episode: str | None
    t: int | None
    body: bytes
    at: int
    facts: Body
    begun: int = 0
    apart: tuple[bytes, str] | None = None


def decoded(kind: str, body: str | bytes, seq: int) -> Any:
    """Return the body of event `seq`, checked.

    Raises:
        InvalidData: if there is no such kind, or it is not of that kind.
    """
    try:
        return _DECODERS[kind](body)
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise InvalidData(
            f"event {seq} must have a body of a known kind, got kind {shown(kind)}: {problem}."
        ) from problem


def hash_of(
    prev: bytes,
    seq: int,
    kind: str,
    episode: str | None,
    t: int | None,
    body: bytes,
    at: int,
    epoch: int,
    schema: int = SCHEMA,
) -> bytes:
    """Return the hash of an event: sha256 of the hash before, the other columns as JSON, and the body."""
    total = hashlib.sha256(prev)
    total.update(encode((seq, kind, schema, episode, t, at, epoch)))
    total.update(b"\n")
    total.update(body)
    return total.digest()


def digest_apart(salt: bytes, content: str) -> str:
    """Return the hash by which an event refers to a text that is kept apart."""
    return hashlib.sha256(salt + content.encode("utf-8", "surrogatepass")).hexdigest()


def is_intact(event: Event, prev: bytes) -> bool:
    """Return whether an event follows the hash `prev` and has the hash that its columns give."""
    if not (type(event.body) is str and type(event.prev) is type(event.hash) is bytes):
        # A changed byte in the file can turn a text into bytes and bytes into a text.
        return False
    given = hash_of(
        event.prev, event.seq, event.kind, event.episode, event.t,
        event.body.encode("utf-8", "surrogatepass"), event.at, event.epoch, event.schema,
    )  # fmt: skip
    return event.prev == prev and event.hash == given


def as_decided(
    decision: Decision,
    t: int,
    state: int,
    mode: str,
    *,
    label: str = "",
    recommended: Recommended | None = None,
    requested: bool = False,
) -> Decided:
    """Return a decision as an event's body."""
    charge, deficit, remaining = (
        decision.charge_scaled, decision.deficit_scaled, decision.remaining_scaled,
    )  # fmt: skip
    span, vote = decision.span, decision.vote
    finite = remaining if remaining < INFINITY else None
    scaled = None if span == 1.0 else (charge, deficit, finite)
    return Decided(
        action=decision.action,
        chain=decision.chain,
        charge=charge * span,
        deficit=deficit * span,
        explored=decision.explored,
        label=label,
        mode=mode,
        plan=decision.plan,
        recommended=recommended,
        remaining=None if finite is None else finite * span,
        requested=requested,
        scaled=scaled,
        span=None if span == 1.0 else span,
        state=state,
        t=t,
        vote=None if vote is None else _finite_vote(vote),
    )


def as_decision(body: Decided) -> Decision:
    """Return the decision that `as_decided` was given, bit for bit."""
    charge, deficit, remaining = body.scaled or (body.charge, body.deficit, body.remaining)
    vote = None
    if body.vote is not None:
        afforded, within, worlds, panel, worst = body.vote
        vote = Vote(afforded, within, worlds, _number(panel), _number(worst))
    return Decision(
        body.action,
        body.explored,
        charge,
        deficit,
        _number(remaining),
        body.plan,
        body.chain,
        vote,
        body.span or 1.0,
    )


def _finite_vote(vote: Vote) -> tuple[bool, int, int, float | None, float | None]:
    afforded, within, worlds, deficit, worst = vote
    return (
        bool(afforded), int(within), int(worlds),
        deficit if deficit < INFINITY else None, worst if worst < INFINITY else None,
    )  # fmt: skip


def _number(value: float | None) -> float:
    return INFINITY if value is None else value
