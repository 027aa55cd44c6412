"""The two clients: plain calls, and their twins for asyncio."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, final
from urllib.parse import urlsplit

from chary.client.away import Outbox
from chary.client.flows import Flows, Named, episode_path
from chary.client.replies import Begun, Decided, Heard, Rejected
from chary.client.talk import Patience, Send, Talk, Wait
from chary.errors import InvalidSetting, check_installed
from chary.texts import shown

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Reply = Mapping[str, Any]
# A reply is larger only if it is none of this service.
_LARGEST_REPLY = 1 << 27


class _Calls:
    """What both clients share: how they are made, and what each call is.

    Args:
        url: Where the service is, such as https://clinic.example:8750.
        token: `chary_...`, with the scopes decide, report and read for a program that treats subjects.
        patience: How long each call tries.
        fallback: Whether to play the baseline's table while the service is away; otherwise calls raise
            Unavailable. The table is received when an episode begins, which needs the scope read.
        folder: Where reports that wait and the table are kept, so that they outlive this process; the reports
            hold what they say of a person. One client at a time. None keeps them in memory only.
        trust: A file with the certificates to trust (PEM), or a context; by default those of the system.
        insecure: Whether to send the token without HTTPS to another machine.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: Patience | None = None,
        fallback: bool = True,
        folder: str | Path | None = None,
        trust: str | Path | ssl.SSLContext | None = None,
        insecure: bool = False,
    ) -> None:
        check_installed("httpx", "'chary.client'", "serve")
        self._outbox = Outbox(folder)
        self._flows = Flows(patience or Patience(), self._outbox, fallback=fallback)
        self._options = _options(url, token, trust, insecure=insecure)

    @property
    def waiting(self) -> int:
        """The number of reports that wait until the service is back."""
        return len(self._outbox)

    @property
    def rejected(self) -> tuple[tuple[str, Rejected], ...]:
        """Episodes and refusals of reports that had waited."""
        return tuple(self._outbox.rejected)


@final
class Client(_Calls):
    """Calls a decision service; may be used from several threads.

    Example:
        with Client("http://127.0.0.1:8750", token) as client:
            client.begin("bed 7", state=0)
            decided = client.decide("bed 7", 0, 0)
            client.outcome("bed 7", 0, decided.action, reward=1.0, next_state=2)
            client.close("bed 7")
    """

    _http: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Deliver what waits, once, and close the connections."""
        if self._outbox:
            self.flush()
        if self._http is not None:
            self._http.close()
            self._http = None
        self._outbox.release()

    def begin(
        self, episode: str, state: Named, *, eta: float | None = None, payload: Reply | None = None
    ) -> Begun:
        """Begin an episode; while the service is away it begins offline, and is reported later."""
        return self._run(self._flows.begin(episode, state, eta, payload))

    def decide(self, episode: str, t: int, state: Named, *, fallback_action: Named | None = None) -> Decided:
        """Return the action of step `t`; the same call again returns the same decision."""
        return self._run(self._flows.decide(episode, t, state, fallback_action))

    def decide_many(self, rows: Sequence[tuple[str, int, Named]]) -> list[Decided | Rejected]:
        """Decide the steps (episode, t, state) of several episodes; each row is answered or refused."""
        return self._run(self._flows.decide_many(rows))

    def taken(self, episode: str, t: int, action: Named | None) -> Reply | None:
        """Report what was played at a step; None where nothing is known. Returns None if the report waits."""
        return self._run(self._flows.taken(episode, t, action))

    def outcome(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        *,
        terminated: bool = False,
    ) -> Reply | None:
        """Report what came of a step, at any time and in any order. Returns None if it waits."""
        return self._run(self._flows.outcome(episode, t, action, reward, next_state, terminated))

    def correct(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        *,
        reason: str,
        terminated: bool = False,
    ) -> Reply | None:
        """Report what an outcome should have said. Returns None if it waits."""
        return self._run(self._flows.correct(episode, t, action, reward, next_state, terminated, reason))

    def close(self, episode: str) -> Reply | None:
        """Request no more decisions for an episode. Returns None if the report waits."""
        return self._run(self._flows.close(episode))

    def abandon(self, episode: str, reason: str = "") -> Reply | None:
        """Give an episode up: its missing outcomes are lost. Returns None if the report waits."""
        return self._run(self._flows.abandon(episode, reason))

    def flush(self) -> int:
        """Deliver the reports that wait, and return how many still do."""
        return self._run(self._flows.flush())

    def view(self, path: str, **query: Named | None) -> Reply:
        """Return what the service answers at a path, such as `/v1/events` with after=7."""
        return self._run(self._flows.view(path, **query))

    def episode(self, episode: str) -> Reply:
        """Return an episode: its ledger, its steps, and what is outstanding."""
        return self.view(episode_path(episode))

    def decision(self, episode: str, t: int) -> Reply:
        """Return a decision with its explanation."""
        return self.view(episode_path(episode, f"decisions/{t}"))

    def operate(self, method: str, path: str, **fields: Any) -> Reply:
        """Send a call of an operator, such as `operate("POST", "/v1/stop", reason="...")`."""
        return self._run(self._flows.operate(method, path, fields))

    def _run(self, talk: Talk[T]) -> T:
        heard: Heard | None = None
        while True:
            try:
                step = talk.send(heard)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                heard = None
            else:
                heard = self._send(step)

    def _send(self, step: Send) -> Heard | None:
        import httpx

        if self._http is None:
            self._http = httpx.Client(**self._options)
        method, path, body = step.request
        try:
            with self._http.stream(method, path, content=body or None, timeout=step.seconds) as reply:
                content = b""
                ends = time.monotonic() + step.seconds
                for part in reply.iter_bytes():
                    content += part
                    if len(content) > _LARGEST_REPLY or time.monotonic() > ends:
                        return None
                return _heard(reply, content)
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL):
            return None


@final
class AsyncClient(_Calls):
    """Calls a decision service from a program with asyncio; the calls are those of `Client`."""

    _http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Deliver what waits, once, and close the connections."""
        if self._outbox:
            await self.flush()
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        self._outbox.release()

    async def begin(
        self, episode: str, state: Named, *, eta: float | None = None, payload: Reply | None = None
    ) -> Begun:
        """Begin an episode, as `Client.begin`."""
        return await self._run(self._flows.begin(episode, state, eta, payload))

    async def decide(
        self, episode: str, t: int, state: Named, *, fallback_action: Named | None = None
    ) -> Decided:
        """Return the action of step `t`, as `Client.decide`."""
        return await self._run(self._flows.decide(episode, t, state, fallback_action))

    async def decide_many(self, rows: Sequence[tuple[str, int, Named]]) -> list[Decided | Rejected]:
        """Decide the steps of several episodes, as `Client.decide_many`."""
        return await self._run(self._flows.decide_many(rows))

    async def taken(self, episode: str, t: int, action: Named | None) -> Reply | None:
        """Report what was played at a step, as `Client.taken`."""
        return await self._run(self._flows.taken(episode, t, action))

    async def outcome(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        *,
        terminated: bool = False,
    ) -> Reply | None:
        """Report what came of a step, as `Client.outcome`."""
        return await self._run(self._flows.outcome(episode, t, action, reward, next_state, terminated))

    async def correct(
        self,
        episode: str,
        t: int,
        action: Named,
        reward: float,
        next_state: Named,
        *,
        reason: str,
        terminated: bool = False,
    ) -> Reply | None:
        """Report what an outcome should have said, as `Client.correct`."""
        return await self._run(
            self._flows.correct(episode, t, action, reward, next_state, terminated, reason)
        )

    async def close(self, episode: str) -> Reply | None:
        """Request no more decisions for an episode, as `Client.close`."""
        return await self._run(self._flows.close(episode))

    async def abandon(self, episode: str, reason: str = "") -> Reply | None:
        """Give an episode up, as `Client.abandon`."""
        return await self._run(self._flows.abandon(episode, reason))

    async def flush(self) -> int:
        """Deliver the reports that wait, and return how many still do."""
        return await self._run(self._flows.flush())

    async def view(self, path: str, **query: Named | None) -> Reply:
        """Return what the service answers at a path, as `Client.view`."""
        return await self._run(self._flows.view(path, **query))

    async def episode(self, episode: str) -> Reply:
        """Return an episode, as `Client.episode`."""
        return await self.view(episode_path(episode))

    async def decision(self, episode: str, t: int) -> Reply:
        """Return a decision with its explanation."""
        return await self.view(episode_path(episode, f"decisions/{t}"))

    async def operate(self, method: str, path: str, **fields: Any) -> Reply:
        """Send a call of an operator, as `Client.operate`."""
        return await self._run(self._flows.operate(method, path, fields))

    async def _run(self, talk: Talk[T]) -> T:
        heard: Heard | None = None
        while True:
            try:
                step = talk.send(heard)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                heard = None
            else:
                heard = await self._send(step)

    async def _send(self, step: Send) -> Heard | None:
        import httpx

        if self._http is None:
            self._http = httpx.AsyncClient(**self._options)
        method, path, body = step.request
        try:
            async with (
                asyncio.timeout(step.seconds),
                self._http.stream(method, path, content=body or None, timeout=step.seconds) as reply,
            ):
                content = b""
                async for part in reply.aiter_bytes():
                    content += part
                    if len(content) > _LARGEST_REPLY:
                        return None
                return _heard(reply, content)
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL, TimeoutError):
            return None


def _heard(reply: httpx.Response, content: bytes) -> Heard:
    after = reply.headers.get("retry-after", "")
    seconds = min(float(after), 60.0) if after.isascii() and after.isdigit() else None
    return Heard(reply.status_code, content, seconds)


def _options(
    url: str, token: str, trust: str | Path | ssl.SSLContext | None, *, insecure: bool
) -> dict[str, Any]:
    """Return what a client of httpx is made with."""
    try:
        place = urlsplit(url)
        host, _ = place.hostname, place.port
    except (ValueError, AttributeError):
        place, host = urlsplit(""), None
    if place.scheme not in ("http", "https") or not host or place.query or place.fragment or place.username:
        raise InvalidSetting(f"'url' must be like https://clinic.example:8750, got {shown(url)}.")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
        # The token is not shown: the message may end in a log.
        raise InvalidSetting("'token' must be the text that 'chary serve token' printed, chary_...")
    if place.scheme == "http" and not insecure and not _is_here(host):
        raise InvalidSetting(
            f"'url' must begin with https, got {shown(url)}: without HTTPS others can read the token. Give "
            "insecure=True where the network is trusted."
        )
    verify: Any = True
    if isinstance(trust, ssl.SSLContext):
        verify = trust
    elif trust is not None:
        try:
            verify = ssl.create_default_context(cafile=str(trust))
        except OSError as error:
            raise InvalidSetting(
                f"'trust' must be a file with certificates (PEM), got {shown(str(trust))}: {error.strerror}."
            ) from None
    headers = {"authorization": f"Bearer {token.strip()}", "content-type": "application/json"}
    return {"base_url": url.rstrip("/"), "headers": headers, "verify": verify, "trust_env": False}


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
