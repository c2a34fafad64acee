"""The queues that a worker serves: those in its settings, and those that match its patterns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from holdfast.client.queue_patterns import Patterns, join
from holdfast.store import commands
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.settings import Pool

log = logging.getLogger("holdfast.worker")

MAX_SHOWN = 10  # names in a log line


class ServedQueues:
    """The queues of all pools of a worker."""

    def __init__(self, pools: Iterable[Pool], store: RetryingStore) -> None:
        self._store = store
        self._patterns = {pool.name: Patterns(pool.queues) for pool in pools}
        self.entries = join(pool.queues for pool in pools)
        self._is_logged = False

    def serves(self, queue: str, pool: Pool | None = None) -> bool:
        """Return whether a queue of this name is served, by any pool or by this one, whether or not it exists yet."""
        pools = self._patterns.values() if pool is None else [self._patterns[pool.name]]
        return any(patterns.serves(queue) for patterns in pools)

    async def run(self) -> None:
        """Log once which queues match patterns. The store finds the others when jobs come."""
        if not self._is_logged and any(patterns.wildcards for patterns in self._patterns.values()):
            self._log(await self._names())
        self._is_logged = True
        await asyncio.Event().wait()

    async def _names(self) -> list[str]:
        names: list[str] = []
        page = await self._store.run(commands.queue_names())
        names += page.names
        while page.cursor:
            page = await self._store.run(commands.queue_names(cursor=page.cursor))
            names += page.names
        return names

    def _log(self, names: list[str]) -> None:
        for pool, patterns in self._patterns.items():
            whose = f"pool {pool}: " if len(self._patterns) > 1 else ""
            wildcards = ", ".join(patterns.wildcards)
            if not wildcards:
                continue
            if found := list(patterns.expand(names)):
                log.info("%squeues that match %s: %s", whose, wildcards, _shown(found))
            else:
                log.warning("%sno queue matches %s yet; waiting for one", whose, wildcards)


def _shown(names: list[str]) -> str:
    more = f", and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more
