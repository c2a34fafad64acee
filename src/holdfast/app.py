"""The app: declares tasks and exposes the methods of the client.

    jobs = Holdfast()                # no I/O before the first call

Each method has an async counterpart whose name starts with `a`; `client_method` makes both from one generator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Never, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from holdfast import client, errors
from holdfast.client.results import AsyncInbox, Inbox, deadline_after
from holdfast.client.schedules import declaration
from holdfast.client.timing import Timing
from holdfast.codec import register_type
from holdfast.hints import with_hints
from holdfast.job import DEFAULT_QUEUE, Job, JobOptions, Limit
from holdfast.job.option_kinds import limits_in
from holdfast.job.option_table import WhenUnreachable, check_options
from holdfast.job.options import default_options
from holdfast.names import DEFAULT_NAMESPACE, check_namespace
from holdfast.outbox import OutagePolicy
from holdfast.store import Address, AsyncStore, Steps, Store, client_method, paged_method, socket_url
from holdfast.task.context import CarriedContext
from holdfast.task.middleware import M, MiddlewareStack
from holdfast.task.program import ProgramResult, StrPath, bind_program
from holdfast.task.registration import add_task, declare_limits
from holdfast.task.scope import Scope, ScopeOfApp
from holdfast.task.task import AsyncTask, BoundCall, Declare, Task, make_task
from holdfast.text import suggestion
from holdfast.units import Duration, milliseconds

if TYPE_CHECKING:
    import asyncio  # slow to import, and not needed to declare tasks

    from holdfast.items import Items
    from holdfast.outbox.outbox import SendResult
    from holdfast.planning.plans import Plan
    from holdfast.redis_work_queue.shared_items import SharedItems
    from holdfast.redis_work_queue.shared_queue import SharedQueue
    from holdfast.worker import embedded

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Class = type[T]  # in the body of Holdfast, `type` is a method
OPTIONS_OF_APP = (
    "url",
    "namespace",
    "timeout",
    "when_unreachable",
    "revision",
    "defaults",
    "limits",
    "scope",
    "extend",
)


@with_hints
class Holdfast:
    """An app: its tasks, and the server with its jobs.

    `url` is redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://. The default is HOLDFAST_URL, or else
    an embedded server that starts on first use and keeps its data in `.holdfast`. A `namespace` separates apps that
    share a server.

    `when_unreachable` decides what happens to a call that cannot be stored because the server does not answer within
    two seconds: `raise` StoreUnavailable, run it `inline`, or write it to the `outbox` on disk and send it later.
    The default is HOLDFAST_WHEN_UNREACHABLE, or else `raise`. Tasks and calls may override it.

    `revision` (or HOLDFAST_REVISION) is a number that rises with each release of the app: a worker of an older release
    does not change schedules and limits that a newer one has declared.

    `defaults` are options of all tasks, such as `{"queue": "video", "timeout": "6h"}`. A task may override them; None
    removes one.

    `limits` are declared for all workers of the app, such as `[Limit("api", 5, per="1s")]`. Limits that tasks name as
    a `Limit` are declared as well.

    `extend` is a Lua file, or a list of files, with functions that run in the server, beside those of the library: see
    `call`. The default is HOLDFAST_EXTEND, paths separated by colons.

    `scope` is a path such as `/tenant/7` that all its jobs are found by, unless a task or a call has another; or a
    ContextVar or a function that gives the path when a job is enqueued. Jobs inherit the scope of the job that enqueues
    them.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        timeout: Duration = "5s",
        when_unreachable: WhenUnreachable | None = None,
        revision: int | None = None,
        defaults: JobOptions | None = None,
        limits: Iterable[Limit] = (),
        scope: Scope | None = None,
        extend: client.extension.Files | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise errors.Invalid(f"Holdfast() has no option {name!r}{suggestion(name, OPTIONS_OF_APP)}")
        seconds = milliseconds(timeout, what="timeout", minimum=1) / 1000
        found = namespace if namespace is not None else os.environ.get("HOLDFAST_NAMESPACE") or DEFAULT_NAMESPACE
        self.address = Address.find(url, namespace=check_namespace(found), timeout=seconds)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared_schedules: dict[str, dict[str, Any]] = {}
        self.declared_subscriptions: dict[str, dict[str, Any]] = {}
        self.declared_limits: dict[str, Limit] = {}
        self.shared_queues: dict[str, SharedQueue] = {}  # that workers serve
        self.defaults = default_options(defaults or {})
        declare_limits(self, [*_check_limits(limits), *limits_in((defaults or {}).get("limits"))])
        self.middleware_stack = MiddlewareStack()
        self.carried = CarriedContext()
        self.scope_of_jobs = ScopeOfApp(scope)
        self.extension = client.extension.Extension(extend)
        self.revision = _check_revision(os.environ.get("HOLDFAST_REVISION") or "0" if revision is None else revision)
        self.store = Store(self.address)
        self.async_store = AsyncStore(self.address)
        self.outage_policy = OutagePolicy(self, when_unreachable)
        self._inbox = Inbox(self.store)
        self._async_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncInbox] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Holdfast {self.address.display}, namespace {self.address.namespace}>"

    @property
    def url(self) -> str:
        """The URL of the server, for other clients. An embedded server is started unless it runs."""
        return self.address.url or socket_url(self.address.connect_to().options["path"])

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
        **options: Unpack[JobOptions],
    ) -> Declare: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        schedule: Timing | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Declare a function as a task.

        @jobs.task(queue="video", retries=3)
        def transcode(source: str) -> str: ...

        With a `schedule`, the task is enqueued without arguments at those times. Workers declare schedules when they
        start.

        @jobs.task(schedule=cron("0 2 * * *", tz="Europe/Berlin"))
        def report() -> None: ...
        """
        check_options(options, also=("name", "schedule"))
        checked = self.defaults.replace(**options)
        declare_limits(self, limits_in(options.get("limits")))

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = make_task(function, self, checked, name)
            add_task(self, task)
            if schedule is not None:
                self.declared_schedules[task.name] = {
                    **declaration(task.name, task.bind(), schedule), "revision": self.revision,
                }  # fmt: skip
            return task

        return declare if function is None else declare(function)

    @overload
    def middleware(self, function: M, /) -> M: ...
    @overload
    def middleware(
        self, function: None = None, /, *, tasks: Iterable[Task[..., Any] | str] | None = None
    ) -> Callable[[M], M]: ...
    def middleware(self, function: Any = None, /, *, tasks: Iterable[Task[..., Any] | str] | None = None) -> Any:
        """Run a function that yields once around all tasks, or around `tasks`. The one declared first is the outermost.

        @jobs.middleware
        def timed(job: RunningJob) -> Iterator[None]:
            began = time.monotonic()
            try:
                yield
            finally:
                print(job.task, time.monotonic() - began)

        `result = yield` gets the return value of the task; an exception of the task is raised there. A middleware may
        raise as well, also Retry, Fail and Snooze. It runs where the task runs. An `async def` works only around async
        tasks.
        """

        def declare(function: Any) -> Any:
            self.middleware_stack.add(function, tasks, self.tasks)
            return function

        return declare if function is None else declare(function)

    on = client.subscriptions.on

    def type(self, kind: Class[T], /, encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
        """Declare how objects of a class are stored, as arguments, results and checkpoints of all apps in this process.

        jobs.type(Money, encode=str, decode=Money.parse)

        `encode` returns JSON's own types, and `decode` gets what `encode` returned. Make the declaration above the
        first task whose annotations name the class; the workers' app must make it, too. It applies to this class, not
        to subclasses. Dataclasses, attrs classes, Structs and Pydantic models need none.

        Raises:
            Invalid: the class needs no declaration, or another one was made.
        """
        register_type(kind, encode, decode)

    def carry(self, name: str, variable: ContextVar[Any], /) -> None:
        """Carry a context variable with jobs: the value that it has when a job is enqueued is set when the job runs.

        jobs.carry("request_id", request_id)

        Jobs that a job enqueues carry it as well. Values are JSON, together up to 512 bytes. The workers' app must make
        this call, too.
        """
        self.carried.add(name, variable)

    def program(
        self,
        arguments: Sequence[StrPath],
        /,
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> BoundCall[ProgramResult]:
        """Return a call that runs a program, to enqueue like other calls. Only workers with `--allow-exec` run it.

        jobs.enqueue(jobs.program(["ffmpeg", "-i", "in.mov", "out.mp4"]).options(timeout="6h", memory="2GiB"))

        No shell is involved. The program's output is the log of the attempt, which fails if the exit code is not 0.

        Raises:
            Invalid, TooBig: no program can be started with these arguments.
        """
        return bind_program(self, self.defaults, arguments, cwd=cwd, env=env, stdin=stdin)

    # Enqueueing jobs

    enqueue, aenqueue = client_method(client.enqueue.enqueue)
    enqueue_many, aenqueue_many = client_method(client.enqueue.enqueue_many)

    enqueue_with, aenqueue_with = client_method(client.transactions.enqueue_with)
    key = client.transactions.key

    def _send_outbox(self) -> Steps[int]:
        """Send the calls in the outbox now, and return how many the store accepted.

        They are also sent in the background. `holdfast outbox` lists calls that the store refused.

        Raises:
            StoreUnavailable, StoreFull: the unsent calls stay in the outbox.
        """
        result: SendResult = yield self.outage_policy.send()
        return result.sent

    send_outbox, asend_outbox = client_method(_send_outbox)

    # Functions of the app's own Lua

    call, acall = client_method(client.extension.call)
    query, aquery = client_method(client.extension.query)

    # Finding jobs

    get, aget = client_method(client.jobs.get)
    get_many, aget_many = client_method(client.jobs.get_many)
    list, alist = paged_method(client.queries.list_jobs, "list")
    rows, arows = paged_method(client.queries.rows)
    export, aexport = paged_method(client.queries.export)
    page, apage = client_method(client.queries.page)
    peek, apeek = client_method(client.queries.peek)
    dependents, adependents = client_method(client.queries.dependents)
    count, acount = client_method(client.queries.count)
    failures, afailures = paged_method(client.failures.failures)
    failure, afailure = client_method(client.failures.failure)

    # Tags, scopes and tracked jobs

    tag, atag = client_method(client.tags.tag)
    untag, auntag = client_method(client.tags.untag)
    tag_many, atag_many = client_method(client.tags.tag_many)
    untag_many, auntag_many = client_method(client.tags.untag_many)
    tags, atags = client_method(client.tags.tags)
    scopes, ascopes = client_method(client.tags.scopes)
    track, atrack = client_method(client.tags.track)
    untrack, auntrack = client_method(client.tags.untrack)
    tracked, atracked = client_method(client.tags.tracked)

    # Logs and usage of jobs

    follow_logs, afollow_logs = client.logs.follow_logs, client.logs.afollow_logs
    logs, alogs = client_method(client.logs.logs)
    stack, astack = client_method(client.running_jobs.stack)
    usage, ausage = client_method(client.running_jobs.usage)

    # Why jobs are not running

    explain, aexplain = client_method(client.explain.explain)
    explain_many, aexplain_many = client_method(client.explain.explain_many)

    # Controlling jobs

    cancel, acancel = client_method(client.jobs.cancel)
    retry, aretry = client_method(client.jobs.retry)
    fork, afork = client_method(client.forks.fork)
    delete, adelete = client_method(client.jobs.delete)
    cancel_many, acancel_many = client_method(client.jobs.cancel_many)
    retry_many, aretry_many = client_method(client.jobs.retry_many)
    delete_many, adelete_many = client_method(client.jobs.delete_many)
    attach, aattach = client_method(client.jobs.attach)
    note, anote = client_method(client.jobs.note)
    cancel_with_dependents, acancel_with_dependents = client_method(client.jobs.cancel_with_dependents)
    depend, adepend = client_method(client.jobs.depend)
    move, amove = client_method(client.jobs.move)
    release, arelease = client_method(client.jobs.release)
    fail, afail = client_method(client.jobs.fail)

    # Acting on all jobs that match filters

    cancel_all, acancel_all = client_method(client.operations.cancel_all)
    retry_all, aretry_all = client_method(client.operations.retry_all)
    delete_all, adelete_all = client_method(client.operations.delete_all)
    move_all, amove_all = client_method(client.operations.move_all)
    release_all, arelease_all = client_method(client.operations.release_all)
    fail_all, afail_all = client_method(client.operations.fail_all)
    tag_all, atag_all = client_method(client.operations.tag_all)
    untag_all, auntag_all = client_method(client.operations.untag_all)
    operations, aoperations = client_method(client.operations.operations)
    operation, aoperation = client_method(client.operations.operation)
    stop_operation, astop_operation = client_method(client.operations.stop_operation)
    resume_operation, aresume_operation = client_method(client.operations.resume_operation)
    drive_operation, adrive_operation = client_method(client.operations.drive_operation)

    # Limits and shares

    set_limit, aset_limit = client_method(client.limits.set_limit)
    reset_limit, areset_limit = client_method(client.limits.reset_limit)
    remove_limit, aremove_limit = client_method(client.limits.remove_limit)
    limits, alimits = client_method(client.limits.limits)
    limit_keys, alimit_keys = paged_method(client.limits.limit_keys)
    limit_holders, alimit_holders = paged_method(client.limits.limit_holders)
    limit_parked, alimit_parked = paged_method(client.limits.limit_parked)
    release_slot, arelease_slot = client_method(client.limits.release_slot)
    set_share_weight, aset_share_weight = client_method(client.limits.set_share_weight)

    # Schedules

    schedule, aschedule = client_method(client.schedules.schedule)
    reset_schedule, areset_schedule = client_method(client.schedules.reset_schedule)
    unschedule, aunschedule = client_method(client.schedules.unschedule)
    pause_schedule, apause_schedule = client_method(client.schedules.pause_schedule)
    resume_schedule, aresume_schedule = client_method(client.schedules.resume_schedule)
    trigger, atrigger = client_method(client.schedules.trigger)
    schedules, aschedules = client_method(client.schedules.schedules)
    get_schedule, aget_schedule = client_method(client.schedules.get_schedule)

    # Events and subscriptions

    events, aevents = client_method(client.events.events)
    subscribe, asubscribe = client.events.subscribe, client.events.asubscribe
    subscriptions, asubscriptions = client_method(client.subscriptions.subscriptions)
    get_subscription, aget_subscription = client_method(client.subscriptions.get_subscription)
    pause_subscription, apause_subscription = client_method(client.subscriptions.pause_subscription)
    resume_subscription, aresume_subscription = client_method(client.subscriptions.resume_subscription)
    unsubscribe, aunsubscribe = client_method(client.subscriptions.unsubscribe)

    # Batches

    batch = client.batches.batch
    batches, abatches = paged_method(client.batches.batches)

    # Queues and workers

    queues, aqueues = client_method(client.queues.queues)
    overdue, aoverdue = client_method(client.queues.overdue)
    load, aload = client_method(client.queues.load)
    upkeep, aupkeep = client_method(client.upkeep.upkeep)
    pause, apause = client_method(client.queues.pause)
    resume, aresume = client_method(client.queues.resume)
    forget, aforget = client_method(client.queues.forget)
    workers, aworkers = client_method(client.workers.workers)
    stalled, astalled = client_method(client.stalled.stalled)
    nodes, anodes = client_method(client.workers.nodes)
    deregister, aderegister = client_method(client.workers.deregister)
    drain, adrain = client_method(client.workers.drain)

    # Statistics

    stats, astats = client_method(client.statistics.stats)
    stats_tasks, astats_tasks = client_method(client.statistics.stats_tasks)
    stats_series, astats_series = client_method(client.statistics.stats_series)

    def _plan(
        self,
        *queues: str,
        workers: int | str | None = None,
        processes: int | None = None,
        concurrency: int | None = None,
        arriving: float | None = None,
    ) -> Steps[Plan]:
        """Forecast when the backlogs of queues will be gone, with the workers of today and with another number.

        found = jobs.plan("video", workers="+10")
        for each in found.queues:
            print(each.queue, each.backlog, each.now.after, each.then.after, each.then.held_up_by)

        Without queues, all that have work. `workers` is "+10" for ten more workers that serve these queues, "-2" for
        two fewer, or a total. Added workers are like the most common ones of today, unless `processes` or `concurrency`
        says how many jobs each runs at once. `arriving` is how many jobs per second arrive in each of the queues; the
        default is as many as in the last hour.

        The forecast is a simulation with the run times, retries and limits that the store knows; it takes a second or
        two. See docs/plan.md for what it assumes.

        Raises:
            Invalid: an argument is invalid, or no worker serves the queues and its slots are not given.
        """
        from holdfast.planning.plans import plan

        found: Plan = yield from plan(
            self, *queues, workers=workers, processes=processes, concurrency=concurrency, arriving=arriving
        )
        return found

    plan, aplan = client_method(_plan)

    # Settings

    config, aconfig = client_method(client.config.config)
    configure, aconfigure = client_method(client.config.configure)

    # Consistency

    check, acheck = client_method(client.checks.check)
    memory, amemory = client_method(client.checks.memory)
    check_history, acheck_history = client_method(client.checks.check_history)

    # Items, without tasks and workers

    @overload
    def items(self, queue: str = DEFAULT_QUEUE) -> Items: ...
    @overload
    def items(
        self, queue: str = DEFAULT_QUEUE, *, protocol: Literal["redis-work-queue"], prefix: str | bytes | None = None
    ) -> SharedItems: ...
    def items(
        self, queue: str = DEFAULT_QUEUE, *, protocol: str | None = None, prefix: str | bytes | None = None
    ) -> Items | SharedItems:
        """Return the items of a queue, to put, claim, renew and complete raw bytes. See `holdfast.items`.

        With `protocol="redis-work-queue"`, they are in the keys of that protocol, which begin with `prefix` (default:
        the name of the queue), and can be shared with other programs that use it. See `holdfast.redis_work_queue`.
        """
        if protocol is None:
            if prefix is not None:
                raise errors.Invalid('prefix needs a protocol: items(queue, protocol="redis-work-queue", prefix=...)')
            from holdfast.items import Items

            return Items(self, queue)
        if protocol != "redis-work-queue":
            raise errors.Invalid(f"unknown protocol {protocol!r}; the one that is known is 'redis-work-queue'")
        from holdfast.redis_work_queue.shared_items import SharedItems

        return SharedItems(self, queue, prefix)

    # Results

    def result(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        client.results.check_job(job)
        if job.ran_inline:
            return client.results.result_or_raise(job)
        deadline = deadline_after(timeout)
        if job.in_outbox:
            self.outage_policy.sender.wait_until_sent(job.id, deadline)
        try:
            self._inbox.wait(job.id, deadline)
        except client.results.NotEnded as late:
            raise client.results.timeout_error(job.id, late.state, self._explain_timeout(job.id, late.state)) from None
        return self._fetch_result(job)

    async def aresult(self, job: Job[R], /, timeout: Duration | None = None) -> R:
        """Wait until a job has ended, and return its result. See `Job.result`."""
        client.results.check_job(job)
        if job.ran_inline:
            return client.results.result_or_raise(job)
        deadline = deadline_after(timeout)
        if job.in_outbox:
            await self.outage_policy.sender.await_until_sent(job.id, deadline)
        try:
            await self.loop_inbox.wait(job.id, deadline)
        except client.results.NotEnded as late:
            explained = await self._aexplain_timeout(job.id, late.state)
            raise client.results.timeout_error(job.id, late.state, explained) from None
        return await self._afetch_result(job)

    @property
    def loop_inbox(self) -> AsyncInbox:
        """The inbox with which the running event loop waits for jobs."""
        import asyncio

        return self._async_inboxes.setdefault(asyncio.get_running_loop(), AsyncInbox(self.async_store))

    _explain_timeout, _aexplain_timeout = client_method(client.explain.explain_timeout)
    _fetch_result, _afetch_result = client_method(client.results.fetch_result)

    def worker(self, **settings: Unpack[embedded.EmbeddedSettings]) -> embedded.EmbeddedWorker:
        """Run jobs inside this program during a block: `with jobs.worker(queues=["mail"]):`, or `async with`."""
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


def _check_revision(value: int | str) -> int:
    if (isinstance(value, str) and value.isascii() and value.isdigit()) or (type(value) is int and value >= 0):
        return int(value)
    raise errors.Invalid(f"revision is {value!r}; it must be a whole number that rises with each release")


def _check_limits(limits: Iterable[Limit]) -> Iterable[Limit]:
    found = [limits] if isinstance(limits, str | Limit) or not isinstance(limits, Iterable) else [*limits]
    for each in found:
        if isinstance(limits, Limit) or not isinstance(each, Limit):
            raise errors.Invalid(f"limits is {limits!r}; it must be a list such as [Limit('api', 5, per='1s')]")
    return found
