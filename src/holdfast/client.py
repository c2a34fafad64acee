"""The client: what users import. Each verb is one command, run by the sync or by the async store.

    jobs = Holdfast()                # no I/O before the first call

Each sync method has an async equal whose name begins with `a`; what both have in common stands in functions below.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from holdfast import commands, errors
from holdfast.commands import Command, NewJob
from holdfast.durations import Duration, milliseconds, utc
from holdfast.job import FINAL, PENDING, STATES, Job, read_job
from holdfast.names import check_namespace
from holdfast.results import AsyncInbox, Inbox, deadline_after
from holdfast.store import Address, AsyncStore, Store
from holdfast.task import AsyncTask, BoundCall, Declare, Given, Options, Task, make_task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Jobs = list[Job[Any]]  # inside the class, `list` is the verb
Queues = list["Queue"]
Workers = list[commands.Worker]
Events = list[commands.Event]

DEFAULT_QUEUE = "default"
AT_ONCE = 1000  # jobs in one call
ENQUEUE_ATTEMPTS = 5
LONGEST_REASON = 1000  # characters, in the message of an error


class Queue(NamedTuple):
    """A queue, and how many jobs it has in each state."""

    name: str
    paused: bool
    counts: dict[str, int]

    @property
    def pending(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in FINAL)


class Holdfast:
    """An app: its tasks, and the store of its jobs.

    `url` is redis://, rediss:// or unix://; without one, HOLDFAST_URL; without that, an embedded server that is
    started when it is first needed and keeps its data in `.holdfast`. A `namespace` keeps apps apart that share a
    server.
    """

    def __init__(self, url: str | None = None, *, namespace: str | None = None, timeout: Duration = "5s") -> None:
        seconds = milliseconds(timeout, what="timeout", least=1) / 1000
        chosen = namespace if namespace is not None else os.environ.get("HOLDFAST_NAMESPACE") or "default"
        self.address = Address.find(url, namespace=check_namespace(chosen), timeout=seconds)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.store = Store(self.address)
        self.async_store = AsyncStore(self.address)
        self._inbox = Inbox(self.store)
        self._async_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncInbox] = WeakKeyDictionary()

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: None = None, /, *, name: str | None = None, **options: Unpack[Given]) -> Declare: ...
    def task(self, function: Any = None, /, *, name: str | None = None, **options: Unpack[Given]) -> Any:
        """Make a task of a function.

        @jobs.task(queue="video", retries=3)
        def transcode(source: str) -> str: ...
        """
        chosen = Options().but(**options)

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = make_task(function, self, chosen, name)
            known = self.tasks.get(task.name)
            if known is not None and not _is_same(known.function, function):
                raise errors.Invalid(f"there is a task {task.name} already: pass another name=")
            self.tasks[task.name] = task
            return task

        return declare if function is None else declare(function)

    # Storing jobs

    def enqueue(self, call: BoundCall[R], /) -> Job[R]:
        """Store a bound call, for a worker to make.

        Once this returns the job is in the store, and this process may die. While a job of its id is kept, a second
        call returns the job that is there, and its `created` is false.

        Raises:
            StoreFull: the server is out of memory; nothing was stored.
            StoreUnavailable: it is unknown whether the job was stored; repeat with the same call.
        """
        return self.enqueue_many([call])[0]

    async def aenqueue(self, call: BoundCall[R], /) -> Job[R]:
        """Store a bound call, as `enqueue` does."""
        return (await self.aenqueue_many([call]))[0]

    def enqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]:
        """Store bound calls in order; up to 1,000 are stored together or not at all, more in parts of that size."""
        return _drive(self.store.run, self._enqueue(calls))

    async def aenqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]:
        """Store bound calls, as `enqueue_many` does."""
        return await _adrive(self.async_store.run, self._enqueue(calls))

    def _enqueue(self, calls: Sequence[BoundCall[Any]]) -> Generator[Command[Any], Any, Jobs]:
        jobs: Jobs = []
        for first in range(0, len(calls), AT_ONCE):
            jobs += yield from self._enqueue_part(calls[first : first + AT_ONCE])
        return jobs

    def _enqueue_part(self, calls: Sequence[BoundCall[Any]]) -> Generator[Command[Any], Any, Jobs]:
        """Store calls; of those whose id is there, return the job that is there. It may go just then: so try again."""
        jobs: dict[str, Job[Any]] = {}
        exists = _on_exists(calls)
        left = calls
        for _ in range(ENQUEUE_ATTEMPTS):
            stored = yield commands.enqueue([_new_job(call) for call in left], exists=exists)
            new = zip(left, stored.created, strict=True)
            jobs |= {call.id: _stored_job(call, stored.now, self) for call, created in new if created}
            left = [call for call in left if call.id not in jobs]
            found = (yield commands.get([call.id for call in left], brief=True)) if left else []
            jobs |= {fields["id"]: self._read(fields) for fields in found if fields}
            left = [call for call in left if call.id not in jobs]
            if not left:
                return [jobs[call.id] for call in calls]
        raise errors.HoldfastError(f"jobs come and go too fast to be found: {left[0].id}")

    # Looking at jobs

    def get(self, id: str, /) -> Job[Any]:
        """Return a job.

        Raises:
            JobNotFound: there is none of this id.
        """
        return self._found(id, self.store.run(commands.get([id])))

    async def aget(self, id: str, /) -> Job[Any]:
        """Return a job, as `get` does."""
        return self._found(id, await self.async_store.run(commands.get([id])))

    def get_many(self, ids: Sequence[str]) -> list[Job[Any] | None]:
        """Return up to 1,000 jobs in one call, None for each that does not exist."""
        return [self._read(fields) if fields else None for fields in self.store.run(commands.get(ids))]

    async def aget_many(self, ids: Sequence[str]) -> list[Job[Any] | None]:
        """Return jobs, as `get_many` does."""
        return [self._read(fields) if fields else None for fields in await self.async_store.run(commands.get(ids))]

    def list(
        self, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
    ) -> Iterator[Job[Any]]:
        """Iterate over jobs, of a queue or all, in a state or any (`pending` is five of them), a page at a time.

        What it yields has no payload, result or attempts: `refresh` a job to see them.
        """
        cursor, left = None, limit
        while left is None or left > 0:
            page = self.store.run(_page(queue, state, newest, left, cursor))
            yield from map(self._read, page.jobs)
            cursor, left = page.cursor, None if left is None else left - len(page.jobs)
            if cursor is None:
                return

    async def alist(
        self, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
    ) -> AsyncIterator[Job[Any]]:
        """Iterate over jobs, as `list` does."""
        cursor, left = None, limit
        while left is None or left > 0:
            page = await self.async_store.run(_page(queue, state, newest, left, cursor))
            for fields in page.jobs:
                yield self._read(fields)
            cursor, left = page.cursor, None if left is None else left - len(page.jobs)
            if cursor is None:
                return

    def count(self, *, queue: str | None = None, state: str | None = None) -> int:
        """Count jobs, of a queue or all, in a state or any."""
        return self.store.run(commands.count(queues=_queues(queue), states=states_of(state)))

    async def acount(self, *, queue: str | None = None, state: str | None = None) -> int:
        """Count jobs, as `count` does."""
        return await self.async_store.run(commands.count(queues=_queues(queue), states=states_of(state)))

    def queues(self) -> Queues:
        """Return all queues with their numbers of jobs."""
        return [_read_queue(row) for row in self.store.run(commands.queues())]

    async def aqueues(self) -> Queues:
        """Return all queues, as `queues` does."""
        return [_read_queue(row) for row in await self.async_store.run(commands.queues())]

    def workers(self) -> Workers:
        """Return the workers that gave a sign of life in the last day, the latest first."""
        return self.store.run(commands.workers())

    async def aworkers(self) -> Workers:
        """Return the workers, as `workers` does."""
        return await self.async_store.run(commands.workers())

    def events(self, after: str | None = None, *, limit: int = 100) -> Events:
        """Return what happened after an event, or last."""
        return self.store.run(commands.events(after, limit=limit))

    async def aevents(self, after: str | None = None, *, limit: int = 100) -> Events:
        """Return what happened, as `events` does."""
        return await self.async_store.run(commands.events(after, limit=limit))

    # Steering

    def cancel(self, id: str, /, *, reason: str = "") -> str:
        """Stop a job. Returns `cancelled`, or `cancelling` while its worker stops it.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has ended already.
        """
        return _answer("cancel", id, self.store.run(commands.cancel([id], reason=reason)))

    async def acancel(self, id: str, /, *, reason: str = "") -> str:
        """Stop a job, as `cancel` does."""
        return _answer("cancel", id, await self.async_store.run(commands.cancel([id], reason=reason)))

    def retry(self, id: str, /) -> None:
        """Run a job that has ended once more, with all its budgets as new.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has not ended.
        """
        _answer("retry", id, self.store.run(commands.retry([id])))

    async def aretry(self, id: str, /) -> None:
        """Run a job again, as `retry` does."""
        _answer("retry", id, await self.async_store.run(commands.retry([id])))

    def delete(self, id: str, /) -> None:
        """Remove a job that has ended, with its result and history.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has not ended: cancel it first.
        """
        _answer("delete", id, self.store.run(commands.delete([id])))

    async def adelete(self, id: str, /) -> None:
        """Remove a job, as `delete` does."""
        _answer("delete", id, await self.async_store.run(commands.delete([id])))

    def pause(self, queue: str) -> bool:
        """Start no more jobs of a queue; those that run go on. Returns whether that changed anything."""
        return self.store.run(commands.pause(queue))

    async def apause(self, queue: str) -> bool:
        """Start no more jobs of a queue, as `pause` does."""
        return await self.async_store.run(commands.pause(queue))

    def resume(self, queue: str) -> bool:
        """Start jobs of a paused queue again. Returns whether that changed anything."""
        return self.store.run(commands.resume(queue))

    async def aresume(self, queue: str) -> bool:
        """Start jobs of a paused queue again, as `resume` does."""
        return await self.async_store.run(commands.resume(queue))

    # Results

    def result(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        self._inbox.wait(job.id, deadline_after(timeout))
        ended: Job[R] = self.get(job.id)
        return _outcome(ended)

    async def aresult(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        loop = asyncio.get_running_loop()
        inbox = self._async_inboxes.setdefault(loop, AsyncInbox(self.async_store))
        await inbox.wait(job.id, deadline_after(timeout))
        ended: Job[R] = await self.aget(job.id)
        return _outcome(ended)

    def close(self) -> None:
        """Close the connections of the sync methods. The next call opens them again."""
        self.store.close()

    async def aclose(self) -> None:
        """Close the connections of the async methods, in the event loop that used them."""
        inbox = self._async_inboxes.pop(asyncio.get_running_loop(), None)
        if inbox is not None:
            await inbox.close()
        await self.async_store.close()

    def _read(self, fields: dict[str, Any]) -> Job[Any]:
        task = self.tasks.get(fields["task"])
        return read_job(fields, self, task.signature.result if task else None)

    def _found(self, id: str, found: Sequence[dict[str, Any] | None]) -> Job[Any]:
        if found[0] is None:
            raise errors.JobNotFound(f"there is no job {id}; it may have been deleted")
        return self._read(found[0])


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions are the same, perhaps imported twice: once as __main__, or again after a change."""
    modules = {one.__module__, other.__module__} - {"__main__"}
    return one.__qualname__ == other.__qualname__ and len(modules) <= 1


def _drive(run: Callable[[Command[Any]], Any], steps: Generator[Command[Any], Any, T]) -> T:
    """Run commands as a generator asks for them, and return what it returns."""
    try:
        command = next(steps)
        while True:
            command = steps.send(run(command))
    except StopIteration as end:
        value: T = end.value
        return value


async def _adrive(run: Callable[[Command[Any]], Any], steps: Generator[Command[Any], Any, T]) -> T:
    try:
        command = next(steps)
        while True:
            command = steps.send(await run(command))
    except StopIteration as end:
        value: T = end.value
        return value


def _new_job(call: BoundCall[Any]) -> NewJob:
    chosen = call.chosen
    return NewJob(
        id=call.id,
        payload=call.payload,
        queue=chosen.queue or DEFAULT_QUEUE,
        task=call.name,
        priority=chosen.priority,
        delay=chosen.delay,
        due=chosen.at,
        retries=chosen.retries,
        crashes=chosen.crashes,
        lost=chosen.lost,
        backoff=chosen.backoff,
        timeout=chosen.timeout,
    )


def _on_exists(calls: Sequence[BoundCall[Any]]) -> str:
    choices = {call.chosen.on_exists or "return" for call in calls}
    if len(choices) > 1:
        raise errors.Invalid(
            f"calls that are enqueued together must agree on on_exists, not {', '.join(sorted(choices))}"
        )
    return choices.pop()


def _stored_job(call: BoundCall[R], now: int, app: Holdfast) -> Job[R]:
    """The snapshot of a job that was stored just now."""
    due = call.chosen.at if call.chosen.delay is None else now + call.chosen.delay
    is_due = due is None or due <= now
    return Job(
        id=call.id,
        state="waiting" if is_due else "scheduled",
        queue=call.chosen.queue or DEFAULT_QUEUE,
        task=call.name,
        created=True,
        created_at=utc(now),
        since=utc(now),
        priority=call.chosen.priority or 0,
        retries=call.chosen.retries,
        due_at=None if is_due or due is None else utc(due),
        payload=call.payload,
        app=app,
        returns=call.task.signature.result,
    )


def _page(
    queue: str | None, state: str | None, newest: bool, left: int | None, cursor: Sequence[str] | None
) -> Command[commands.Page]:
    limit = 100 if left is None else min(left, 100)
    return commands.list_jobs(queues=_queues(queue), states=states_of(state), limit=limit, newest=newest, cursor=cursor)


def _queues(queue: str | None) -> list[str] | None:
    return None if queue is None else [queue]


def states_of(state: str | None) -> list[str] | None:
    """Return the states that a word stands for: `pending` is the first five."""
    if state is None:
        return None
    return list(PENDING) if state == "pending" else [state]


def _read_queue(row: Sequence[Any]) -> Queue:
    name, paused, *counts = row
    return Queue(name, paused, dict(zip(STATES, counts, strict=True)))


_REFUSALS = {
    ("cancel", "STATE"): "has ended already and cannot be cancelled",
    ("retry", "STATE"): "has not ended, so there is nothing to retry; cancel it first to start it anew",
    ("delete", "STATE"): "has not ended and cannot be deleted; cancel it first",
}


def _answer(verb: str, id: str, answers: Sequence[str]) -> str:
    """Return the answer about one job, or raise what it stands for."""
    kind = errors.BY_CODE.get(answers[0])
    if kind is None:
        return answers[0]
    raise kind(f"job {id} {_REFUSALS.get((verb, answers[0]), 'does not exist; it may have been deleted')}")


def _outcome(job: Job[R]) -> R:
    if job.state == "succeeded":
        return job.decoded_result()
    if job.state == "cancelled":
        raise errors.JobCancelled(f"job {job.id} was cancelled", job)
    if job.state == "failed":
        raise errors.JobFailed(f"job {job.id} failed in group {job.group}: {_why(job)}", job)
    raise errors.WrongState(f"job {job.id} was retried while its result was awaited")


def _why(job: Job[Any]) -> str:
    """Say in some words why a job failed."""
    if failure := job.failure:
        return f"{failure.type}: {failure.message}"[:LONGEST_REASON]
    return job.attempts[-1].reason if job.attempts else "see its attempts"
