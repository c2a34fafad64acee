"""Waiting for tasks and events, in ways that asyncio has no word for."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

from holdfast import errors

log = logging.getLogger("holdfast.worker")

Duty = Callable[[], Coroutine[Any, Any, None]]


async def first(*events: Coroutine[Any, Any, Any] | asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait for the first of some events. What was a future before goes on."""
    futures = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event, future in zip(events, futures, strict=True):
            if event is not future:
                future.cancel()


async def end_all(tasks: Collection[asyncio.Task[Any]]) -> None:
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
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    except RuntimeError as error:  # this machine has no thread left
        log.error("%s is left behind: %s", folder, error)


async def insist(duty: Duty) -> None:
    """Do a duty for as long as the worker lives: one that fails is said and begun again."""
    while True:
        try:
            await duty()
        except errors.StoreUnavailable:
            log.debug("the store is away, and is not waited for any more")  # which was said already
        except Exception:
            log.exception("a duty of the supervisor failed and begins again")
        await asyncio.sleep(1)
