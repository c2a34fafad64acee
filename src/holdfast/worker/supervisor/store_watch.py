"""A check of the server every minute: whether it evicts jobs, and whether the keeper of an embedded server runs.

A worker does not start on a server that evicts (`preflight`), but the policy can change at any time. Then the worker
stops claiming until it is corrected; running jobs continue, and their outcomes are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from holdfast import errors
from holdfast.doctor import ServerFacts, eviction
from holdfast.server import server
from holdfast.store import AsyncStore
from holdfast.worker.event_loop import Threads
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

CHECK_INTERVAL = 60.0  # seconds

_keeping = Threads("server", 1)


class StoreWatch:
    """Decides whether a worker may claim. `on_change` is called when that changes."""

    def __init__(self, store: RetryingStore, *, accept_data_loss: bool, on_change: Callable[[], None]) -> None:
        self._store = store
        self._accepts = accept_data_loss
        self._on_change = on_change
        self._evicts = accept_data_loss  # the preflight has logged it in this case
        self._evicted: int | None = None  # keys, at the last check

    @property
    def may_claim(self) -> bool:
        return self._accepts or not self._evicts

    async def run(self) -> None:
        store = await self._store.connected()
        while True:
            try:
                info: Any = await store.execute("INFO")
            except errors.HoldfastError as error:  # unavailable, which is logged elsewhere, or INFO is not permitted
                log.debug("the server was not checked: %s", error)
            else:
                self._check({str(name): str(value) for name, value in info.items()})
                await _ensure_keeper(store)
            await asyncio.sleep(CHECK_INTERVAL)

    def _check(self, info: dict[str, str]) -> None:
        self._count(int(info.get("evicted_keys", 0)))
        result = eviction(ServerFacts(info=info))
        evicts, before = result.level == "danger", self._evicts
        self._evicts = evicts
        if evicts and not before:
            then = "continues because of --accept-data-loss" if self._accepts else "claims nothing until that is fixed"
            log.error("eviction: %s %s This worker %s.", result.means, result.advice, then)
        elif before and not evicts and not self._accepts:
            log.warning("eviction: the server no longer evicts jobs; this worker claims again")
        if evicts != before:
            self._on_change()

    def _count(self, evicted: int) -> None:
        """Log the number of keys evicted since the last check. A server that was restarted counts from zero."""
        before, self._evicted = self._evicted, evicted
        if before is not None and evicted > before:
            log.error(
                "eviction: the server evicted %d keys since the last check: jobs may be missing; run holdfast doctor",
                evicted - before,
            )


async def _ensure_keeper(store: AsyncStore) -> None:
    """Replace the keeper of an embedded server if it was killed."""
    if store.address.home is not None:
        try:
            await _keeping.call(server.ensure, store.address.home)
        except errors.HoldfastError as error:
            log.debug("the keeper of the embedded server was not checked: %s", error)
