"""The checker of histories: a right history passes, and each way to falsify it is named by its law."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.service.history import Fact, Key, check, key_of, laws


@dataclass(frozen=True)
class Attempt:
    """What a client notes."""

    method: str
    path: str
    body: bytes
    sent: float
    done: float
    status: int | None
    reply: bytes


@dataclass
class History:
    """Two episodes of two steps, one after the other; the second is played by a client that loses replies."""

    attempts: list[Attempt]
    facts: list[Fact]

    def note(self, path: str, body: Any, fact: dict[str, Any] | None, **about: Any) -> None:
        """Append a request that was answered by the event that it made, and the event."""
        clock = float(10 * len(self.attempts))
        method = "PUT" if path == "/v1/mode" else "POST"
        encoded, reply = json.dumps(body).encode(), json.dumps(fact or {}).encode()
        self.attempts.append(Attempt(method, path, encoded, clock, clock + 5, 200, reply))
        key = key_of(method, path, body)
        assert key is not None
        self.facts.append(Fact(len(self.facts) + 1, key.kind, key.episode, key.t, fact or {}))

    def number(self, kind: str, t: int | None = None) -> int:
        """Return where the first event of a kind stands, which is also where its request does."""
        return next(n for n, fact in enumerate(self.facts) if fact.kind == kind and t in (None, fact.t))

    def change(self, number: int, **body: Any) -> None:
        """Change what an event and its reply say."""
        fact = self.facts[number]
        self.facts[number] = fact._replace(body={**fact.body, **body})
        reply = json.dumps(self.facts[number].body).encode()
        self.attempts[number] = replace(self.attempts[number], reply=reply)


def decided(action: int, charge: float, deficit: float, mode: str = "budgeted") -> dict[str, Any]:
    return {
        "action": action,
        "mode": mode,
        "explored": charge > 0,
        "charge": charge,
        "deficit": deficit,
        "remaining": 1.0 - deficit,
    }


def history() -> History:
    made = History([], [])
    made.note("/v1/mode", {"mode": "budgeted", "reason": "x"}, {"mode": "budgeted"})
    for name in ("a", "b c"):
        path = f"/v1/episodes/{name.replace(' ', '%20')}"
        made.note("/v1/episodes", {"episode": name, "state": 0}, {"eta": 1.0})
        for t in range(2):
            charge = 0.25 * (t + 1)
            answer = decided(1, charge, 0.25 + t * 0.5)
            made.note(f"{path}/decisions", {"t": t, "state": t}, answer)
            made.note(f"{path}/decisions/{t}/taken", {"action": 1}, {})
            made.note(f"{path}/outcomes", {"t": t, "action": 1, "reward": 0.0, "next_state": 1}, {})
        made.note(f"{path}/close", {}, {})
    made.note("/v1/stop", {"reason": "enough"}, {"mode": "stopped"})
    made.facts[-1] = made.facts[-1]._replace(kind="mode")
    made.note("/v1/episodes", {"episode": "d", "state": 0}, {"eta": 1.0})
    made.note("/v1/episodes/d/decisions", {"t": 0, "state": 2}, decided(0, 0.0, 0.0, "stopped"))
    return made


def test_a_right_history_passes() -> None:
    made = history()
    assert check(made.attempts, made.facts, incumbent=lambda name, t, state: 0) == []


def test_what_was_not_answered_may_have_happened_or_not() -> None:
    made = history()
    number = made.number("decide")
    lost = replace(made.attempts[number], status=None, reply=b"", done=made.attempts[number].sent + 1)
    made.attempts.insert(number, lost)
    never = replace(lost, path="/v1/episodes/a/outcomes", body=b'{"t": 9}')
    made.attempts.append(never)
    assert check(made.attempts, made.facts) == []


def test_rows_of_a_batch_are_requests_of_their_own() -> None:
    made = history()
    number = made.number("decide")
    rows = [{"episode": "a", "t": 0, "state": 0}, {"episode": "z", "t": 0, "state": 0}]
    refused = {"error": "unknown_episode", "message": "There is none."}
    replies = [json.loads(made.attempts[number].reply), refused]
    batch = replace(
        made.attempts[number],
        path="/v1/decisions",
        body=json.dumps({"decisions": rows}).encode(),
        reply=json.dumps({"decisions": replies}).encode(),
    )
    made.attempts.append(batch)
    assert check(made.attempts, made.facts) == []
    replies[0]["action"] = 0
    made.attempts[-1] = replace(batch, reply=json.dumps({"decisions": replies}).encode())
    assert "a retry is answered with the same bytes" in laws(check(made.attempts, made.facts))


def lose(made: History, kind: str) -> None:
    number = made.number(kind)
    made.facts[number:] = [fact._replace(seq=fact.seq - 1) for fact in made.facts[number + 1 :]]


def skip(made: History) -> None:
    del made.facts[made.number("taken")]


def fence(made: History) -> None:
    made.facts[5:] = [fact._replace(epoch=2) for fact in made.facts[5:]]
    made.facts[8] = made.facts[8]._replace(epoch=1)


def repeat(made: History, kind: str) -> None:
    fact = made.facts[made.number(kind)]
    made.facts.append(fact._replace(seq=len(made.facts) + 1))


def answer_again(made: History, **body: Any) -> None:
    attempt = made.attempts[made.number("decide")]
    changed = json.dumps({**json.loads(attempt.reply), **body}).encode()
    made.attempts.append(replace(attempt, sent=999.0, done=1000.0, reply=changed))


def refuse_again(made: History) -> None:
    attempt = made.attempts[made.number("begin")]
    made.attempts.append(replace(attempt, sent=999.0, done=1000.0, status=409, reply=b"{}"))


def swap(made: History) -> None:
    first, second = made.number("outcome", 0), made.number("outcome", 1)
    one, other = made.facts[first], made.facts[second]
    made.facts[first], made.facts[second] = other._replace(seq=one.seq), one._replace(seq=other.seq)


def explore_after_the_stop(made: History) -> None:
    made.change(len(made.facts) - 1, action=1, explored=True, charge=0.5, deficit=0.5, remaining=0.5)


def another_state(made: History) -> None:
    attempt = made.attempts[made.number("decide")]
    made.attempts.append(replace(attempt, body=b'{"t": 0, "state": 7}'))


def another_answer(made: History) -> None:
    number = made.number("decide")
    body = {**made.facts[number].body, "plan": 7}
    made.attempts[number] = replace(made.attempts[number], reply=json.dumps(body).encode())


def refuse(made: History) -> None:
    number = made.number("taken")
    made.attempts[number] = replace(made.attempts[number], status=409)


def forget(made: History) -> None:
    del made.attempts[made.number("outcome")]


def decide_after_the_end(made: History) -> None:
    made.note("/v1/episodes/a/decisions", {"t": 2, "state": 0}, decided(0, 0.0, 0.75, "stopped"))


@pytest.mark.parametrize(
    ("falsify", "law"),
    [
        (lambda made: lose(made, "decide"), "what was acknowledged is in the log"),
        (skip, "events are numbered without holes"),
        (fence, "a fenced process commits nothing"),
        (lambda made: repeat(made, "decide"), "one event per key"),
        (lambda made: repeat(made, "begin"), "names are never reused"),
        (lambda made: answer_again(made, action=0), "a retry is answered with the same bytes"),
        (refuse_again, "a retry is answered with the same bytes"),
        (swap, "the log keeps the order of real time"),
        (explore_after_the_stop, "nothing explores after a stop"),
        (another_state, "one answer per key"),
        (refuse, "what was refused is not in the log"),
        (forget, "nothing is in the log that nobody asked for"),
        (decide_after_the_end, "nothing is decided after the end"),
        (
            lambda made: made.change(made.number("decide", 1), deficit=0.0, remaining=1.0),
            "nothing is refunded",
        ),
        (lambda made: made.change(made.number("decide", 1), deficit=0.9), "a step is charged once"),
        (lambda made: made.change(made.number("begin"), eta=0.5), "the ledger stays within the budget"),
        (
            lambda made: made.change(made.number("decide", 1), remaining=3.0),
            "the budget of an open episode is never raised",
        ),
        (lambda made: made.change(len(made.facts) - 1, action=1), "the incumbent's action is never changed"),
        (lambda made: made.change(made.number("decide"), mode="frozen"), "a decision has the mode in force"),
        (another_answer, "an answer is what the log holds"),
    ],
)
def test_a_falsified_history_is_named_by_its_law(falsify: Callable[[History], None], law: str) -> None:
    made = history()
    falsify(made)
    assert law in laws(check(made.attempts, made.facts, incumbent=lambda name, t, state: 0))


def test_paths_name_what_a_request_is_about() -> None:
    assert key_of("POST", "/v1/episodes/a%2Fb/decisions/3/taken", {}) == Key("taken", "a/b", 3)
    assert key_of("POST", "/v1/episodes/a/outcomes", {"t": 2}) == Key("outcome", "a", 2)
    assert key_of("GET", "/v1/episodes/a", {}) is None
