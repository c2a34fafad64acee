"""Answers that last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast.web.security.streams import INTERVAL, while_allowed


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
