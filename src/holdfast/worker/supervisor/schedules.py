"""The schedules of a worker: it declares those of its app, and computes further run times when the store runs out.

They fire in the store (`store/lua/schedules.lua`); `client/timing.py` computes the times.

Computing times is a separate duty: neither a long computation nor a schedule that this worker cannot read (of another
release, or with a time zone that this machine does not know) delays the renewal of leases.
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
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

OVERRIDDEN = (
    "schedule %s is overridden, so its new declaration does not apply; `holdfast schedules reset %s` returns to the "
    "declaration"
)


Declaration = dict[str, Any]


class WorkerSchedules:
    """Declares and refills schedules."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._to_refill: dict[str, None] = {}
        self._requested = asyncio.Event()
        self._logged: dict[str, str] = {}  # the last error of each schedule

    async def declare(self, declarations: Iterable[Declaration]) -> None:
        for declaration in declarations:
            await self._declare(declaration)

    def refill(self, names: Iterable[str]) -> None:
        """Request further times of schedules for the store."""
        self._to_refill |= dict.fromkeys(names)
        if self._to_refill:
            self._requested.set()

    async def run(self) -> None:
        """Compute the times that were requested."""
        while await self._requested.wait():
            self._requested.clear()
            while self._to_refill:
                name = next(iter(self._to_refill))
                await self._refill(name)
                del self._to_refill[name]

    async def _declare(self, declaration: Declaration) -> None:
        """Declare a schedule. A newer release may have declared it already."""
        name = declaration["name"]
        try:
            match await self._store.run(commands.declare_schedule(**declaration)):
                case "applied":
                    log.info("schedule %s is declared", name)
                    self.refill([name])
                case "overridden":
                    log.warning(OVERRIDDEN, name, name)
        except errors.WrongState as error:
            log.warning("%s; the newer declaration stays in effect", error)
        except errors.HoldfastError as error:
            log.error("schedule %s is not declared: %s", name, error)

    async def _refill(self, name: str) -> None:
        try:
            for fields in await self._store.run(commands.schedules([name])):
                await self._send_times(name, fields)
            self._logged.pop(name, None)
        except errors.StoreUnavailable:
            raise
        except Exception as error:  # the record is unreadable here; its own release can read it
            self._log_once(name, f"{type(error).__name__}: {error}")

    async def _send_times(self, name: str, fields: dict[str, Any]) -> None:
        """Send further times of a schedule. The store uses those of one worker."""
        if len(fields.get("times", "").split()) >= MIN_TIMES_AHEAD:
            return  # another worker was faster
        if times := await asyncio.to_thread(timing.further_times, fields):
            await self._store.run(commands.refill(name, *times))

    def _log_once(self, name: str, error: str) -> None:
        """Log an error of a schedule unless it is the same as before."""
        if self._logged.get(name) != error:
            self._logged[name] = error
            log.error("schedule %s: this worker cannot compute its next run times; another must: %s", name, error)
