"""Workers of this node that died: what they held is taken back as soon as all of their processes are dead."""

from __future__ import annotations

import asyncio
import logging

from holdfast.worker.leases import Leases
from holdfast.worker.locks import DeadWorker, WorkerLock
from holdfast.worker.logs import send_rest
from holdfast.worker.patient import PatientStore
from holdfast.worker.waiting import remove

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 1.0  # seconds


class Siblings:
    """The other workers of a node, as one of them sees them."""

    def __init__(self, lock: WorkerLock, store: PatientStore, leases: Leases) -> None:
        self._lock = lock
        self._store = store
        self._leases = leases
        self._lost: set[str] = set()  # whose logs are not sent yet

    async def keep(self) -> None:
        await self._store.known()
        while True:
            for dead in self._lock.dead_siblings():
                await self._bury(dead)
            await asyncio.sleep(LOOK_EVERY)

    async def _bury(self, dead: DeadWorker) -> None:
        if dead.held_jobs and not await self._take_back(dead):
            return  # tried again soon
        if dead.has_folder:
            await remove(dead.directory)
        dead.file.unlink(missing_ok=True)
        self._lost.discard(dead.name)

    async def _take_back(self, dead: DeadWorker) -> bool:
        """Requeue the jobs of a dead worker and send its logs. Returns whether the store took them."""
        if dead.name not in self._lost:
            log.warning("worker %s on this node is dead", dead.name)
            await self._leases.lose(worker=dead.name, reason="the worker died")
            self._lost.add(dead.name)
        return not dead.has_folder or await send_rest(self._store, dead.directory)
