"""Events: canonical bodies, hashes over every column, and decisions that come back bit for bit."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary.errors import InvalidData
from chary.service.events import (
    KINDS,
    NOTHING,
    Decided,
    Event,
    Recommended,
    as_decided,
    as_decision,
    decoded,
    encode,
    hash_of,
    is_intact,
)
from chary.shield import Decision
from chary.shield.worlds import Vote

AMOUNTS = st.floats(0, 1e6, allow_subnormal=True)
VOTES = st.none() | st.builds(
    Vote, st.booleans(), st.integers(0, 64), st.just(64), AMOUNTS, AMOUNTS | st.just(float("inf"))
)
DECISIONS = st.builds(
    Decision,
    st.integers(0, 9),
    st.booleans(),
    AMOUNTS,
    AMOUNTS,
    AMOUNTS | st.just(float("inf")),
    st.integers(0, 99),
    st.integers(-1, 99),
    VOTES,
    st.sampled_from([1.0, 0.1, 200.0, 1 / 3]),
)


@pytest.mark.parametrize("body", [*KINDS.values(), Recommended], ids=lambda body: body.__name__)
def test_bodies_are_canonical_because_their_fields_are_in_order(body: type[msgspec.Struct]) -> None:
    assert list(body.__struct_fields__) == sorted(body.__struct_fields__)


@given(DECISIONS, st.integers(0, 9), st.integers(0, 9))
def test_a_decision_comes_back_from_its_event_bit_for_bit(decision: Decision, t: int, s: int) -> None:
    body = encode(as_decided(decision, t, s, "budgeted"))
    again = decoded("decided", body, 1)
    assert as_decision(again) == decision
    assert encode(again) == body
    keys = list(json.loads(body))
    assert keys == sorted(keys)


def test_amounts_are_in_the_users_units() -> None:
    body = as_decided(Decision(2, True, 0.1, 0.1, 0.4, 1, 0, span=50.0), 0, 3, "budgeted")
    assert (body.charge, body.deficit, body.remaining, body.scaled) == (5.0, 5.0, 20.0, (0.1, 0.1, 0.4))
    unlimited = as_decided(Decision(2, True, 0.1, 0.1, float("inf"), 1, 0), 0, 3, "budgeted")
    assert b'"remaining":null' in encode(unlimited)


def event(**changed: object) -> Event:
    columns = {
        "seq": 7, "kind": "closed", "schema": 1, "episode": "ab", "t": None, "body": '{"steps":1}',
        "prev": NOTHING, "at": 5, "epoch": 2,
    } | changed  # fmt: skip
    digest = hash_of(NOTHING, 7, "closed", "ab", None, b'{"steps":1}', 5, 2)
    return Event(**columns, hash=digest)  # type: ignore[arg-type]


def test_an_event_is_intact_until_any_column_changes() -> None:
    assert is_intact(event(), NOTHING)
    assert not is_intact(event(), b"\1" * 32)
    # As SQLite reads a row in which the byte of a column's type was changed.
    others: tuple[dict[str, Any], ...] = ({"body": b"{}"}, {"prev": "x" * 32}, {"hash": "x" * 32})
    for other in others:
        changed = event()._replace(**other)
        assert not is_intact(changed, NOTHING)
        assert not is_intact(changed, changed.prev)
    changes: dict[str, object] = {
        "seq": 8, "kind": "abandoned", "schema": 2, "episode": "ac", "t": 0, "body": '{"steps":2}',
        "prev": b"\1" * 32, "at": 6, "epoch": 3,
    }  # fmt: skip
    for name, value in changes.items():
        changed = event(**{name: value})
        assert not is_intact(changed, changed.prev), name


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("nothing", "{}"),
        ("closed", "{}"),
        ("closed", '{"steps":1,"more":2}'),
        ("closed", '{"steps":"1"}'),
        ("closed", '{"steps":1'),
        ("decided", '{"steps":1}'),
    ],
)
def test_a_body_that_is_not_of_its_kind_is_refused(kind: str, body: str) -> None:
    with pytest.raises(InvalidData, match="event 3"):
        decoded(kind, body, 3)


def test_a_recommendation_belongs_to_the_body() -> None:
    advised = Recommended(action=1, charge=0.25, explored=True)
    body = as_decided(Decision(0, False, 0.0, 0.0, 0.5, 1, -1), 0, 0, "apprentice", recommended=advised)
    again: Decided = decoded("decided", encode(body), 1)
    assert again.recommended == advised
