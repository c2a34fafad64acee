"""One attempt at a job, made in the process of the test: the task is called, and what comes of it is an outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import commands
from holdfast.commands import Claimed, Held
from holdfast.outcome import Cancelled, Outcome, Retry, Snooze, Unknown
from holdfast.running import HandOver
from holdfast.store import Store
from holdfast.task import Task
from holdfast.worker.call import Call, raised, returned


class Interrupted(BaseException):
    """Leaves a task that is to be cancelled, where a worker would stop it."""


_WISHES = (Retry, Snooze, HandOver, Interrupted)  # a task goes on later, or is stopped: no error to look at
_RECORDED = (
    *_WISHES,
    Exception,
    SystemExit,
    asyncio.CancelledError,
)  # the rest is meant for the test run, as Ctrl-C is


class End(NamedTuple):
    """How a call ended, and what it raised."""

    outcome: Outcome
    error: BaseException | None = None

    @classmethod
    def by(cls, error: BaseException) -> End:
        return cls(Cancelled() if isinstance(error, Interrupted) else raised(error), error)

    def raise_again(self, errors: bool) -> None:
        """Raise what the call raised, if it is an error and `errors` are asked for, or if it is no job's to handle."""
        if self.error is not None and not isinstance(self.error, _WISHES if errors else _RECORDED):
            raise self.error


class Link:
    """What a job says goes to the store at once. There it hears that it is to be cancelled."""

    def __init__(self, store: Store, held: Held, *, stopping: bool) -> None:
        self._store = store
        self._held = held
        self.stopping = stopping

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        if self._store.run(commands.save(self._held, checkpoint, progress=progress)):
            raise Interrupted


class Attempt(NamedTuple):
    """A claimed job, and what it needs to run here."""

    job: Claimed
    task: Task[..., Any] | None
    link: Link
    directory: Path

    def call(self) -> End:
        """Make the call in this thread."""
        if self.task is None:
            return End(Unknown())
        try:
            value = self._begin(self.task)
            if asyncio.iscoroutine(value):
                value = asyncio.run(value)
            return End(returned(self.task, value))
        except BaseException as error:
            return End.by(error)

    async def acall(self) -> End:
        """Make the call from an event loop. A plain function gets a thread, where it may run a loop of its own."""
        if self.task is None or not self.task.is_async:
            return await asyncio.to_thread(self.call)
        work = asyncio.create_task(self._await(self.task))
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()  # it has ended, unless we are cancelled ourselves
        return work.result()

    async def _await(self, task: Task[..., Any]) -> End:
        try:
            return End(returned(task, await self._begin(task)))
        except BaseException as error:
            return End.by(error)

    def _begin(self, task: Task[..., Any]) -> Any:
        job = self.job
        call = Call(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, str(self.directory))
        call.introduce(self.link)
        args, kwargs = task.signature.decode(job.payload)
        return task.function(*args, **kwargs)
