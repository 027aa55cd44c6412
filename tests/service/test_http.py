"""The service through sockets: slow and crowding callers, HTTPS, stopping, and what its logs hold."""

from __future__ import annotations

import contextlib
import datetime
import io
import ipaddress
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.served import PERSON, PERSON_2, Served, direct, make, served, token

from chary.errors import CharyError, InvalidSetting
from chary.service import hosting, logs
from chary.service.limits import Limits
from chary.service.tokens import Token, digest_of, mint

BRIEF = Limits(
    head_seconds=0.3, body_seconds=0.4, write_seconds=0.5, idle_seconds=1, connections=6, head=4096
)
BEGIN = b'{"episode":"a","state":0}'


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Served]:
    with served(make(tmp_path), limits=BRIEF) as running:
        yield running


def talk(port: int, *parts: bytes, pause: float = 0.0, wait: float = 5.0) -> bytes:
    """Send bytes, with pauses between them, and return what comes back until the service hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as line:
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(pause)
        except OSError:
            # The service has hung up; what it said before can still be read.
            pass
        return heard(line)


def heard(line: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65536):
            found += part
    return found


def healthy(line: socket.socket) -> bool:
    """Return whether the next reply, read whole, says that all is well."""
    found = b""
    while not found.endswith(b"}"):
        found += line.recv(4096)
    return found.startswith(b"HTTP/1.1 200")


def request(served: Served, body: bytes, *, length: int | None = None, path: str = "/v1/episodes") -> bytes:
    size = len(body) if length is None else length
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.token}\r\n"
        f"content-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    )
    return head.encode() + body


def problem(reply: bytes) -> tuple[int, str]:
    """Return the status and the word of the last refusal in a reply."""
    head, _, body = reply.rpartition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"x-content-type-options: nosniff" in head
    told = json.loads(body)
    assert set(told) == {"error", "message"}
    return int(head.rpartition(b"HTTP/1.1 ")[2][:3]), told["error"]


def test_a_head_that_does_not_arrive_in_time_ends_the_connection(clinic: Served) -> None:
    began = time.monotonic()
    whole = [bytes([letter]) for letter in b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: " + b"z" * 200]
    assert problem(talk(clinic.port, *whole, pause=0.05)[-400:]) == (408, "too_slow")
    assert talk(clinic.port) == b""
    # Between two requests, too: the second one never becomes whole.
    reply = talk(clinic.port, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /hea", pause=0.1)
    assert reply.startswith(b"HTTP/1.1 200")
    assert problem(reply) == (408, "too_slow")
    assert time.monotonic() - began < 20


def test_a_body_that_does_not_arrive_in_time_is_refused_and_changes_nothing(clinic: Served) -> None:
    head = clinic.engine.head
    assert problem(talk(clinic.port, request(clinic, BEGIN[:10], length=len(BEGIN)))) == (408, "too_slow")
    trickle = [BEGIN[at : at + 1] for at in range(20)]
    assert problem(talk(clinic.port, request(clinic, b"", length=len(BEGIN)), *trickle, pause=0.05))[0] == 408
    assert clinic.engine.head == head


def test_a_connection_that_stays_idle_is_closed(clinic: Served) -> None:
    began = time.monotonic()
    reply = talk(clinic.port, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.count(b"HTTP/1.1") == 1
    assert 0.5 < time.monotonic() - began < 4.5


def test_a_caller_who_takes_no_reply_is_cut_off(clinic: Served) -> None:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", clinic.port))
        line.settimeout(10)
        ask = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
        with contextlib.suppress(OSError):
            for _ in range(400):
                line.sendall(ask * 4)
        # The service has given up, although not all was taken.
        found = b""
        with contextlib.suppress(OSError):
            while part := line.recv(65536):
                found += part
    assert found.count(b"HTTP/1.1 200") < 1600
    assert httpx.get(clinic.url + "/healthz").status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"y" * 10_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 10_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 2000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        (b"POST /v1/episodes HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /v1/episodes HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
    ],
)
def test_what_is_not_http_is_refused_in_json(clinic: Served, sent: bytes, status: int) -> None:
    assert problem(talk(clinic.port, sent))[0] == status


def test_more_connections_than_allowed_are_refused_and_those_before_go_on(clinic: Served) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    lines = [
        socket.create_connection(("127.0.0.1", clinic.port), timeout=5) for _ in range(BRIEF.connections)
    ]
    try:
        for line in lines:
            line.sendall(ask)
            assert healthy(line)
        assert problem(talk(clinic.port)) == (503, "crowded")
        lines[0].sendall(ask)
        assert healthy(lines[0])
    finally:
        for line in lines:
            line.close()
    time.sleep(0.1)
    assert talk(clinic.port, ask).startswith(b"HTTP/1.1 200")


def test_requests_that_follow_at_once_are_answered_in_their_order(clinic: Served) -> None:
    decide = request(clinic, b'{"t":0,"state":0}', path="/v1/episodes/a/decisions")
    reply = talk(clinic.port, request(clinic, BEGIN) + decide + b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    statuses = [int(part[:3]) for part in reply.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [201, 200, 200]


def test_a_reply_does_not_wait_until_the_caller_confirms_its_head(clinic: Served) -> None:
    # Without TCP_NODELAY the body follows the head only when a caller confirms that, which takes 40 ms on a
    # connection that is some requests old.
    took = []
    with socket.create_connection(("127.0.0.1", clinic.port), timeout=5) as line:
        for _ in range(60):
            began = time.perf_counter()
            line.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert healthy(line)
            took.append(time.perf_counter() - began)
    assert min(took[30:]) < 0.02


def test_neither_logs_nor_metrics_nor_refusals_of_others_hold_names_or_tokens(tmp_path: Path) -> None:
    stream = io.StringIO()
    with logs.as_lines(stream, level=logging.DEBUG):
        with served(make(tmp_path), limits=BRIEF) as running, callers(running) as caller:
            secret = running.token.split("_")[2]
            for name in (PERSON, PERSON_2):
                path = f"/v1/episodes/{quoted(name)}"
                begin = {"episode": name, "state": 0, "payload": {"who": PERSON}}
                assert caller.post("/v1/episodes", json=begin).status_code == 201
                for body in ({"t": 0, "state": 0}, {"t": 0, "state": 1}, {"t": PERSON}, {PERSON: 1}):
                    caller.post(f"{path}/decisions", json=body)
                caller.post(f"{path}/outcomes", json={"t": 7, "action": 0, "reward": 1, "next_state": 0})
                caller.get(f"{path}/nowhere/{quoted(name)}", params={"who": name})
                caller.request(PERSON, path)
                caller.get(path, headers={"authorization": f"Bearer {running.token}0"})
                caller.get(path, headers={"authorization": f"Bearer chary_{PERSON}_{secret}"})
            talk(running.port, f"GET /{PERSON} HTTP/1.1\r\n{PERSON}\r\n\r\n".encode())
            broken(running, caller)
            numbers = caller.get("/metrics").text
            events = caller.get("/v1/events").text
        logging.getLogger("chary").warning("exploration has stalled")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {"refused", "failed", "exploration has stalled"} <= {line["event"] for line in lines}
    assert 'path="/v1/episodes/{episode}/decisions"' in numbers
    assert 'chary_http_refused_total{error="contradiction"}' in numbers
    assert "chary_open_episodes 2.0" in numbers
    counters = [line.split()[2] for line in numbers.splitlines() if line.endswith(" counter")]
    falling = ("queued", "seconds", "open", "head", "durable")
    assert "chary_decided_total" in counters
    assert not [name for name in counters if any(word in name for word in falling)]
    assert "# TYPE chary_queued gauge" in numbers
    for text in (stream.getvalue(), numbers, events):
        for hidden in (PERSON, quoted(PERSON_2), PERSON_2, secret, digest_of(secret)):
            assert hidden not in text or (text is events and hidden == digest_of(secret))


def quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


@contextlib.contextmanager
def callers(running: Served, **options: Any) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {running.token}"}
    with httpx.Client(base_url=running.url, headers=headers, timeout=20, **options) as caller:
        yield caller


def broken(running: Served, caller: httpx.Client) -> None:
    """Let the engine fail as only a defect makes it fail: the reply says nothing of it, the log where."""
    engine: Any = running.engine
    kept = type(engine).deployment
    try:
        nothing: dict[str, Any] = {}
        type(engine).deployment = lambda self: nothing[PERSON]
        reply = caller.get("/v1/deployment")
        assert (reply.status_code, reply.json()["error"]) == (500, "internal")
        assert PERSON not in reply.text
    finally:
        type(engine).deployment = kept


def test_a_flood_of_refusals_does_not_flood_the_log(tmp_path: Path) -> None:
    stream = io.StringIO()
    with logs.as_lines(stream), direct(make(tmp_path)) as clinic:
        for _ in range(500):
            clinic.call("GET", "/v1/mode", bearer=None)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    refused = [line for line in lines if line["event"] == "refused"]
    assert len(refused) < 100


def test_requests_that_run_are_answered_when_the_service_stops(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with served(directory) as running, callers(running) as caller:
        for number in range(40):
            caller.post("/v1/episodes", json={"episode": f"e{number}", "state": 0})
        replies: list[int | None] = []

        def work(number: int) -> None:
            with callers(running) as mine:
                for t in range(3):
                    try:
                        reply = mine.post(f"/v1/episodes/e{number}/decisions", json={"t": t, "state": 0})
                    except httpx.TransportError:
                        replies.append(None)
                        return
                    replies.append(reply.status_code)

        # One body arrives only after the service was told to stop.
        late = socket.create_connection(("127.0.0.1", running.port), timeout=20)
        late.sendall(request(running, BEGIN[:5], length=len(BEGIN)))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        running._stop()
        time.sleep(0.2)
        late.sendall(BEGIN[5:])
        assert heard(late).startswith(b"HTTP/1.1 201")
        late.close()
        for thread in threads:
            thread.join()
        running.stop()
        with pytest.raises(httpx.TransportError):
            caller.get("/healthz")
    assert set(replies) <= {200, 409, 503, None}
    # What was answered is there, and a snapshot was written: only the event that names it is left to be read.
    with direct(directory) as again:
        assert again.engine.about["replayed"] <= 1
        for number in range(40):
            assert again.call("GET", f"/v1/episodes/e{number}").status == 200
        steps = [len(again.call("GET", f"/v1/episodes/e{number}").json()["steps"]) for number in range(40)]
        assert sum(steps) >= replies.count(200)
        assert again.call("GET", "/v1/episodes/a").status == 200


def test_a_service_that_stops_says_so(tmp_path: Path) -> None:
    with direct(make(tmp_path)) as clinic:
        clinic.api.stopping = True
        assert clinic.call("GET", "/readyz").json() == {"status": "stopping"}
        assert clinic.call("GET", "/readyz").status == 503
        assert clinic.call("GET", "/healthz").status == 200
        refused = clinic.call("POST", "/v1/episodes", BEGIN)
        assert (refused.status, refused.json()["error"]) == (503, "stopping")
        assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_0_after_a_snapshot(tmp_path: Path, number: signal.Signals) -> None:
    directory = make(tmp_path)
    code = (
        "import sys; from chary.service.hosting import serve\n"
        "sys.exit(serve(sys.argv[1], port=0, on_ready=lambda url: print(url, flush=True)))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(url + "/readyz").status_code == 200
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["event"] for line in lines] == ["opened", "finished"]


def certificate(folder: Path, name: str, *, password: bytes | None = None) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    hidden: Any = serialization.NoEncryption()
    if password is not None:
        hidden = serialization.BestAvailableEncryption(password)
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, hidden))
    return pem, secret


def test_https_serves_those_who_trust_its_certificate(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "one")
    with served(make(tmp_path), trust=hosting.trust_of(pem, key)) as running:
        trusting = ssl.create_default_context(cafile=str(pem))
        with callers(running, verify=trusting) as caller:
            assert caller.post("/v1/episodes", json={"episode": "a", "state": 0}).status_code == 201
        with callers(running) as caller, pytest.raises(httpx.ConnectError):
            caller.get("/healthz")
        with pytest.raises(httpx.TransportError):
            httpx.get(running.url.replace("https", "http") + "/healthz")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with callers(running, verify=old) as caller, pytest.raises(httpx.ConnectError):
            caller.get("/healthz")


@pytest.mark.parametrize("case", ["missing", "no key", "another key", "not pem", "password", "folder"])
def test_certificates_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    pem, key = certificate(tmp_path, "one")
    other = certificate(tmp_path, "two")[1]
    locked = certificate(tmp_path, "three", password=b"secret")
    text = tmp_path / "text.pem"
    text.write_text("nothing\n")
    pairs = {
        "missing": (tmp_path / "none.pem", key),
        "no key": (pem, None),
        "another key": (pem, other),
        "not pem": (text, text),
        "password": locked,
        "folder": (tmp_path, key),
    }
    with pytest.raises(InvalidSetting):
        hosting.trust_of(*pairs[case])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_without_https_others_are_not_served_unless_it_is_said(tmp_path: Path, host: str) -> None:
    if host == "":
        with pytest.raises(CharyError):
            hosting.listening_at(host, 0, guarded=False)
        return
    with pytest.raises(InvalidSetting, match="--insecure"):
        hosting.serve(tmp_path / "never-read", host=host, port=0)
    hosting.listening_at(host, 0, guarded=True).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_alone_is_served_without_https(host: str) -> None:
    hosting.listening_at(host, 0, guarded=False).close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "300.1.1.1", "a b", "\x00", "192.0.2.1"])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(CharyError):
        hosting.listening_at(host, 0, guarded=True)


def test_a_port_that_is_taken_or_no_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidSetting, match="port"):
            hosting.serve(tmp_path / "never-read", port=taken.getsockname()[1])
    for port in (-1, 65536, 1.5):
        with pytest.raises(CharyError):
            hosting.listening_at("127.0.0.1", port, guarded=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="certificate"):
        hosting.serve(tmp_path, key=tmp_path / "key")


@pytest.mark.parametrize(
    ("scopes", "label", "days"),
    [
        ([], "a", None),
        ("read", "a", None),
        (["Read"], "a", None),
        (["read"], "", None),
        (["read"], "a\n", None),
        (["read"], "a" * 201, None),
        (["read"], "a", 0.0),
        (["read"], "a", float("nan")),
        (["read"], "a", 1e9),
    ],
)
def test_a_token_that_cannot_be_is_refused(scopes: Any, label: str, days: float | None) -> None:
    with pytest.raises(CharyError):
        mint(scopes, label, days=days)


def test_tokens_are_random_and_only_a_hash_of_them_is_kept(tmp_path: Path) -> None:
    made = [mint(["read", "decide"], "a") for _ in range(50)]
    assert len({each.text for each in made}) == len({each.id for each in made}) == 50
    assert made[0].scopes == ("decide", "read")
    directory = make(tmp_path)
    with direct(directory) as clinic:
        kept: Token = token(clinic.engine, ["read"], days=1)
        assert clinic.call("GET", "/v1/mode", bearer=kept.text).status == 200
    for file in directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert kept.text.split("_")[2].encode() not in content
            assert os.path.getsize(file) == len(content)


@pytest.mark.parametrize(
    "name", ["body", "depth", "head", "connections", "views", "head_seconds", "grace_seconds"]
)
def test_limits_out_of_range_are_refused(name: str) -> None:
    for value in (0, -1, float("nan"), "ten", None):
        with pytest.raises(CharyError):
            Limits(**{name: value})  # type: ignore[arg-type]
