"""How many commands of an event loop are on their way at once. The others wait for their turn.

Each command that is on its way needs a connection, so a thousand coroutines that enqueue at once must not all be. What
waits here does not wait for the server, so its time does not count. When the server is away, though, nobody is to wait
for the time-outs of all who came before: who sees a failure while waiting fails too, without trying.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from holdfast import errors
from holdfast.store.deadline import Deadline

AT_ONCE = 32


class Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        self._free_within = asyncio.Semaphore(AT_ONCE)  # for commands with a deadline, which wait for no others
        self._failures = 0
        self._last = ""

    async def take(self, send: Callable[..., Awaitable[Any]], parts: tuple[Any, ...], deadline: Deadline | None) -> Any:
        """Wait for a turn, and send a command.

        Raises:
            StoreUnavailable: the store could not be reached; or not by another, meanwhile, and nothing was sent.
        """
        free = self._free_within if deadline else self._free
        if free.locked():
            await self._wait(free, deadline)
        else:
            await free.acquire()
        try:
            return await send(parts, deadline)
        except errors.StoreUnavailable as error:
            self._failures += 1
            self._last = str(error)
            raise
        finally:
            free.release()

    async def _wait(self, free: asyncio.Semaphore, deadline: Deadline | None) -> None:
        before = self._failures
        with deadline.paused() if deadline else nullcontext():
            await free.acquire()
        if self._failures != before:
            free.release()
            error = errors.StoreUnavailable(self._last)
            error.maybe_done = False
            raise error
