"""Calls that threads post to an event loop. They are made in their order, and many of them cost one wake-up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

AT_ONCE = 100  # calls that the loop makes before it looks after others
FAR_AHEAD = 1000  # calls that wait; then it is time to wait for the loop
PATIENCE = 0.001  # seconds


class Posted:
    """What was posted to one loop. It is called in the context of who made this, not of who posts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False  # the loop, for what was posted last

    def put(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called by the loop, soon. Any thread may post."""
        self._calls.append((function, args))
        if not self._is_woken:
            self._wake()

    def put_patiently(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called, as `put` does. A thread that posts faster than the loop can call is slowed down."""
        self.put(function, *args)
        if len(self._calls) > FAR_AHEAD:
            time.sleep(PATIENCE)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function, in the loop: now, unless something that was posted before has to be called first."""
        if self._calls:
            self.put(function, *args)
        else:
            self._context.copy().run(function, *args)  # a copy: what was posted may call this, and has the context

    def catch_up(self) -> None:
        """Make the calls that were posted so far, in the loop."""
        if self._calls:
            self._context.copy().run(self._make_calls, len(self._calls))

    def _wake(self) -> None:
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._make_calls, context=self._context)
        except BaseException:  # whoever posts next tries again
            self._is_woken = False
            raise

    def _make_calls(self, most: int = AT_ONCE) -> None:
        self._is_woken = False  # first: whoever posts after the last look wakes the loop again
        try:
            for _ in range(min(most, len(self._calls))):  # though threads may post faster than that, and without end
                function, args = self._calls.popleft()
                try:
                    function(*args)
                except Exception as error:  # no reason to forget the others, nor any matter of who catches up
                    self._loop.call_exception_handler({"message": f"{function!r} raised", "exception": error})
        finally:
            if self._calls and not self._is_woken:
                self._wake()
