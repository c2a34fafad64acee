"""Assertions about enqueued jobs, with messages that name the nearest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.job.job import Job
from holdfast.job.option_table import BY_NAME
from holdfast.task.task import Task
from holdfast.text import did_you_mean, listed
from holdfast.units import utc

MAX_LISTED = 10  # jobs in a message
MAX_VALUE = 100  # characters of a value in a message


def _due_after(job: Job[Any]) -> timedelta | None:
    return job.due_at - job.created_at if job.due_at else None


def _deadline_after(job: Job[Any]) -> timedelta | None:
    return job.deadline - job.created_at if job.deadline else None


def _duration(value: int) -> timedelta:
    return timedelta(milliseconds=value)


# The options that the record of a job shows, as it shows them, and how to read the stored value of an option.
_SHOWN: dict[str, tuple[Callable[[Job[Any]], Any], Callable[[Any], Any]]] = {
    "queue": (lambda job: job.queue, str),
    "priority": (lambda job: job.priority, int),
    "delay": (_due_after, _duration),
    "at": (lambda job: job.due_at, utc),
    "retries": (lambda job: job.retries, int),
    "crashes": (lambda job: job.crashes, int),
    "lost": (lambda job: job.lost, int),
    "id": (lambda job: job.id, str),
    "unique": (lambda job: job.unique, str),
    "keep": (lambda job: job.keep, bool),
    "at_most_once": (lambda job: job.at_most_once, bool),
    "after": (lambda job: tuple(each.id for each in job.after), tuple),
    "limits": (lambda job: job.limits, tuple),
    "share": (lambda job: job.share, str),
    "deadline": (_deadline_after, _duration),
    "deadline_at": (lambda job: job.deadline, utc),
}


def arguments(task: Task[..., Any], payload: bytes, *, defaults: bool = False) -> dict[str, Any]:
    """Return the arguments of a call by name, decoded. Defaults are not stored, and only returned if asked for."""
    signature = task.signature
    args, kwargs = signature.decode(payload)
    bound = signature.python.bind(*args, **kwargs)
    keys = {name: each.key for name, each in zip(signature.python.parameters, signature.parameters, strict=True)}
    stored = msgspec.json.decode(payload)
    given = {name: value for name, value in bound.arguments.items() if keys[name] in stored}
    if not defaults:
        return given
    bound.apply_defaults()
    return {**bound.arguments, **given}


def find(jobs: Sequence[Job[Any]], task: Task[..., Any], given: Mapping[str, Any]) -> list[Job[Any]]:
    """Return the jobs of a task with these arguments and the options that were chosen for it.

    Raises:
        Invalid: the task has no such parameter, or the record of a job does not show such an option.
    """
    _check_names(task, given)
    wanted = _options(task)
    return [job for job in jobs if job.task == task.name and not _mismatches(job, task, given, wanted)]


def missing(jobs: Sequence[Job[Any]], task: Task[..., Any], given: Mapping[str, Any], found: int, count: int) -> str:
    """Return the message for a wrong number of jobs; the nearest ones come first."""
    wanted = _options(task)
    own = [job for job in jobs if job.task == task.name]
    what = f"{task.name}({', '.join(f'{name}={_text(value)}' for name, value in given.items())})"
    if options := ", ".join(f"{name}={_text(value)}" for name, value in wanted.items()):
        what += f" with {options}"
    number = "at least one job" if count < 0 else f"{count} job{'' if count == 1 else 's'}"
    message = f"expected {number} of {what}, found {found}"
    if not own:
        others = Counter(job.task for job in jobs).most_common(MAX_LISTED)
        return f"{message}. Enqueued: " + (", ".join(f"{name} ({times})" for name, times in others) or "nothing")
    near = sorted(((job, _mismatches(job, task, given, wanted)) for job in own), key=lambda each: len(each[1]))
    lines = [f"\n  job {job.id}: {'; '.join(differing) or 'matches'}" for job, differing in near[:MAX_LISTED]]
    rest = f"\n  and {len(own) - MAX_LISTED} more" if len(own) > MAX_LISTED else ""
    return f"{message}; the jobs of this task, nearest first:{''.join(lines)}{rest}"


def _check_names(task: Task[..., Any], given: Mapping[str, Any]) -> None:
    names = list(task.signature.python.parameters)
    for name in given:
        if name not in names and _any_name(task) is None:
            hint = f"; options are given by task.options({name}=...)" if name in BY_NAME else did_you_mean(name, names)
            raise Invalid(f"{task.name} has no parameter {name!r}{hint}")


def _any_name(task: Task[..., Any]) -> str | None:
    """Return the parameter that gets arguments of any name, `more` of `**more`; None if there is none."""
    found = (name for name, each in task.signature.python.parameters.items() if each.kind is each.VAR_KEYWORD)
    return next(found, None)


def _options(task: Task[..., Any]) -> dict[str, Any]:
    """Return the options of `task.options(...)` as a job shows them; a task as it was declared stands for any."""
    if task.origin is None:
        return {}
    declared, wanted = task.origin.effective_options, {}
    for name in msgspec.structs.fields(task.effective_options):
        value = getattr(task.effective_options, name.name)
        if value is None or (name.name not in _SHOWN and value == getattr(declared, name.name)):
            continue
        if name.name not in _SHOWN:
            raise Invalid(f"the record of a job does not show {name.name}; it shows {listed(list(_SHOWN), 'and')}")
        wanted[name.name] = _SHOWN[name.name][1](value)
    return wanted


def _mismatches(job: Job[Any], task: Task[..., Any], given: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return how a job differs from what was asked for, one text for each difference."""
    stored = arguments(task, job.payload or b"{}", defaults=True)
    stored = {**stored.get(_any_name(task) or "", {}), **stored}
    pairs = {name: (stored.get(name), value) for name, value in given.items()}
    pairs |= {name: (_SHOWN[name][0](job), value) for name, value in wanted.items()}
    return [f"{name} is {_text(has)}, not {_text(value)}" for name, (has, value) in pairs.items() if has != value]


def _text(value: object) -> str:
    if isinstance(value, timedelta | datetime):
        return str(value)
    text = repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def obstacle(job: Job[Any]) -> str:
    """Return what a pending job waits for, as the end of a sentence."""
    if job.due_at:
        return f", due at {job.due_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.state == "blocked":
        left = [f"{each.id} ({each.state})" for each in (*job.after, *job.waits) if each.state != "succeeded"]
        return f", waits for {', '.join(left)}"
    return f", waits for limit {job.throttled_by}" if job.throttled_by else ""
