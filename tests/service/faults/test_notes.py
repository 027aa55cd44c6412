"""What the simulated clinic notes for the checker: also requests that were given up under way."""

from __future__ import annotations

import asyncio

import numpy as np

from chary.service.clinic import Attempt, Clinic, Habits
from chary.service.line import Line
from chary.service.ward import ETA, ward


def test_a_request_that_is_given_up_under_way_is_noted_as_unanswered() -> None:
    seen: list[Attempt] = []

    async def story() -> None:
        arrived = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            arrived.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            habits = Habits(unheard=0.0, repeated=0.0)
            clinic = Clinic(url, "", ward(), habits, eta=ETA, watch=seen.append)
            line = Line(url)
            asking = asyncio.create_task(clinic.ask(line, np.random.default_rng(0), "POST", "/v1/x", {}))
            await arrived.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            line.hang_up()

    asyncio.run(story())
    assert [(attempt.path, attempt.status) for attempt in seen] == [("/v1/x", None)]
