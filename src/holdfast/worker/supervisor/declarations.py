"""What the app of a worker declares: limits, schedules and subscriptions.

They are declared when an executor has imported the app, and again when the store has lost data. They are not declared
just because one is missing: somebody may have removed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from holdfast.worker.supervisor.limits import WorkerLimits
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.subscriptions import WorkerSubscriptions

Declaration = dict[str, Any]


class Declarations:
    """Declares what an app has, once."""

    def __init__(self, limits: WorkerLimits, schedules: WorkerSchedules, subscriptions: WorkerSubscriptions) -> None:
        self._limits = limits
        self._schedules = schedules
        self._subscriptions = subscriptions
        self._declared: tuple[list[Declaration], ...] = ([], [], [])
        self._changing = asyncio.Lock()
        self._has_lost = asyncio.Event()

    async def declare(
        self, limits: Iterable[Declaration], schedules: Iterable[Declaration], subscriptions: Iterable[Declaration]
    ) -> None:
        """Declare what has changed: each executor reports all of it, and may have newer code."""
        async with self._changing:
            known, self._declared = self._declared, (list(limits), list(schedules), list(subscriptions))
            await self._send(known)

    def declare_again(self) -> None:
        """The store has lost data: declare everything again."""
        self._has_lost.set()

    async def run(self) -> None:
        """Declare everything again whenever the store has lost data."""
        while await self._has_lost.wait():
            async with self._changing:
                self._has_lost.clear()
                await self._send(None)

    async def _send(self, known: tuple[list[Declaration], ...] | None) -> None:
        """Send what is not known; without `known`, all of it after a loss."""
        limits, schedules, subscriptions = self._declared
        if known is None or limits != known[0]:
            await self._limits.declare(limits)
        if known is None or schedules != known[1]:
            await self._schedules.declare(schedules)
        if known is None or subscriptions != known[2]:
            await self._subscriptions.declare(subscriptions, after_loss=known is None)
