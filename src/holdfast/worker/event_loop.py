"""What code on the worker's event loop needs: wait for the first of several events, cancel tasks, call in threads."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

log = logging.getLogger("holdfast.worker")

P = ParamSpec("P")
T = TypeVar("T")
Duty = Callable[[], Coroutine[Any, Any, None]]


class Threads:
    """Threads for the worker's duties, because jobs may occupy all threads of `asyncio.to_thread`.

    Each event loop has its own, up to `max_threads`: a forked copy of this process has another loop and no threads.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        self._name = f"holdfast-{name}"
        self._max_threads = max_threads
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread."""
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is None:
            pool = self._pools[loop] = ThreadPoolExecutor(self._max_threads, thread_name_prefix=self._name)
        return await loop.run_in_executor(pool, partial(function, *args, **kwargs))


_removing = Threads("remove", 4)


async def wait_for_first(*events: Coroutine[Any, Any, Any] | asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait for the first of several events. Futures and tasks that were passed continue; coroutines are cancelled."""
    futures = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event, future in zip(events, futures, strict=True):
            if event is not future:
                future.cancel()


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: in Python 3.11 a `wait_for` whose timeout has just expired, as in each send of the Redis client,
    swallows the cancellation.
    """
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)


async def remove_folder(folder: Path) -> None:
    """Remove a folder and its contents in a thread: there may be many files."""
    try:
        await _removing.call(shutil.rmtree, folder, ignore_errors=True)
    except RuntimeError as error:  # no thread can be started
        log.error("could not remove %s: %s", folder, error)
