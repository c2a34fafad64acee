"""Other workers of this node that died: their jobs are requeued as soon as all their processes are dead.

`store/lua/requeue_orphaned.lua` charges each job a lost lease. Without another worker on the node, the leases expire,
and the next claim anywhere takes the jobs (`store/lua/lease.lua`).
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.worker.event_loop import remove_folder
from holdfast.worker.output.shipping import send_remaining_logs
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.worker_lock import DeadWorker, WorkerLock

log = logging.getLogger("holdfast.worker")

CHECK_INTERVAL = 1.0  # seconds


class DeadWorkers:
    """Requeues the jobs of dead workers, sends their logs and removes their files."""

    def __init__(self, lock: WorkerLock, store: RetryingStore, leases: Leases) -> None:
        self._lock = lock
        self._store = store
        self._leases = leases
        self._requeued: set[str] = set()  # workers whose logs are not sent yet

    async def run(self) -> None:
        await self._store.connected()
        while True:
            for dead in self._lock.dead_workers():
                await self._clean_up(dead)
            await asyncio.sleep(CHECK_INTERVAL)

    async def _clean_up(self, dead: DeadWorker) -> None:
        if dead.held_jobs and not await self._recover(dead):
            return  # retried at the next check
        if dead.has_folder:
            await remove_folder(dead.directory)
        dead.file.unlink(missing_ok=True)
        self._requeued.discard(dead.name)

    async def _recover(self, dead: DeadWorker) -> bool:
        """Requeue the jobs of a dead worker and send its logs. Return whether the store accepted them."""
        if dead.name not in self._requeued:
            log.warning("worker %s on this node is dead", dead.name)
            await self._leases.requeue_orphaned(worker=dead.name, reason="the worker died")
            self._requeued.add(dead.name)
        return not dead.has_folder or await send_remaining_logs(self._store, dead.directory)
