"""The supervisor: a worker's first process. It imports no user code, so nothing that user code does can stop it.

    supervisor ──┬── executor ──── zygote ──── jobs
                 └── executor ...

It renews the leases of all executors, hears of cancellations, starts executors again that die, takes back what they
held, and stops everything within one deadline.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast import commands, errors
from holdfast.commands import Command, Finish, Held, Renewed, Started
from holdfast.names import new_id
from holdfast.outcome import Release
from holdfast.store import Address, AsyncStore
from holdfast.worker import system
from holdfast.worker.locks import WorkerLock
from holdfast.worker.processes import ExecutorProcess
from holdfast.worker.pulse import Pulse
from holdfast.worker.settings import WorkerSettings, node_name

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

RENEW_AT_ONCE = 1000
INBOX_BLOCK = 5.0  # seconds
SIBLINGS_EVERY = 1.0
RESTART_AFTER = 0.5  # seconds, doubling to 10 while executors die young
GRACE = 3.0  # seconds between the deadline of a stop and the end of all patience


class Supervisor:
    """Runs a worker until it is told to stop: returns the exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.worker = f"{settings.node or node_name()}/{new_id()[-8:]}"
        directory = tempfile.mkdtemp(prefix="holdfast-")
        self._settings = msgspec.structs.replace(settings, directory=directory)
        self._pulse = Pulse()
        self._lock = WorkerLock(self.worker)
        self._executors: dict[str, ExecutorProcess] = {}
        self._number = 0
        self._store: AsyncStore | None = None  # not known before an executor has imported the app
        self._inbox_key = b""
        self._ready = asyncio.Event()
        self._renew_soon = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._away = False
        self._arrivals = 0
        self._unnamed: dict[Held, float] = {}
        self._exit_code = 0

    async def run(self) -> int:
        system.adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        log.info("worker %s starts, queues %s", self.worker, ", ".join(self._settings.queues))
        try:
            async with asyncio.TaskGroup() as group:
                duties = [group.create_task(duty) for duty in self._duties()]
                await self._work(group)
                for duty in duties:
                    duty.cancel()
        finally:
            await self._leave()
        log.info("worker %s has stopped", self.worker)
        return self._exit_code

    def _duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._renew(), self._read_inbox(), self._watch_siblings()]

    def _on_signal(self) -> None:
        """The first signal asks to stop, the second to hurry."""
        (self._hurry if self._stopping.is_set() else self._stopping).set()

    # Executors

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Keep executors running until a signal comes or the app cannot be loaded; then stop them by the deadline."""
        keepers = [group.create_task(self._keep_executor()) for _ in range(self._settings.executors)]
        ends: asyncio.Future[Any] = asyncio.gather(*keepers)
        await _first(ends, self._stopping.wait())
        self._stopping.set()
        seconds = self._settings.stop_within / 1000
        await self._tell_all_to_stop(seconds)
        await _first(ends, self._hurry.wait(), timeout=seconds + GRACE)
        if not ends.done():
            await self._tell_all_to_stop(0)
            await asyncio.wait({ends}, timeout=GRACE)
        for executor in self._executors.values():
            executor.kill()
        await ends

    async def _tell_all_to_stop(self, seconds: float) -> None:
        for executor in self._executors.values():
            executor.send("stop", seconds)

    async def _keep_executor(self) -> None:
        """Run an executor, and another when it dies, until the worker stops."""
        pause = RESTART_AFTER
        while not self._stopping.is_set():
            self._number += 1
            name = f"{self.worker}.{self._number}"
            executor = ExecutorProcess.start(name, self._settings, self._lock.descriptor, self._pulse.descriptor)
            self._executors[name] = executor
            born = system.boot_time()
            await self._follow(executor)
            code = await executor.wait()
            await self._bury(executor, code)
            if self._stopping.is_set():
                return
            pause = RESTART_AFTER if system.boot_time() - born > 10 else min(pause * 2, 10)
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _follow(self, executor: ExecutorProcess) -> None:
        """Hear what an executor says, until it is gone."""
        async for word, *rest in executor.messages():
            if word == "hello":
                self._meet(*rest)
            elif word == "failed":
                log.error("the app %s cannot be loaded:\n%s", self._settings.app, rest[0])
                self._exit_code = 1
                self._stopping.set()
            else:
                executor.note(word, rest[0])
                if word == "started":
                    self._renew_soon.set()
        executor.close()

    def _meet(self, url: str | None, home: str, namespace: str, timeout: float) -> None:
        """The first executor has imported the app: now we know which store to use."""
        if self._store is None:
            address = Address(url, Path(home) if home else None, namespace, timeout)
            self._store = AsyncStore(address)
            self._lock.belongs_to(address)
            self._ready.set()

    async def _store_known(self) -> AsyncStore:
        while self._store is None:
            await self._ready.wait()
        return self._store

    async def _bury(self, executor: ExecutorProcess, code: int) -> None:
        """An executor is dead: kill all that it started, then give back what it held, never the other way round."""
        executor.kill_jobs()
        await self._kill_orphans()
        del self._executors[executor.name]
        if self._store is None:
            return
        if self._stopping.is_set():
            await self._release(executor)
        else:
            log.error("executor %s died: %s", executor.name, _describe(code))
            async for lost in self._lose(executor=executor.name, reason=f"the executor died: {_describe(code)}"):
                log.warning("took back %s", ", ".join(lost))

    async def _kill_orphans(self) -> None:
        """Kill whatever was left to us, with all its descendants, which are left to us in turn."""
        while orphans := set(system.children()) - {executor.pid for executor in self._executors.values()}:
            for pid in orphans:
                system.kill_group(pid)
                system.kill(pid)
            for pid in orphans:
                system.reap(pid)
            await asyncio.sleep(0.01)

    async def _release(self, executor: ExecutorProcess) -> None:
        """Hand back, uncharged, what an executor held that did not stop in time."""
        items = [Finish(held.id, held.attempt, Release("stopped")) for held in executor.held]
        if items:
            await self._patiently(commands.finish(executor.name, items[:RENEW_AT_ONCE]))

    async def _lose(self, **whose: str) -> AsyncIterator[list[str]]:
        while lost := await self._patiently(commands.lose(**whose)):
            yield lost

    # Leases

    async def _renew(self) -> None:
        """Renew all leases every quarter of a lease; sooner if there is something to tell."""
        await self._store_known()
        interval = self._settings.lease / 4000
        while True:
            began = system.boot_time()
            await self._renew_all()
            while (left := interval - (system.boot_time() - began)) > 0:
                # In short sleeps: the clock of `sleep` stands still while the machine sleeps.
                await self._nap(min(left, 1.0))
                if self._renew_soon.is_set() and system.boot_time() - began > 0.5:
                    break

    async def _nap(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._renew_soon.wait(), seconds)
            await asyncio.sleep(min(seconds, 0.2))
        except TimeoutError:
            return

    async def _renew_all(self) -> None:
        self._renew_soon.clear()
        executors = list(self._executors)
        held = [lease for executor in self._executors.values() for lease in executor.held]
        started = [start for executor in self._executors.values() for start in executor.take_started()]
        parts = iter(held)
        while True:
            part = list(islice(parts, RENEW_AT_ONCE))
            names = [] if len(held) > RENEW_AT_ONCE else executors
            await self._renew_part(part, names, started)
            started = []
            if len(part) < RENEW_AT_ONCE:
                return

    async def _renew_part(self, held: list[Held], executors: list[str], started: list[Started]) -> None:
        command = commands.renew(
            self.worker,
            held,
            executors=executors,
            lease=self._settings.lease,
            started=started,
            about=self._about(),
            arrivals=self._arrivals,
        )
        renewed = await self._patiently(command)
        self._pulse.beat()
        self._inbox_key = renewed.inbox_key
        self._arrivals = renewed.arrivals
        self._pass_on(renewed)
        await self._release_unnamed(renewed.unnamed)

    def _about(self) -> str:
        about = {
            "pid": os.getpid(),
            "queues": self._settings.queues,
            "app": self._settings.app,
            "lease": self._settings.lease,
        }
        return msgspec.json.encode(about).decode()

    def _pass_on(self, renewed: Renewed) -> None:
        for word, leases in (("cancelled", renewed.cancelled), ("lost", renewed.lost)):
            for lease in leases:
                if executor := self._executors.get(lease.executor):
                    executor.send(word, lease.id, lease.attempt)

    async def _release_unnamed(self, unnamed: list[Held]) -> None:
        """Hand back jobs that the store says we hold and we do not know of, once that has been so for a whole lease."""
        now = system.boot_time()
        self._unnamed = {lease: self._unnamed.get(lease, now) for lease in unnamed}
        for lease, since in self._unnamed.items():
            if now - since > self._settings.lease / 1000:
                await self._patiently(
                    commands.finish(lease.executor, [Finish(lease.id, lease.attempt, Release("not known"))])
                )

    # Other duties

    async def _read_inbox(self) -> None:
        store = await self._store_known()
        while True:
            if not self._inbox_key:
                await asyncio.sleep(0.05)
                continue
            try:
                popped = await store.execute("BLPOP", self._inbox_key, INBOX_BLOCK, blocks=INBOX_BLOCK)
            except errors.StoreUnavailable:
                await asyncio.sleep(0.5)
                continue
            if popped:
                word, executor, id, attempt = popped[1].decode().split()
                if word == "cancel" and executor in self._executors:
                    self._executors[executor].send("cancelled", id, int(attempt))

    async def _watch_siblings(self) -> None:
        """Take back what other workers of this node held, as soon as all of their processes are dead."""
        await self._store_known()
        while True:
            for worker, path in self._lock.dead_siblings():
                log.warning("worker %s on this node is dead", worker)
                async for lost in self._lose(worker=worker, reason="the worker died"):
                    log.warning("took back %s", ", ".join(lost))
                path.unlink(missing_ok=True)
            await asyncio.sleep(SIBLINGS_EVERY)

    async def _patiently(self, command: Command[T]) -> T:
        """Run a command until the store answers; say once that it is away, and once that it is back."""
        store = await self._store_known()
        while True:
            try:
                reply = await store.run(command)
            except errors.StoreUnavailable as error:
                if not self._away:
                    log.warning("%s; jobs go on, waiting for it", error)
                self._away = True
                if self._hurry.is_set():
                    raise
                await asyncio.sleep(0.2)
                continue
            if self._away:
                log.warning("the store is back")
            self._away = False
            return reply

    async def _leave(self) -> None:
        """Remove all traces: the worker is not there any more."""
        shutil.rmtree(self._settings.directory, ignore_errors=True)
        if self._store is not None:
            try:
                while await self._store.run(commands.lose(worker=self.worker, reason="the worker stopped")):
                    pass
                self._lock.remove()
            except errors.StoreUnavailable as error:
                log.warning("could not say goodbye: %s", error)
            await self._store.close()
        else:
            self._lock.remove()


async def _first(future: asyncio.Future[Any], other: Coroutine[Any, Any, Any], *, timeout: float | None = None) -> None:
    """Wait for the first of two, and leave the future be if it is not that."""
    task = asyncio.ensure_future(other)
    await asyncio.wait([future, task], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    task.cancel()


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
