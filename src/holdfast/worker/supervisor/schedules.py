"""The worker's part in schedules: it declares those of its app, and tells the store further times when they run out.

To tell times is a duty of its own: neither a long computation nor a schedule that cannot be understood here (of another
release, or of a time zone that this machine does not know) keeps leases from being renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from holdfast import errors
from holdfast.client import timing
from holdfast.constants import MIN_TIMES_AHEAD
from holdfast.store import commands
from holdfast.worker.retrying import RetryingStore

log = logging.getLogger("holdfast.worker")


Declaration = dict[str, Any]


class WorkerSchedules:
    """What a worker does for schedules."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._declared: list[Declaration] = []
        self._to_refill: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._said: dict[str, str] = {}  # what is wrong with a schedule

    async def declare(self, declarations: Iterable[Declaration]) -> None:
        """Make the schedules of an app, unless that was done: each executor says them, and one may have newer code."""
        told = list(declarations)
        if told == self._declared:
            return
        self._declared = told
        for declaration in told:
            await self._declare(declaration)

    def refill(self, names: Iterable[str]) -> None:
        """Have the store told further times of schedules."""
        self._to_refill |= dict.fromkeys(names)
        if self._to_refill:
            self._wanted.set()

    async def keep(self) -> None:
        """Tell the times that were asked for."""
        while await self._wanted.wait():
            self._wanted.clear()
            while self._to_refill:
                name = next(iter(self._to_refill))
                await self._refill(name)
                del self._to_refill[name]

    async def _declare(self, declaration: Declaration) -> None:
        """Make a schedule. A newer release may have made it already."""
        name = declaration["name"]
        try:
            if await self._store.run(commands.schedule(**declaration)):
                log.info("schedule %s is declared", name)
                self.refill([name])
        except errors.WrongState as error:
            log.warning("%s: left as it is", error)
        except errors.HoldfastError as error:
            log.error("schedule %s is not declared: %s", name, error)

    async def _refill(self, name: str) -> None:
        try:
            for fields in await self._store.run(commands.schedules([name])):
                await self._tell_times(name, fields)
            self._said.pop(name, None)
        except errors.StoreUnavailable:
            raise
        except Exception as error:  # whatever stands there: it is somebody else's, who can do it
            self._say(name, f"{type(error).__name__}: {error}")

    async def _tell_times(self, name: str, fields: dict[str, Any]) -> None:
        """Say further times of a schedule. Of several workers that do, one is heard."""
        if len(fields.get("times", "").split()) >= MIN_TIMES_AHEAD:
            return  # another worker was faster
        if told := await asyncio.to_thread(timing.further_times, fields):
            await self._store.run(commands.refill(name, *told))

    def _say(self, name: str, what: str) -> None:
        """Once, unless it is something else."""
        if self._said.get(name) != what:
            self._said[name] = what
            log.error("schedule %s: its next times are left to other workers: %s", name, what)
