"""How many commands of an event loop are on their way at once, and for how long. The others wait for their turn.

Each command that is on its way needs a connection, so a thousand coroutines that enqueue at once must not all be. What
waits here does not wait for the server, so its time does not count. When the server is away, though, nobody is to wait
for the time-outs of all who came before: who sees a failure while waiting fails too, without trying.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress

from holdfast import errors
from holdfast.budget import Budget

AT_ONCE = 32
LATE, GRACE = 0.05, 0.1  # seconds: an event loop that wakes up so late has stood still, and gets some more


class Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        self._free_within = asyncio.Semaphore(AT_ONCE)  # for commands with a budget, which wait for no others
        self._failures = 0
        self._last = ""

    @asynccontextmanager
    async def turn(self, budget: Budget | None) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Raises:
            StoreUnavailable: the store could not be reached by another, meanwhile; nothing was sent.
        """
        before = self._failures
        free = self._free_within if budget else self._free
        with budget.paused() if budget else nullcontext():
            await free.acquire()
        try:
            if self._failures != before:
                error = errors.StoreUnavailable(self._last)
                error.maybe_done = False
                raise error
            yield
        except errors.StoreUnavailable as error:
            self._failures += 1
            self._last = str(error)
            raise
        finally:
            free.release()


@asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[None]:
    """End what takes longer. If this event loop stood still, not the server, what has come meanwhile is heard first.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(None) as limit:
        due = asyncio.get_running_loop().time() + seconds
        timer = asyncio.get_running_loop().call_at(due, _expire, limit, due)
        try:
            yield
        finally:
            timer.cancel()


def _expire(limit: asyncio.Timeout, due: float) -> None:
    loop = asyncio.get_running_loop()
    if loop.time() - due > LATE:
        loop.call_later(GRACE, _expire, limit, math.inf)  # once
        return
    with suppress(RuntimeError):  # it has ended meanwhile
        limit.reschedule(loop.time())
