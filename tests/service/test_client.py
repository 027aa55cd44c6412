"""The client: what it sends again, what it plays while the service is away, and what it reports later."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from tests.service.served import HORIZON, Served, direct, make, served, token
from tests.test_architecture import loaded_by

import chary.client
from chary.client import AsyncClient, Client, Decided, Rejected, Unavailable
from chary.client.replies import Heard
from chary.client.talk import Patience, Request, Send, Wait, ask
from chary.errors import CharyError, InvalidData, InvalidSetting

# A client that gives up at once, for tests of what it does then.
HASTY = Patience(timeout=1.0, deadline=1.0, pause=0.01, longest_pause=0.05, away=0.05)
OK = (
    b'{"action":1,"plan":1,"t":0,"mode":"budgeted","charge":0.5,"deficit":0.5,'
    b'"remaining":1.5,"explored":true}'
)


class Answers:
    """A service that answers each connection with the next of some bytes, and keeps what it was sent.

    `None` hangs up without an answer, a number waits so many seconds first.
    """

    def __init__(self, *answers: bytes | float | None) -> None:
        self.left = list(answers)
        self.heard: list[bytes] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listening.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError), line:
            line.settimeout(2)
            told = b""
            while b"\r\n\r\n" not in told:
                told += line.recv(65536)
            head, _, body = told.partition(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0] or 0)
            while len(body) < size:
                body += line.recv(65536)
            self.heard.append(told.split(b"\r\n")[0] + b"\n" + body)
            answer = self.left.pop(0) if self.left else None
            if isinstance(answer, float):
                threading.Event().wait(answer)
            elif answer is not None:
                line.sendall(answer)

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()


def reply(body: bytes, status: int = 200, *headers: bytes) -> bytes:
    kind = b"content-type: application/json"
    head = [
        b"HTTP/1.1 %d x" % status,
        kind,
        b"connection: close",
        b"content-length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join([*head, b"", body])


def problem(status: int, code: str = "busy", *headers: bytes) -> bytes:
    return reply(json.dumps({"error": code, "message": "No."}).encode(), status, *headers)


GARBAGE = [
    None,
    b"",
    b"\x00\x01\x02 garbage",
    b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"action":',
    b"HTTP/1.1 200 OK\r\ncontent-length: abc\r\n\r\n",
    reply(b"<html>Please log in</html>"),
    reply(b"<html>Bad gateway</html>", 502),
    reply(b"<html>Forbidden</html>", 403),
    reply(b"", 302, b"location: http://127.0.0.1:1/"),
    reply(b"null"),
    reply(b"[" * 50_000),
    reply(b'{"status":"ok"}'),
    reply(OK.replace(b'"t":0', b'"t":1')),
    reply(OK.replace(b'"action":1', b'"action":"1"')),
    reply(OK.replace(b'"action":1', b'"action":true')),
    reply(b"\xff" * 10),
    reply(b"1" * 100, 200, b"content-encoding: gzip"),
    problem(503, "stopping"),
    problem(500, "internal"),
    problem(429, "too_many_open"),
    problem(408, "too_slow"),
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_request_is_sent_again_with_the_same_bytes_until_it_is_answered(garbage: bytes | None) -> None:
    with (
        Answers(garbage, garbage, reply(OK)) as service,
        client(service.url, HASTY, fallback=False) as caller,
    ):
        state: Any = np.int64(2)
        decided = caller.decide("a", 0, state)
        assert (decided.action, decided.deficit, decided.fallback) == (1, 0.5, False)
        assert len(service.heard) == 3
        assert len(set(service.heard)) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 415, 422])
def test_a_refusal_is_raised_at_once_with_its_sentence(status: int) -> None:
    with Answers(problem(status, "some_word")) as service, client(service.url, HASTY) as caller:
        with pytest.raises(Rejected, match="No") as refused:
            caller.decide("a", 0, 0)
        assert (refused.value.status, refused.value.code) == (status, "some_word")
        assert len(service.heard) == 1


def test_a_service_that_is_full_to_the_end_is_a_refusal_and_not_away() -> None:
    full = problem(429, "too_many_open")
    with Answers(*[full] * 200) as service, client(service.url, HASTY, fallback=False) as caller:
        with pytest.raises(Rejected) as refused:
            caller.begin("a", 0)
        assert refused.value.status == 429
        assert len(service.heard) > 2


def test_a_slow_answer_is_given_up_and_asked_for_again() -> None:
    brief = Patience(timeout=0.2, deadline=3.0, pause=0.01)
    with Answers(0.6, reply(OK)) as service, client(service.url, brief, fallback=False) as caller:
        assert caller.decide("a", 0, 0).action == 1
    drip = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"
    with Answers(*[drip] * 100) as service, client(service.url, HASTY, fallback=False) as caller:
        with pytest.raises(Unavailable, match="safe"):
            caller.decide("a", 0, 0)


def talked(heards: Sequence[Heard | None], patience: Patience, **options: Any) -> tuple[list[Any], Any]:
    """Return the steps of a call whose attempts are answered like this, and how it ended."""
    steps: list[Any] = []
    left, now = list(heards), [0.0]
    whole: Any = Patience(
        timeout=patience.timeout,
        deadline=patience.deadline,
        pause=patience.pause,
        longest_pause=patience.longest_pause,
        now=lambda: now[0],
        draw=lambda most: most,
    )
    talk: Generator[Any, Any, Any] = ask(Request("GET", "/x"), whole, lambda found: found, **options)
    heard: Heard | None = None
    while True:
        try:
            step = talk.send(heard)
        except StopIteration as end:
            return steps, end.value
        except CharyError as error:
            return steps, error
        steps.append(step)
        now[0] += step.seconds if isinstance(step, Wait) else 0.5
        heard = (left.pop(0) if left else None) if isinstance(step, Send) else None


def test_pauses_double_up_to_the_longest_and_the_deadline_holds() -> None:
    steps, end = talked([], Patience(timeout=2.0, deadline=20.0, pause=0.5, longest_pause=4.0))
    assert [step.seconds for step in steps if isinstance(step, Wait)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert isinstance(end, Unavailable)
    total = sum(step.seconds for step in steps if isinstance(step, Wait))
    assert total + 0.5 * sum(isinstance(step, Send) for step in steps) <= 20.0
    # The last attempts get what is left of the time.
    last = [step.seconds for step in steps if isinstance(step, Send)]
    assert all(seconds <= 2.0 for seconds in last)


def test_a_service_that_says_when_to_come_back_is_believed() -> None:
    busy = Heard(503, b'{"error":"stopping","message":"Later."}', 3.0)
    steps, end = talked([busy, Heard(200, b'{"a":1}')], Patience(deadline=20.0, pause=0.5))
    assert [step.seconds for step in steps if isinstance(step, Wait)] == [3.5]
    assert end == {"a": 1}
    steps, end = talked([busy], Patience(deadline=20.0), once=True)
    assert len(steps) == 1
    assert "Later." in str(end)


def test_pauses_are_drawn_at_random() -> None:
    drawn = {Patience().draw(1.0) for _ in range(20)}
    assert len(drawn) == 20
    assert all(0.0 <= pause <= 1.0 for pause in drawn)


def client(url: str, patience: Patience = HASTY, token: str = "chary_a_b", **options: Any) -> Client:
    return Client(url, token, patience=patience, **options)


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Served]:
    with served(make(tmp_path)) as running:
        yield running


def play(caller: Client, name: str, *, steps: int = HORIZON) -> list[Decided]:
    """Play an episode: every step leads one state further."""
    found = []
    caller.begin(name, 0)
    for t in range(steps):
        found.append(caller.decide(name, t, t))
        caller.outcome(name, t, found[-1].action, np.float64(2.5), t + 1)
    if steps == HORIZON:
        caller.close(name)
    return found


def test_an_episode_is_played_and_read(clinic: Served) -> None:
    with client(clinic.url, Patience(), clinic.token) as caller:
        found = play(caller, "bed 7/b")
        assert all(not decided.fallback for decided in found)
        ledger = caller.episode("bed 7/b")
        assert ledger["deficit"] == found[-1].deficit
        assert ledger["outstanding"] == []
        assert caller.decision("bed 7/b", 1)["outcome"]["reward"] == 2.5
        with pytest.raises(Rejected) as refused:
            caller.decide("bed 7/b", 0, 1)
        assert refused.value.code == "contradiction"
        caller.begin("b", "calm", eta=10.0, payload={"ward": 3})
        rows = caller.decide_many([("b", 0, 0), ("nobody", 0, 0)])
        assert isinstance(rows[0], Decided)
        assert isinstance(rows[1], Rejected)
        caller.taken("b", 0, None)
        caller.abandon("b", "moved")
        assert caller.view("/v1/events", kind="abandoned", limit=1)["events"][0]["body"]["reason"] == "moved"
        changed = caller.operate("PUT", "/v1/mode", mode="frozen", reason="a test", before="budgeted")
        assert changed["mode"] == "frozen"
        assert caller.operate("DELETE", "/v1/episodes/b/payload", reason="wished")["reason"] == "wished"
        assert (caller.waiting, caller.rejected) == (0, ())


def test_the_same_calls_work_with_asyncio(clinic: Served) -> None:
    async def main() -> None:
        async with AsyncClient(clinic.url, clinic.token) as caller:

            async def episode(name: str) -> float | None:
                await caller.begin(name, 0)
                for t in range(HORIZON):
                    decided = await caller.decide(name, t, t)
                    await caller.taken(name, t, decided.action)
                    await caller.outcome(name, t, decided.action, 1.0, t + 1)
                await caller.close(name)
                ledger = await caller.episode(name)
                assert ledger["deficit"] == decided.deficit
                assert (await caller.decision(name, 0))["decision"]["t"] == 0
                return decided.deficit

            await asyncio.gather(*(episode(f"bed {number}") for number in range(8)))
            await caller.begin("b", 0)
            assert isinstance((await caller.decide_many([("b", 0, 0)]))[0], Decided)
            await caller.outcome("b", 0, (await caller.decide("b", 0, 0)).action, 1.0, 1)
            action = (await caller.decide("b", 0, 0)).action
            await caller.correct("b", 0, action, 2.0, 1, reason="a slip")
            await caller.abandon("b")
            assert (await caller.operate("POST", "/v1/stop", reason="enough"))["mode"] == "stopped"
            assert await caller.flush() == 0
            assert (await caller.view("/v1/mode"))["mode"]["mode"] == "stopped"

    asyncio.run(main())


def test_both_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> dict[str, Any]:
        return {
            name: call.__annotations__
            for name, call in vars(kind).items()
            if not name.startswith("_") and callable(call)
        }

    assert calls(Client) == calls(AsyncClient)


def test_while_the_service_is_away_the_baseline_is_played_and_reported_later(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with served(directory) as running:
        port, secret = running.port, running.token
        caller = client(running.url, HASTY, secret)
        begun = play(caller, "before", steps=1)
        table = caller.view("/v1/baseline")["actions"]
    # Away: everything goes on, at once after the first attempt.
    second = caller.decide("before", 1, "tense")
    assert second.fallback
    assert second.action == table[1][1]
    assert caller.decide("before", 1, "tense") == second
    with pytest.raises(Rejected, match="state"):
        caller.decide("before", 1, "calm")
    assert caller.outcome("before", 1, second.action, 1.0, 2) is None
    third = caller.decide_many([("before", 2, 2)])[0]
    assert isinstance(third, Decided)
    assert third.fallback
    offline = caller.begin("during", 3)
    assert offline.offline
    first = caller.decide("during", 0, 3)
    assert first.action == table[0][3]
    assert caller.close("during") is None
    assert caller.waiting == 6
    with served(directory, port=port):
        assert caller.flush() == 0
        assert caller.rejected == ()
        kept = caller.episode("before")
        modes = [step["decision"]["mode"] for step in kept["steps"]]
        assert modes == ["budgeted", "fallback", "fallback"]
        assert kept["deficit"] == begun[0].deficit
        assert kept["steps"][1]["outcome"]["reward"] == 1.0
        assert caller.episode("during")["status"] == "closed"
        # What was played stays played, and the rest is decided by the service again.
        assert caller.decide("before", 1, "tense") == second
        assert not play(caller, "after")[0].fallback
        caller.disconnect()


def test_a_decision_that_was_heard_is_the_answer_while_the_service_is_away_too(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with served(directory) as running:
        caller = client(running.url, HASTY, running.token)
        name, heard = strayed(caller)
        caller.begin("other", 0)
        many = caller.decide_many([("other", 0, 0)])
    assert caller.decide(name, 0, 0) == heard
    assert caller.decide_many([("other", 0, 0)]) == many
    assert caller.waiting == 0
    assert caller.decide(name, 1, 1).fallback
    assert caller.waiting == 1


def strayed(caller: Client) -> tuple[str, Decided]:
    """Return an episode whose first decision is not the baseline's action."""
    for number in range(20):
        name = f"stray {number}"
        caller.begin(name, 0)
        decided = caller.decide(name, 0, 0)
        if decided.action != caller.view("/v1/baseline")["actions"][0][0]:
            return name, decided
        caller.outcome(name, 0, decided.action, 0.0, 0)
        caller.close(name)
    raise AssertionError("no decision strayed from the baseline")


def test_a_decision_whose_reply_was_lost_and_a_fallback_in_its_place_are_an_override(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with served(directory) as running:
        port = running.port
        with client(running.url, HASTY, running.token) as other:
            name, decided = strayed(other)
        caller = client(running.url, HASTY, running.token)
        caller.begin("b", 0)
    played = caller.decide(name, 0, 0)
    assert played.fallback
    assert played.action != decided.action
    caller.outcome(name, 0, played.action, 1.0, 1)
    with served(directory, port=port):
        assert caller.flush() == 0
        assert caller.rejected == ()
        step = caller.episode(name)["steps"][0]
        assert step["decision"]["action"] == decided.action
        assert step["taken"]["action"] == step["outcome"]["action"] == played.action
        caller.disconnect()


def started(directory: Path, port: int) -> subprocess.Popen[str]:
    """Start a service in a process of its own, and wait until it answers."""
    code = (
        "import sys; from chary.service.hosting import serve\n"
        "serve(sys.argv[1], port=int(sys.argv[2]), on_ready=lambda url: print(url, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://")
    return process


def test_a_service_that_is_killed_and_started_again_keeps_every_answer_that_was_heard(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with direct(directory) as clinic:
        secret = token(clinic.engine).text
    patience = Patience(timeout=5.0, deadline=60.0, pause=0.05, longest_pause=0.5)
    heard: list[Decided] = []
    done = threading.Event()

    def work(number: int) -> None:
        with client(f"http://127.0.0.1:{port}", patience, secret, fallback=False) as caller:
            episode = 0
            while not done.is_set():
                heard.extend(play(caller, f"bed {number}, stay {episode}"))
                episode += 1

    process = started(directory, port)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for life in range(3):
            wait_for(heard, len(heard) + HORIZON)
            if life < 2:
                process.kill()
                process.communicate()
                process = started(directory, port)
    finally:
        done.set()
        for thread in threads:
            thread.join(90)
        process.terminate()
        process.communicate()
    assert not any(thread.is_alive() for thread in threads)
    with direct(directory) as clinic:
        for decided in heard:
            kept = clinic.call("POST", f"/v1/episodes/{quote(decided.episode)}/decisions", asked(decided))
            assert kept.json() == decided.reply


def wait_for(heard: Sequence[Decided], number: int, seconds: float = 60.0) -> None:
    """Wait until so many decisions were heard."""
    ends = time.monotonic() + seconds
    while len(heard) < number:
        assert time.monotonic() < ends
        time.sleep(0.02)


def asked(decided: Decided) -> dict[str, int]:
    return {"t": decided.t, "state": decided.t}


def test_reports_and_the_table_outlive_the_client(tmp_path: Path) -> None:
    directory, folder = make(tmp_path), tmp_path / "kept"
    with served(directory) as running:
        port, secret, url = running.port, running.token, running.url
        with client(url, HASTY, secret, folder=folder) as caller:
            caller.begin("a", 0)
    caller = client(url, HASTY, secret, folder=folder)
    played = caller.decide("a", 0, 0)
    caller.outcome("a", 0, played.action, 1.0, 1)
    # The first client ends without a word; what it wrote last was cut off.
    with pytest.raises(InvalidSetting, match="another client"):
        client(url, HASTY, secret, folder=folder)
    del caller
    waiting = folder / "waiting.jsonl"
    assert waiting.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    with waiting.open("ab") as file:
        file.write(b'{"number": 3, "epi')
    again = client(url, HASTY, secret, folder=folder)
    assert again.waiting == 2
    assert again.decide("a", 0, 0).action == played.action
    assert again.decide("a", 1, 1).fallback
    with served(directory, port=port):
        del again
        again = client(url, HASTY, secret, folder=folder)
        assert again.waiting == 3
        assert again.flush() == 0
        assert [step["decision"]["mode"] for step in again.episode("a")["steps"]] == ["fallback", "fallback"]
        again.disconnect()
    assert not waiting.exists()


def test_a_report_that_waited_and_is_refused_is_kept_and_named(tmp_path: Path) -> None:
    directory, folder = make(tmp_path), tmp_path / "kept"
    with served(directory) as running:
        port, secret, url = running.port, running.token, running.url
        caller = client(url, HASTY, secret, folder=folder)
        caller.begin("a", 0)
    caller.outcome("a", 5, 0, 1.0, 1)
    caller.close("a")
    with served(directory, port=port):
        assert caller.flush() == 0
        assert [(episode, refused.status) for episode, refused in caller.rejected] == [("a", 409)]
        assert caller.episode("a")["status"] == "closed"
        caller.disconnect()
    kept = json.loads((folder / "rejected.jsonl").read_text())
    assert kept["path"] == "/v1/episodes/a/outcomes"


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_report_is_not_given_up_for_a_refusal_that_is_not_about_it(tmp_path: Path, status: int) -> None:
    folder = tmp_path / "kept"
    silent = Answers()
    caller = client(silent.url, HASTY, folder=folder)
    silent.listening.close()
    assert caller.begin("a", 0).offline
    assert caller.close("b") is None
    caller.disconnect()
    answers = Answers(*[problem(status, "some_word")] * 5000)
    caller = client(answers.url, HASTY, folder=folder)
    assert caller.flush() == 2
    with pytest.raises(Rejected, match="No") as refused:
        caller.outcome("a", 0, 0, 1.0, 0)
    assert refused.value.status == status
    assert (caller.waiting, caller.rejected) == (2, ())
    assert not (folder / "rejected.jsonl").exists()
    caller.disconnect()
    answers.listening.close()


def test_without_a_table_or_without_the_wish_for_one_the_call_fails(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        caller = client(url)
        assert caller.begin("a", 0).offline
        with pytest.raises(Unavailable):
            caller.decide("a", 0, 0)
        with pytest.raises(Unavailable):
            client(url, fallback=False).begin("a", 0)
        with pytest.raises(Unavailable):
            caller.episode("a")
        with pytest.raises(Unavailable):
            caller.operate("POST", "/v1/stop", reason="x")


def test_a_table_that_is_none_is_not_kept() -> None:
    for wrong in (
        b"{}",
        b'{"actions":[],"plan":1}',
        b'{"actions":[[0],[0,1]],"plan":1,"states":[],"labels":[]}',
    ):
        with Answers(reply(wrong), reply(b'{"state":0}')) as service, client(service.url, HASTY) as caller:
            caller.begin("a", 0)
            service.listening.close()
            with pytest.raises(Unavailable):
                caller.decide("a", 0, 0)


def test_a_token_that_may_not_read_the_table_is_refused_when_an_episode_begins() -> None:
    with Answers(problem(403, "scope")) as service, client(service.url, HASTY) as caller:
        with pytest.raises(Rejected) as refused:
            caller.begin("a", 0)
        assert refused.value.code == "scope"


def test_an_operators_call_is_sent_once_except_to_stop() -> None:
    with Answers(None, reply(b"{}")) as service, client(service.url, HASTY) as caller:
        with pytest.raises(Unavailable):
            caller.operate("PUT", "/v1/mode", mode="budgeted", reason="x")
        assert len(service.heard) == 1
    with Answers(None, None, reply(b'{"mode":"stopped"}')) as service, client(service.url, HASTY) as caller:
        assert caller.operate("POST", "/v1/stop", reason="x")["mode"] == "stopped"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "127.0.0.1:80",
            "ftp://127.0.0.1",
            "http://",
            "http://example.org",
            "http://127.0.0.1:99999",
            None,
        ),
        *(
            "http://user@127.0.0.1",
            "https://x?token=1",
            "http://192.168.1.1:80",
            "http://[::1",
            "http://127.0.0.1 ",
        ),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(url: Any) -> None:
    with pytest.raises(InvalidSetting, match="url"):
        Client(url, "chary_a_b")


@pytest.mark.parametrize("token", ["", " ", "chary\n_a", "chäry", None, 7])
def test_a_token_that_cannot_be_right_is_refused_without_being_shown(token: Any) -> None:
    with pytest.raises(InvalidSetting, match="token") as refused:
        Client("http://127.0.0.1:1", token)
    assert "chäry" not in str(refused.value)


def test_a_file_of_certificates_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pem", tmp_path):
        with pytest.raises(InvalidSetting, match="trust"):
            Client("https://127.0.0.1:1", "chary_a_b", trust=path)


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waiting.jsonl").write_text("nothing of ours\n")
    with pytest.raises(InvalidSetting, match="folder"):
        Client("http://127.0.0.1:1", "chary_a_b", folder=tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        lambda caller: caller.begin(7, 0),
        lambda caller: caller.begin("a", 0.5),
        lambda caller: caller.begin("a", True),
        lambda caller: caller.begin("a", 0, eta=float("nan")),
        lambda caller: caller.begin("a", 0, payload={"a": float("inf")}),
        lambda caller: caller.begin("a", 0, payload={"a": object()}),
        lambda caller: caller.decide("a", -1, 0),
        lambda caller: caller.decide("a", "0", 0),
        lambda caller: caller.decide("a", 0, None),
        lambda caller: caller.decide("a", 0, 0, fallback_action=0.5),
        lambda caller: caller.decide_many([("a", 0, None)]),
        lambda caller: caller.outcome("a", 0, 0, float("nan"), 0),
        lambda caller: caller.outcome("a", 0, 0, "much", 0),
        lambda caller: caller.outcome("a", 0, 0, 1.0, [0]),
        lambda caller: caller.taken("a", 1.5, 0),
        lambda caller: caller.correct("a", 0, None, 1.0, 0, reason="x"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is(call: Callable[[Client], Any]) -> None:
    with Answers() as service, client(service.url, HASTY, fallback=False) as caller:
        with pytest.raises(InvalidData):
            call(caller)
        assert service.heard == []


@pytest.mark.parametrize("option", ["timeout", "deadline", "pause", "longest_pause", "away"])
def test_a_patience_out_of_range_is_refused(option: str) -> None:
    wrong: Any
    for wrong in (-1.0, float("nan"), float("inf"), "long"):
        with pytest.raises(InvalidSetting):
            Patience(**{option: wrong})


def test_importing_the_client_is_light() -> None:
    heavy = ("numpy", "numba", "scipy", "gymnasium", "msgspec", "uvicorn", "httpx", "rich")
    assert loaded_by("import chary.client", *heavy) == []
    assert set(chary.client.__all__) <= set(dir(chary.client))
