"""The queues that a worker serves now: those in its settings, and those that match its patterns.

The store sends a message to the inbox of a worker with patterns when a queue is created; should that be lost, the next
renewal replies with another count of changes. Then the worker lists all queues and informs its executors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from holdfast import errors
from holdfast.store import commands
from holdfast.worker.linux import boot_time
from holdfast.worker.queue_patterns import Patterns
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.settings import MAX_QUEUES, Pool

log = logging.getLogger("holdfast.worker")

MIN_LISTING_INTERVAL = 0.01  # seconds between two listings; longer if a listing takes long
MAX_SHOWN = 10  # names in a log line


class ServedQueues:
    """The queues of all pools of a worker. `on_change` is called with the name of a pool whose queues have changed."""

    def __init__(self, pools: Iterable[Pool], store: RetryingStore, *, on_change: Callable[[str], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._patterns = {pool.name: Patterns(pool.queues) for pool in pools}
        self._now = {name: patterns.expand(()) for name, patterns in self._patterns.items()}
        self._changes: int | None = None  # of all queues, at the last listing
        self._requested = asyncio.Event()
        self._after_refresh: list[Callable[[], None]] = []
        self._logged: set[str] = set()

    @property
    def matches(self) -> bool:
        """Whether there is a pattern, so that the store should report new queues."""
        return any(patterns.wildcards for patterns in self._patterns.values())

    @property
    def names(self) -> list[str]:
        """The names of all queues that are served now, each once; as many as the store accepts in one call."""
        return list(dict.fromkeys(queue for queues in self._now.values() for queue in queues))[:MAX_QUEUES]

    def of(self, pool: Pool) -> dict[str, int] | None:
        """Return the current queues of a pool and their weights; None if it has no pattern, so they never change."""
        return self._now[pool.name] if self._patterns[pool.name].wildcards else None

    def serves(self, queue: str, pool: Pool | None = None) -> bool:
        """Return whether a queue of this name is served, by any pool or by this one, whether or not it exists yet."""
        pools = self._patterns.values() if pool is None else [self._patterns[pool.name]]
        return any(patterns.serves(queue) for patterns in pools)

    # Listing

    def check_count(self, changes: int) -> None:
        """Refresh if the number of queues created or forgotten so far has changed."""
        if changes != self._changes:
            self._changes = changes
            self._requested.set()

    def refresh(self, then: Callable[[], None] | None = None) -> None:
        """List all queues again if there are patterns, and then call `then`."""
        if then:
            self._after_refresh.append(then)
        self._requested.set()

    async def run(self) -> None:
        """List all queues whenever that was requested."""
        while await self._requested.wait():
            self._requested.clear()
            then, self._after_refresh = self._after_refresh, []
            began = boot_time()
            try:
                if self.matches:
                    self._update(await self._store.run(commands.queue_names()))
            except errors.Invalid as error:
                self._log_once(logging.ERROR, f"could not look for new queues: {error}")
            except errors.HoldfastError:
                self._requested.set()
                raise
            for call in then:
                call()
            await asyncio.sleep(max(MIN_LISTING_INTERVAL, 10 * (boot_time() - began)))

    def _update(self, names: list[str]) -> None:
        for pool, patterns in self._patterns.items():
            before, now = self._now[pool], patterns.expand(names)
            self._now[pool] = now
            if patterns.wildcards:
                self._log_change(pool, before, now)
            if list(now.items()) != list(before.items()):
                self._on_change(pool)

    def _log_change(self, pool: str, before: dict[str, int], now: dict[str, int]) -> None:
        whose = f"pool {pool}: " if len(self._patterns) > 1 else ""
        patterns = ", ".join(self._patterns[pool].wildcards)
        if new := [queue for queue in now if queue not in before]:
            log.info("%squeues that match %s: %s", whose, patterns, _shown(new))
        if not now:
            self._log_once(logging.WARNING, f"{whose}no queue matches {patterns} yet; waiting for one")
        if len(now) > MAX_QUEUES:
            self._log_once(
                logging.WARNING,
                f"{whose}more than {MAX_QUEUES} queues match {patterns}: each claim covers a part of them in rotation, "
                "so their order is approximate",
            )

    def _log_once(self, level: int, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.log(level, "%s", message)


def _shown(names: list[str]) -> str:
    more = f", and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more
