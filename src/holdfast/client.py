"""The client: what users import. Each verb is one command, run by the sync or by the async store.

    jobs = Holdfast()                # no I/O before the first call

Each sync method has an async equal whose name begins with `a`: most are written once, see `verbs`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from holdfast import acting, commands, errors, load, logs, looking, scheduling, steering
from holdfast.carry import Carried
from holdfast.commands import Command
from holdfast.durations import Duration, milliseconds
from holdfast.fleet import Node, Worker, by_node, read_workers
from holdfast.job import FINAL, PENDING, STATES, Job, read_job
from holdfast.middleware import Layers, M
from holdfast.names import check_id, check_namespace, check_text, new_id
from holdfast.program import PROGRAM, RESULT, Ended, Word, bind_program
from holdfast.results import AsyncInbox, Inbox, deadline_after
from holdfast.scheduling import Timing, declaration
from holdfast.setting import Setting, read_changes, read_settings
from holdfast.store import Address, AsyncStore, Store
from holdfast.storing import AT_ONCE
from holdfast.task import (
    DEFAULT_QUEUE,
    AsyncTask,
    BoundCall,
    Declare,
    Given,
    Task,
    WhenUnreachable,
    default_options,
    make_task,
)
from holdfast.unreachable import Unreachable, store_calls
from holdfast.verbs import Steps, verb

if TYPE_CHECKING:
    import asyncio  # quick to declare tasks with: loaded when it is needed

    from holdfast.items import Items
    from holdfast.worker import embedded

P = ParamSpec("P")
R = TypeVar("R")
Jobs = list[Job[Any]]  # inside the class, `list` is the verb
MaybeJobs = list[Job[Any] | None]
Queues = list["Queue"]
Workers = list[Worker]
Nodes = list[Node]
Settings = list[Setting]
Events = list[commands.Event]
Answers = list[str | errors.HoldfastError]
AnswerById = dict[str, str | errors.HoldfastError]

PAGE = 1000  # jobs


class Queue(NamedTuple):
    """A queue: how many live workers serve it, and how many jobs it has in each state."""

    name: str
    paused: bool
    listeners: int
    counts: dict[str, int]

    @property
    def pending(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in FINAL)


class Holdfast:
    """An app: its tasks, and the store of its jobs.

    `url` is redis://, rediss:// or unix://; without one, HOLDFAST_URL; without that, an embedded server that is
    started when it is first needed and keeps its data in `.holdfast`. A `namespace` keeps apps apart that share a
    server.

    `when_unreachable` says what becomes of a call that cannot be stored because the server does not answer within two
    seconds: `raise` StoreUnavailable, run it `inline`, or `keep` it on disk and send it later. Without it,
    HOLDFAST_WHEN_UNREACHABLE; without that, raise. Tasks and calls may choose otherwise.

    `revision` (or HOLDFAST_REVISION) is a number that rises with each release: a worker of an older one does not
    change schedules that a newer one has declared.

    `defaults` are options of all tasks, as `{"queue": "video", "timeout": "6h"}`; those that a task is declared with
    count more, and None takes one away.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        timeout: Duration = "5s",
        when_unreachable: WhenUnreachable | None = None,
        revision: int | None = None,
        defaults: Given | None = None,
    ) -> None:
        seconds = milliseconds(timeout, what="timeout", least=1) / 1000
        chosen = namespace if namespace is not None else os.environ.get("HOLDFAST_NAMESPACE") or "default"
        self.address = Address.find(url, namespace=check_namespace(chosen), timeout=seconds)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared: dict[str, dict[str, Any]] = {}  # schedules
        self.defaults = default_options(defaults or {})
        self.layers = Layers()
        self.carried = Carried()
        self.revision = _check_revision(os.environ.get("HOLDFAST_REVISION") or "0" if revision is None else revision)
        self.store = Store(self.address)
        self.async_store = AsyncStore(self.address)
        self.unreachable = Unreachable(self, when_unreachable)
        self._inbox = Inbox(self.store)
        self._async_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncInbox] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Holdfast {self.address.words}, namespace {self.address.namespace}>"

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        schedule: Timing | None = None,
        **options: Unpack[Given],
    ) -> Declare: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        schedule: Timing | None = None,
        **options: Unpack[Given],
    ) -> Any:
        """Make a task of a function.

        @jobs.task(queue="video", retries=3)
        def transcode(source: str) -> str: ...

        With a `schedule` workers declare it when they start: it is called without arguments at those times.

        @jobs.task(schedule=cron("0 2 * * *", tz="Europe/Berlin"))
        def report() -> None: ...
        """
        chosen = self.defaults.but(**options)

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = make_task(function, self, chosen, name)
            if task.name == PROGRAM:
                raise errors.Invalid(f"the name {PROGRAM} stands for programs: pass another name=")
            known = self.tasks.get(task.name)
            if known is not None and not _is_same(known.function, function):
                raise errors.Invalid(f"there is a task {task.name} already: pass another name=")
            self.layers.check(task)
            self.tasks[task.name] = task
            if schedule is not None:
                self.declared[task.name] = declaration(task.name, task.bind(), schedule, self.revision)
            return task

        return declare if function is None else declare(function)

    @overload
    def middleware(self, function: M, /) -> M: ...
    @overload
    def middleware(
        self, function: None = None, /, *, tasks: Iterable[Task[..., Any] | str] | None = None
    ) -> Callable[[M], M]: ...
    def middleware(self, function: Any = None, /, *, tasks: Iterable[Task[..., Any] | str] | None = None) -> Any:
        """Put a function that yields around the calls of all tasks, or of `tasks`; the first declared is the outermost.

        @jobs.middleware
        def timed(job: RunningJob) -> Iterator[None]:
            began = time.monotonic()
            try:
                yield
            finally:
                print(job.task, time.monotonic() - began)

        `result = yield` has what the task returned; what it raised is raised there. A middleware may raise in its turn,
        also Retry, Fail and Snooze. It runs where the task does. An `async def` goes around tasks that are one too.
        """

        def declare(function: Any) -> Any:
            self.layers.add(function, tasks, self.tasks)
            return function

        return declare if function is None else declare(function)

    def carry(self, name: str, variable: ContextVar[Any], /) -> None:
        """Have a context variable go along with jobs: what is set where one is enqueued is set where it runs.

        jobs.carry("request_id", request_id)

        What a job enqueues carries it on. Values are JSON, all together up to 512 bytes; a worker needs the same line.
        """
        self.carried.add(name, variable)

    def program(
        self,
        arguments: Sequence[Word],
        /,
        *,
        cwd: Word | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> BoundCall[Ended]:
        """Return a call of any program, to be enqueued as other calls are. Workers make it that `--allow-exec`.

        jobs.enqueue(jobs.program(["ffmpeg", "-i", "in.mov", "out.mp4"]).options(timeout="6h", memory="2GiB"))

        No shell is involved. What it prints is the log of the attempt; it fails if its exit code is not 0.

        Raises:
            Invalid, TooBig: the arguments cannot be those of a program.
        """
        return bind_program(self, self.defaults, arguments, cwd=cwd, env=env, stdin=stdin)

    # Storing jobs

    def _enqueue(self, call: BoundCall[R], /) -> Steps[Job[R]]:
        """Store a bound call, for a worker to make.

        Once this returns the job is in the store, and this process may die. While a job of its id is kept, a second
        call returns the job that is there, and its `created` is false.

        Raises:
            StoreFull: the server is out of memory; nothing was stored.
            StoreUnavailable: it cannot be reached within two seconds. If `maybe_done`, it is unknown whether the job
                was stored; repeat with the same call. See `when_unreachable`.
        """
        return (yield from store_calls([call], self))[0]

    enqueue, aenqueue = verb(_enqueue)

    def _enqueue_many(self, calls: Sequence[BoundCall[Any]], *, fresh: bool = False) -> Steps[Jobs]:
        """Store bound calls in order; up to 1,000 are stored together or not at all, more in parts of that size.

        `fresh` is the fast way for ids that cannot be there yet: the store then looks only whether this very call was
        made before. Do not use it for calls that may have been stored by another call.
        """
        return (yield from store_calls(calls, self, fresh=fresh))

    enqueue_many, aenqueue_many = verb(_enqueue_many)

    def _send_kept(self) -> Steps[int]:
        """Send the calls that are kept on disk, now, and return how many were sent. It happens by itself too.

        Raises:
            StoreUnavailable, StoreFull: they stay where they are.
        """
        number: int = yield self.unreachable.sending()
        return number

    send_kept, asend_kept = verb(_send_kept)

    # Looking at jobs

    def _get(self, id: str, /) -> Steps[Job[Any]]:
        """Return a job.

        Raises:
            JobNotFound: there is none of this id.
        """
        found = yield commands.get([id])
        if found[0] is None:
            raise errors.JobNotFound(f"there is no job {id}; it may have been deleted")
        return self._read(found[0])

    get, aget = verb(_get)

    def _get_many(self, ids: Sequence[str]) -> Steps[MaybeJobs]:
        """Return up to 1,000 jobs in one call, None for each that does not exist."""
        found = yield commands.get(ids)
        return [self._read(fields) if fields else None for fields in found]

    get_many, aget_many = verb(_get_many)

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

    def _count(self, *, queue: str | None = None, state: str | None = None) -> Steps[int]:
        """Count jobs, of a queue or all, in a state or any."""
        number: int = yield commands.count(queues=_only(queue), states=states_of(state))
        return number

    count, acount = verb(_count)

    def _events(self, after: str | None = None, *, limit: int = 100) -> Steps[Events]:
        """Return what happened after an event, or last."""
        found: Events = yield commands.events(after, limit=limit)
        return found

    events, aevents = verb(_events)

    # Looking into jobs

    follow_logs, afollow_logs = logs.follow_logs, logs.afollow_logs
    logs, alogs = verb(logs.logs)
    stack, astack = verb(looking.stack)
    usage, ausage = verb(looking.usage)

    # Steering jobs

    def _cancel(self, id: str, /, *, reason: str = "") -> Steps[str]:
        """Stop a job. Returns `cancelled`, or `cancelling` while its worker stops it.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has ended already.
        """
        return _answer("cancel", id, (yield commands.cancel([id], reason=reason)))

    cancel, acancel = verb(_cancel)

    def _retry(self, id: str, /) -> Steps[None]:
        """Run a job that has ended once more, with all its budgets as new.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has not ended.
            JobExists: another job has its unique key now.
        """
        _answer("retry", id, (yield commands.retry([id])))

    retry, aretry = verb(_retry)

    def _delete(self, id: str, /) -> Steps[None]:
        """Remove a job that has ended, with its result and history.

        Raises:
            JobNotFound: there is none of this id.
            WrongState: it has not ended: cancel it first.
            JobBlocked: other jobs wait for it.
        """
        _answer("delete", id, (yield commands.delete([id])))

    delete, adelete = verb(_delete)

    def _cancel_many(self, ids: Sequence[str], /, *, reason: str = "") -> Steps[Answers]:
        """Stop jobs, however many. Returns for each its new state, or the error that `cancel` would raise."""
        return (yield from _each("cancel", ids, lambda part: commands.cancel(part, reason=reason)))

    cancel_many, acancel_many = verb(_cancel_many)

    def _retry_many(self, ids: Sequence[str], /) -> Steps[Answers]:
        """Run jobs once more, however many. Returns for each `waiting` or `blocked`, or the error of `retry`."""
        return (yield from _each("retry", ids, commands.retry))

    retry_many, aretry_many = verb(_retry_many)

    def _delete_many(self, ids: Sequence[str], /) -> Steps[Answers]:
        """Remove jobs, however many. Returns for each `deleted`, or the error that `delete` would raise."""
        return (yield from _each("delete", ids, commands.delete))

    delete_many, adelete_many = verb(_delete_many)

    def _attach(self, id: str, /, fields: Mapping[str, str], *, remove: Sequence[str] = ()) -> Steps[dict[str, str]]:
        """Keep fields of your own with a job, up to 64 texts of 4 KiB. Returns all that it has then.

        Raises:
            JobNotFound: there is none of this id.
            Invalid, TooBig: a name or a text is not acceptable.
        """
        if not isinstance(fields, Mapping) or isinstance(remove, str):
            raise errors.Invalid('fields are a table of names and texts, as {"ticket": "17"}, and remove is a list')
        texts = {check_text(name, "a name"): check_text(text, f"field {name}") for name, text in fields.items()}
        found: dict[str, str] = yield commands.attach(check_id(id), texts, remove=remove)
        return found

    attach, aattach = verb(_attach)

    def _note(self, id: str, words: str, /) -> Steps[None]:
        """Add an entry to a job's history, up to 1,000 bytes.

        Raises:
            JobNotFound: there is none of this id.
        """
        yield commands.note(check_id(id), check_text(words, "the note"))

    note, anote = verb(_note)

    def _cancel_with_dependents(self, *ids: str, reason: str = "") -> Steps[AnswerById]:
        """Stop jobs, and all that wait for them, and for those: up to 1,000, in one step.

        Returns for each of them its new state, or the error that `cancel` would raise.

        Raises:
            TooBig: there are more. Nothing was changed.
        """
        replies = yield commands.cancel([check_id(id) for id in ids], reason=reason, dependents=True)
        named, found = zip(ids, replies, strict=False), replies[len(ids) :]
        answers = {**dict(named), **dict(zip(found[::2], found[1::2], strict=True))}
        return {id: _read_answer("cancel", id, answer) for id, answer in answers.items()}

    cancel_with_dependents, acancel_with_dependents = verb(_cancel_with_dependents)

    depend, adepend = verb(steering.depend)
    move, amove = verb(steering.move)
    release, arelease = verb(steering.release)
    fail, afail = verb(steering.fail)

    # Steering all jobs of a kind

    cancel_all, acancel_all = verb(acting.cancel_all)
    retry_all, aretry_all = verb(acting.retry_all)
    delete_all, adelete_all = verb(acting.delete_all)
    move_all, amove_all = verb(acting.move_all)
    release_all, arelease_all = verb(acting.release_all)
    fail_all, afail_all = verb(acting.fail_all)

    # Limits and shares

    limit, alimit = verb(steering.limit)
    unlimit, aunlimit = verb(steering.unlimit)
    limits, alimits = verb(steering.limits)
    weigh, aweigh = verb(steering.weigh)

    # Schedules

    schedule, aschedule = verb(scheduling.schedule)
    unschedule, aunschedule = verb(scheduling.unschedule)
    pause_schedule, apause_schedule = verb(scheduling.pause_schedule)
    resume_schedule, aresume_schedule = verb(scheduling.resume_schedule)
    trigger, atrigger = verb(scheduling.trigger)
    schedules, aschedules = verb(scheduling.schedules)
    get_schedule, aget_schedule = verb(scheduling.get_schedule)

    # Queues and workers

    def _queues(self) -> Steps[Queues]:
        """Return all queues with their numbers of jobs."""
        return [_read_queue(row) for row in (yield commands.queues())]

    queues, aqueues = verb(_queues)

    load, aload = verb(load.load)

    def _pause(self, queue: str) -> Steps[bool]:
        """Start no more jobs of a queue; those that run go on. Returns whether that changed anything."""
        changed: bool = yield commands.pause(queue)
        return changed

    pause, apause = verb(_pause)

    def _resume(self, queue: str) -> Steps[bool]:
        """Start jobs of a paused queue again. Returns whether that changed anything."""
        changed: bool = yield commands.resume(queue)
        return changed

    resume, aresume = verb(_resume)

    def _forget(self, queue: str) -> Steps[bool]:
        """Forget a queue that has no jobs: its name, its settings, that it is paused. Returns whether it was known.

        Raises:
            WrongState: it has jobs.
        """
        was_known: bool = yield commands.forget(queue)
        return was_known

    forget, aforget = verb(_forget)

    def _workers(self) -> Steps[Workers]:
        """Return the workers that gave a sign of life, the latest first."""
        return read_workers((yield commands.workers()))

    workers, aworkers = verb(_workers)

    def _nodes(self) -> Steps[Nodes]:
        """Return the hosts of all workers."""
        return by_node((yield from self._workers()))

    nodes, anodes = verb(_nodes)

    def _deregister(self, worker: str) -> Steps[None]:
        """Forget a worker that is gone, before its time.

        Raises:
            JobNotFound: there is no such worker.
            WrongState: it is live, or holds jobs.
        """
        yield commands.deregister(worker)

    deregister, aderegister = verb(_deregister)

    def _drain(self, worker: str) -> Steps[None]:
        """Have a worker claim no more, and end when its jobs have, however long they take.

        Raises:
            JobNotFound: there is no such worker.
        """
        yield commands.ask("drain", worker=worker, inbox=new_id())

    drain, adrain = verb(_drain)

    # Settings

    def _config(self, queue: str | None = None) -> Steps[Settings]:
        """Return all settings that can be changed while everything runs, as they hold for a queue, or for all."""
        return read_settings((yield commands.config(queue)))

    config, aconfig = verb(_config)

    def _configure(self, changes: Mapping[str, Duration | int | None], *, queue: str | None = None) -> Steps[Settings]:
        """Change settings, of all queues or of one; None stands for the default. They hold from the next call on.

        jobs.configure({"lease": "1m", "keep_failed": "90d"}, queue="video")

        Raises:
            Invalid: there is no such setting, or the value is out of its bounds. Nothing was changed.
        """
        wanted = read_changes(changes, (yield commands.config(queue)))
        return read_settings((yield commands.configure(queue, set=wanted.set, reset=wanted.reset)))

    configure, aconfigure = verb(_configure)

    # Without tasks and workers

    def items(self, queue: str = DEFAULT_QUEUE) -> Items:
        """Return the items of a queue: put, claim, renew and complete any bytes. See `holdfast.items`."""
        from holdfast.items import Items

        return Items(self, queue)

    # Results

    def result(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        _check_job(job)
        if job.ran_inline:
            return _outcome(job)
        deadline = deadline_after(timeout)
        if job.kept_on_disk:
            self.unreachable.sender.wait(job.id, deadline)
        try:
            self._inbox.wait(job.id, deadline)
        except errors.ResultTimeout as error:
            raise errors.ResultTimeout(f"{error}{self._obstacle(job.id)}") from None
        return self._ended(job)

    async def aresult(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        _check_job(job)
        if job.ran_inline:
            return _outcome(job)
        deadline = deadline_after(timeout)
        if job.kept_on_disk:
            await self.unreachable.sender.await_(job.id, deadline)
        import asyncio

        loop = asyncio.get_running_loop()
        inbox = self._async_inboxes.setdefault(loop, AsyncInbox(self.async_store))
        try:
            await inbox.wait(job.id, deadline)
        except errors.ResultTimeout as error:
            raise errors.ResultTimeout(f"{error}{await self._aobstacle(job.id)}") from None
        return await self._aended(job)

    def _obstacle_to(self, id: str) -> Steps[str]:
        """Say why a job does not start."""
        try:
            job = yield from self._get(id)
        except errors.HoldfastError:
            return ""
        left = [f"{each.id} ({each.state})" for each in job.after if each.state != "succeeded"]
        if job.state == "blocked" and left:
            return f": it waits for {', '.join(left[:3])}{' and others' if len(left) > 3 else ''}"
        return f" by the limit {job.throttled_by}" if job.throttled_by else ""

    _obstacle, _aobstacle = verb(_obstacle_to)

    def _outcome_of(self, job: Job[R]) -> Steps[R]:
        try:
            ended: Job[R] = yield from self._get(job.id)
        except errors.JobNotFound:
            if job.kept:
                raise
            raise errors.JobNotFound(f"job {job.id} is not kept: it has ended, and its result is gone") from None
        return _outcome(ended)

    _ended, _aended = verb(_outcome_of)

    def worker(self, **settings: Unpack[embedded.Given]) -> embedded.EmbeddedWorker:
        """Run jobs inside this program while a block lasts: `with jobs.worker(queues=["mail"]):`, or `async with`."""
        from holdfast.worker.embedded import EmbeddedWorker

        return EmbeddedWorker(self, **settings)

    def close(self) -> None:
        """Close the connections of the sync methods. The next call opens them again."""
        self.store.close()

    async def aclose(self) -> None:
        """Close the connections of the async methods, in the event loop that used them."""
        import asyncio

        inbox = self._async_inboxes.pop(asyncio.get_running_loop(), None)
        if inbox is not None:
            await inbox.close()
        await self.async_store.close()

    def _read(self, fields: dict[str, Any]) -> Job[Any]:
        task = self.tasks.get(fields["task"])
        returns = task.signature.result if task else RESULT if fields["task"] == PROGRAM else None
        return read_job(fields, self, returns)


def _check_revision(value: int | str) -> int:
    if (isinstance(value, str) and value.isascii() and value.isdigit()) or (type(value) is int and value >= 0):
        return int(value)
    raise errors.Invalid(f"revision is {value!r}; it must be a whole number that rises with each release")


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions are the same, perhaps imported twice: once as __main__, or again after a change."""
    modules = {one.__module__, other.__module__} - {"__main__"}
    return one.__qualname__ == other.__qualname__ and len(modules) <= 1


def _page(
    queue: str | None, state: str | None, newest: bool, left: int | None, cursor: Sequence[str] | None
) -> Command[commands.Page]:
    limit = PAGE if left is None else min(left, PAGE)
    return commands.list_jobs(queues=_only(queue), states=states_of(state), limit=limit, newest=newest, cursor=cursor)


def _only(queue: str | None) -> list[str] | None:
    return None if queue is None else [queue]


def states_of(state: str | None) -> list[str] | None:
    """Return the states that a word stands for: `pending` is the first five."""
    if state is None:
        return None
    return list(PENDING) if state == "pending" else [state]


def _read_queue(row: Sequence[Any]) -> Queue:
    name, paused, listeners, *counts = row
    return Queue(name, paused, listeners, dict(zip(STATES, counts, strict=True)))


_REFUSALS = {
    ("cancel", "STATE"): "has ended already and cannot be cancelled",
    ("retry", "STATE"): "has not ended, so there is nothing to retry; cancel it first to start it anew",
    ("retry", "EXISTS"): "cannot be retried: another job has its unique key now",
    ("retry", "CYCLE"): "cannot be retried: it would wait for itself",
    ("delete", "STATE"): "has not ended and cannot be deleted; cancel it first",
    ("delete", "BLOCKED"): "is waited for by others and cannot be deleted; retry it, or have them not wait: depend",
}


_DONE = {"delete": "deleted"}


def _each(verb: str, ids: Sequence[str], make: Callable[[Sequence[str]], Command[Any]]) -> Steps[Answers]:
    """Do something with jobs, in parts of what fits into one call."""
    answers: Answers = []
    for first in range(0, len(ids), AT_ONCE):
        part = ids[first : first + AT_ONCE]
        replies = yield make(part)
        answers += [_read_answer(verb, id, reply) for id, reply in zip(part, replies, strict=True)]
    return answers


def _answer(verb: str, id: str, answers: Sequence[str]) -> str:
    """Return the answer about one job, or raise what it stands for."""
    answer = _read_answer(verb, id, answers[0])
    if isinstance(answer, errors.HoldfastError):
        raise answer
    return answer


def _read_answer(verb: str, id: str, answer: str) -> str | errors.HoldfastError:
    """Return an answer about a job, or the error that it stands for."""
    kind = errors.BY_CODE.get(answer)
    if kind is None:
        return _DONE.get(verb, answer)
    return kind(f"job {id} {_REFUSALS.get((verb, answer), 'does not exist; it may have been deleted')}")


def _check_job(job: Job[Any]) -> None:
    if not isinstance(job, Job):
        raise errors.Invalid(f"{job!r} is no job; to wait for a job by its id, write jobs.get(id).result()")


def _outcome(job: Job[R]) -> R:
    if job.state == "succeeded":
        return job.decoded_result()
    if job.state == "cancelled":
        raise errors.JobCancelled(f"job {job.id} was cancelled", job)
    if job.state == "failed":
        raise errors.JobFailed(f"job {job.id} failed in group {job.group}: {job.why}", job)
    raise errors.WrongState(f"job {job.id} was retried while its result was awaited")
