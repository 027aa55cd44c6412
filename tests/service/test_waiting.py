"""No reply leaves before the disk has what it rests on: answers, refusals, repetitions, memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.served import Direct, direct, make, token

OUTCOME = {"t": 0, "reward": 1.0, "next_state": 1}


class Held:
    """A clinic whose disk takes nothing until it is let go."""

    def __init__(self, clinic: Direct) -> None:
        self.clinic = clinic
        self.gate = threading.Event()
        self.gate.set()
        store: Any = clinic.engine._committer._store
        write = store.write

        def held(batch: Any) -> None:
            self.gate.wait(30)
            write(batch)

        self.write = held
        clinic.engine._committer._store = _Store(store, held)  # type: ignore[assignment]

    def replies_after_release(self, *requests: tuple[Any, ...]) -> list[Any]:
        """Send requests while the disk takes nothing; return their replies once it does.

        None of them may be answered before. A request is its method, path and body, and perhaps a token.
        """
        clinic = self.clinic
        self.gate.clear()

        async def main() -> list[Any]:
            running = []
            for request in requests:
                running.append(asyncio.create_task(self._send(*request)))
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            early = [request for request, task in zip(requests, running, strict=True) if task.done()]
            assert not early, early
            assert clinic.engine.head > clinic.engine.durable_seq
            self.gate.set()
            return list(await asyncio.gather(*running))

        replies: list[Any] = clinic.loop.run_until_complete(main())
        return replies

    async def _send(self, method: str, path: str, body: Any, bearer: str | None = None) -> tuple[int, Any]:
        content = b"" if body is None else json.dumps(body).encode()
        heard: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            heard.append(message)

        headers = [(b"authorization", f"Bearer {bearer or self.clinic.token}".encode())]
        headers.append((b"content-type", b"application/json"))
        raw, _, query = path.encode().partition(b"?")
        scope = {"type": "http", "method": method, "raw_path": raw, "query_string": query, "headers": headers}
        await self.clinic.api(scope, receive, send)
        return heard[0]["status"], json.loads(heard[1]["body"])


class _Store:
    """A store with another way to write."""

    def __init__(self, store: Any, write: Any) -> None:
        self._store, self.write = store, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with direct(make(tmp_path)) as clinic:
        clinic.call("POST", "/v1/episodes", {"episode": "old", "state": 0})
        clinic.call("POST", "/v1/episodes/old/decisions", {"t": 0, "state": 0})
        made = Held(clinic)
        yield made
        made.gate.set()


def test_answers_and_their_repetitions_wait(held: Held) -> None:
    begin = ("POST", "/v1/episodes", {"episode": "a", "state": 0})
    decide = ("POST", "/v1/episodes/a/decisions", {"t": 0, "state": 0})
    batch = ("POST", "/v1/decisions", {"decisions": [{"episode": "a", "t": 0, "state": 0}]})
    replies = held.replies_after_release(begin, begin, decide, decide, batch)
    assert [status for status, _ in replies] == [201, 200, 200, 200, 200]
    assert replies[0][1] == replies[1][1]
    assert replies[2][1] == replies[3][1] == replies[4][1]["decisions"][0]


def test_refusals_wait_for_what_they_rest_on(held: Held) -> None:
    replies = held.replies_after_release(
        ("POST", "/v1/episodes", {"episode": "a", "state": 0}),
        ("POST", "/v1/episodes", {"episode": "a", "state": 1}),
        ("POST", "/v1/episodes/a/decisions", {"t": 1, "state": 0}),
        ("POST", "/v1/episodes/a/close", {}),
        ("POST", "/v1/episodes/a/decisions", {"t": 0, "state": 0}),
        ("POST", "/v1/episodes/nobody/decisions", {"t": 0, "state": 0}),
        ("POST", "/v1/episodes", {"episode": "b", "state": 99}),
        ("POST", "/v1/episodes/old/outcomes", {**OUTCOME, "action": 99}),
        ("DELETE", "/v1/tokens/nothing?reason=x", None),
    )
    assert [status for status, _ in replies] == [201, 409, 409, 200, 410, 404, 422, 422, 404]


def test_what_is_answered_from_memory_waits(held: Held) -> None:
    replies = held.replies_after_release(
        ("POST", "/v1/stop", {"reason": "enough"}),
        ("GET", "/v1/deployment", None),
        ("GET", "/v1/baseline", None),
        ("GET", "/v1/tokens", None),
        ("GET", "/v1/episodes/old/decisions/0", None),
        ("PUT", "/v1/mode", {"mode": "budgeted", "reason": "late", "before": "frozen"}),
    )
    assert [status for status, _ in replies] == [200, 200, 200, 200, 200, 409]
    assert replies[1][1]["mode"] == replies[2][1]["mode"] == "stopped"


def test_views_of_the_disk_do_not_wait_and_show_what_was_acknowledged(held: Held) -> None:
    clinic = held.clinic
    held.gate.clear()

    async def main() -> None:
        decide = asyncio.create_task(held._send("POST", "/v1/episodes/old/decisions", {"t": 1, "state": 1}))
        await asyncio.sleep(0.05)
        status, ledger = await held._send("GET", "/v1/episodes/old", None)
        assert (status, len(ledger["steps"])) == (200, 1)
        assert (await held._send("GET", "/healthz", None))[0] == 200
        assert not decide.done()
        held.gate.set()
        assert (await decide)[0] == 200
        assert len((await held._send("GET", "/v1/episodes/old", None))[1]["steps"]) == 2

    clinic.loop.run_until_complete(main())


def test_a_refusal_of_the_caller_waits_for_the_events_of_tokens(held: Held) -> None:
    """A crash in between would make a token valid again that was said to be revoked."""
    gone, small = (token(held.clinic.engine, [scope]) for scope in ("read", "report"))
    replies = held.replies_after_release(
        ("DELETE", f"/v1/tokens/{gone.id}?reason=lost", None),
        ("GET", "/v1/mode", None, gone.text),
        ("GET", "/v1/mode", None, small.text),
        ("GET", "/v1/mode", None, "nobody's"),
        ("POST", "/v1/tokens", {"label": "new", "scopes": ["read"]}, small.text),
    )
    assert [status for status, _ in replies] == [200, 401, 403, 401, 403]


def test_a_token_is_not_handed_out_before_it_is_kept(held: Held) -> None:
    made = token(held.clinic.engine, ["read"])
    revoke = ("DELETE", f"/v1/tokens/{made.id}?reason=lost", None)
    new = ("POST", "/v1/tokens", {"label": "new", "scopes": ["read"]})
    replies = held.replies_after_release(new, revoke)
    assert [status for status, _ in replies] == [201, 200]
    assert held.clinic.call("GET", "/v1/mode", bearer=replies[0][1]["token"]).status == 200
    assert held.clinic.call("GET", "/v1/mode", bearer=made.text).status == 401
