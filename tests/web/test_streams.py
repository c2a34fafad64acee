"""Answers that last: they end with the rights of their user, and with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

import holdfast.web
from holdfast import Holdfast
from holdfast.web.background import background_of
from holdfast.web.security.streams import INTERVAL, while_allowed
from tests.support.shells import PATIENCE


def test_a_stream_ends_with_the_rights_of_its_user() -> None:
    now, allowed, closed = [0.0], [True], []

    async def parts() -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    async def is_allowed() -> bool:
        return allowed[0]

    async def read() -> list[int]:
        seen = []
        async for part in while_allowed(parts(), is_allowed, lambda: now[0]):
            seen.append(part)
            now[0] += INTERVAL / 2
            allowed[0] = part < 5
        return seen

    assert asyncio.run(read()) == [0, 1, 2, 3, 4, 5]
    assert closed == [True]


@pytest.mark.parametrize(("path", "status"), [("jobs/one/result", 202), ("batches/some", 200)])
def test_a_request_that_waits_is_answered_when_the_server_shuts_down(jobs: Holdfast, path: str, status: int) -> None:
    jobs.enqueue(jobs.task(name="send")(_send).bind().options(id="one"))
    jobs.batch("some").open()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(holdfast.web.app(jobs, auth="open"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            waiting = asyncio.create_task(client.get(f"/api/v1/{path}", headers={"Prefer": "wait=60"}))
            background_of(jobs).end_streams()
            async with asyncio.timeout(PATIENCE):
                found = await waiting
        await jobs.aclose()
        return found

    assert asyncio.run(ask()).status_code == status


def _send() -> None: ...
