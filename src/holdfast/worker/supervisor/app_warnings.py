"""Warnings about mistakes of an app that fail no job, each logged once per worker."""

from __future__ import annotations

import asyncio
import logging

from holdfast.store import commands
from holdfast.text import did_you_mean
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")


class AppWarnings:
    """The warnings that this worker has logged."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._tasks: set[str] = set()
        self._limits: set[str] = set()
        self._undefined = 0  # changes whenever jobs use another undefined limit
        self._has_changed = asyncio.Event()

    def result_mismatch(self, task: str, id: str, note: str) -> None:
        """Warn that a result does not match the return annotation of its task."""
        if task not in self._tasks:
            self._tasks.add(task)
            log.warning("%s: %s; correct the return annotation of task %s (logged once)", id, note, task)

    def undefined_limits(self, number: int) -> None:
        """Note the number that the store replies: it changes when jobs use a limit that is not defined."""
        if number not in (0, self._undefined):
            self._has_changed.set()
        self._undefined = number

    async def run(self) -> None:
        """Warn about limits that are used but not defined."""
        while await self._has_changed.wait():
            self._has_changed.clear()
            names = await self._store.run(commands.limit_names())
            for name in sorted(set(names.undefined) - self._limits):
                self._limits.add(name)
                self._warn(name, names.defined)

    def _warn(self, name: str, known: list[str]) -> None:
        how = f"Limit({name!r}, slots) in the app, or `holdfast limits set {name} SLOTS`{did_you_mean(name, known)}"
        log.warning("limit %s is not defined, so it has no effect. Define it: %s", name, how)
