"""Results: wait for a job to end, and return its result or raise its failure.

A process, or event loop, has one inbox. A waiter registers the inbox with the job, and the store pushes the id of each
ended job there. One of the waiters reads the inbox and wakes the others. A message is only a hint: each waiter also
checks its job every few seconds.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast import errors
from holdfast.client import jobs, queries
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.explanation import Explanation
from holdfast.job.job import FINAL, Job
from holdfast.names import new_id
from holdfast.store import AsyncStore, Steps, Store, commands
from holdfast.text import printable
from holdfast.units import Duration, milliseconds

if TYPE_CHECKING:
    import asyncio


RECHECK_INTERVAL = 5.0  # seconds; a message from the store may be lost
UNREADABLE = ("NEWER", "DAMAGED")
NOT_AWAITED = (*FINAL, "", *UNREADABLE)  # states of a job that has ended, does not exist, or cannot be read


def deadline_after(timeout: Duration | None) -> float | None:
    return None if timeout is None else time.monotonic() + milliseconds(timeout, what="timeout") / 1000


class NotEnded(Exception):
    """The deadline has passed, and the job is still in this state."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


def _next_wait(state: str, deadline: float | None) -> float:
    """Return the seconds to wait before the next check.

    Raises:
        NotEnded: the deadline has passed.
    """
    if deadline is None:
        return RECHECK_INTERVAL
    left = deadline - time.monotonic()
    if left <= 0:
        raise NotEnded(state)
    return max(0.01, min(RECHECK_INTERVAL, left))


class Inbox:
    """Lets threads wait for jobs. One of them reads the inbox for all; when it is done, another takes over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reset(os.getpid())  # not lazily: the first threads would reset each other

    def _reset(self, pid: int) -> None:
        self._pid = pid
        self._name = new_id()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}
        self._reader: threading.Event | None = None

    def wait(self, id: str, deadline: float | None) -> None:
        """Wait until a job has ended or does not exist."""
        if self._pid != os.getpid():
            self._reset(os.getpid())
        mine = threading.Event()
        with self._lock:
            self._waiting.setdefault(id, []).append(mine)
        try:
            while True:
                mine.clear()  # before the request, so that no later message is missed
                waiting = self._store.run(commands.add_waiter([id], self._name))
                if waiting.states[0] in NOT_AWAITED:
                    return
                self._sleep(mine, waiting.inbox_key, _next_wait(waiting.states[0], deadline))
        finally:
            self._leave(id, mine)

    def _sleep(self, mine: threading.Event, key: bytes, seconds: float) -> None:
        with self._lock:
            self._reader = self._reader or mine
            reading = self._reader is mine
        if not reading:
            mine.wait(seconds)
        elif popped := self._store.execute("BLPOP", key, seconds, blocks=seconds):
            with self._lock:
                for event in self._waiting.get(popped[1].decode(), ()):
                    event.set()

    def _leave(self, id: str, mine: threading.Event) -> None:
        with self._lock:
            self._waiting[id].remove(mine)
            if not self._waiting[id]:
                del self._waiting[id]
            if self._reader is mine:
                self._reader = None
            if self._reader is None:  # also if this thread was woken to become the reader, but its job has ended
                for events in self._waiting.values():
                    events[0].set()  # this thread checks its job and becomes the reader
                    break


class AsyncInbox:
    """Lets coroutines of one event loop wait for jobs. A task reads the inbox while any of them waits."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._name = new_id()
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def wait(self, id: str, deadline: float | None) -> None:
        """Wait until a job has ended or does not exist."""
        import asyncio

        mine = asyncio.Event()
        self._waiting.setdefault(id, []).append(mine)
        try:
            while True:
                mine.clear()  # before the request, so that no later message is missed
                waiting = await self._store.run(commands.add_waiter([id], self._name))
                if waiting.states[0] in NOT_AWAITED:
                    return
                if self._reader is None or self._reader.done():
                    self._reader = asyncio.create_task(self._read(waiting.inbox_key))
                await self._sleep(mine, _next_wait(waiting.states[0], deadline))
        finally:
            self._waiting[id].remove(mine)
            if not self._waiting[id]:
                del self._waiting[id]

    async def _sleep(self, mine: asyncio.Event, seconds: float) -> None:
        import asyncio

        try:
            await asyncio.wait_for(mine.wait(), seconds)
        except TimeoutError:
            return

    async def _read(self, key: bytes) -> None:
        """Read the inbox while a coroutine waits for a result; the waiting coroutines notice an unreachable server."""
        with suppress(errors.StoreUnavailable):
            while self._waiting:
                popped = await self._store.execute("BLPOP", key, RECHECK_INTERVAL, blocks=RECHECK_INTERVAL)
                if popped:
                    for event in self._waiting.get(popped[1].decode(), ()):
                        event.set()

    async def close(self) -> None:
        if self._reader is not None:
            import asyncio

            self._reader.cancel()
            await asyncio.wait({self._reader})


R = TypeVar("R")


def check_job(job: Job[R]) -> None:
    if not isinstance(job, Job):
        raise errors.Invalid(f"expected a Job, got {job!r}; to wait for a job by its id, use jobs.get(id).result()")


def result_or_raise(job: Job[R]) -> R:
    """Return the result of an ended job, or raise its failure."""
    if job.state == "succeeded":
        return job.decoded_result()
    if job.unreadable:
        raise errors.JobUnreadable(f"job {job.id} cannot be read: {job.unreadable}")
    if job.state == "cancelled":
        raise JobCancelled(f"job {job.id} was cancelled", job)
    if job.state == "failed":
        final = f" ({job.final_reason})" if job.final_reason not in ("", job.group) else ""
        raise JobFailed(f"job {job.id} failed in group {job.group}{final}: {printable(job.why)}", job)
    raise errors.WrongState(f"job {job.id} was retried while this call waited for its result")


def fetch_result(self: queries.App, job: Job[R]) -> Steps[R]:
    """Return the result of a job that has just ended, or raise its failure."""
    try:
        found: Job[R] = yield from jobs.get(self, job.id)
    except errors.JobNotFound:
        if job.keep:
            raise
        raise errors.JobNotFound(f"job {job.id} has keep=False: it has ended, and its result was deleted") from None
    return result_or_raise(found)


def timeout_error(id: str, state: str, explained: Explanation | None) -> errors.ResultTimeout:
    """Return the error that a job has not ended in time, and why."""
    why = "" if explained is None or explained.code == "ended" else f": {explained.text}"
    error = errors.ResultTimeout(
        f"job {id} has not ended within the timeout; it is still {explained.state if why and explained else state}{why}"
    )
    error.explanation = explained
    return error
