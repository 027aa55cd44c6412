"""Every route: against every token, with right and wrong bodies, and against the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from tests.service.served import ACTIONS, PERSON, PERSON_2, STATES, Direct, Reply, direct, make, token

from chary.service.openapi import description, refusals
from chary.service.routes import ROUTES, Route
from chary.service.tokens import SCOPES

WHY = "reason=because+tests+say+so"
# A request that each route answers, in an order in which all of them succeed; names are filled in.
SAMPLES: dict[tuple[str, str], Any] = {
    ("GET", "/healthz"): b"",
    ("GET", "/readyz"): b"",
    ("GET", "/openapi.json"): b"",
    ("POST", "/v1/episodes"): {"episode": "{episode}", "state": 0, "eta": 40.0, "payload": {"ward": [7]}},
    ("POST", "/v1/episodes/{episode}/decisions"): {"t": 0, "state": "calm"},
    ("POST", "/v1/decisions"): {"decisions": [{"episode": "{episode}", "t": 0, "state": 0}]},
    ("POST", "/v1/episodes/{episode}/decisions/{t}/taken"): {"action": None},
    ("POST", "/v1/episodes/{episode}/outcomes"): None,
    ("POST", "/v1/episodes/{episode}/corrections"): None,
    ("POST", "/v1/episodes/{episode}/tighten"): {"eta": 30.0, "reason": "careful", "author": "Dr. Who"},
    ("POST", "/v1/episodes/{episode}/fallbacks"): {"steps": [{"t": 0, "state": 0, "action": "wait"}]},
    ("GET", "/v1/episodes/{episode}"): b"",
    ("GET", "/v1/episodes/{episode}/decisions/{t}"): b"",
    ("POST", "/v1/episodes/{episode}/close"): b"",
    ("POST", "/v1/episodes/{episode}/abandon"): {"reason": "moved away"},
    ("GET", "/v1/deployment"): b"",
    ("GET", "/v1/mode"): b"",
    ("GET", "/v1/baseline"): b"",
    ("PUT", "/v1/mode"): {"mode": "frozen", "reason": "a test", "before": "budgeted"},
    ("PUT", "/v1/eta"): {"eta": 20.0, "reason": "a test"},
    ("POST", "/v1/stop"): {"reason": "a test"},
    ("DELETE", "/v1/episodes/{episode}/payload"): WHY,
    ("POST", "/v1/tokens"): {"label": "ward 7", "scopes": ["read", "operate"], "days": 1.5},
    ("GET", "/v1/tokens"): b"",
    ("DELETE", "/v1/tokens/{token}"): WHY,
    ("GET", "/v1/events"): "after=1&limit=3&kind=begun",
    ("GET", "/metrics"): b"",
}


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Direct]:
    with direct(make(tmp_path)) as made:
        yield made


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


def prepare(clinic: Direct, route: Route) -> tuple[str, bytes]:
    """Do what must come before a route, and return the path and the body of a request that it answers."""
    sample = SAMPLES[route.method, route.path]
    if route.path.startswith("/v1/episodes/") or route.path == "/v1/decisions":
        assert clinic.call("POST", "/v1/episodes", {"episode": PERSON_2, "state": 0}).status == 201
    if re.search(r"{t}|outcomes|corrections", route.path):
        decided = clinic.call("POST", episode("decisions"), {"t": 0, "state": 0})
        assert decided.status == 200
        outcome = {"t": 0, "action": decided.json()["action"], "reward": 2, "next_state": 1}
        if "outcomes" in route.path:
            sample = outcome
        if "corrections" in route.path:
            assert clinic.call("POST", episode("outcomes"), outcome).status == 200
            sample = {**outcome, "reward": 3.5, "reason": "a slip of the pen"}
    path = route.path.replace("{episode}", quote(PERSON_2, safe="")).replace("{t}", "0")
    if "{token}" in path:
        path = path.replace("{token}", token(clinic.engine, ["read"]).id)
    if isinstance(sample, str):
        return f"{path}?{sample}", b""
    if isinstance(sample, bytes):
        return path, sample
    return path, json.dumps(sample).replace("{episode}", PERSON_2).encode()


def episode(rest: str) -> str:
    return f"/v1/episodes/{quote(PERSON_2, safe='')}/{rest}"


def test_there_is_a_sample_for_every_route_and_none_besides() -> None:
    assert set(SAMPLES) == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=ids)
def test_a_route_answers_its_scope_alone(clinic: Direct, route: Route) -> None:
    path, body = prepare(clinic, route)
    head = clinic.engine.head
    if route.scope is not None:
        expired = token(clinic.engine, SCOPES, days=1e-9).text
        revoked = token(clinic.engine)
        clinic.engine.revoke_token(revoked.id, author="tests", reason="a test")
        good = clinic.token
        head = clinic.engine.head
        wrong = [
            "",
            "x",
            "chary",
            good[:-1],
            good + "0",
            good.replace("chary", "Chary"),
            expired,
            revoked.text,
        ]
        wrong += [
            good[: good.rindex("_")],
            "chary_" + good.split("_")[1] + "_",
            "é" * 30,
            "chary__",
            "a" * 500,
        ]
        for bearer in wrong:
            refused = clinic.call(route.method, path, body, headers={"authorization": f"Bearer {bearer}"})
            assert (refused.status, refused.json()["error"]) in ((401, "bad_token"), (401, "no_token")), (
                bearer
            )
            assert refused.headers["www-authenticate"] == "Bearer"
        nothing = clinic.call(route.method, path, body, bearer=None)
        assert (nothing.status, nothing.json()["error"]) == (401, "no_token")
        basic = clinic.call(route.method, path, body, headers={"authorization": f"Basic {good}"})
        assert basic.status == 401
        assert clinic.engine.head == head
        for scope in SCOPES:
            if scope != route.scope:
                under = token(clinic.engine, [scope]).text
                head = clinic.engine.head
                refused = clinic.call(route.method, path, body, bearer=under)
                assert (refused.status, refused.json()["error"]) == (403, "scope")
                assert clinic.engine.head == head
        bearer = token(clinic.engine, [route.scope]).text
    else:
        bearer = None
    if route.path == "/v1/tokens" and route.method == "POST":
        body = json.dumps({"label": "ward 7", "scopes": ["operate"]}).encode()
    answered = clinic.call(route.method, path, body, bearer=bearer)
    assert answered.status in route.replies, answered.body


@pytest.mark.parametrize("route", ROUTES, ids=ids)
def test_a_reply_is_what_the_document_says(clinic: Direct, route: Route) -> None:
    path, body = prepare(clinic, route)
    for _ in range(2):
        answered = clinic.call(route.method, path, body)
        if route.path == "/v1/tokens/{token}" and answered.status == 404:
            continue
        assert answered.status in route.replies, answered.body
        check_reply(route, answered)
    if body and route.takes is not None:
        check_schema(
            operation(route)["requestBody"]["content"]["application/json"]["schema"], json.loads(body)
        )


@pytest.mark.parametrize("route", ROUTES, ids=ids)
def test_what_a_body_lacks_or_has_too_much_of_is_refused_as_the_document_says(
    clinic: Direct, route: Route
) -> None:
    path, body = prepare(clinic, route)
    if not body:
        return
    right = json.loads(body)
    schema = operation(route)["requestBody"]["content"]["application/json"]["schema"]
    required = resolve(schema).get("required", [])
    before = clinic.engine.head
    wrong: list[Any] = [{key: value for key, value in right.items() if key != name} for name in required]
    wrong += [{**right, "besides": 1}, {**right, next(iter(right)): [{}]}, [right], 7, None]
    for each in wrong:
        refused = clinic.call(route.method, path, each)
        assert refused.status == 422, (each, refused.body)
        check_reply(route, refused)
        with pytest.raises(jsonschema.ValidationError):
            check_schema(schema, each)
    assert clinic.engine.head == before


def test_the_document_is_openapi_and_names_every_route() -> None:
    told = description()
    assert told["openapi"] == "3.1.0"
    listed = {(method.upper(), path) for path, each in told["paths"].items() for method in each}
    assert listed == {(route.method, route.path) for route in ROUTES}
    ids = [each["operationId"] for path in told["paths"].values() for each in path.values()]
    assert len(set(ids)) == len(ids)
    # Every reference leads somewhere, and every schema is one.
    for found in re.findall(r'"\$ref": "([^"]+)"', json.dumps(told)):
        assert found.split("/")[-1] in told["components"]["schemas"]
    for schema in told["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_document_is_served_as_it_is(clinic: Direct) -> None:
    reply = clinic.call("GET", "/openapi.json", bearer=None)
    assert reply.json() == json.loads(json.dumps(description()))


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
def test_another_method_is_refused_with_those_that_are_right(clinic: Direct, method: str) -> None:
    for path in {route.path for route in ROUTES}:
        right = {route.method for route in ROUTES if route.path == path}
        if method not in right:
            refused = clinic.call(method, path.replace("{t}", "0"))
            assert refused.status == 405
            assert set(refused.headers["allow"].split(", ")) == right


@pytest.mark.parametrize(
    "path",
    [
        *("/", "", "/v1", "/v1/", "/v1/episodes/", "/v1/episodes//decisions", "/v1/tokens/", "/v1/mode/"),
        *("/v2/mode", "/v1/episodes/a/b", "/v1/episodes/a/decisions/0/taken/", "//healthz", "/healthz/x"),
        *("/v1/*", "/v1/episodes", "/..", "/v1/../healthz", "/%2e%2e/x", "/v1%2Fmode", "/v1/mode%00"),
    ],
)
def test_a_path_that_does_not_exist_is_not_found(clinic: Direct, path: str) -> None:
    refused = clinic.call("GET", path)
    assert refused.status in (404, 405)
    assert set(refused.json()) == {"error", "message"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/episodes/%ff", 400),
        ("/v1/episodes/a%00b", 422),
        ("/v1/episodes/a%0Ab", 422),
        ("/v1/episodes/..", 422),
        ("/v1/episodes/%2e", 422),
        ("/v1/episodes/" + "a" * 201, 422),
        ("/v1/episodes/a/decisions/-1", 422),
        ("/v1/episodes/a/decisions/1.0", 422),
        ("/v1/episodes/a/decisions/%30", 422),
        ("/v1/episodes/a/decisions/99999999999", 422),
        ("/v1/episodes/a/decisions/4294967296", 422),
        ("/v1/episodes/a/decisions/0", 404),
        ("/v1/episodes/a", 404),
        ("/v1/events?limit=0", 422),
        ("/v1/events?limit=10001", 422),
        ("/v1/events?limit=ten", 422),
        ("/v1/events?after=-1", 422),
        ("/v1/events?after=1&after=2", 400),
        ("/v1/events?kind=Begun", 422),
        ("/v1/events?kind=nonsense", 422),
        ("/v1/events?besides=1", 422),
        ("/v1/events?after", 400),
        ("/v1/events?episode=%ff", 400),
        ("/v1/events?" + "&".join(f"a{i}=1" for i in range(50)), 400),
        ("/v1/mode?x=1", 422),
        ("/healthz?x=1", 422),
    ],
)
def test_a_name_a_step_or_a_query_that_is_wrong_is_refused(clinic: Direct, path: str, status: int) -> None:
    refused = clinic.call("GET", path)
    assert refused.status == status, refused.body
    check_problem(refused)


def test_a_change_of_mode_that_comes_too_late_changes_nothing(clinic: Direct) -> None:
    wanted = {"mode": "frozen", "reason": "a test", "before": "budgeted"}
    assert clinic.call("PUT", "/v1/mode", wanted).status == 200
    assert clinic.call("PUT", "/v1/mode", wanted).status == 200
    assert clinic.call("POST", "/v1/stop", {"reason": "enough"}).json()["mode"] == "stopped"
    late = clinic.call("PUT", "/v1/mode", wanted)
    assert (late.status, late.json()["error"]) == (409, "contradiction")
    assert clinic.engine.mode == "stopped"


def test_a_token_makes_none_with_more_scopes_than_its_own(clinic: Direct) -> None:
    operator = token(clinic.engine, ["operate", "read"]).text
    head = clinic.engine.head
    refused = clinic.call(
        "POST", "/v1/tokens", {"label": "more", "scopes": ["read", "audit"]}, bearer=operator
    )
    assert (refused.status, refused.json()["error"]) == (403, "scope")
    assert clinic.engine.head == head
    made = clinic.call("POST", "/v1/tokens", {"label": "less", "scopes": ["read"]}, bearer=operator).json()
    assert clinic.call("GET", "/v1/mode", bearer=made["token"]).status == 200
    assert clinic.call("POST", "/v1/stop", {"reason": "x"}, bearer=made["token"]).status == 403
    listed = clinic.call("GET", "/v1/tokens", bearer=operator)
    assert made["token"].split("_")[2] not in listed.body.decode()
    assert {"id": made["id"], "label": "less", "scopes": ["read"], "expires": None} in listed.json()["tokens"]
    path = f"/v1/tokens/{made['id']}?reason=lost&author=Ada"
    assert clinic.call("DELETE", path, bearer=operator).json()["author"] == "Ada (tests)"
    assert clinic.call("GET", "/v1/mode", bearer=made["token"]).status == 401


def test_the_same_request_gets_the_same_bytes_and_another_one_is_refused(clinic: Direct) -> None:
    begin = {"episode": PERSON, "state": "calm", "payload": {"born": 1815}}
    first = clinic.call("POST", "/v1/episodes", begin)
    again = clinic.call("POST", "/v1/episodes", begin)
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    decide = f"/v1/episodes/{PERSON}/decisions"
    bodies = {clinic.call("POST", decide, {"t": 0, "state": state}).body for state in (0, "calm", 0)}
    assert len(bodies) == 1
    ledger = clinic.call("GET", f"/v1/episodes/{PERSON}").json()["deficit"]
    other = clinic.call("POST", decide, {"t": 0, "state": "tense"})
    assert (other.status, other.json()["error"]) == (409, "contradiction")
    assert clinic.call("POST", "/v1/episodes", {**begin, "state": 1}).status == 409
    assert clinic.call("GET", f"/v1/episodes/{PERSON}").json()["deficit"] == ledger


def test_rows_of_a_batch_are_answered_or_refused_in_their_order(clinic: Direct) -> None:
    for name in ("a", "b"):
        clinic.call("POST", "/v1/episodes", {"episode": name, "state": 0})
    rows = [("a", 0, 0), ("nobody", 0, 0), ("b", 0, "calm"), ("a", 5, 0), ("a", 0, 0), ("a", 0, 1)]
    body = {"decisions": [{"episode": e, "t": t, "state": s} for e, t, s in rows]}
    answered = clinic.call("POST", "/v1/decisions", body).json()["decisions"]
    assert [row.get("error", "") for row in answered] == [
        "",
        "unknown_episode",
        "",
        "wrong_step",
        "",
        "contradiction",
    ]
    assert (
        answered[0]
        == answered[4]
        == clinic.call("POST", "/v1/episodes/a/decisions", {"t": 0, "state": 0}).json()
    )


def test_labels_that_the_setting_does_not_declare_are_refused(clinic: Direct) -> None:
    refused = clinic.call("POST", "/v1/episodes", {"episode": "a", "state": "clam"})
    assert refused.status == 422
    assert "calm" in refused.json()["message"]
    assert clinic.call("POST", "/v1/episodes", {"episode": "a", "state": len(STATES)}).status == 422
    baseline = clinic.call("GET", "/v1/baseline").json()
    assert (baseline["states"], baseline["labels"]) == (list(STATES), list(ACTIONS))


@pytest.mark.parametrize("mode", ["apprentice", "budgeted", "frozen", "stopped"])
@pytest.mark.parametrize("agent", ["bounds", "worlds", "unlimited"])
def test_decisions_and_explanations_of_every_kind_are_what_the_document_says(
    tmp_path: Path, mode: str, agent: str
) -> None:
    spec: dict[str, Any] = {"name": "chary", "eta": 50.0, "bonus": "kl"}
    if agent == "worlds":
        spec = {"name": "chary", "eta": 50.0, "bonus": "posterior", "risk": 0.05}
    if agent == "unlimited":
        spec = {"name": "chary", "rule": "unlimited", "bonus": "kl"}
    told = {route.summary: route for route in ROUTES}
    with direct(make(tmp_path, agent=spec, mode=mode)) as clinic:
        for number in range(4):
            clinic.call("POST", "/v1/episodes", {"episode": f"e{number}", "state": 0})
            for t in range(2):
                body = {"t": t, "state": t, "fallback_action": "wait"}
                decided = clinic.call("POST", f"/v1/episodes/e{number}/decisions", body)
                assert (decided.status, decided.json()["mode"]) == (200, mode)
                assert ("recommended" in decided.json()) == (mode == "apprentice")
                check_reply(told["Decide a step"], decided)
                read = clinic.call("GET", f"/v1/episodes/e{number}/decisions/{t}")
                assert read.json()["explanation"]["t"] == t
                check_reply(told["Return a decision and its explanation"], read)
            check_reply(
                told["Return an episode and its ledger"], clinic.call("GET", f"/v1/episodes/e{number}")
            )
        for path, summary in {
            "/v1/deployment": "Return what this deployment is",
            "/v1/baseline": "Return the table of the baseline",
            "/v1/mode": "Return the mode in force",
            "/v1/events": "Return events in order",
        }.items():
            check_reply(told[summary], clinic.call("GET", path))


def operation(route: Route) -> Any:
    return description()["paths"][route.path][route.method.lower()]


def resolve(schema: Any) -> Any:
    name = schema.get("$ref", "").split("/")[-1]
    return description()["components"]["schemas"][name] if name else schema


def check_schema(schema: Any, value: Any) -> None:
    whole = {**schema, "components": description()["components"]}
    jsonschema.validate(value, whole, cls=jsonschema.Draft202012Validator)


def check_reply(route: Route, reply: Reply) -> None:
    """Check a reply against the document, and what all replies have."""
    told = operation(route)["responses"][str(reply.status)]["content"]
    kind = reply.headers["content-type"].partition(";")[0]
    assert list(told) == [kind]
    if kind == "application/json":
        check_schema(told[kind]["schema"], reply.json())
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-length"] == str(len(reply.body))
    if reply.status >= 400:
        assert reply.status in refusals(route)
        check_problem(reply)


def check_problem(reply: Reply) -> None:
    """Check that a refusal is a word and one sentence."""
    told = reply.json()
    assert set(told) == {"error", "message"}
    assert re.fullmatch("[a-z_]{3,30}", told["error"])
    assert told["message"][-1] in ".?"
    assert "\n" not in told["message"]
    assert "Traceback" not in told["message"]
    assert len(told["message"]) <= 500
