"""Bodies that nobody should send: every one is refused with a sentence, and changes nothing.

Some hundreds here; all 10,000 in the slow form.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import FULL
from tests.service.served import Direct, direct, make
from tests.service.test_routes import SAMPLES, check_problem

from chary.service.routes import ROUTES, Route

EPISODE = "under-test"
BODIES = 10_000 if FULL else 800
# What a body may say in place of a number, a text or an object; each as JSON or nearly so.
ODD = (
    *(
        "null",
        "true",
        "[]",
        "{}",
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udfff\\ud800"',
        "-1",
        "-0",
        "0.5",
        "1e400",
    ),
    *(
        "-1e400",
        "1e-400",
        "NaN",
        "Infinity",
        "-Infinity",
        "nan",
        "0x10",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "--1",
        "\u0661",
    ),
    *("9" * 25, "-" + "9" * 25, "9" * 5000, "2147483648", "9223372036854775808", "18446744073709551616"),
    *('"calm "', '"Calm"', '"x' + "y" * 3000 + '"', "[[[[]]]]", '{"a":1}', "'calm'", "undefined", "{1:2}"),
    *('"' + "\\" * 7 + '"', '"\u202e"', '"\\u202e"', '"😀' * 2, "1_000", "True", "None", "[1,]", '{"a":1,}'),
)
RAW = (
    *(
        b"",
        b" ",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{",
        b"}",
        b"[",
        b'"',
        b"{}}",
        b"{} {}",
        b"null",
        b"[]",
    ),
    *(
        b"{,}",
        b'{"t"}',
        b'{"t":}',
        b"{:1}",
        b'{"t":0 "state":0}',
        b"<xml/>",
        b"t=0&state=0",
        b"{}\x00",
        b"/*c*/{}",
    ),
    *(
        b"\x80" * 100,
        b'{"t":0,"state":"\xff"}',
        b'{"t":0,"state":"\xc0\xaf"}',
        b'{"t":0,"state":"\xed\xa0\x80"}',
    ),
    *(b"[" * 100_000, b'{"a":' * 50_000, b'{"a":[' * 300 + b"]}" * 300, b"[" * 40 + b"]" * 40, b'"' * 99_999),
    *(b"[]" * 200_000, b'{"a":"' + b"[" * 100_000 + b'"}', b"1" * 200_000, b"-" * 100_000, b'"\\' * 100_000),
)


class Subject:
    """An open episode with one decided step, and what came of it; a new one whenever the last was changed."""

    def __init__(self, clinic: Direct) -> None:
        self.clinic, self.number = clinic, 0
        self.renew()

    def renew(self) -> None:
        self.number += 1
        self.name = f"{EPISODE}-{self.number}"
        assert self.clinic.call("POST", "/v1/episodes", {"episode": self.name, "state": 0}).status == 201
        decided = self.clinic.call("POST", self.path("decisions"), {"t": 0, "state": 0}).json()
        self.outcome = {"t": 0, "action": decided["action"], "reward": 2.0, "next_state": 1}

    def path(self, rest: str) -> str:
        return f"/v1/episodes/{self.name}/{rest}"

    def right(self, route: Route) -> Any:
        """Return a body that the route takes, and that changes something."""
        sample = SAMPLES[route.method, route.path]
        if route.path.endswith("/outcomes"):
            return dict(self.outcome)
        if route.path.endswith("/corrections"):
            return {**self.outcome, "reason": "a slip"}
        if isinstance(sample, bytes):
            return {}
        return json.loads(json.dumps(sample).replace("{episode}", self.name))

    def is_refused(self, route: Route, body: bytes) -> bool:
        """Send a body and return whether it was refused; if it was, nothing has changed."""
        clinic = self.clinic
        before = clinic.engine.head, ledgers(clinic)
        reply = clinic.call(
            route.method, route.path.replace("{episode}", self.name).replace("{t}", "0"), body
        )
        if reply.status < 300:
            self.renew()
            return False
        assert 400 <= reply.status < 500, (body[:200], reply)
        check_problem(reply)
        assert (clinic.engine.head, ledgers(clinic)) == before, body[:200]
        return True


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Direct]:
    with direct(make(tmp_path)) as made:
        yield made


@pytest.fixture
def subject(clinic: Direct) -> Subject:
    return Subject(clinic)


def taking() -> list[Route]:
    return [route for route in ROUTES if route.takes is not None]


def twisted(body: Any, chance: random.Random) -> bytes:
    """Return a right body made wrong in one to three ways, as bytes."""
    text = json.dumps(body)
    for _ in range(chance.randint(1, 3)):
        text = chance.choice(TWISTS)(text, body, chance)
    return text.encode("utf-8", "surrogatepass")


def _another_value(text: str, body: Any, chance: random.Random) -> str:
    parts = text.split(": ")
    if len(parts) < 2:
        return chance.choice(ODD)
    place = chance.randrange(1, len(parts))
    end = min((parts[place].find(mark) for mark in ",}]" if mark in parts[place]), default=len(parts[place]))
    parts[place] = chance.choice(ODD) + parts[place][end:]
    return ": ".join(parts)


def _twice(text: str, body: Any, chance: random.Random) -> str:
    if not isinstance(body, dict) or not body or not text.startswith("{"):
        return "[" + text
    name = chance.choice(list(body))
    written = (
        json.dumps(name) if chance.random() < 0.5 else '"' + "".join(f"\\u{ord(x):04x}" for x in name) + '"'
    )
    return "{" + f"{written}: {chance.choice(ODD)}, " + text[1:]


def _unknown(text: str, body: Any, chance: random.Random) -> str:
    name = chance.choice(["episode ", "T", "__proto__", "state\u200b", "", "constructor", "t\x00", "q" * 500])
    return "{" + f"{json.dumps(name)}: {chance.choice(ODD)}, " + text[1:]


def _cut(text: str, body: Any, chance: random.Random) -> str:
    place = chance.randrange(len(text) + 1)
    return (
        text[:place] + chance.choice(["", "\x00", "}", '"', "\n", ","]) + text[place + chance.randint(0, 3) :]
    )


def _nested(text: str, body: Any, chance: random.Random) -> str:
    depth = chance.choice([1, 31, 40, 2000])
    return "[" * depth + text + "]" * chance.choice([depth, depth - 1])


TWISTS: tuple[Callable[[str, Any, random.Random], str], ...] = (
    *(_another_value, _another_value, _twice, _unknown, _cut, _nested),
)


def test_no_wrong_body_is_answered_or_changes_anything(subject: Subject) -> None:
    """The budgets and the log are the same after each of them; the few that are right are counted apart."""
    chance = random.Random(20)
    routes = taking()
    wrong = 0
    for number in range(BODIES):
        route = routes[number % len(routes)]
        body = chance.choice(RAW) if chance.random() < 0.15 else twisted(subject.right(route), chance)
        wrong += subject.is_refused(route, body)
    # Few of the twists happen to be right.
    assert wrong > 0.8 * BODIES


def ledgers(clinic: Direct) -> Any:
    agent: Any = clinic.engine._live.agent
    return [agent.ledger(name) for name in agent.open_episodes]


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 10_000_000])
def test_a_body_of_10_mb_is_refused_whether_it_says_its_size_or_not(subject: Subject, size: int) -> None:
    clinic = subject.clinic
    head = clinic.engine.head
    body = b'{"t":0,"state":"' + b"x" * (size - 18) + b'"}'
    told = clinic.call("POST", subject.path("decisions"), body)
    parts = [body[at : at + 65536] for at in range(0, size, 65536)]
    untold = clinic.call("POST", subject.path("decisions"), b"", parts=parts)
    assert told.status == untold.status == (422 if size <= 1 << 20 else 413)
    check_problem(told)
    check_problem(untold)
    assert clinic.engine.head == head


def test_a_size_that_is_only_claimed_is_refused_before_anything_is_read(subject: Subject) -> None:
    clinic = subject.clinic
    path = subject.path("decisions")
    reply = clinic.call("POST", path, b"", headers={"content-length": "10000000000"}, parts=[])
    assert reply.status == 413


def test_a_caller_who_hangs_up_within_a_body_gets_nothing_and_changes_nothing(subject: Subject) -> None:
    clinic = subject.clinic
    head = clinic.engine.head
    reply = clinic.call("POST", subject.path("decisions"), b"", parts=[b'{"t":1,', None])
    assert (reply.status, clinic.engine.head) == (0, head)


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data"],
)
def test_a_body_of_another_type_is_refused(subject: Subject, kind: str) -> None:
    clinic = subject.clinic
    body = {"t": 1, "state": 1}
    path = subject.path("decisions")
    assert clinic.call("POST", path, body, headers={"content-type": kind}).status == 415
    assert clinic.call("POST", path, body, headers={"content-encoding": "gzip"}).status == 415
    right = {"content-type": "Application/JSON; charset=utf-8"}
    assert clinic.call("POST", path, body, headers=right).status == 200


def test_a_body_in_many_parts_is_read_as_one(subject: Subject) -> None:
    clinic = subject.clinic
    body = b'{"t":1,"state":1}'
    path = subject.path("decisions")
    parts = [body[at : at + 1] for at in range(len(body))]
    assert clinic.call("POST", path, b"", parts=parts).body == clinic.call("POST", path, body).body


@pytest.mark.parametrize("name", ["t", "state", "fallback_action"])
def test_a_field_that_is_there_twice_is_refused_however_it_is_written(subject: Subject, name: str) -> None:
    clinic = subject.clinic
    path = subject.path("decisions")
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
    head = clinic.engine.head
    for other in (name, escaped):
        body = f'{{"{name}":1,"t":1,"state":1,"{other}":1}}'
        reply = clinic.call("POST", path, body.encode())
        assert reply.status == 400
        assert "twice" in reply.json()["message"]
    assert clinic.engine.head == head
    # A label may be called as a field is.
    reply = clinic.call("POST", path, b'{"t":1,"state":"t"}')
    assert reply.status == 422


def test_a_payload_may_hold_what_json_can_express_and_nothing_twice_or_too_deep(clinic: Direct) -> None:
    def begin(name: str, payload: str) -> int:
        body = f'{{"episode":"{name}","state":0,"payload":{payload}}}'
        return clinic.call("POST", "/v1/episodes", body.encode()).status

    assert begin("a", '{"a":[{"b":"\\ud83d\\ude00 \\" [[[["}],"c":[1e300,-5,null,true]}') == 201
    assert begin("b", '{"a":{"b":1,"b":2}}') == 400
    assert begin("b", '{"a":{"b":NaN}}') == 400
    assert begin("b", '{"a":' + "[" * 31 + "]" * 31 + "}") == 400
    assert begin("b", '{"a":' + "[" * 30 + "]" * 30 + "}") == 201
    assert begin("c", "[]") == 422
    assert begin("c", '{"a":"' + "x" * 70_000 + '"}') == 422
