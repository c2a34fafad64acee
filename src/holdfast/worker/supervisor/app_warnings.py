"""Mistakes of an app that end no job: a worker warns of each once."""

from __future__ import annotations

import asyncio
import logging

from holdfast.store import commands
from holdfast.text import did_you_mean
from holdfast.worker.retrying import RetryingStore

log = logging.getLogger("holdfast.worker")


class AppWarnings:
    """What this worker has warned of."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._tasks: set[str] = set()
        self._limits: set[str] = set()
        self._undefined = 0  # the store's number for limits that nobody has defined
        self._has_changed = asyncio.Event()

    def heard_misfit(self, task: str, id: str, words: str) -> None:
        """An executor says that a result does not fit the annotation of its task."""
        if task not in self._tasks:
            self._tasks.add(task)
            log.warning("%s: %s; correct what task %s is annotated to return (said once)", id, words, task)

    def heard_undefined(self, number: int) -> None:
        """The store says whether jobs took part in limits that nobody has defined: it is another number then."""
        if number not in (0, self._undefined):
            self._has_changed.set()
        self._undefined = number

    async def keep(self) -> None:
        """Warn of limits that nobody has defined."""
        while await self._has_changed.wait():
            self._has_changed.clear()
            rows = await self._store.run(commands.limits())
            known = [row.name for row in rows if row.slots]
            for name in sorted(row.name for row in rows if not row.slots):
                if name not in self._limits:
                    self._limits.add(name)
                    self._warn_of_limit(name, known)

    def _warn_of_limit(self, name: str, known: list[str]) -> None:
        how = f"jobs.set_limit({name!r}, slots), or `holdfast limit {name} SLOTS`{did_you_mean(name, known)}"
        log.warning("limit %s is not defined, so it does not hold. Define it: %s", name, how)
