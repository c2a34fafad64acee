"""Enqueue: bound calls become commands, the store runs them, and their replies become jobs.

    enqueue, enqueue_many ──▶ Chunk.of (the command) ──▶ store ──▶ jobs

`store` is the one place where the app's outage policy applies; see `outbox.outage_policy`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Generic, NamedTuple, Never, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast import errors
from holdfast.constants import MAX_BATCH, MAX_MARKS, MAX_SCOPE_DEPTH
from holdfast.job.job import App as JobApp
from holdfast.job.job import Job, read_job
from holdfast.running.current import running_id
from holdfast.store import Action, Command, Deadline, Steps, Stores, commands
from holdfast.store.commands import EnqueueReply
from holdfast.task.context import carried_values, with_carried
from holdfast.task.scope import scope_now, with_scope
from holdfast.task.task import BoundCall, Task
from holdfast.units import utc

R = TypeVar("R")
T = TypeVar("T")
Calls = Sequence[BoundCall[Any]]
Jobs = list[Job[Any]]
Tasks = set[Task[..., Any]]

MARKS_AT_ONCE = 1_000  # jobs, tags and parts of scopes that one call of many stores, so that it takes about 10 ms
ATTEMPTS = 5  # to store a call whose existing job is removed at the same time


class OutagePolicy(Protocol):
    """Decides what happens to calls while the server is unreachable."""

    is_unreachable: bool  # whether the last attempt to store failed

    def check(self, tasks: Tasks) -> object: ...
    def append_behind_unsent(self, chunk: Chunk) -> Action[Jobs | None] | None: ...
    def fall_back(self, chunk: Chunk, error: errors.StoreUnavailable) -> Action[Jobs]: ...


class App(JobApp, Stores, Protocol):
    """The app that enqueues."""

    @property
    def outage_policy(self) -> OutagePolicy: ...


def enqueue(self: App, call: BoundCall[R], /, *unknown: Never, **unknown_named: Never) -> Steps[Job[R]]:
    """Store a bound call for a worker to run.

    Once this returns, the job is durable and the calling process may exit. While a job with the same id is retained, a
    second call returns the existing job with `created=False`.

    Raises:
        StoreFull: the server is out of memory; nothing was stored.
        StoreUnavailable: the server did not answer within two seconds. If `maybe_done`, the job may have been stored;
            enqueue the same call again. See `when_unreachable`.
        NotReplicated: the job is stored, but no replica has it yet. See `acknowledge`.
    """
    if unknown or unknown_named:
        raise TypeError(f"enqueue() takes one bound call: {_instead_of(call)}")
    [job] = yield from store(self, Chunk.of(self, [call]))
    return job


def enqueue_many(
    self: App, calls: Iterable[BoundCall[Any]], *, fresh: bool = False, atomic: bool = False
) -> Steps[Jobs]:
    """Store bound calls in order, in chunks of 1,000; a chunk is stored completely or not at all.

    Chunks of jobs with tags are smaller. With `atomic`, all calls are one chunk.

    jobs.enqueue_many(resize.bind(name) for name in names)

    A generator binds the next calls while the server stores the previous chunk. An exception that it raises is raised
    here after that chunk was stored.

    `fresh` is faster, for ids that cannot exist yet: if all of them exist, the store takes this call for a repetition
    and stores nothing. Do not use it for calls that another call may have stored.

    Raises:
        JobExists: `fresh` is given, and some of the ids exist, but not all.
        TooBig: `atomic` is given, and there are more than 1,000 calls, or more than 8,000 tags and parts of scopes.
    """
    if atomic:
        calls = list(calls)
    if isinstance(calls, Sequence):
        self.outage_policy.check(tasks_of(calls))  # refuses all calls or none
        if atomic:
            return (yield from _enqueue_together(self, calls, fresh=fresh))
    jobs: Jobs = []
    last_stored: Iterator[Job[Any]] = iter(())
    is_begun = False
    chunks = _Prefetch(_chunks(self, calls, fresh))

    def while_server_works() -> None:
        jobs.extend(last_stored)
        chunks.fetch()

    try:
        while chunk := chunks.take():
            stored = yield from store(self, chunk, while_server_works)
            jobs.extend(last_stored)  # unless that was done while the server worked
            last_stored, is_begun = iter(stored), True
    except errors.StoreUnavailable as error:  # of this store, or raised by the caller's generator
        error.maybe_done = error.maybe_done or is_begun
        raise
    jobs.extend(last_stored)
    return jobs


def _enqueue_together(app: App, calls: Calls, *, fresh: bool) -> Steps[Jobs]:
    """Store calls as one chunk."""
    if len(calls) > MAX_BATCH:
        raise errors.TooBig(f"{len(calls):,} calls cannot be stored together (limit {MAX_BATCH:,}); nothing was stored")
    if not calls:
        return []
    return list((yield from store(app, Chunk.of(app, calls, fresh=fresh))))


def store(app: App, chunk: Chunk, on_sent: Callable[[], None] | None = None) -> Steps[Iterable[Job[Any]]]:
    """Store a chunk; while the server is unreachable, the app's outage policy decides instead.

    New jobs are created lazily, as the result is iterated: by then the server may work on the next chunk.
    """
    jobs: Iterable[Job[Any]] | None
    policy = app.outage_policy
    if appending := policy.append_behind_unsent(chunk):
        jobs = yield appending
        if jobs is not None:
            return jobs
    _import_client_library()
    size, replicas = sum(map(len, chunk.command.blobs)), int(needs_replica(chunk.tasks))
    deadline = Deadline(size=size, on_sent=on_sent, replicas=replicas)
    is_answered = False
    try:
        stored = yield chunk.command.within(deadline)
        is_answered = True
        if all(stored.created) and not any(task.effective_options.after for task in chunk.tasks):
            jobs = new_jobs(app, chunk, stored)
        else:
            jobs = yield from _existing_jobs(app, chunk, stored, deadline)
    except errors.NotReplicated as error:
        raise errors.NotReplicated(
            f"{_names(chunk.calls)}: {error}; to wait again, enqueue it with the same id"
        ) from None
    except errors.StoreUnavailable as error:
        error.maybe_done = error.maybe_done or is_answered
        jobs = yield policy.fall_back(chunk, error)
    else:
        policy.is_unreachable = False
    return jobs


def _names(calls: Calls) -> str:
    """Return the ids of calls for a message; a call without an id of its own gets one before it is stored."""
    first = f"job {calls[0].id}"
    return first if len(calls) == 1 else f"{first} and {len(calls) - 1:,} more"


@cache
def _import_client_library() -> None:
    """Import the Redis client before the deadline starts: the first import takes a while."""
    from holdfast.store import pool  # noqa: F401


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Up to 1,000 calls that are stored together or not at all, their tasks, and the command that stores them."""

    calls: Calls
    tasks: Tasks
    command: Command[EnqueueReply]
    fresh: bool
    scope: str | None = None  # of the jobs of calls that have none

    @classmethod
    def of(cls, app: App, calls: Calls, *, fresh: bool = False, tasks: Tasks | None = None) -> Chunk:
        """Make a chunk of calls; `tasks` are those of the calls, if they are known."""
        tasks, carried, scope = tasks or tasks_of(calls), carried_values(app), scope_now(app)
        jobs = calls if carried is None and scope is None else in_context(calls, tasks, carried, scope)
        adder = running_id() if any(task.effective_options.batch for task in tasks) else None
        command = commands.enqueue(
            jobs, on_exists=on_exists_of(tasks), fresh=fresh, adder=adder, acknowledge=needs_replica(tasks)
        )
        return cls(calls, tasks, command, fresh, scope)


def tasks_of(calls: Sequence[Any]) -> Tasks:
    """Return the tasks of calls.

    Raises:
        Invalid: one of them is not a bound call.
    """
    tasks = set()
    for call in calls:
        if not isinstance(call, BoundCall):
            raise errors.Invalid(f"expected a bound call, as task.bind(...), got {call!r}{_hint_about(call)}")
        tasks.add(call.variant)
    return tasks


def _hint_about(call: object) -> str:
    return f"; {_instead_of(call)}" if callable(call) else ""


def _instead_of(call: object) -> str:
    """Return what to write in place of `jobs.enqueue(function, ...)`, which other queues have."""
    if isinstance(call, Task):
        name = call.function.__name__
        return f"write {name}.enqueue(...), or jobs.enqueue({name}.bind(...))"
    name = getattr(call, "__name__", "")
    if not inspect.isroutine(call) or inspect.ismethod(call):
        return "write task.enqueue(...), or jobs.enqueue(task.bind(...))"
    return f"declare a task, `@jobs.task` above `def {name}`, and write {name}.enqueue(...)"


def needs_replica(tasks: Tasks) -> bool:
    """Return whether a replica must have the jobs, too: if one of the calls asks for it, it must have all."""
    return any(task.effective_options.acknowledge == "replica" for task in tasks)


def on_exists_of(tasks: Tasks) -> str:
    choices = {
        "replace" if task.effective_options.debounce is not None else task.effective_options.on_exists or "return"
        for task in tasks
    }
    if len(choices) > 1:
        raise errors.Invalid(f"calls enqueued together must have the same on_exists, not {', '.join(sorted(choices))}")
    return choices.pop()


class _CallInContext(NamedTuple):
    """A call whose shared fields include the context that its job carries, and its scope."""

    id: str
    payload: bytes
    batch: dict[str, Any]


def in_context(calls: Calls, tasks: Tasks, carried: dict[str, Any] | None, scope: str | None) -> list[_CallInContext]:
    batches = {task: with_scope(with_carried(task.batch, task.effective_options.run, carried), scope) for task in tasks}
    return [_CallInContext(call.id, call.payload, batches[call.variant]) for call in calls]


def _chunks(app: App, calls: Iterable[BoundCall[Any]], fresh: bool) -> Iterator[Chunk]:
    left = iter(calls)
    while some := list(islice(left, MAX_BATCH)):
        tasks = tasks_of(some)
        size = _chunk_size(tasks)
        if size >= len(some):
            yield Chunk.of(app, some, fresh=fresh, tasks=tasks)
            continue
        for first in range(0, len(some), size):
            yield Chunk.of(app, some[first : first + size], fresh=fresh)


def _chunk_size(tasks: Tasks) -> int:
    """Return how many calls one chunk may have, by their tags and parts of scopes.

    The store limits those of a call, also of a scope that the app adds; far fewer keep the call short. Jobs with
    dependencies stay in one call, as these may be among the others.
    """
    tags = max(len(task.effective_options.tags or ()) for task in tasks)
    most = min(MAX_BATCH, MAX_MARKS // (tags + MAX_SCOPE_DEPTH))
    if any(task.effective_options.after for task in tasks):
        return most
    parts = max((task.effective_options.scope or "").count("/") for task in tasks)
    return min(most, MARKS_AT_ONCE // (1 + tags + parts))


class _Prefetch(Generic[T]):
    """An iterator whose next item can be fetched in advance. An error while fetching is raised by `take`."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._fetched: tuple[T | None, Exception | None] | None = None

    def fetch(self) -> None:
        self._fetched = self._next()

    def take(self) -> T | None:
        """Return the next item, None at the end."""
        item, error = self._fetched or self._next()
        self._fetched = None
        if error is not None:
            raise error
        return item

    def _next(self) -> tuple[T | None, Exception | None]:
        try:
            return next(self._items, None), None
        except Exception as error:
            return None, error


# The jobs of stored calls


def new_jobs(app: App, chunk: Chunk, stored: EnqueueReply) -> Iterator[Job[Any]]:
    """Create the jobs of calls that are all new and have no dependencies."""
    templates = {task: job_template(task, stored.now, app, chunk.scope) for task in chunk.tasks}
    for call, id in zip(chunk.calls, stored.ids, strict=True):
        yield job_of(call, id, templates[call.variant])


def _existing_jobs(app: App, chunk: Chunk, stored: EnqueueReply, deadline: Deadline) -> Steps[Jobs]:
    """Return the jobs of calls of which some exist, or have dependencies: only the store knows their state.

    An existing job may be removed in the meantime; then its call is stored again.
    """
    jobs: dict[str, Job[Any]] = {}  # by the id of the call
    left = chunk
    for attempt in range(ATTEMPTS):
        if attempt:
            left = Chunk.of(app, [call for call in chunk.calls if call.id not in jobs], fresh=chunk.fresh)
            stored = yield left.command.within(deadline)
        if unknown := _take_new(jobs, app, left, stored):
            for fields in filter(None, (yield commands.get(list(unknown), brief=True).within(deadline))):
                call, created = unknown[fields["id"]]
                job = existing_job(app, call, fields)
                jobs[call.id] = replace(job, created=True, fields=_fields_of(call)) if created else job
        if len(jobs) == len(chunk.calls):
            return [jobs[call.id] for call in chunk.calls]
    taken = _identity(left.calls[0])
    raise errors.JobExists(f"{taken} was taken, but its job was removed before it could be read; enqueue it again")


def _take_new(
    jobs: dict[str, Job[Any]], app: App, chunk: Chunk, stored: EnqueueReply
) -> dict[str, tuple[BoundCall[Any], bool]]:
    """Add the new jobs. Return the calls of the others, by job id, and whether each was created."""
    unknown = {}
    for call, created, job in zip(chunk.calls, stored.created, new_jobs(app, chunk, stored), strict=True):
        if created and not call.variant.effective_options.after:
            jobs[call.id] = job
        else:
            unknown[job.id] = call, created
    return unknown


def existing_job(app: App, call: BoundCall[R], fields: dict[str, Any]) -> Job[R]:
    if fields["task"] != call.name:  # its result would have another type
        raise errors.JobExists(
            f"job {fields['id']} already exists, with task {fields['task']} instead of {call.name};"
            " use another id or unique key"
        )
    return read_job(fields, app, call.variant.signature.result)


def _identity(call: BoundCall[Any]) -> str:
    return f"unique key {call.effective_options.unique}" if call.effective_options.unique else f"job {call.id}"


def job_template(task: Task[..., R], now: int, app: JobApp, scope: str | None = None) -> Job[R]:
    """Return the fields that all new jobs of a task share; `job_of` adds those of one call."""
    chosen, stored_at = task.effective_options, utc(now)
    changed: dict[str, Any] = dict.fromkeys(("created_at", "since", "updated_at"), stored_at)
    changed["app"] = app
    delay = chosen.delay if chosen.debounce is None else chosen.debounce
    due = chosen.at if delay is None else now + delay
    if due is not None and due > now:
        changed |= {"state": "scheduled", "due_at": utc(due)}
    deadline = chosen.deadline_at if chosen.deadline is None else now + chosen.deadline
    if deadline is not None:
        changed["deadline"] = utc(deadline)
    if scope is not None and chosen.scope is None:
        changed["scope"] = scope
    return replace(task.job_template, **changed)


def job_of(call: BoundCall[R], id: str, template: Job[R]) -> Job[R]:
    return replace(template, id=id, payload=call.payload, fields=_fields_of(call))


def _fields_of(call: BoundCall[Any]) -> dict[str, str]:
    """Return a dict of its own: callers may change it."""
    return dict(call.effective_options.fields or {})
