"""Every path of the service: who may call it, what it takes, what it answers, and what answers it.

The dispatcher, the OpenAPI document and the tests are made of this table, so that none can leave a path out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from chary.service import events, wire
from chary.service.answers import Answer, Refused
from chary.service.engine import Engine
from chary.service.tokens import Caller, mint
from chary.service.views import Views


class Call(NamedTuple):
    """One request, checked: the names in its path, its body, its query and its caller."""

    episode: str
    t: int
    token: str
    body: Any
    query: Any
    caller: Caller


class Route(NamedTuple):
    """One method of one path.

    `write` answers on the thread of the engine. `memory` answers there, too, and changes nothing. `view`
    answers on another thread, from a read-only connection; where both are there it is given what `memory`
    found. A route with none of the three is answered by the server itself. `replies` are the statuses of
    success with the types of their bodies, and `query` is the type of what follows the question mark.
    """

    method: str
    path: str
    scope: str | None
    summary: str
    takes: type[wire.Request] | None
    replies: Mapping[int, Any]
    write: Callable[[Engine, Call], Answer] | None = None
    memory: Callable[[Engine, Call], Any] | None = None
    view: Callable[[Views, Call, Any], Any] | None = None
    query: type[wire.Request] | None = None


def _author(call: Call) -> str:
    """Return who did it: the token's label, and the name that was given with it."""
    given = getattr(call.query or call.body, "author", None)
    return call.caller.label if given is None else f"{given} ({call.caller.label})"


def _begin(engine: Engine, call: Call) -> Answer:
    body: wire.Begin = call.body
    operator = "operate" in call.caller.scopes
    return engine.begin(body.episode, body.state, eta=body.eta, payload=body.payload, operator=operator)


def _decide(engine: Engine, call: Call) -> Answer:
    body: wire.Decide = call.body
    return engine.decide(call.episode, body.t, body.state, fallback_action=body.fallback_action)


def _decide_many(engine: Engine, call: Call) -> Answer:
    body: wire.DecideMany = call.body
    rows = [(row.episode, row.t, row.state, row.fallback_action) for row in body.decisions]
    answers = engine.decide_many(rows)
    texts = [problem_of(answer) if isinstance(answer, Refused) else answer.body for answer in answers]
    whole = b'{"decisions":[' + b",".join(texts) + b"]}"
    return Answer(200, whole, max(answer.seq for answer in answers))


def _taken(engine: Engine, call: Call) -> Answer:
    body: wire.Taken = call.body
    return engine.taken(call.episode, call.t, body.action)


def _outcome(engine: Engine, call: Call) -> Answer:
    body: wire.Outcome = call.body
    return engine.outcome(call.episode, body.t, body.action, body.reward, body.next_state, body.terminated)


def _correct(engine: Engine, call: Call) -> Answer:
    body: wire.Correction = call.body
    return engine.correct(
        call.episode, body.t, body.action, body.reward, body.next_state, body.terminated, reason=body.reason
    )


def _fallback(engine: Engine, call: Call) -> Answer:
    body: wire.Fallbacks = call.body
    return engine.fallback(call.episode, [_told(step) for step in body.steps])


def _told(step: wire.FallbackStep) -> dict[str, Any]:
    """Return what was said of a step; an outcome ends the episode only where it says so."""
    told = {name: value for name, value in msgspec.structs.asdict(step).items() if value is not None}
    if "reward" in told:
        told.setdefault("terminated", False)
    return told


def _set_mode(engine: Engine, call: Call) -> Answer:
    body: wire.SetMode = call.body
    return engine.set_mode(body.mode, author=_author(call), reason=body.reason, before=body.before)


def _set_eta(engine: Engine, call: Call) -> Answer:
    body: wire.SetEta = call.body
    return engine.set_eta(body.eta, author=_author(call), reason=body.reason, before=body.before)


def _tighten(engine: Engine, call: Call) -> Answer:
    body: wire.Tighten = call.body
    return engine.tighten(call.episode, body.eta, author=_author(call), reason=body.reason)


def _stop(engine: Engine, call: Call) -> Answer:
    body: wire.Stop = call.body
    return engine.stop(author=_author(call), reason=body.reason)


def _erase(engine: Engine, call: Call) -> Answer:
    return engine.erase(call.episode, author=_author(call), reason=call.query.reason)


def _make_token(engine: Engine, call: Call) -> Answer:
    body: wire.NewToken = call.body
    beyond = sorted(set(body.scopes) - call.caller.scopes)
    if beyond:
        raise Refused(
            403,
            "scope",
            f"A token can make tokens with its own scopes alone, and it does not have {beyond[0]}.",
        )
    made = mint(body.scopes, body.label, days=body.days)
    answer = engine.add_token(
        made.id,
        made.digest,
        scopes=made.scopes,
        label=made.label,
        expires=made.expires,
        author=_author(call),
    )
    reply = wire.TokenMade(made.id, made.text, made.label, body.scopes, made.expires)
    return answer._replace(status=201, body=wire.encode(reply))


def _revoke_token(engine: Engine, call: Call) -> Answer:
    return engine.revoke_token(call.token, author=_author(call), reason=call.query.reason)


def _tokens(engine: Engine, call: Call) -> Any:
    rows = engine.tokens.items()
    return {
        "tokens": [
            {"id": token, **{name: row[name] for name in ("label", "scopes", "expires")}}
            for token, row in rows
        ]
    }


def _found(found: Any, code: str, sentence: str) -> Any:
    if found is None:
        raise Refused(404, code, sentence)
    return found


def _episode(views: Views, call: Call, _: Any) -> Any:
    return _found(views.episode(call.episode), "unknown_episode", "There is no episode of this name.")


def _decision(views: Views, call: Call, explanation: Any) -> Any:
    found = views.decision(call.episode, call.t)
    missing = "No decision was made at this step of an episode of this name."
    return {**_found(found, "unknown_decision", missing), "explanation": explanation}


def _explanation(engine: Engine, call: Call) -> Any:
    return engine.explanation(call.episode, call.t)


def _mode(views: Views, call: Call, _: Any) -> Any:
    return views.mode()


def _deployment(engine: Engine, call: Call) -> Any:
    return engine.deployment()


def _baseline(engine: Engine, call: Call) -> Any:
    return engine.baseline()


def _events(views: Views, call: Call, _: Any) -> Any:
    query: wire.EventsQuery = call.query
    return {
        "events": views.events(after=query.after, limit=query.limit, episode=query.episode, kind=query.kind)
    }


def problem_of(refused: Refused) -> bytes:
    """Return the body of a refusal."""
    return wire.encode(wire.Problem(refused.code, str(refused)))


_EPISODE = "/v1/episodes/{episode}"
_STEP = _EPISODE + "/decisions/{t}"

ROUTES = (
    Route(
        "POST",
        "/v1/episodes",
        "decide",
        "Begin an episode",
        wire.Begin,
        {201: events.Begun, 200: events.Begun},
        write=_begin,
    ),
    Route(
        "POST",
        _EPISODE + "/decisions",
        "decide",
        "Decide a step",
        wire.Decide,
        {200: events.Decided},
        write=_decide,
    ),
    Route(
        "POST",
        "/v1/decisions",
        "decide",
        "Decide steps of many episodes",
        wire.DecideMany,
        {200: wire.DecidedMany},
        write=_decide_many,
    ),
    Route(
        "POST",
        _STEP + "/taken",
        "report",
        "Report what was played",
        wire.Taken,
        {200: events.Taken},
        write=_taken,
    ),
    Route(
        "POST",
        _EPISODE + "/outcomes",
        "report",
        "Report what came of a step",
        wire.Outcome,
        {200: events.Observed},
        write=_outcome,
    ),
    Route(
        "POST",
        _EPISODE + "/corrections",
        "report",
        "Correct a report",
        wire.Correction,
        {200: events.Corrected},
        write=_correct,
    ),
    Route(
        "POST",
        _EPISODE + "/close",
        "report",
        "Request no more decisions",
        wire.Close,
        {200: events.Closed},
        write=lambda engine, call: engine.close(call.episode),
    ),
    Route(
        "POST",
        _EPISODE + "/abandon",
        "report",
        "Give an episode up",
        wire.Abandon,
        {200: events.Abandoned},
        write=lambda engine, call: engine.abandon(call.episode, reason=call.body.reason),
    ),
    Route(
        "POST",
        _EPISODE + "/fallbacks",
        "report",
        "Report steps played while the service was away",
        wire.Fallbacks,
        {200: events.FallbacksNoted},
        write=_fallback,
    ),
    Route(
        "GET",
        _EPISODE,
        "read",
        "Return an episode and its ledger",
        None,
        {200: wire.EpisodeView},
        view=_episode,
    ),
    Route(
        "GET",
        _STEP,
        "read",
        "Return a decision and its explanation",
        None,
        {200: wire.DecisionView},
        memory=_explanation,
        view=_decision,
    ),
    Route(
        "GET",
        "/v1/deployment",
        "read",
        "Return what this deployment is",
        None,
        {200: wire.DeploymentView},
        memory=_deployment,
    ),
    Route("GET", "/v1/mode", "read", "Return the mode in force", None, {200: wire.ModeView}, view=_mode),
    Route(
        "GET",
        "/v1/baseline",
        "read",
        "Return the table of the baseline",
        None,
        {200: wire.BaselineView},
        memory=_baseline,
    ),
    Route(
        "PUT", "/v1/mode", "operate", "Change the mode", wire.SetMode, {200: events.ModeSet}, write=_set_mode
    ),
    Route(
        "PUT",
        "/v1/eta",
        "operate",
        "Change the budget of new episodes",
        wire.SetEta,
        {200: events.EtaSet},
        write=_set_eta,
    ),
    Route(
        "POST",
        _EPISODE + "/tighten",
        "operate",
        "Lower the budget of an episode",
        wire.Tighten,
        {200: events.Tightened},
        write=_tighten,
    ),
    Route(
        "POST",
        "/v1/stop",
        "operate",
        "Stop: the present policy alone decides",
        wire.Stop,
        {200: events.ModeSet},
        write=_stop,
    ),
    Route(
        "DELETE",
        _EPISODE + "/payload",
        "operate",
        "Erase what is personal of an episode",
        None,
        {200: events.Erased},
        write=_erase,
        query=wire.ReasonQuery,
    ),
    Route(
        "POST",
        "/v1/tokens",
        "operate",
        "Make a token",
        wire.NewToken,
        {201: wire.TokenMade},
        write=_make_token,
    ),
    Route("GET", "/v1/tokens", "operate", "List tokens", None, {200: wire.TokensKept}, memory=_tokens),
    Route(
        "DELETE",
        "/v1/tokens/{token}",
        "operate",
        "Revoke a token",
        None,
        {200: events.TokenRevoked},
        write=_revoke_token,
        query=wire.ReasonQuery,
    ),
    Route(
        "GET",
        "/v1/events",
        "audit",
        "Return events in order",
        None,
        {200: wire.Page},
        view=_events,
        query=wire.EventsQuery,
    ),
    Route("GET", "/metrics", "read", "Return metrics for Prometheus", None, {200: str}),
    Route("GET", "/healthz", None, "Say whether the process runs", None, {200: wire.Health}),
    Route("GET", "/readyz", None, "Say whether requests are answered", None, {200: wire.Readiness}),
    Route("GET", "/openapi.json", None, "Return this description", None, {200: dict[str, Any]}),
)
