"""What a web process does beside answering requests: drive operations, and read events for all who follow them.

There is one background for each app and event loop. It ends with the loop, or when the application is shut down. Before
that, the server ends streams and waits, which would keep it from shutting down.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine
from contextvars import Context
from math import inf
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast

log = logging.getLogger("holdfast.web")

LOOK_INTERVAL = 1.0  # seconds between two looks whether the server stops

T = TypeVar("T")


class Background:
    """Tasks by name, each running at most once at a time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending = asyncio.Event()

    def end_streams(self) -> None:
        """End all streams and waits: the server shuts down."""
        self._ending.set()

    async def parts(self, source: AsyncIterator[T], interval: float | None = None) -> AsyncGenerator[T | None, None]:
        """Yield the parts of a stream until the server ends it, and None after each interval without a part."""
        following: asyncio.Future[T | None] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(_next(source))
                await self._first(following, interval)
                if self._ending.is_set():
                    return
                if not following.done():
                    yield None
                    continue
                part, following = following.result(), None
                if part is None:
                    return
                yield part
        finally:
            await _cancel(following)
            if close := getattr(source, "aclose", None):
                await close()

    async def unless_ending(self, work: Awaitable[T]) -> T | None:
        """Return what some work returns; None if the server shuts down before."""
        task = asyncio.ensure_future(work)
        try:
            await self._first(task, None)
            return task.result() if task.done() else None
        finally:
            await _cancel(task)

    async def _first(self, task: asyncio.Future[Any], seconds: float | None) -> None:
        """Wait for a task, for the end of the server, or so long."""
        ending = asyncio.ensure_future(self._ending.wait())
        left = inf if seconds is None else seconds
        try:
            while left > 0:
                span = min(left, LOOK_INTERVAL)
                done, _ = await asyncio.wait([task, ending], timeout=span, return_when=asyncio.FIRST_COMPLETED)
                if _is_uvicorn_stopping():
                    self.end_streams()
                if done:
                    return
                left -= span
        finally:
            ending.cancel()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task, unless it is running. It has no context: it acts for no user and repeats no request."""
        if (known := self._tasks.get(name)) and not known.done():
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        self._tasks[name] = task
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        if self._tasks.get(task.get_name()) is task:
            del self._tasks[task.get_name()]
        if not task.cancelled() and (error := task.exception()):
            log.error("%s failed in the background", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_uvicorn_stopping() -> bool:
    """Return whether uvicorn, which may serve the application around a mounted one, was asked to stop.

    It tells applications only after all connections are closed; but the handler of its signals is a method of it.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


async def _next(parts: AsyncIterator[T]) -> T | None:
    return await anext(parts, None)


async def _cancel(task: asyncio.Future[Any] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Holdfast, Background]] = WeakKeyDictionary()


def background_of(app: Holdfast) -> Background:
    """Return the background of an app in this event loop."""
    of_apps = _of_loops.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    return of_apps.setdefault(app, Background())
