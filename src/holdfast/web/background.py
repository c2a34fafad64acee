"""What a web process does beside answering requests: drive operations, and read events for all who follow them.

There is one background for each app and event loop. It ends with the loop, or when the application is shut down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast

log = logging.getLogger("holdfast.web")


class Background:
    """Tasks by name, each running at most once at a time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

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


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Holdfast, Background]] = WeakKeyDictionary()


def background_of(app: Holdfast) -> Background:
    """Return the background of an app in this event loop."""
    of_apps = _of_loops.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    return of_apps.setdefault(app, Background())
