"""Calls that threads hand to an event loop. They are made in order, and many of them cost one wake-up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

BATCH = 100  # calls that the loop makes before it serves others
MAX_WAITING = 1000  # calls; a thread that adds more is slowed down
THROTTLE_PAUSE = 0.001  # seconds


class LoopCalls:
    """The calls for one loop. They run in the context that created this, not in that of the calling thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False  # the loop, for the last call

    def put(self, function: Callable[..., object], *args: Any) -> None:
        """Have the loop call a function soon. Thread-safe."""
        self._calls.append((function, args))
        if not self._is_woken:
            self._wake()

    def put_throttled(self, function: Callable[..., object], *args: Any) -> None:
        """As `put`, but sleep if this thread adds calls faster than the loop makes them."""
        self.put(function, *args)
        if len(self._calls) > MAX_WAITING:
            time.sleep(THROTTLE_PAUSE)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """In the loop: call a function now, or after the calls that are waiting."""
        if self._calls:
            self.put(function, *args)
        else:
            self._context.copy().run(function, *args)  # a copy: a waiting call may call this, and runs in the context

    def catch_up(self) -> None:
        """In the loop: make the calls that are waiting now."""
        if self._calls:
            self._context.copy().run(self._make_calls, len(self._calls))

    def _wake(self) -> None:
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._make_calls, context=self._context)
        except BaseException:  # the next call tries again
            self._is_woken = False
            raise

    def _make_calls(self, count: int = BATCH) -> None:
        self._is_woken = False  # first: a call that is added after the last check wakes the loop again
        try:
            for _ in range(min(count, len(self._calls))):  # bounded: threads may add calls faster than that
                function, args = self._calls.popleft()
                try:
                    function(*args)
                except Exception as error:  # neither the other calls nor the caller of `catch_up` are affected
                    self._loop.call_exception_handler({"message": f"{function!r} raised", "exception": error})
        finally:
            if self._calls and not self._is_woken:
                self._wake()
