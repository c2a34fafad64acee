"""Retry policies: how often a job is retried, how long it waits before a retry, and which exceptions are retried.

Retries            as users write it: retries=Retries(5, waits=["1s", "10s"], not_on=ValueError)
└─▶ RetryPolicy    all but the number, which the store has; stored as text that only workers read
    ├─▶ RetryWait      sent with an error, because only the store knows how many retries were used (`backoff.lua`)
    └─▶ why_final      decided where the exception is, by the names of its classes
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

import msgspec

from holdfast.constants import MAX_DURATION, MAX_RETRIES, MAX_SPREAD, MAX_WAITS
from holdfast.errors import Invalid, WrongArguments
from holdfast.names import class_name
from holdfast.units import Duration, humanize, milliseconds

DEFAULT_JITTER = 0.1
# Budgets for attempts that a limit stops, by the failure group of the attempt. `budgets.lua` has them as well. A job
# without one of them uses up its `retries`.
BUDGETS = {"timeout": "timeouts", "stalled": "stalls", "memory": "out_of_memory"}
POLICIES = {
    "retries": "retry_policy",
    **{name: f"{name}_policy" for name in BUDGETS.values()},
}  # how a record names them
MAX_BYTES = 1024  # of a stored policy: a third of MAX_RUN_OPTIONS

ExceptionName = type[BaseException] | str

_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_DURATION)]
_MAX_NAME = 36  # bytes of a name in a reason, of which the store keeps 64


class RetryWait(NamedTuple):
    """From what the store computes the wait before a retry: see `backoff.lua`."""

    waits: tuple[int, ...] = ()  # milliseconds
    cap: int | None = None
    spread: int = 0  # thousandths of the wait that are added to it


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A retry policy as it is stored with a job: without the number of retries, and with exceptions as names."""

    waits: Annotated[tuple[_Milliseconds, ...], msgspec.Meta(max_length=MAX_WAITS)] = ()
    cap: _Milliseconds | None = None
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = DEFAULT_JITTER
    on: tuple[str, ...] = ()  # empty: all
    not_on: tuple[str, ...] = ()

    def wait(self, draw: float) -> RetryWait:
        """Return what to send with an error; `draw` is a random number from 0 to 1, and 0 means the exact wait."""
        return RetryWait(self.waits, self.cap, int(draw * self.jitter * MAX_SPREAD))

    def why_final(self, error: BaseException) -> str:
        """Return why an exception is not retried; "" if it is.

        A group that is not named itself counts as its members: all have to be in `on`, and none in `not_on`. Exceptions
        that interrupt rather than fail, such as KeyboardInterrupt, need not be in `on`. Arguments that do not fit may
        fit the release of another worker.
        """
        if isinstance(error, WrongArguments):
            return ""
        for name in self.not_on:
            if any(_is_named(one, _with_alias([name])) for one in _walk(error)):
                return f"not retried: {_short(name)} is in not_on"
        if self.on and isinstance(error, Exception):
            for one in _walk(error, leave_out=_with_alias(self.on)):
                if not isinstance(one, BaseExceptionGroup):
                    return f"not retried: {_short(class_name(type(one)))} is not in on"
        return ""


NO_POLICY = RetryPolicy()


@dataclass(frozen=True, init=False, repr=False, slots=True)
class Retries:
    """How often and when a job is retried after an error, and after which exceptions.

    jobs.task(send, retries=Retries(5, waits=["1s", "10s", "1m"], not_on=(ValueError, KeyError)))

    `max` is the number of retries; without it, the setting of the queue applies. `waits` are the times before the first
    retry, the second and so on; the last one repeats. Without them, the wait begins with `backoff` and doubles. `cap`
    is the longest wait. A random part of up to `jitter` times the wait is added, so that jobs that failed together are
    not retried together.

    With `on`, only these exceptions are retried; those of `not_on` never are. Both take classes, or full names for
    programs that cannot import them: "requests.exceptions.Timeout". Subclasses count. `Retry` is always retried.

    Raises:
        Invalid: a value is invalid, or the policy is too long to be stored with each job.
    """

    max: int | None
    policy: RetryPolicy

    def __init__(
        self,
        max: int | None = None,
        *,
        waits: Duration | Sequence[Duration] = (),
        cap: Duration | None = None,
        jitter: float = DEFAULT_JITTER,
        on: ExceptionName | Collection[ExceptionName] | None = None,
        not_on: ExceptionName | Collection[ExceptionName] = (),
    ) -> None:
        policy = RetryPolicy(
            _check_waits(waits),
            None if cap is None else milliseconds(cap, what="cap of Retries", minimum=1, maximum=MAX_DURATION),
            _check_jitter(jitter),
            () if on is None else _check_on(on),
            _check_names("not_on", not_on),
        )
        size = len(msgspec.json.encode(policy))
        if size > MAX_BYTES:
            raise Invalid(
                f"Retries takes {size} bytes (limit {MAX_BYTES}), because it is stored with each job; name a common "
                "base class of the exceptions"
            )
        object.__setattr__(self, "max", None if max is None else check_max("max of Retries", max))
        object.__setattr__(self, "policy", policy)

    @classmethod
    def of(cls, max: int | None, policy: RetryPolicy | None) -> Retries | None:
        """Return a stored policy as users write it; None if there is none."""
        if policy is None:
            return None
        made = cls(max)
        object.__setattr__(made, "policy", policy)
        return made

    @property
    def waits(self) -> tuple[timedelta, ...]:
        return tuple(timedelta(milliseconds=wait) for wait in self.policy.waits)

    @property
    def cap(self) -> timedelta | None:
        return None if self.policy.cap is None else timedelta(milliseconds=self.policy.cap)

    @property
    def jitter(self) -> float:
        return self.policy.jitter

    @property
    def on(self) -> tuple[str, ...]:
        """The full names of these exceptions."""
        return self.policy.on

    @property
    def not_on(self) -> tuple[str, ...]:
        """The full names of these exceptions."""
        return self.policy.not_on

    def __repr__(self) -> str:
        parts = [] if self.max is None else [str(self.max)]
        if self.policy.waits:
            parts.append(f"waits={[humanize(wait) for wait in self.policy.waits]}")
        if self.policy.cap is not None:
            parts.append(f"cap={humanize(self.policy.cap)!r}")
        if self.jitter != DEFAULT_JITTER:
            parts.append(f"jitter={self.jitter}")
        parts += [f"{name}={[*names]}" for name, names in (("on", self.on), ("not_on", self.not_on)) if names]
        return f"Retries({', '.join(parts)})"


def check_max(what: str, value: Any) -> int:
    """Return a number of retries.

    Raises:
        Invalid: it is not an int, or out of bounds.
    """
    if type(value) is int and 0 <= value <= MAX_RETRIES:
        return value
    raise Invalid(f"{what} is {value!r}; it must be an int from 0 to {MAX_RETRIES}")


def _walk(error: BaseException, leave_out: Container[str] = ()) -> Iterator[BaseException]:
    """Yield an exception, and if it is a group its members; leave out those with these names, groups as a whole."""
    left = [error]
    while left:
        one = left.pop()
        if _is_named(one, leave_out):
            continue
        yield one
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def _is_named(error: BaseException, names: Container[str]) -> bool:
    """Whether one of the classes of an exception is among these names."""
    return any(class_name(kind) in names for kind in type.mro(type(error)))  # not of its metaclass, which may raise


def _with_alias(names: Iterable[str]) -> set[str]:
    """Add the names of the classes that these names are other names of, as far as their modules are loaded here."""
    return {*names, *(class_name(kind) for kind in map(_loaded_class, names) if kind is not None)}


def _loaded_class(name: str) -> type[BaseException] | None:
    """Return the exception class of a name, if its module is loaded; nothing is imported."""
    found = _loaded_value(name)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _loaded_value(name: str) -> object:
    module, _, last = name.rpartition(".")
    return getattr(sys.modules.get(module or "builtins"), "__dict__", {}).get(last)


def _short(name: str) -> str:
    data = name.encode()
    return name if len(data) <= _MAX_NAME else f"...{data[3 - _MAX_NAME :].decode(errors='ignore')}"


def _check_waits(value: Duration | Sequence[Duration]) -> tuple[int, ...]:
    waits: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if len(waits) > MAX_WAITS:
        raise Invalid(f"waits of Retries has {len(waits)} times (limit {MAX_WAITS}); the last one repeats")
    return tuple(milliseconds(wait, what="waits of Retries", maximum=MAX_DURATION) for wait in waits)


def _check_jitter(value: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return DEFAULT_JITTER if value == DEFAULT_JITTER else float(value)  # the very default is not stored
    raise Invalid(f"jitter of Retries is {value!r}; it must be a number from 0 to 1, such as 0.1 for up to 10 %")


def _check_on(value: ExceptionName | Collection[ExceptionName]) -> tuple[str, ...]:
    if names := _check_names("on", value):
        return names
    raise Invalid("on of Retries is empty; omit it to retry every exception, or write retries=0 to retry none")


def _check_names(what: str, value: ExceptionName | Collection[ExceptionName]) -> tuple[str, ...]:
    """Return the full names of exceptions, each once."""
    given = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return tuple(dict.fromkeys(_check_name(what, each) for each in given))


def _check_name(what: str, value: Any) -> str:
    if isinstance(value, str):
        return _check_text(what, value)
    if isinstance(value, type) and issubclass(value, BaseException):
        return class_name(value)
    raise Invalid(
        f"{what} of Retries has {value!r:.100}; it must be exception classes, or their full names such as "
        '"requests.exceptions.Timeout"'
    )


def _check_text(what: str, name: str) -> str:
    """Check the full name of an exception. Return that of its class, in case this is an alias and it is loaded."""
    if kind := _loaded_class(name):
        return class_name(kind)
    module = name.rpartition(".")[0]
    is_name = all(part.isidentifier() or part == "<locals>" for part in name.split("."))
    if not is_name or module in ("", "builtins") or _loaded_value(name) is not None:
        raise Invalid(
            f"{what} of Retries has {name!r}, which is not an exception; write the full name with its module, as "
            '`holdfast show` prints it: "requests.exceptions.Timeout"'
        )
    return name
