"""Calls that threads post to an event loop. They are made in their order, and many of them cost one wake-up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any


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

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function, in the loop: now, unless something that was posted before has to be called first."""
        if self._calls:
            self.put(function, *args)
        else:
            function(*args)

    def _wake(self) -> None:
        self._is_woken = True
        self._loop.call_soon_threadsafe(self._make_calls, context=self._context)

    def _make_calls(self) -> None:
        self._is_woken = False  # first: whoever posts after the last look wakes the loop again
        try:
            while self._calls:
                function, args = self._calls.popleft()
                function(*args)
        finally:
            if self._calls:  # one raised, which is no reason to forget the others
                self._wake()
