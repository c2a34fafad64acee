"""The kinds of values that job options have: how each is checked and converted for the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.constants import MAX_DURATION, MAX_LIMITS_PER_JOB, MAX_RETRIES
from holdfast.errors import Invalid
from holdfast.job.fields import check_fields
from holdfast.job.limit import Limit
from holdfast.job.marks import check_tags
from holdfast.job.retries import Retries, check_max
from holdfast.names import check_batch, check_id, check_limit
from holdfast.units import milliseconds, moment, size_in_bytes


class Kind(NamedTuple):
    """A kind of value. `check` enforces the bounds and choices; the command line and the reference show them."""

    name: str
    check: Callable[[str, Any], Any]  # takes the name of the option, for error messages, and the value
    min: int | None = None
    max: int | None = None
    choices: tuple[str, ...] = ()


def text(check: Callable[[str], str]) -> Kind:
    return Kind("text", lambda _, value: check(value))


def integer(min: int, max: int) -> Kind:
    def check(name: str, value: Any) -> int:
        if type(value) is int and min <= value <= max:
            return value
        raise Invalid(f"{name} is {value!r}; it must be an int from {min} to {max}")

    return Kind("integer", check, min, max)


def duration(min: int, max: int = MAX_DURATION) -> Kind:
    return Kind("duration", lambda name, value: milliseconds(value, what=name, minimum=min, maximum=max), min, max)


def flag_or_duration(min: int, max: int = MAX_DURATION) -> Kind:
    def check(name: str, value: Any) -> bool | int:
        if isinstance(value, bool):
            return value
        try:
            return milliseconds(value, what=name, minimum=min, maximum=max)
        except Invalid as error:
            raise Invalid(f"{error}; or True or False") from None

    return Kind("flag or duration", check, min, max)


def choice(*choices: str) -> Kind:
    def check(name: str, value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")

    return Kind("choice", check, choices=choices)


def choice_or_duration(*choices: str) -> Kind:
    def check(name: str, value: Any) -> str | int:
        if isinstance(value, str) and value in choices:
            return value
        try:
            return milliseconds(value, what=name, minimum=1, maximum=MAX_DURATION)
        except Invalid as error:
            raise Invalid(f"{error}, or one of {', '.join(map(repr, choices))}") from None

    return Kind("choice or duration", check, 1, MAX_DURATION, choices)


def _check_flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Invalid(f"{name} is {value!r}; it must be True or False")


def _check_moment_or_duration(name: str, value: Any) -> int:
    if isinstance(value, datetime):
        return moment(value, name)
    return milliseconds(value, what=name, minimum=1, maximum=MAX_DURATION)


def limits_in(value: Any) -> list[Limit]:
    """Return the declarations among the values of the option `limits`."""
    limits = value if isinstance(value, Collection) else [value]
    return [each for each in limits if isinstance(each, Limit)]


def _check_limits(name: str, value: Any) -> tuple[str, ...]:
    limits = [value] if isinstance(value, str | Limit) else value
    if not isinstance(limits, Collection):
        raise Invalid(f"{name} is {value!r}; it must be a name or a Limit, or a list of these")
    names = (each.name if isinstance(each, Limit) else check_limit(each) for each in limits)
    found = tuple(dict.fromkeys(names))
    if len(found) > MAX_LIMITS_PER_JOB:
        raise Invalid(f"{name} has {len(found)} names (limit {MAX_LIMITS_PER_JOB}): {value!r}")
    return found


def _check_retries(name: str, value: Any) -> int | Retries:
    if isinstance(value, Retries):
        return value
    try:
        return check_max(name, value)
    except Invalid as error:
        raise Invalid(f"{error}, or a policy, Retries(...)") from None


def _check_budget(name: str, value: Any) -> int | Retries:
    """Check a budget for attempts that a limit stops: a number, or a policy that selects no exceptions."""
    given = _check_retries(name, value)
    if isinstance(given, Retries) and (given.on or given.not_on):
        raise Invalid(f"{name} has a policy with on or not_on, which select exceptions; only retries can have them")
    return given


def ids_of(value: Any) -> tuple[str, ...]:
    """Return the ids of a job, a bound call or an id, or of a list of these, without duplicates."""
    found = [value] if isinstance(value, str) or hasattr(value, "id") or hasattr(value, "bind") else value
    if not isinstance(found, Iterable):
        raise Invalid(f"a job cannot wait for {value!r}; expected a job, a bound call or an id, or a list of them")
    return tuple(dict.fromkeys(map(_id_of, found)))


def _id_of(awaited: Any) -> str:
    if hasattr(awaited, "bind"):
        raise Invalid(
            f"a job cannot wait for {awaited!r}, which is a task; pass a job, from enqueue(...), or a call, from "
            "bind(...)"
        )
    return check_id(awaited if isinstance(awaited, str) else getattr(awaited, "id", awaited))


def _batch_name(value: Any) -> str:
    if isinstance(value, str) or not (hasattr(value, "enqueue_many") and isinstance(getattr(value, "name", None), str)):
        return check_batch(value)
    return check_batch(value.name)


FLAG = Kind("flag", _check_flag)
SIZE = Kind("size", lambda name, value: size_in_bytes(value, what=name))
MOMENT = Kind("moment", lambda name, value: moment(value, name))
MOMENT_OR_DURATION = Kind("moment or duration", _check_moment_or_duration, 1, MAX_DURATION)
RETRIES = Kind("retries", _check_retries, 0, MAX_RETRIES)
BUDGET = Kind("retries", _check_budget, 0, MAX_RETRIES)
IDS = Kind("ids", lambda _, value: ids_of(value))
LIMITS = Kind("limits", _check_limits)
BATCH = Kind("batch", lambda _, value: _batch_name(value))
FIELDS = Kind("fields", check_fields)
TAGS = Kind("tags", check_tags)
