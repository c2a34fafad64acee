"""The heartbeat of a program that claims items: renews their leases while the program is inside `with items`.

A thread, or in an asyncio program a task, sends one command for all leases: when the first of them has used a quarter
of its time, and at least every ten seconds. Claims never wait for a heartbeat.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol

from holdfast import errors
from holdfast.items.claim_slot import ClaimSlots, ProcessSlots
from holdfast.items.held_items import I
from holdfast.store import Steps, Stores, client_method

if TYPE_CHECKING:
    import asyncio

    from holdfast.store import AsyncStore, Store

MAX_INTERVAL = 10.0  # seconds between heartbeats
RETRY_INTERVAL = 0.5  # seconds, while the server is unreachable

_ALREADY_ENTERED = "these items are already used in `with`; call jobs.items() again for another one"

log = logging.getLogger(__name__)


class Renewal(Stores, Protocol[I]):
    """What a heartbeat does, as it depends on the keys in which the leases are."""

    queue: str

    def renew_all(self, slots: ClaimSlots[I]) -> Steps[None]:
        """Renew the leases of all items that this process holds."""

    def release_all(self, slots: ClaimSlots[I]) -> Steps[None]:
        """Release the items that have not ended, at the end of `with items`."""


class Heartbeat(Generic[I]):
    """Renews the leases that a program holds. A forked process that claims items gets a thread of its own."""

    def __init__(self, renewal: Renewal[I], slots: ProcessSlots[I]) -> None:
        self._renewal = renewal
        self._slots = slots
        self._due = math.inf  # time of the next heartbeat; a lease that needs it earlier wakes the thread
        self._wake: Callable[[], object] = lambda: None
        self._is_unreachable = False
        self._stopping = True
        self._thread: threading.Thread | None = None
        self._thread_slots: ClaimSlots[I] | None = None  # of the process that started the thread
        self._task: asyncio.Task[None] | None = None

    @property
    def store(self) -> Store:
        return self._renewal.store

    @property
    def async_store(self) -> AsyncStore:
        return self._renewal.async_store

    def include(self, item: I) -> None:
        """Renew a claimed item in time."""
        slots = self._slots.current
        if self._thread and self._thread_slots is not slots:  # forked: the thread is in the parent
            with slots.lock:
                if self._thread_slots is not slots:
                    self.start()
        if item.renew_at < self._due:
            self._wake()

    def _beat(self) -> Steps[None]:
        return self._renewal.renew_all(self._slots.current)

    beat, abeat = client_method(_beat)

    def _leave(self) -> Steps[None]:
        return self._renewal.release_all(self._slots.current)

    leave, aleave = client_method(_leave)

    def _next_due(self) -> float:
        """Return the time of the next heartbeat."""
        if self._is_unreachable:
            return time.monotonic() + RETRY_INTERVAL
        times = [item.renew_at for item in self._slots.current.held.items()]
        return min([time.monotonic() + MAX_INTERVAL, *times])

    def _log_outage(self, error: errors.HoldfastError | None) -> None:
        """Log the first failure of an outage. No lease expires while nobody can reach the server."""
        if error and not self._is_unreachable:
            log.warning("leases of items of %s cannot be renewed: %s", self._renewal.queue, error)
        self._is_unreachable = error is not None

    # In a thread

    def start(self) -> None:
        if self._thread and self._thread_slots is self._slots.current:
            raise errors.Invalid(_ALREADY_ENTERED)
        wake = threading.Event()
        self._due, self._wake, self._stopping = math.inf, wake.set, False
        self._thread_slots = self._slots.current
        self._thread = threading.Thread(target=self._run, args=[wake], name="holdfast-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake()
        if self._thread and self._thread_slots is self._slots.current:
            self._thread.join()
        self._thread = None
        try:
            self.leave()
        except errors.StoreUnavailable as error:
            self._log_outage(error)  # held items are requeued when their leases expire

    def _run(self, wake: threading.Event) -> None:
        while not self._stopping:
            try:
                self.beat()
            except errors.HoldfastError as error:
                self._log_outage(error)
            else:
                self._log_outage(None)
            self._due = math.inf  # before the next time is computed: any item claimed from now on wakes the thread
            wake.clear()
            self._due = self._next_due()
            if not self._stopping:
                wake.wait(max(0.0, self._due - time.monotonic()))

    # In an event loop

    async def astart(self) -> None:
        import asyncio

        if self._task or self._thread:
            raise errors.Invalid(_ALREADY_ENTERED)
        wake, loop = asyncio.Event(), asyncio.get_running_loop()
        self._due, self._wake = math.inf, lambda: loop.call_soon_threadsafe(wake.set)
        self._task = asyncio.create_task(self._arun(wake), name="holdfast-heartbeat")

    async def astop(self) -> None:
        import asyncio

        self._wake = lambda: None
        while self._task and not self._task.done():  # a cancellation can get lost: see `cancel_all` of the worker
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)
        self._task = None
        try:
            await self.aleave()
        except errors.StoreUnavailable as error:
            self._log_outage(error)

    async def _arun(self, wake: asyncio.Event) -> None:
        import asyncio

        while True:
            try:
                await self.abeat()
            except errors.HoldfastError as error:
                self._log_outage(error)
            else:
                self._log_outage(None)
            self._due = math.inf
            wake.clear()
            self._due = self._next_due()
            try:
                async with asyncio.timeout(max(0.0, self._due - time.monotonic())):
                    await wake.wait()
            except TimeoutError:
                continue
