"""Removes function libraries that nobody calls any more, once a day. See `client.libraries`."""

from __future__ import annotations

import asyncio
import logging
import random

from holdfast.client.libraries import aremove_unused_libraries
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

FIRST, INTERVAL = 3600.0, 86_400.0  # seconds until the first time, at most; between two


class Libraries:
    """The duty of a worker to remove them."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def run(self) -> None:
        await asyncio.sleep(random.uniform(0, FIRST))  # noqa: S311, so that workers do not start together
        while True:
            for name in await aremove_unused_libraries(await self._store.connected()):
                log.info("removed the function library %s, which nobody has called for 30 days", name)
            await asyncio.sleep(INTERVAL)
