"""One server for one deployment: how it starts, on which address, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from chary.errors import InvalidSetting, check_integer
from chary.service import logs
from chary.service.app import Api
from chary.service.engine import Engine
from chary.service.limits import Limits
from chary.service.transport import Connection
from chary.service.views import Views
from chary.texts import shown

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8750
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def serve(
    directory: str | Path,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    insecure: bool = False,
    limits: Limits | None = None,
    connection: str = "sqlite3",
    on_ready: Callable[[str], None] | None = None,
) -> int:
    """Serve a deployment until SIGTERM or SIGINT, and return the exit code of the process.

    Running requests are answered, what is queued is committed, and a snapshot is written before it returns.

    Args:
        directory: What `Deployment.create` made.
        host: The address to listen at.
        port: The port, 0 for any that is free.
        certificate: A file with the certificate and its chain (PEM), for HTTPS.
        key: A file with its private key (PEM); by default it is in the file of the certificate.
        insecure: Whether to listen without HTTPS at an address that other machines can reach.
        limits: What one caller can ask.
        connection: What reads and writes the database, `sqlite3` or `apsw`.
        on_ready: Called with the URL once requests are answered.

    Raises:
        CharyError: one sentence, where the service cannot start.
    """
    limits = limits or Limits()
    trust = None if certificate is None else trust_of(Path(certificate), None if key is None else Path(key))
    if key is not None and certificate is None:
        raise InvalidSetting("'key' needs 'certificate'. Give both files, or none.")
    listening = listening_at(host, port, guarded=trust is not None or insecure)
    with contextlib.closing(listening), logs.as_lines():
        engine = Engine.open(directory, connection=connection)
        log = logging.getLogger(logs.SERVICE)
        log.info("opened", extra={"fields": engine.about})
        try:
            url = _url(host, listening, "http" if trust is None else "https")
            with _signals_end_well():
                asyncio.run(
                    run(engine, directory, listening, url, trust=trust, limits=limits, on_ready=on_ready)
                )
        finally:
            engine.finish()
        log.info("finished", extra={"fields": {"head": engine.head}})
    return 0


async def run(
    engine: Engine,
    directory: str | Path,
    listening: socket.socket,
    url: str,
    *,
    trust: ssl.SSLContext | None = None,
    limits: Limits,
    on_ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Answer requests on a socket until a signal, or until `stop` is set; the engine stays open.

    Args:
        engine: The engine of the deployment.
        directory: Where the deployment is, for its views.
        listening: A socket that is bound.
        url: Where callers find it.
        trust: What HTTPS needs.
        limits: What one caller can ask.
        on_ready: Called with the URL once requests are answered.
        stop: Stops the server, where no signal can.
    """
    api = Api(engine, Views(directory), limits)
    server = uvicorn.Server(_config(api, limits, trust))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started and on_ready is not None:
            on_ready(url)
        watching = [asyncio.create_task(_told_to_stop(server, stop))]
        await asyncio.wait([serving, *watching], return_when=asyncio.FIRST_COMPLETED)
        api.stopping = True
        server.should_exit = True
        await serving
        for task in watching:
            task.cancel()
    finally:
        await api.close()


async def _told_to_stop(server: uvicorn.Server, stop: asyncio.Event | None) -> None:
    while not server.should_exit and not (stop is not None and stop.is_set()):
        await asyncio.sleep(0.05)


def _config(api: Api, limits: Limits, trust: ssl.SSLContext | None) -> uvicorn.Config:
    protocol: Any = partial(Connection, limits)
    config = uvicorn.Config(
        api,
        # A parser in pure Python: slower than one in C, and nothing a caller sends can overrun its memory.
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=1024,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=limits.grace_seconds,
        h11_max_incomplete_event_size=limits.head,
    )
    config.load()
    config.ssl = trust
    return config


@contextlib.contextmanager
def _signals_end_well() -> Iterator[None]:
    """Let a signal that was obeyed do nothing more: uvicorn raises it again once it has stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def trust_of(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return what HTTPS needs, TLS 1.2 or newer."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise InvalidSetting(
                f"The file {shown(str(path))} does not exist. HTTPS needs a certificate and a key (PEM)."
            )

    def no_password() -> str:
        raise InvalidSetting(
            f"The key in {shown(str(key or certificate))} has a password. Store it without one."
        )

    try:
        trust.load_cert_chain(certificate, key, password=no_password)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or "it cannot be read"
        raise InvalidSetting(
            f"HTTPS cannot use the certificate {shown(str(certificate))} with its key: {reason}. Both must "
            "be PEM files, and belong together."
        ) from None
    return trust


def listening_at(host: str, port: int, *, guarded: bool) -> socket.socket:
    """Return a socket at an address, bound but not listening yet.

    Raises:
        CharyError: if there is no such address, the port is taken, or others could listen in.
    """
    check_integer("port", port, minimum=0, largest=65535)
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise InvalidSetting(f"'host' must be an address of this machine, got {shown(host)}.") from None
    if not guarded and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InvalidSetting(
            f"At {shown(host)} other machines could read every token: give a certificate and a key, listen "
            "at 127.0.0.1 behind a proxy that has them, or say --insecure."
        )
    # Named, or asyncio does not know that it may send the head and the body of a reply at once (TCP_NODELAY).
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InvalidSetting(
            f"The service cannot listen at {host} port {port}: {error.strerror}. Choose another port, or 0 "
            "for any that is free."
        ) from None
    bound.set_inheritable(False)
    return bound


def _url(host: str, listening: socket.socket, scheme: str) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}:{listening.getsockname()[1]}"
