"""Limits how many commands of an event loop are in flight at once; the others wait.

Each command in flight needs a connection, so a thousand coroutines that enqueue at once must not open a thousand of
them. Waiting here is not waiting for the server, so it does not count against a command's deadline. If the server
becomes unavailable in the meantime, waiting commands fail at once instead of timing out one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from holdfast import errors
from holdfast.store.deadline import Deadline

MAX_IN_FLIGHT = 32


class ConcurrencyLimit:
    """The limit of one event loop."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._deadline_slots = asyncio.Semaphore(MAX_IN_FLIGHT)  # commands with a deadline do not queue behind others
        self._failures = 0
        self._last_failure = ""

    async def run(self, send: Callable[..., Awaitable[Any]], parts: tuple[Any, ...], deadline: Deadline | None) -> Any:
        """Wait for a slot, and send a command.

        Raises:
            StoreUnavailable: the server cannot be reached. If another command failed with this error during the wait,
                this one was not sent.
        """
        slots = self._deadline_slots if deadline else self._slots
        if slots.locked():
            await self._wait(slots, deadline)
        else:
            await slots.acquire()
        try:
            return await send(parts, deadline)
        except errors.StoreUnavailable as error:
            self._failures += 1
            self._last_failure = str(error)
            raise
        finally:
            slots.release()

    async def _wait(self, slots: asyncio.Semaphore, deadline: Deadline | None) -> None:
        before = self._failures
        with deadline.paused() if deadline else nullcontext():
            await slots.acquire()
        if self._failures != before:
            slots.release()
            error = errors.StoreUnavailable(self._last_failure)
            error.maybe_done = False
            raise error
