"""What travels over HTTP: one type for every body that is accepted or answered.

The types validate what comes in and give the OpenAPI document, together with those of `events`: most replies
are the body of the event that was written. States and actions are whole numbers or the labels that the
setting declares; rewards, budgets and charges are in the user's units. Unknown fields are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

# Decisions of one batch, steps of one fallback report, and events of one page.
MOST_ROWS = 1000
MOST_EVENTS = 10_000
LONGEST_NAME, LONGEST_REASON = 200, 1000
# The largest number of a state, an action or a step that can be named; settings are far smaller.
LARGEST_INDEX = 2**31 - 1

Scope = Literal["decide", "report", "operate", "audit", "read"]
Mode = Literal["apprentice", "budgeted", "frozen", "stopped"]
# No control characters: names are shown in terminals and pages.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_NAME,
        # Not `$`, which also matches before a line break; JavaScript has no \Z.
        pattern=r"^(?!\.\.?(?![\s\S]))[^\x00-\x1f\x7f]+(?![\s\S])",
        description="A text without control characters; not . or .., which a path cannot hold.",
    ),
]
Index = Annotated[int, Meta(ge=0, le=LARGEST_INDEX)]
Label = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
State = Annotated[Index | Label, Meta(description="A state: its number or its label.")]
Action = Annotated[Index | Label, Meta(description="An action: its number or its label.")]
Step = Annotated[Index, Meta(description="The step of the episode, from 0.")]
Amount = Annotated[float, Meta(ge=0, description="An amount in the user's units of reward.")]
Reward = Annotated[float, Meta(description="A reward in the user's units.")]
Reason = Annotated[str, Meta(min_length=1, max_length=LONGEST_REASON)]
Tags = dict[str, Any]


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """A body that is accepted; unknown fields are refused."""


class Begin(Request, frozen=True):
    """An episode begins. `payload` is stored apart from the log and can be erased."""

    episode: Name
    state: State
    eta: Amount | None = None
    payload: Tags | None = None


class Decide(Request, frozen=True):
    """Step t of an episode is to be decided.

    `fallback_action` is what the present policy plays here, for deployments that do not hold it.
    """

    t: Step
    state: State
    fallback_action: Action | None = None


class DecideRow(Request, frozen=True):
    """One row of a batch of decisions."""

    episode: Name
    t: Step
    state: State
    fallback_action: Action | None = None


class DecideMany(Request, frozen=True):
    """Many decisions at once; every row is answered or refused on its own, in this order."""

    decisions: Annotated[list[DecideRow], Meta(min_length=1, max_length=MOST_ROWS)]


class Taken(Request, frozen=True):
    """What was played at a decided step; null where nothing is known to have been played."""

    action: Action | None


class Outcome(Request, frozen=True):
    """What came of a step: the action played, its reward, and where it led."""

    t: Step
    action: Action
    reward: Reward
    next_state: State
    terminated: bool = False


class Correction(Request, frozen=True):
    """What an outcome should have said, and why; recorded beside it, nothing is rewritten."""

    t: Step
    action: Action
    reward: Reward
    next_state: State
    reason: Reason
    terminated: bool = False


class Close(Request, frozen=True):
    """No more decisions will be requested for the episode."""


class Abandon(Request, frozen=True):
    """The episode will not be continued; outcomes that are missing are lost."""

    reason: Annotated[str, Meta(max_length=LONGEST_REASON)] = ""


class FallbackStep(Request, frozen=True):
    """One step that was played while the service was away, and its outcome where it is known."""

    t: Step
    state: State
    action: Action
    reward: Reward | None = None
    next_state: State | None = None
    terminated: bool | None = None


class Fallbacks(Request, frozen=True):
    """The steps of an episode that were played while the service was away."""

    steps: Annotated[list[FallbackStep], Meta(min_length=1, max_length=MOST_ROWS)]


class SetMode(Request, frozen=True):
    """The mode for every decision from now on.

    With `before`, only if that is the mode until now: a request that arrives late changes nothing then.
    """

    mode: Mode
    reason: Reason
    before: Mode | None = None
    author: Name | None = None


class SetEta(Request, frozen=True):
    """The budget of episodes that begin from now on.

    With `before`, only if that is the budget until now, null for none: a request that arrives late changes
    nothing then.
    """

    eta: Amount
    reason: Reason
    before: Amount | UnsetType | None = UNSET
    author: Name | None = None


class Tighten(Request, frozen=True):
    """A lower budget for an open episode."""

    eta: Amount
    reason: Reason
    author: Name | None = None


class Stop(Request, frozen=True):
    """The kill switch: from now on the present policy alone decides."""

    reason: Reason
    author: Name | None = None


class ReasonQuery(Request, frozen=True):
    """Why it is done, and by whom; in the query, because a DELETE has no body."""

    reason: Reason
    author: Name | None = None


class EventsQuery(Request, frozen=True):
    """Which events: those after a number, at most so many, of one episode or one kind."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_EVENTS)] = 1000
    episode: Name | None = None
    kind: Annotated[str, Meta(min_length=1, max_length=40, pattern="^[a-z_]+(?![\\s\\S])")] | None = None


class NewToken(Request, frozen=True):
    """A token to be made; it may do at most what the token of the caller may do."""

    label: Name
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=5)]
    days: Annotated[float, Meta(gt=0, le=3660)] | None = None


class Problem(Struct, frozen=True):
    """A refusal: `error` is a short word for programs, `message` one sentence for people."""

    error: str
    message: str


class DecidedMany(Struct, frozen=True):
    """The answers of a batch in the order of its rows: each a decision, or why the row was refused."""

    decisions: list[Any]


class Health(Struct, frozen=True):
    """The process runs; `instance` tells it apart from any other, of this or another deployment."""

    status: str
    instance: str


class Readiness(Struct, frozen=True):
    """Whether requests are answered."""

    status: str


class TokenMade(Struct, frozen=True):
    """A new token. Its text is shown this once; only a hash is stored."""

    id: str
    token: str
    label: str
    scopes: list[Scope]
    expires: str | None


class TokenKept(Struct, frozen=True):
    """What is kept of a token."""

    id: str
    label: str
    scopes: list[Scope]
    expires: str | None


class TokensKept(Struct, frozen=True):
    """The tokens that were not revoked."""

    tokens: list[TokenKept]


class View(Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered from the log or from memory; it changes from request to request."""


class StepView(View, frozen=True):
    """A step: the events of its decision and of what was reported of it, each with its kind and number."""

    decision: dict[str, Any]
    taken: dict[str, Any] | None
    outcome: dict[str, Any] | None
    correction: dict[str, Any] | None


class Vote(View, frozen=True):
    """How many worlds stay within the budget, and of how many."""

    within: int
    worlds: int


class ActionView(View, frozen=True):
    """One action at a step: its value, its charge, and whether it is affordable or why not."""

    action: int
    label: str | None
    baseline: bool
    lower: float | None
    upper: float | None
    mean: float | None
    sd: float | None
    charge: float | None
    vote: Vote | None
    affordable: bool
    why_not: str | None


class ExplanationView(View, frozen=True):
    """A step as the episode's own plan sees it, with the ledger as it was before the step."""

    t: int
    state: int
    plan: int
    baseline: int
    deficit: float
    remaining: float | None
    proposals: list[int]
    actions: list[ActionView]


class DecisionView(StepView, frozen=True):
    """A step and its explanation, which is null once the episode has ended."""

    explanation: ExplanationView | None


class EpisodeView(View, frozen=True):
    """An episode: its ledger, its steps, and the steps whose outcomes are missing."""

    status: Literal["open", "closed", "abandoned"]
    begun: dict[str, Any]
    ended: dict[str, Any] | None
    eta: float | None
    deficit: float
    remaining: float | None
    terminated: bool
    outstanding: list[int]
    erased: bool
    steps: list[StepView]


class ModeView(View, frozen=True):
    """The events that set the mode, the budget and the plan in force, and of the plan refused last."""

    mode: dict[str, Any]
    eta: dict[str, Any] | None = None
    adopted: dict[str, Any] | None = None
    plan_refused: dict[str, Any] | None = None


class BaselineView(View, frozen=True):
    """What to play while the service is away: actions by step and state, and labels or null."""

    actions: list[list[int]]
    mode: Mode
    plan: int
    states: list[str] | None
    labels: list[str] | None


class DeploymentView(Struct, frozen=True):
    """What the deployment is: its problem, its agent, its promise, and what runs it."""

    deployment: str
    name: str
    setting: dict[str, Any]
    agent: dict[str, Any]
    eta: float | None
    standing: str
    mode: Mode
    head: int
    epoch: int
    chary: str
    sqlite: str


class EventView(View, frozen=True):
    """One event; `at` is in microseconds since 1970, and hashes are in hexadecimal digits."""

    seq: int
    kind: str
    schema: int
    episode: str | None
    t: int | None
    body: dict[str, Any]
    prev: str
    hash: str
    at: int
    epoch: int


class Page(View, frozen=True):
    """Events in order; ask again with `after` the last one's number until none is left."""

    events: list[EventView]


encode = msgspec.json.encode
