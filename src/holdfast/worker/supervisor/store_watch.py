"""A look at the server once a minute, while a worker runs: whether it evicts jobs, and whether its keeper lives.

A worker refuses a server that evicts when it starts (`trust`), but the policy can be changed at any time. From then on
nothing is claimed until it is mended; running jobs go on, and what they report is stored.
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
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.waiting import Threads

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 60.0  # seconds

_joining = Threads("server", 1)


class StoreWatch:
    """Says whether a worker may claim. `on_change` is called when that changes."""

    def __init__(self, store: RetryingStore, *, accept_data_loss: bool, on_change: Callable[[], None]) -> None:
        self._store = store
        self._accepts = accept_data_loss
        self._on_change = on_change
        self._evicts = accept_data_loss  # then it was said when the worker started, if it was so
        self._evicted: int | None = None  # keys, when we looked last

    @property
    def may_claim(self) -> bool:
        return self._accepts or not self._evicts

    async def keep(self) -> None:
        store = await self._store.connected()
        while True:
            try:
                info: Any = await store.execute("INFO")
            except errors.HoldfastError as error:  # it is away, which others say; or this user may not ask
                log.debug("the server was not looked at: %s", error)
            else:
                self._judge({str(name): str(value) for name, value in info.items()})
                await _join(store)
            await asyncio.sleep(LOOK_EVERY)

    def _judge(self, info: dict[str, str]) -> None:
        self._count(int(info.get("evicted_keys", 0)))
        result = eviction(ServerFacts(info=info))
        evicts, before = result.level == "danger", self._evicts
        self._evicts = evicts
        if evicts and not before:
            then = "goes on, as --accept-data-loss says" if self._accepts else "claims nothing until that is done"
            log.error("eviction: %s %s This worker %s.", result.means, result.advice, then)
        elif before and not evicts and not self._accepts:
            log.warning("eviction: the server evicts no jobs any more; this worker claims again")
        if evicts != before:
            self._on_change()

    def _count(self, evicted: int) -> None:
        """Say how many keys were evicted since the last look. A server that was restarted counts from zero."""
        before, self._evicted = self._evicted, evicted
        if before is not None and evicted > before:
            log.error(
                "eviction: the server evicted %d keys since the last look: jobs may be missing; run holdfast doctor",
                evicted - before,
            )


async def _join(store: AsyncStore) -> None:
    """Have the keeper of an embedded server replaced that was killed."""
    if store.address.home is not None:
        try:
            await _joining.call(server.ensure, store.address.home)
        except errors.HoldfastError as error:
            log.debug("the keeper of the embedded server was not looked at: %s", error)
