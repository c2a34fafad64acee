"""Waiting for tasks and events, in ways that asyncio has no word for."""

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

from holdfast import errors

log = logging.getLogger("holdfast.worker")

P = ParamSpec("P")
T = TypeVar("T")
Duty = Callable[[], Coroutine[Any, Any, None]]


class Threads:
    """Threads for duties of the worker's own, in a process where jobs may fill those of `asyncio.to_thread`.

    Each event loop has its own, up to `most`: a forked copy of this process has another loop, and none of its threads.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = f"holdfast-{name}"
        self._most = most
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in one of them."""
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is None:
            pool = self._pools[loop] = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        return await loop.run_in_executor(pool, partial(function, *args, **kwargs))


_removing = Threads("remove", 4)


async def first(*events: Coroutine[Any, Any, Any] | asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait for the first of some events. What was a future before goes on."""
    futures = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event, future in zip(events, futures, strict=True):
            if event is not future:
                future.cancel()


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: in Python 3.11 a `wait_for` whose time has just come, as in each sending of the Redis client,
    returns as if it had not been cancelled.
    """
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)


async def remove(folder: Path) -> None:
    """Remove a folder with all that is in it. There may be very much, which holds up nobody."""
    try:
        await _removing.call(shutil.rmtree, folder, ignore_errors=True)
    except RuntimeError as error:  # this machine has no thread left
        log.error("%s is left behind: %s", folder, error)


async def run_duty(duty: Duty) -> None:
    """Do a duty for as long as the worker lives: one that fails is said and begun again.

    What the store refuses is said once, for it may refuse it every time.
    """
    refused = ""
    while True:
        try:
            await duty()
        except errors.StoreUnavailable:
            log.debug("the store is away, and is not waited for any more")  # which was said already
        except errors.HoldfastError as error:
            if str(error) != refused:
                log.error("a duty of the supervisor failed and begins again, every second: %s", error)
            refused = str(error)
        except Exception:
            log.exception("a duty of the supervisor failed and begins again")
        await asyncio.sleep(1)
