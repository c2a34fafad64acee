"""How a worker is to run a job, beside where: limits of time, memory and silence. The store carries it as text.

Options of a job: as users write them, checked, and as the store is told.

Everything that can be wrong is refused where it is written: in the declaration of a task, or in a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict, Unpack, get_args

import msgspec

from holdfast.constants import MAX_BACKOFF, MAX_DURATION, MAX_LIMITS_PER_JOB, MAX_PRIORITY, MAX_RETRIES, MIN_PRIORITY
from holdfast.errors import Invalid
from holdfast.names import check_id, check_key, check_limit, check_queue, check_share
from holdfast.text import suggestion
from holdfast.units import Duration, humanize, milliseconds, moment, size_in_bytes

NEED_A_PROCESS = ("memory", "exclusive")  # what cannot be kept where nothing can be measured or killed by itself


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are in milliseconds, memory in bytes; None: no limit. Names are short, as they are stored with each job."""

    soft_timeout: int | None = None  # after so long an attempt is told to stop, as at a deploy
    memory: int | None = None  # of all processes of the job
    stalled: int | None = None  # so long without a word or a line
    exclusive: bool = False  # it is killed before its lease can lapse
    carry: dict[str, Any] | None = None  # values of context variables, by name: see `carry`

    @property
    def needing(self) -> list[str]:
        """The limits that only a job with a process of its own can have."""
        return [name for name in NEED_A_PROCESS if getattr(self, name)]

    @property
    def needs_process(self) -> bool:
        return self is not PLAIN and bool(self.needing)

    def encode(self) -> str | None:
        """As the store keeps it; None if there is nothing to say."""
        return None if self == PLAIN else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: bytes) -> Run:
        """What a newer release says besides is not known here, and ignored; what cannot be read is UNREADABLE."""
        try:
            return msgspec.json.decode(text, type=cls) if text else PLAIN
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return UNREADABLE


PLAIN = Run()
UNREADABLE = Run()  # known by being this one: a job whose limits nobody knows is not run


DEFAULT_QUEUE = "default"

OnExists = Literal["return", "error", "replace"]
Span = Literal["queued", "pending", "kept"]
OnFailed = Literal["block", "cancel", "run"]
Runner = Literal["fork", "spawn", "process", "thread", "async"]
WhenUnreachable = Literal["raise", "inline", "outbox"]


class Awaited(Protocol):
    """A job that another waits for: stored, or to be stored with it."""

    @property
    def id(self) -> str: ...


class Given(TypedDict, total=False):
    """Options as users write them; None stands for the default."""

    queue: str | None  # which queue; `default`
    priority: int | None  # -256 to 255, lower runs sooner; 0
    delay: Duration | None  # start after this time
    at: datetime | None  # or at this time; it must be aware of its zone
    retries: int | None  # how many times an error may be retried; the setting of the queue: 3
    backoff: Duration | None  # c: the waits before retries are c, 2c, 4c ...; the setting of the queue: 20 s
    crashes: int | None  # how many deaths of its process the job survives; the setting of the queue: 3
    lost: int | None  # how many lost leases it survives; the setting of the queue: 10
    timeout: Duration | None  # how long one attempt may run; no limit
    soft_timeout: Duration | None  # after which an attempt sees `stopping`, to save and yield; never
    stalled: Duration | None  # how long an attempt may be silent: no save, report, note, step or printed line; no limit
    memory: int | str | None  # of all processes of an attempt, as "2GiB" or in bytes; no limit
    exclusive: bool | None  # True: killed before its lease can lapse, so that never two attempts run
    id: str | None  # your own id; a new one
    on_exists: OnExists | None  # what to do if there is a job of this id, or with this unique key; return it
    unique: str | None  # a key that one job at a time may have
    unique_for: Span | Duration | None  # until it starts, ends or is removed, or for a time; pending
    debounce: Duration | None  # run after this time without another call of its unique key, or task: the last counts
    keep: bool | None  # False: remove the job when it has ended, unless it failed
    at_most_once: bool | None  # True: never start it a second time
    after: Awaited | str | Sequence[Awaited | str] | None  # what to wait for: jobs, bound calls or ids; one, or a list
    on_failed: OnFailed | None  # what if one of those fails or is cancelled: stay blocked, be cancelled, or run; block
    limits: str | Sequence[str] | None  # the limits in which it takes part: "api", or "api:acme" to count by key
    share: str | None  # whose it is, among those that share the queue
    deadline: Duration | datetime | None  # no attempt may start after this time: then the job fails
    runner: Runner | None  # where it runs; by the kind of function
    when_unreachable: WhenUnreachable | None  # what to do if it cannot be stored; as the app says


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job is to be run. Times are in milliseconds; None stands for the store's default."""

    queue: str | None = None
    priority: int | None = None
    delay: int | None = None
    at: int | None = None
    retries: int | None = None
    backoff: int | None = None
    crashes: int | None = None
    lost: int | None = None
    timeout: int | None = None
    soft_timeout: int | None = None
    stalled: int | None = None
    memory: int | None = None
    exclusive: bool | None = None
    id: str | None = None
    on_exists: OnExists | None = None
    unique: str | None = None
    unique_for: Span | int | None = None
    debounce: int | None = None
    keep: bool | None = None
    at_most_once: bool | None = None
    after: tuple[str, ...] | None = None
    on_failed: OnFailed | None = None
    limits: tuple[str, ...] | None = None
    share: str | None = None
    deadline: int | None = None
    deadline_at: int | None = None  # a deadline that is a time
    runner: Runner | None = None
    when_unreachable: WhenUnreachable | None = None

    def but(self, **given: Unpack[Given]) -> Options:
        """Return these options with some changed.

        Raises:
            Invalid: an option is unknown, or its value is not acceptable.
        """
        if given.get("delay") is not None and given.get("at") is not None:
            raise Invalid("delay and at are both given; a job is due after a delay or at a time, so give one")
        checked = {name: _checked(name, value) for name, value in given.items()}
        if checked.get("delay") is not None:
            checked["at"] = None
        elif checked.get("at") is not None:
            checked["delay"] = None
        if isinstance(given.get("deadline"), datetime):
            checked["deadline"], checked["deadline_at"] = None, checked["deadline"]
        elif "deadline" in checked:
            checked["deadline_at"] = None
        return _consistent(msgspec.structs.replace(self, **checked))

    def batch(self) -> dict[str, Any]:
        """Return what the store is told of them, besides id and unique key."""
        is_debounced = self.debounce is not None
        return {
            "queue": self.queue or DEFAULT_QUEUE,
            "priority": self.priority,
            "delay": self.debounce if is_debounced else self.delay,
            "at": self.at,
            "retries": self.retries,
            "crashes": self.crashes,
            "lost": self.lost,
            "backoff": self.backoff,
            "timeout": self.timeout,
            "run": self.run.encode() if self._is_limited else None,
            "at_most_once": self.at_most_once or None,
            "after": self.after or None,
            "on_failed": self.on_failed if self.after else None,
            "limits": self.limits or None,
            "share": self.share,
            "deadline": self.deadline,
            "deadline_at": self.deadline_at,
        }

    @property
    def _is_limited(self) -> bool:
        return not (self.soft_timeout is self.stalled is self.memory is self.exclusive is None)

    @property
    def run(self) -> Run:
        """What only workers are told."""
        return Run(
            soft_timeout=self.soft_timeout, memory=self.memory, stalled=self.stalled, exclusive=self.exclusive is True
        )


DEFAULTS = Options()
OF_ONE_JOB = ("id", "unique", "unique_for", "at", "after", "on_failed")


def default_options(given: Given) -> Options:
    """Return the options of all tasks of an app that are declared without their own.

    Raises:
        Invalid: an option is unknown, its value is not acceptable, or it is one of a single job.
    """
    if not isinstance(given, dict):
        raise Invalid(f'defaults is {given!r}; it must be a dict of options, as {{"queue": "video", "timeout": "6h"}}')
    try:
        for name in OF_ONE_JOB:
            if name in given:
                raise Invalid(f"{name} is about a single job, so it cannot be that of all tasks")
        return DEFAULTS.but(**given)
    except Invalid as error:
        raise Invalid(f"defaults: {error}") from None


def check_options(names: Iterable[str], also: Sequence[str] = ()) -> None:
    """Refuse what is no option of a job, nor one of `also`."""
    for name in names:
        if name not in _CHECKS and name not in also:
            raise Invalid(f"there is no option {name!r}{suggestion(name, (*_CHECKS, *also))}")


def _checked(name: str, value: Any) -> Any:
    """Return the value of one option as it is kept."""
    if name not in _CHECKS:
        check_options([name])
    return None if value is None else _CHECKS[name](value)


def _consistent(options: Options) -> Options:
    """Return options, unless one of them contradicts another."""
    if options.unique_for is not None and options.unique is None:
        raise Invalid("unique_for is given without unique; say which key is to be unique")
    if options.debounce is not None:
        for name in ("delay", "at", "unique_for", "on_exists"):
            if getattr(options, name) is not None:
                raise Invalid(
                    f"debounce and {name} are both given; debounce says when the job is due, and what replaces it"
                )
    for due, deadline_at in ((options.debounce or options.delay, options.deadline), (options.at, options.deadline_at)):
        if due is not None and deadline_at is not None and deadline_at <= due:
            raise Invalid("the job would be due after its deadline; give it a later one")
    if options.timeout and options.soft_timeout and options.soft_timeout >= options.timeout:
        soft, hard = humanize(options.soft_timeout), humanize(options.timeout)
        raise Invalid(
            f"soft_timeout is {soft}, but timeout is {hard}: it must be less, for the job to have time to save"
        )
    if options.keep is False and options.unique_for not in (None, "queued", "pending"):
        span = humanize(options.unique_for) if isinstance(options.unique_for, int) else options.unique_for
        raise Invalid(f"keep is False, but unique_for is {span!r}; a job that is not kept cannot be found")
    return options


def _span(value: Any) -> str | int:
    if isinstance(value, str) and value in get_args(Span):
        return value
    try:
        return milliseconds(value, what="unique_for", least=1, most=MAX_DURATION)
    except Invalid as error:
        raise Invalid(f"{error}; or one of {', '.join(map(repr, get_args(Span)))}") from None


def ids_of(value: Any) -> tuple[str, ...]:
    """Return the ids of jobs to wait for, each once."""
    found = [value] if isinstance(value, str) or hasattr(value, "id") or hasattr(value, "bind") else value
    if not isinstance(found, Iterable):
        raise Invalid(f"{value!r} cannot be waited for; it must be a job, a bound call or an id, or a list of them")
    return tuple(dict.fromkeys(map(_id_of, found)))


def _id_of(awaited: Any) -> str:
    if hasattr(awaited, "bind"):
        raise Invalid(f"{awaited!r} cannot be waited for; a call of it can: enqueue it, or bind its arguments")
    return check_id(awaited if isinstance(awaited, str) else getattr(awaited, "id", awaited))


def _limits(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        raise Invalid(f"limits is {value!r}; it must be a name, or a list of names")
    found = tuple(dict.fromkeys(map(check_limit, names)))
    if len(found) > MAX_LIMITS_PER_JOB:
        raise Invalid(f"limits is {value!r}; a job takes part in {MAX_LIMITS_PER_JOB} limits at most")
    return found


def _flag(name: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise Invalid(f"{name} is {value!r}; it must be True or False")

    return check


def _integer(name: str, least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise Invalid(f"{name} is {value!r}; it must be an int from {least} to {most}")

    return check


def _choice(name: str, *choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")

    return check


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": check_queue,
    "priority": _integer("priority", MIN_PRIORITY, MAX_PRIORITY),
    "delay": lambda value: milliseconds(value, what="delay", most=MAX_DURATION),
    "at": lambda value: moment(value, "at"),
    "retries": _integer("retries", 0, MAX_RETRIES),
    "backoff": lambda value: milliseconds(value, what="backoff", most=MAX_BACKOFF),
    "crashes": _integer("crashes", 0, MAX_RETRIES),
    "lost": _integer("lost", 0, MAX_RETRIES),
    "timeout": lambda value: milliseconds(value, what="timeout", least=1, most=MAX_DURATION),
    "soft_timeout": lambda value: milliseconds(value, what="soft_timeout", least=1, most=MAX_DURATION),
    "stalled": lambda value: milliseconds(value, what="stalled", least=1, most=MAX_DURATION),
    "memory": lambda value: size_in_bytes(value, what="memory"),
    "exclusive": _flag("exclusive"),
    "id": check_id,
    "on_exists": _choice("on_exists", "return", "error", "replace"),
    "unique": check_key,
    "unique_for": _span,
    "debounce": lambda value: milliseconds(value, what="debounce", least=1, most=MAX_DURATION),
    "keep": _flag("keep"),
    "at_most_once": _flag("at_most_once"),
    "after": ids_of,
    "on_failed": _choice("on_failed", *get_args(OnFailed)),
    "limits": _limits,
    "share": check_share,
    "deadline": lambda value: (
        moment(value, "deadline")
        if isinstance(value, datetime)
        else milliseconds(value, what="deadline", least=1, most=MAX_DURATION)
    ),
    "runner": _choice("runner", *get_args(Runner)),
    "when_unreachable": _choice("when_unreachable", *get_args(WhenUnreachable)),
}
