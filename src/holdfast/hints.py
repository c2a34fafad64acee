"""Hints for those who come from another queue: the names that they try, and what to write instead.

    >>> add.delay(1, 2)
    AttributeError: Task has no attribute 'delay'; call task.enqueue(...)

Such a name is a descriptor that raises AttributeError, so `hasattr`, `copy` and mocks of an object see no attribute;
`dir` of the class, and so a mock with the class as its spec, has the names. `__getattr__` would make every other
attribute of these classes slower to read.

`from holdfast import Celery` raises ImportError with a hint. So does `hasattr(holdfast, "Celery")`: AttributeError
would lose its text in the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

C = TypeVar("C", bound=type)

_ENQUEUE = "call task.enqueue(...)"
_LATER = 'call task.options(delay="10s").enqueue(...), or give `at`'
_RESULT = 'call job.result(timeout="10s"), which waits for the end of the job'
_STATE = "read job.state, or job.refresh().state to ask the store again"
_AFTER = "bind the calls, and give those that come later the option `after`: task.options(after=[first]).bind(...)"
_TASKS = "import the modules with your tasks where the worker starts; see docs/layout.md"
_FIELDS = "read job.fields; give the option `fields`, or call jobs.attach(job.id, {name: text})"
_APP = "create an app: jobs = Holdfast(url)"
_TASK = "write @jobs.task, where jobs is a Holdfast"
_GET = "call jobs.get(id)"
_LIST = 'call jobs.list(), or jobs.list(state="waiting")'
_WORKER = "call jobs.worker(...), or start `holdfast work APP`"
_MANY = "call jobs.enqueue_many([...]), or group them: jobs.batch(name)"
_MIDDLEWARE = "write @jobs.middleware above a function; see docs/middleware.md"
_STORE = "the store is both broker and result backend: pass its URL to Holdfast(...)"
_CONFIGURE = "pass options to Holdfast(...), or change settings of the store with jobs.configure(...)"
_REPORT = "call job.report(0.5, message), or job.note(text)"
_LIMIT = "write limits=Limit(...), a limit of all workers together"
_UNIQUE = "write unique, with a key"
_ON_FAILED = 'write after and on_failed="run", in the options of the later call'
_SCHEDULE = "pass schedule=cron(...) to @jobs.task, or call jobs.schedule(...)"
_POLICY = "write retries=Retries(5, "
_CLI = "use the command line: holdfast "
_PURGE = f'call jobs.cancel_all(state="waiting"), or {_CLI}cancel --all --state waiting'

HINTS: Mapping[str, Mapping[str, str]] = {
    # Names that are imported from the package.
    "holdfast": {
        "Celery": _APP,
        "App": _APP,
        "Queue": f"{_APP}; a queue is a name, @jobs.task(queue=...)",
        "Broker": _APP,
        "RedisBroker": _APP,
        "Huey": _APP,
        "RedisHuey": _APP,
        "Client": _APP,
        "Redis": _APP,
        "Worker": _WORKER,
        "SimpleWorker": _WORKER,
        "shared_task": _TASK,
        "actor": _TASK,
        "get_current_job": "import current_job",
        "get_current_task": "import current_job",
        "Context": "import current_job",
        "crontab": 'import cron, as in cron("0 2 * * *")',
        "Scheduler": _SCHEDULE,
        "Repeat": _SCHEDULE,
        "chain": _AFTER,
        "chord": _AFTER,
        "group": _MANY,
        "signature": "call task.bind(...)",
        "AsyncResult": _GET,
        "JobStatus": 'compare job.state with a text, such as "succeeded"',
        "Reject": 'raise Fail("why")',
        "Ignore": "return from the task",
        "TimeoutError": "import ResultTimeout",
        "NoSuchJobError": "import JobNotFound",
        "MaxRetriesExceededError": "import JobFailed, which job.result() raises",
        "SoftTimeLimitExceeded": "check current_job().stopping in the task; nothing is raised",
        "TimeLimitExceeded": "nothing is raised in the task; its attempt ends in group `timeout`",
        "JobTimeoutException": "nothing is raised in the task; its attempt ends in group `timeout`",
        "Callback": _MIDDLEWARE,
        "Middleware": _MIDDLEWARE,
        "Dependency": _AFTER,
        "crash_everywhere": "import it from holdfast.testing",
        "Workbench": "import it from holdfast.testing",
        "assert_enqueued": "call holdfast_app.assert_enqueued(...), a method of the pytest fixture",
    },
    "Task": {
        "delay": _ENQUEUE,
        "apply_async": 'call task.enqueue(...), with options task.options(delay="10s").enqueue(...)',
        "apply": "call the task itself, task(...), to run it here",
        "run": "call the task itself, task(...), to run it here",
        "call_local": "call the task itself, task(...), to run it here",
        "fn": "read task.function",
        "AsyncResult": _GET,
        "update_state": "call current_job().report(0.5, message) in the task",
        "max_retries": "read task.effective_options.retries",
        "queue": "read task.effective_options.queue; task.options(queue=...) sets it for a call",
        "set": "call task.options(...)",
        "kicker": "call task.options(...)",
        "submit": _ENQUEUE,
        "push": _ENQUEUE,
        "enqueue_job": _ENQUEUE,
        "enqueue_many": "call jobs.enqueue_many(task.bind(value) for value in values)",
        "send": _ENQUEUE,
        "send_with_options": "call task.options(...).enqueue(...)",
        "kiq": "await task.aenqueue(...)",
        "defer": _ENQUEUE,
        "s": "call task.bind(...)",
        "si": "call task.bind(...)",
        "subtask": "call task.bind(...)",
        "message": "call task.bind(...)",
        "map": "call jobs.enqueue_many(task.bind(value) for value in values)",
        "starmap": "call jobs.enqueue_many(task.bind(*values) for values in rows)",
        "chunks": "call jobs.enqueue_many(task.bind(value) for value in values)",
        "enqueue_in": _LATER,
        "enqueue_at": _LATER,
        "schedule": _LATER,
        "retry": "raise holdfast.Retry(delay=...) in the task; jobs.retry(id) retries a job that has ended",
        "request": "call holdfast.current_job() in the task",
    },
    "BoundCall": {
        "delay": "call jobs.enqueue(call)",
        "apply_async": "call jobs.enqueue(call)",
        "enqueue": "call jobs.enqueue(call)",
        "send": "call jobs.enqueue(call)",
        "kiq": "await jobs.aenqueue(call)",
        "set": "call call.options(...)",
        "clone": "bind the call again: task.bind(...)",
        "link": _AFTER,
        "link_error": _ON_FAILED,
        "on_error": _ON_FAILED,
    },
    "Job": {
        "get": _RESULT,
        "wait": _RESULT,
        "get_result": _RESULT,
        "return_value": _RESULT,
        "returnvalue": _RESULT,
        "wait_result": _RESULT,
        "join": _RESULT,
        "collect": _RESULT,
        "info": "read job.refresh(): its state, progress and fields",
        "latest_result": f"{_RESULT}; job.attempts has the attempts",
        "status": _STATE,
        "get_status": _STATE,
        "get_state": _STATE,
        "getState": _STATE,
        "ready": "read job.refresh().is_final",
        "is_ready": "read job.refresh().is_final",
        "successful": 'compare job.refresh().state == "succeeded"',
        "failed": 'compare job.refresh().state == "failed"',
        "is_finished": 'compare job.refresh().state == "succeeded"',
        "is_failed": 'compare job.refresh().state == "failed"',
        "is_queued": 'compare job.refresh().state == "waiting"',
        "is_started": 'compare job.refresh().state == "running"',
        "is_success": 'compare job.refresh().state == "succeeded"',
        "is_scheduled": 'compare job.refresh().state == "scheduled"',
        "is_deferred": 'compare job.refresh().state == "blocked"',
        "is_canceled": 'compare job.refresh().state == "cancelled"',
        "is_stopped": 'compare job.refresh().state == "cancelled"',
        "exc_info": "read job.failure.traceback",
        "traceback": "read job.failure.traceback",
        "exception": "read job.failure",
        "error": "read job.failure, or job.why",
        "failedReason": "read job.why",
        "attempts_made": "read job.attempt",
        "attemptsMade": "read job.attempt",
        "retries_left": "subtract job.retries_used from job.retries",
        "revoke": "call job.cancel()",
        "abort": "call job.cancel()",
        "requeue": "call job.retry()",
        "task_id": "read job.id",
        "job_id": "read job.id",
        "message_id": "read job.id",
        "func_name": "read job.task",
        "func": "read job.task",
        "function": "read job.task",
        "task_name": "read job.task",
        "name": "read job.task",
        "origin": "read job.queue",
        "queue_name": "read job.queue",
        "worker_name": "read job.worker",
        "dependency": "read job.after",
        "data": "read job.payload, the arguments as JSON",
        "log": "call job.logs()",
        "fetch": _GET,
        "args": "read job.arguments",
        "kwargs": "read job.arguments",
        "meta": _FIELDS,
        "save_meta": _FIELDS,
        "get_meta": _FIELDS,
        "enqueued_at": "read job.created_at",
        "started_at": "read job.attempts[-1].started_at",
        "ended_at": "read job.attempts[-1].ended_at",
        "date_done": "read job.attempts[-1].ended_at",
        "forget": "call job.delete()",
        "remove": "call job.delete()",
    },
    "Holdfast": {
        "send_task": "call task.enqueue(...)",
        "send": _ENQUEUE,
        "enqueue_call": _ENQUEUE,
        "enqueue_in": _LATER,
        "enqueue_at": _LATER,
        "enqueue_job": _ENQUEUE,
        "submit": _ENQUEUE,
        "delay": _ENQUEUE,
        "add": _ENQUEUE,
        "add_bulk": _MANY,
        "addBulk": _MANY,
        "signature": "call task.bind(...)",
        "AsyncResult": _GET,
        "GroupResult": "keep the jobs that jobs.enqueue_many(...) returns",
        "fetch_job": _GET,
        "fetch": _GET,
        "get_job": _GET,
        "getJob": _GET,
        "get_jobs": _LIST,
        "getJobs": _LIST,
        "get_job_ids": _LIST,
        "job_ids": _LIST,
        "jobs": _LIST,
        "queued_jobs": _LIST,
        "failed_job_registry": 'call jobs.list(state="failed")',
        "finished_job_registry": 'call jobs.list(state="succeeded")',
        "started_job_registry": 'call jobs.list(state="running")',
        "scheduled_job_registry": 'call jobs.list(state="scheduled")',
        "deferred_job_registry": 'call jobs.list(state="blocked")',
        "get_job_counts": "call jobs.queues(), and read counts of each",
        "is_empty": 'compare jobs.count(state="waiting") == 0',
        "revoke": "call jobs.cancel(id)",
        "find_task": "read jobs.tasks",
        "autodiscover_tasks": _TASKS,
        "conf": _CONFIGURE,
        "config_from_object": _CONFIGURE,
        "control": f"call jobs.cancel, jobs.pause or jobs.workers, or {_CLI}workers",
        "inspect": f"call jobs.workers() and jobs.list(), or {_CLI}status",
        "add_periodic_task": _SCHEDULE,
        "periodic_task": _SCHEDULE,
        "cron": _SCHEDULE,
        "on_after_configure": _SCHEDULE,
        "on_after_finalize": _SCHEDULE,
        "crontab": _SCHEDULE,
        "actor": "write @jobs.task",
        "job": "write @jobs.task",
        "shared_task": "write @jobs.task",
        "process": "write @jobs.task",
        "declare_actor": "write jobs.task(function)",
        "register_task": "write jobs.task(function)",
        "broker": _STORE,
        "backend": _STORE,
        "result_backend": _STORE,
        "with_result_backend": _STORE,
        "add_middleware": _MIDDLEWARE,
        "add_middlewares": _MIDDLEWARE,
        "with_middlewares": _MIDDLEWARE,
        "startup": "leave it out: the first call connects",
        "connect": "leave it out: the first call connects",
        "shutdown": "call jobs.close(), or await jobs.aclose()",
        "worker_main": _WORKER,
        "Worker": _WORKER,
        "work": _WORKER,
        "run": _WORKER,
        "start": _WORKER,
        "purge": _PURGE,
        "empty": _PURGE,
        "obliterate": _PURGE,
        "chain": _AFTER,
        "group": _MANY,
        "chord": _AFTER,
    },
    "RunningJob": {
        "retry": 'raise holdfast.Retry(delay="10s")',
        "request": "this is it: read id, attempt, task and queue",
        "update_state": _REPORT,
        "update_progress": _REPORT,
        "updateProgress": _REPORT,
        "set_progress": _REPORT,
        "progress": _REPORT,
        "snooze": 'raise holdfast.Snooze("10s")',
        "fail": 'raise holdfast.Fail("why")',
        "meta": "call job.attach({name: text}), job.note(text) or job.report(...)",
        "save_meta": "call job.attach({name: text}), job.note(text) or job.report(...)",
        "get_id": "read job.id",
        "retries": "read job.attempt, which is 1 at first",
        "args": "read job.arguments in a middleware; a task has its arguments",
        "kwargs": "read job.arguments in a middleware; a task has its arguments",
    },
    # Options of tasks and calls: see `check_options`.
    "option": {
        "args": "pass the arguments to enqueue(...)",
        "kwargs": "pass the arguments to enqueue(...)",
        "countdown": "write delay",
        "_defer_by": "write delay",
        "_defer_until": "write at",
        "_expires": "write deadline",
        "max_age": "write deadline",
        "_job_id": "write id",
        "jobId": "write id",
        "_queue_name": "write queue",
        "name": "write it in @jobs.task(name=...), which declares the task",
        "actor_name": "write it in @jobs.task(name=...), which declares the task",
        "schedule": "write it in @jobs.task(schedule=...), or call jobs.schedule(...)",
        "cron": _SCHEDULE,
        "repeat": _SCHEDULE,
        "max_tries": "write retries, which are one less than the tries",
        "attempts": "write retries, which are one less than the attempts",
        "retry_count": "write retries",
        "singleton": _UNIQUE,
        "lock": _UNIQUE,
        "deduplication_id": _UNIQUE,
        "concurrency": _LIMIT,
        "max_concurrency": _LIMIT,
        "lifo": "write priority; a lower one runs first",
        "removeOnComplete": "write keep=False",
        "store_results": "leave it out, because results are stored; keep=False turns that off",
        "track_started": "leave it out, because every attempt is recorded",
        "serializer": "leave it out, because arguments are stored as JSON",
        "reject_on_worker_lost": "leave it out, because the job of a dead worker runs again",
        "on_success": "write after, in the options of the later call",
        "on_failure": _ON_FAILED,
        "link_error": _ON_FAILED,
        "eta": "write at",
        "expires": "write deadline",
        "ttl": "write deadline; how long the record of an ended job is kept: keep",
        "result_expires": "write keep, a duration; or change the setting keep_succeeded, for all queues or one",
        "task_id": "write id",
        "job_id": "write id",
        "max_retries": "write retries",
        "retry": 'write retries=5, or retries=Retries(5, waits=["1s", "10s"])',
        "retry_on_error": "every exception but Fail is retried: write retries",
        "autoretry_for": f"every exception but Fail is retried; to retry only some, {_POLICY}on=(...))",
        "retry_for": f"every exception but Fail is retried; to retry only some, {_POLICY}on=(...))",
        "retry_on": f"{_POLICY}on=(...))",
        "dont_autoretry_for": f"{_POLICY}not_on=(...))",
        "throws": f"{_POLICY}not_on=(...))",
        "default_retry_delay": f'{_POLICY}waits="10s")',
        "retry_delay": f'{_POLICY}waits="10s")',
        "retry_intervals": f'{_POLICY}waits=["1s", "10s"])',
        "retry_backoff": "write backoff, which doubles",
        "min_backoff": "write backoff, which doubles",
        "retry_backoff_max": f'{_POLICY}cap="10m")',
        "max_backoff": f'{_POLICY}cap="10m")',
        "retry_jitter": f"up to 10 % are added to each wait; {_POLICY}jitter=0.5) for more",
        "retry_kwargs": f"{_POLICY}waits=..., on=..., not_on=...)",
        "time_limit": "write timeout",
        "job_timeout": "write timeout",
        "soft_time_limit": "write soft_timeout",
        "depends_on": "write after",
        "link": "write after, in the options of the later call",
        "at_front": "write priority; a lower one runs first",
        "ignore_result": "write keep=False",
        "result_ttl": "write keep, a duration; or change the setting keep_succeeded, for all queues or one",
        "failure_ttl": "write keep, a duration; or change the setting keep_failed, for all queues or one",
        "meta": "write fields",
        "labels": "write fields",
        "headers": "write fields, or carry context: jobs.carry(...)",
        "rate_limit": _LIMIT,
        "acks_late": "a job is acknowledged when it has ended; with at_most_once=True, before it starts",
        "bind": "call current_job() in the task",
        "queue_name": "write queue",
        "routing_key": "write queue",
    },
}


class _Hint:
    """A name that another queue has here. Reading it raises AttributeError, as if there were nothing."""

    def __init__(self, owner: str, name: str, hint: str) -> None:
        self._name = name
        self._message = f"{owner} has no attribute {name!r}; {hint}"

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._message, name=self._name, obj=None)  # without obj, Python adds no guess of its own


def missing_name(name: str) -> Exception:
    """Return the error for a name that the package `holdfast` does not have."""
    if hint := HINTS["holdfast"].get(name):
        return ImportError(f"holdfast has no {name}; {hint}", name="holdfast")
    return AttributeError(f"module 'holdfast' has no attribute {name!r}", name=name)


def with_hints(cls: C) -> C:
    """Add the hints of a class to it."""
    names = HINTS[cls.__name__]
    for name, hint in names.items():
        setattr(cls, name, _Hint(cls.__name__, name, hint))

    def visible(self: object) -> Iterable[str]:
        return [name for name in object.__dir__(self) if name not in names or not _is_hint(self, name)]

    cls.__dir__ = visible  # type: ignore[assignment]
    return cls


def _is_hint(thing: object, name: str) -> bool:
    """Return whether a name is a hint, and not an attribute that a subclass or the object has defined."""
    owners = (vars(owner) for owner in type(thing).__mro__)
    found = next((attributes[name] for attributes in owners if name in attributes), None)
    return isinstance(found, _Hint) and name not in getattr(thing, "__dict__", ())
