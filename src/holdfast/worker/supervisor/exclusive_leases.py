"""Leases of exclusive jobs: a job whose lease is not renewed is killed before the lease can expire.

    a quarter of the lease is left    the executor interrupts the job
    an eighth is left                 the supervisor kills the job

A lease is counted from when its claim or renewal was sent: the server cannot have received it earlier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.store.commands import Lease
from holdfast.worker.linux import boot_time
from holdfast.worker.messages import LeaseRenewed
from holdfast.worker.runners.run_limits import INTERRUPT_AT
from holdfast.worker.supervisor.executor_process import ExecutorProcess

log = logging.getLogger("holdfast.worker")

KILL_AT = 1 / 8  # of the lease is left
MAX_CHECK_INTERVAL = 0.25  # seconds between checks


class _Lease(NamedTuple):
    length: float  # seconds
    since: float
    is_interrupted: bool = False
    is_confirmed: bool = False  # its executor has received LeaseRenewed

    @property
    def left(self) -> float:
        """The part of the lease that is left, from 1 to 0."""
        return (self.since + self.length - boot_time()) / self.length


class ExclusiveLeases:
    """The exclusive jobs that the executors of one worker hold."""

    def __init__(self, executors: Mapping[str, ExecutorProcess]) -> None:
        self._executors = executors
        self._leases: dict[Lease, _Lease] = {}
        self._not_empty = asyncio.Event()

    def add(self, executor: str, id: str, attempt: int, milliseconds: int, since: float) -> None:
        self._leases[Lease(executor, id, attempt)] = _Lease(milliseconds / 1000, since)
        self._not_empty.set()

    def renewed(self, held: Iterable[Lease], since: float) -> None:
        """Record a renewal sent at this time.

        Confirm the first to the executor: the lease clock alone does not show that this lease was included.
        """
        for key in self._leases.keys() & set(held) if self._leases else ():
            executor = self._executors.get(key.executor)
            if executor and not self._leases[key].is_confirmed:
                executor.send(LeaseRenewed(key.id, key.attempt))
            self._leases[key] = _Lease(self._leases[key].length, since, is_confirmed=True)

    async def run(self) -> None:
        while await self._not_empty.wait():
            for key, lease in list(self._leases.items()):
                self._check(key, lease)
            if not self._leases:
                self._not_empty.clear()
                continue
            soonest = min((lease.left - KILL_AT) * lease.length for lease in self._leases.values())
            await asyncio.sleep(min(max(soonest, 0.01), MAX_CHECK_INTERVAL))

    def _check(self, key: Lease, lease: _Lease) -> None:
        executor = self._executors.get(key.executor)
        if executor is None or not executor.holds(key.id, key.attempt):
            del self._leases[key]
        elif lease.left <= KILL_AT:
            executor.kill_job(key.id, key.attempt)
        elif lease.left <= INTERRUPT_AT and not lease.is_interrupted:
            log.warning("%s: the lease of exclusive attempt %d could not be renewed in time; stopping it", *key[1:])
            executor.interrupt(key.id, key.attempt, "lapsing")
            self._leases[key] = lease._replace(is_interrupted=True)
