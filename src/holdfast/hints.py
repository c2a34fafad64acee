"""Hints for those who come from another queue: the names that they try, and what to write instead.

    >>> add.delay(1, 2)
    AttributeError: Task has no attribute 'delay'; call task.enqueue(...)

Such a name is a descriptor that raises AttributeError, so `hasattr`, `copy` and mocks of an object see no attribute;
`dir` of the class, and so a mock with the class as its spec, has the names. `__getattr__` would make every other
attribute of these classes slower to read.
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
_FIELDS = "read job.fields; jobs.attach(job.id, {name: text}) sets them"
_SCHEDULE = "pass schedule=cron(...) to @jobs.task, or call jobs.schedule(...)"
_POLICY = "write retries=Retries(5, "
_CLI = "use the command line: holdfast "

HINTS: Mapping[str, Mapping[str, str]] = {
    "Task": {
        "delay": _ENQUEUE,
        "apply_async": 'call task.enqueue(...), with options task.options(delay="10s").enqueue(...)',
        "apply": "call the task itself, task(...), to run it here",
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
        "set": "call call.options(...)",
        "link": _AFTER,
    },
    "Job": {
        "get": _RESULT,
        "wait": _RESULT,
        "get_result": _RESULT,
        "return_value": _RESULT,
        "latest_result": f"{_RESULT}; job.attempts has the attempts",
        "status": _STATE,
        "get_status": _STATE,
        "ready": "read job.refresh().is_final",
        "successful": 'compare job.refresh().state == "succeeded"',
        "failed": 'compare job.refresh().state == "failed"',
        "is_finished": 'compare job.refresh().state == "succeeded"',
        "is_failed": 'compare job.refresh().state == "failed"',
        "is_queued": 'compare job.refresh().state == "waiting"',
        "is_started": 'compare job.refresh().state == "running"',
        "exc_info": "read job.failure.traceback",
        "traceback": "read job.failure.traceback",
        "exception": "read job.failure",
        "revoke": "call job.cancel()",
        "abort": "call job.cancel()",
        "requeue": "call job.retry()",
        "task_id": "read job.id",
        "job_id": "read job.id",
        "message_id": "read job.id",
        "func_name": "read job.task",
        "args": "read job.payload, the arguments as JSON",
        "kwargs": "read job.payload, the arguments as JSON",
        "meta": _FIELDS,
        "save_meta": _FIELDS,
        "enqueued_at": "read job.created_at",
        "started_at": "read job.attempts[-1].started_at",
        "ended_at": "read job.attempts[-1].ended_at",
        "forget": "call job.delete()",
    },
    "Holdfast": {
        "send_task": "call task.enqueue(...)",
        "send": _ENQUEUE,
        "enqueue_call": _ENQUEUE,
        "enqueue_in": _LATER,
        "enqueue_at": _LATER,
        "AsyncResult": "call jobs.get(id)",
        "fetch_job": "call jobs.get(id)",
        "autodiscover_tasks": _TASKS,
        "conf": "pass options to Holdfast(...), or change settings of the store with jobs.configure(...)",
        "control": f"call jobs.cancel, jobs.pause or jobs.workers, or {_CLI}workers",
        "inspect": f"call jobs.workers() and jobs.list(), or {_CLI}status",
        "add_periodic_task": _SCHEDULE,
        "periodic_task": _SCHEDULE,
        "cron": _SCHEDULE,
        "on_after_configure": _SCHEDULE,
        "actor": "write @jobs.task",
        "job": "write @jobs.task",
        "register_task": "write jobs.task(function)",
        "broker": "write @jobs.task",
        "worker_main": "call jobs.worker(...), or start `holdfast work APP`",
        "start": "call jobs.worker(...), or start `holdfast work APP`",
        "purge": f'call jobs.cancel_all(state="waiting"), or {_CLI}cancel --all --state waiting',
        "chain": _AFTER,
        "group": "call jobs.enqueue_many([...])",
        "chord": _AFTER,
    },
    "RunningJob": {
        "retry": 'raise holdfast.Retry(delay="10s")',
        "request": "this is it: read id, attempt, task and queue",
        "update_state": "call job.report(0.5, message), or job.note(text)",
        "meta": "call job.note(text), job.report(...), or jobs.attach(job.id, {name: text})",
        "save_meta": "call job.note(text), job.report(...), or jobs.attach(job.id, {name: text})",
        "get_id": "read job.id",
        "retries": "read job.attempt, which is 1 at first",
        "args": "read job.arguments in a middleware; a task has its arguments",
        "kwargs": "read job.arguments in a middleware; a task has its arguments",
    },
    # Options of tasks and calls: see `check_options`.
    "option": {
        "countdown": "write delay",
        "eta": "write at",
        "expires": "write deadline",
        "ttl": "write deadline",
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
        "result_ttl": "change the setting keep_succeeded, for all queues or one",
        "failure_ttl": "change the setting keep_failed, for all queues or one",
        "rate_limit": "write limits, and set the limit",
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
