"""Assertions about enqueued jobs, with messages that name the nearest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Invalid
from holdfast.job.job import Job, read_keep
from holdfast.job.option_table import BY_NAME
from holdfast.job.retries import BUDGETS, POLICIES, Retries
from holdfast.task.task import Task
from holdfast.text import did_you_mean, listed, pluralize
from holdfast.units import utc

MAX_LISTED = 10  # jobs in a message
MAX_VALUE = 100  # characters of a value in a message


def _due_after(job: Job[Any]) -> timedelta | None:
    return job.due_at - job.created_at if job.due_at else None


def _deadline_after(job: Job[Any]) -> timedelta | None:
    return job.deadline - job.created_at if job.deadline else None


def _duration(value: int) -> timedelta | None:
    return timedelta(milliseconds=value) or None


def _policy_shown(name: str) -> tuple[Callable[[Job[Any]], Any], Callable[[Any], Any]]:
    def shown(job: Job[Any]) -> Retries | None:
        policy: Retries | None = getattr(job, name)
        return policy and Retries.of(None, policy.policy)

    return shown, lambda policy: Retries.of(None, policy)


# The options that the record of a job shows, as it shows them, and how to read the stored value of an option.
_SHOWN: dict[str, tuple[Callable[[Job[Any]], Any], Callable[[Any], Any]]] = {
    "queue": (lambda job: job.queue, str),
    "priority": (lambda job: job.priority, int),
    "delay": (_due_after, _duration),
    "at": (lambda job: job.due_at, utc),
    "retries": (lambda job: job.retries, int),
    "crashes": (lambda job: job.crashes, int),
    "lost": (lambda job: job.lost, int),
    **{name: (attrgetter(name), int) for name in BUDGETS.values()},
    **{name: _policy_shown(name) for name in POLICIES.values()},
    "id": (lambda job: job.id, str),
    "unique": (lambda job: job.unique, str),
    "keep": (lambda job: job.keep, read_keep),
    "at_most_once": (lambda job: job.at_most_once, bool),
    "after": (lambda job: tuple(each.id for each in job.after), tuple),
    "limits": (lambda job: job.limits, tuple),
    "fields": (lambda job: job.fields, dict),
    "share": (lambda job: job.share, str),
    "deadline": (_deadline_after, _duration),
    "deadline_at": (lambda job: job.deadline, utc),
}
_DUE = frozenset(("delay", "at"))
_SET_BY_STORE = frozenset(("retries", "crashes", "lost", "id"))  # if they are not given


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


class Wanted(NamedTuple):
    """What is asserted about jobs: their task, some of its arguments, and the options of `task.options(...)`."""

    task: Task[..., Any]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]  # as a job shows them

    @classmethod
    def of(cls, task: Task[..., Any], arguments: Mapping[str, Any]) -> Wanted:
        """Check what is asserted.

        Raises:
            Invalid: the task has no such parameter, or the record of a job does not show such an option.
        """
        if not isinstance(task, Task):
            raise Invalid(f"expected a task, as assert_enqueued(task, name=value), got {task!r:.100}")
        _check_names(task, arguments)
        return cls(task, arguments, _options(task))

    def __str__(self) -> str:
        what = f"{self.task.name}({', '.join(f'{name}={_text(value)}' for name, value in self.arguments.items())})"
        options = ", ".join(f"{name}={_text(value)}" for name, value in self.options.items())
        return f"{what} with {options}" if options else what


def find(jobs: Sequence[Job[Any]], wanted: Wanted, *, all_of_them: bool) -> list[Job[Any]]:
    """Return the jobs of a task with these arguments and the options that were given for it.

    Raises:
        Invalid: a delay is asserted, and a job that may have had it has started. Without `all_of_them`, only if there
            is no other job.
    """
    own = [job for job in jobs if job.task == wanted.task.name]
    found = [job for job in own if not _mismatches(job, wanted)]
    if _DUE.isdisjoint(wanted.options) or (found and not all_of_them):
        return found
    others = {name: value for name, value in wanted.options.items() if name not in _DUE}
    for job in own:
        if not _shows_due_time(job) and not _mismatches(job, wanted._replace(options=others)):
            has = "has started" if job.attempt else f"is {job.state}"
            raise Invalid(
                f"job {job.id} {has}, and its record does not show when it was due first; assert before you run it"
            )
    return found


def _shows_due_time(job: Job[Any]) -> bool:
    """Return whether the record shows when a job was due first; one that began to wait at once had no delay."""
    if job.attempt == 0:
        return job.due_at is not None or (job.state in ("waiting", "throttled") and job.since == job.created_at)
    return bool(job.attempts) and job.attempts[0].number == 1 and job.attempts[0].queued_at == job.created_at


def missing(jobs: Sequence[Job[Any]], wanted: Wanted, found: int, count: int | None) -> str:
    """Return the message for a wrong number of jobs; the nearest ones come first."""
    own = [job for job in jobs if job.task == wanted.task.name]
    number = "at least one job" if count is None else pluralize(count, "job")
    message = f"expected {number} of {wanted}, found {found}"
    if not own:
        others = Counter(job.task for job in jobs).most_common(MAX_LISTED)
        return f"{message}. Enqueued: " + (", ".join(f"{name} ({times})" for name, times in others) or "nothing")
    near = sorted(((job, _mismatches(job, wanted)) for job in own), key=lambda each: len(each[1]))
    lines = [f"\n  job {job.id}: {'; '.join(differing) or 'matches'}" for job, differing in near[:MAX_LISTED]]
    rest = f"\n  and {len(own) - MAX_LISTED} more" if len(own) > MAX_LISTED else ""
    return f"{message}; the jobs of this task, nearest first:{''.join(lines)}{rest}"


def _check_names(task: Task[..., Any], given: Mapping[str, Any]) -> None:
    names = list(task.signature.python.parameters)
    for name in given:
        if name not in names and _any_name(task) is None:
            hint = f"; options are given by task.options({name}=...)" if name in BY_NAME else did_you_mean(name, names)
            raise Invalid(f"{task.name} has no parameter {name!r}{hint or f'; it takes {task.signature.python}'}")


def _any_name(task: Task[..., Any]) -> str | None:
    """Return the parameter that gets arguments of any name, `more` of `**more`; None if there is none."""
    found = (name for name, each in task.signature.python.parameters.items() if each.kind is each.VAR_KEYWORD)
    return next(found, None)


def _options(task: Task[..., Any]) -> dict[str, Any]:
    """Return the options that `task.options(...)` got, as a job shows them; declared ones are not compared."""
    wanted: dict[str, Any] = {}
    for given in sorted(task.given, key=list(BY_NAME).index):
        name = POLICIES.get(given, "")
        if name and (policy := getattr(task.effective_options, name)) is not None:
            wanted[name] = _SHOWN[name][1](policy)
            if getattr(task.effective_options, given) is None:  # the number is left to the store
                continue
        if given not in _SHOWN:
            shown = [name for name in _SHOWN if name in BY_NAME]
            raise Invalid(f"the record of a job does not show {given}; it shows {listed(shown, 'and')}")
        is_time = given == "deadline" and task.effective_options.deadline_at is not None
        name = "deadline_at" if is_time else given
        value = getattr(task.effective_options, name)
        if value is not None:
            wanted[name] = _SHOWN[name][1](value)
        elif name in _SET_BY_STORE:
            raise Invalid(f"{name}=None stands for a default of the store; give the value")
        elif _DUE.isdisjoint({name}) or task.effective_options.delay == task.effective_options.at:  # both are None
            wanted[name] = _SHOWN[name][0](task.job_template)
    return wanted


def _mismatches(job: Job[Any], wanted: Wanted) -> list[str]:
    """Return how a job differs from what was asked for, one text for each difference."""
    stored = arguments(wanted.task, job.payload or b"{}", defaults=True)
    stored = {**stored.get(_any_name(wanted.task) or "", {}), **stored}
    found = [(name, stored.get(name, _NOT_GIVEN), value) for name, value in wanted.arguments.items()]
    found += [(name, _SHOWN[name][0](job), value) for name, value in wanted.options.items()]
    return [f"{name} is {_text(has)}, not {_text(value)}" for name, has, value in found if has != value]


class _NotGiven:
    """The value of an argument that a call does not have."""

    def __repr__(self) -> str:
        return "not given"


_NOT_GIVEN = _NotGiven()


def _text(value: object) -> str:
    if isinstance(value, timedelta | datetime):
        return str(value)
    text = repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def why_pending(job: Job[Any]) -> str:
    """Return what a pending job waits for, as the end of a sentence."""
    if job.due_at:
        return f", due at {job.due_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.state == "blocked":
        left = [f"{each.id} ({each.state})" for each in (*job.after, *job.waits) if each.state != "succeeded"]
        return f", waits for {', '.join(left)}"
    return f", waits for limit {job.throttled_by}" if job.throttled_by else ""
