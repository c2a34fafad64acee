"""Exclusive jobs, seen from the supervisor: one whose lease was not renewed is killed before the lease can lapse.

    a quarter of its lease is left    its executor is told, and stops it
    an eighth is left                 it is killed from here, whatever its executor does

A lease counts from when its claim or renewal was sent: the server cannot have heard of it before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.store.commands import Lease
from holdfast.worker.linux import boot_time
from holdfast.worker.messages import LeaseRenewed
from holdfast.worker.runners.run_limits import ASK_AT
from holdfast.worker.supervisor.executor_process import ExecutorProcess

log = logging.getLogger("holdfast.worker")

KILL_AT = 1 / 8  # of the lease before its end
LOOK_EVERY = 0.25  # seconds, at most


class _Lease(NamedTuple):
    length: float  # seconds
    since: float
    is_told: bool = False
    is_known: bool = False  # to its executor as one that is renewed with the others

    @property
    def left(self) -> float:
        """The part of it that is left."""
        return (self.since + self.length - boot_time()) / self.length


class ExclusiveLeases:
    """The exclusive jobs that the executors of one worker hold."""

    def __init__(self, executors: Mapping[str, ExecutorProcess]) -> None:
        self._executors = executors
        self._leases: dict[Lease, _Lease] = {}
        self._some = asyncio.Event()

    def add(self, executor: str, id: str, attempt: int, milliseconds: int, since: float) -> None:
        self._leases[Lease(executor, id, attempt)] = _Lease(milliseconds / 1000, since)
        self._some.set()

    def renewed(self, held: Iterable[Lease], since: float) -> None:
        """These leases were renewed by a call that was sent then.

        Its executor is told that once: before, it cannot know whether we have heard of its claim, and a renewal that
        it sees may have been one of others.
        """
        for key in self._leases.keys() & set(held) if self._leases else ():
            executor = self._executors.get(key.executor)
            if executor and not self._leases[key].is_known:
                executor.send(LeaseRenewed(key.id, key.attempt))
            self._leases[key] = _Lease(self._leases[key].length, since, is_known=True)

    async def keep(self) -> None:
        while await self._some.wait():
            for key, lease in list(self._leases.items()):
                self._look(key, lease)
            if not self._leases:
                self._some.clear()
                continue
            soonest = min((lease.left - KILL_AT) * lease.length for lease in self._leases.values())
            await asyncio.sleep(min(max(soonest, 0.01), LOOK_EVERY))

    def _look(self, key: Lease, lease: _Lease) -> None:
        executor = self._executors.get(key.executor)
        if executor is None or not executor.holds(key.id, key.attempt):
            del self._leases[key]
        elif lease.left <= KILL_AT:
            executor.kill_job(key.id, key.attempt)
        elif lease.left <= ASK_AT and not lease.is_told:
            log.warning("%s: the lease of attempt %d cannot be renewed, and it is exclusive: stopping it", *key[1:])
            executor.interrupt(key.id, key.attempt, "lapsing")
            self._leases[key] = lease._replace(is_told=True)
