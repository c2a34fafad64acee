"""The options of a job.

    JobOptions                    as users write them
    └─▶ CheckedOptions            checked and converted
        ├─▶ arguments()           arguments of the store's `enqueue`
        └─▶ RunOptions            what only workers read; the store keeps it as text

Invalid options raise where they are written: in the declaration of a task, or in a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from holdfast.errors import Invalid
from holdfast.job import marks
from holdfast.job.fields import check_number
from holdfast.job.limit import Limit
from holdfast.job.option_table import (
    NEED_A_PROCESS,
    OPTIONS,
    Acknowledge,
    OnExists,
    OnFailed,
    Runner,
    UniqueFor,
    WhenUnreachable,
    checked,
    not_for,
)
from holdfast.job.retries import BUDGETS, NO_POLICY, POLICIES, Retries, RetryPolicy
from holdfast.units import Duration, humanize

DEFAULT_QUEUE = "default"

_TO_STORE = tuple(option.name for option in OPTIONS if option.goes_to == "job")
_TO_WORKER = tuple(option.name for option in OPTIONS if option.goes_to == "worker")

_values_for_store = attrgetter(*_TO_STORE)
_FOR_WORKER = (*_TO_WORKER, *POLICIES.values())
_values_for_worker = attrgetter(*_FOR_WORKER)
_NOT_FOR_STAGES = frozenset(not_for("stage"))


class Awaited(Protocol):
    """A job that another one waits for: stored, or enqueued together with it."""

    @property
    def id(self) -> str: ...


class NamedBatch(Protocol):
    """A batch that jobs belong to."""

    @property
    def name(self) -> str: ...


class JobOptions(TypedDict, total=False):
    """Options of a job as users write them; None means the default."""

    queue: str | None
    priority: int | None
    delay: Duration | None
    at: datetime | None
    retries: int | Retries | None
    backoff: Duration | None
    crashes: int | None
    lost: int | None
    timeouts: int | Retries | None
    stalls: int | Retries | None
    out_of_memory: int | Retries | None
    timeout: Duration | None
    soft_timeout: Duration | None
    stalled: Duration | None
    memory: int | str | None
    exclusive: bool | None
    id: str | None
    on_exists: OnExists | None
    unique: str | None
    unique_for: UniqueFor | Duration | None
    debounce: Duration | None
    keep: bool | Duration | None
    at_most_once: bool | None
    after: Awaited | str | Sequence[Awaited | str] | None
    on_failed: OnFailed | None
    limits: Limit | str | Sequence[Limit | str] | None
    fields: Mapping[str, str] | None
    tags: str | Sequence[str] | None
    scope: str | None
    batch: NamedBatch | str | None
    share: str | None
    deadline: Duration | datetime | None
    runner: Runner | None
    when_unreachable: WhenUnreachable | None
    acknowledge: Acknowledge | None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that only workers read, and the carried context. The store keeps them as text, with the job."""

    soft_timeout: int | None = None
    stalled: int | None = None
    memory: int | None = None
    exclusive: bool = False
    retry_policy: RetryPolicy | None = None  # of the option `retries`
    timeouts_policy: RetryPolicy | None = None  # of the option `timeouts`, and so on; without it, that of `retries`
    stalls_policy: RetryPolicy | None = None
    out_of_memory_policy: RetryPolicy | None = None
    carry: dict[str, Any] | None = None  # values of context variables, by name: see `Holdfast.carry`

    @property
    def options_needing_process(self) -> list[str]:
        """The names of the set options that apply only to a job with a process of its own."""
        return [name for name in NEED_A_PROCESS if getattr(self, name)]

    @property
    def has_limits(self) -> bool:
        return self is not NO_RUN_OPTIONS and any(getattr(self, name) for name in _TO_WORKER)

    @property
    def needs_process(self) -> bool:
        return self is not NO_RUN_OPTIONS and bool(self.options_needing_process)

    def policy_for(self, group: str) -> RetryPolicy | None:
        """Return the policy that decides about the wait after an error of this group."""
        own: RetryPolicy | None = getattr(self, POLICIES[BUDGETS[group]]) if group in BUDGETS else None
        return own or self.retry_policy

    def encode(self) -> str | None:
        """Return the text that the store keeps; None if no option is set."""
        return None if self is NO_RUN_OPTIONS or self == NO_RUN_OPTIONS else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: bytes) -> RunOptions:
        """Read the text of a job. Ignore options of a newer release; return UNREADABLE_RUN_OPTIONS for invalid text."""
        try:
            return msgspec.json.decode(text, type=cls) if text else NO_RUN_OPTIONS
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return UNREADABLE_RUN_OPTIONS


NO_RUN_OPTIONS = RunOptions()
UNREADABLE_RUN_OPTIONS = RunOptions()  # compared by identity; a job whose limits are unknown does not run


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Checked options, converted: times to milliseconds, sizes to bytes, jobs to ids. None means the default."""

    queue: str | None = None
    priority: int | None = None
    delay: int | None = None
    at: int | None = None
    retries: int | None = None
    retry_policy: RetryPolicy | None = None  # the rest of `retries`, if that is a policy
    backoff: int | None = None
    crashes: int | None = None
    lost: int | None = None
    timeouts: int | None = None
    timeouts_policy: RetryPolicy | None = None
    stalls: int | None = None
    stalls_policy: RetryPolicy | None = None
    out_of_memory: int | None = None
    out_of_memory_policy: RetryPolicy | None = None
    timeout: int | None = None
    soft_timeout: int | None = None
    stalled: int | None = None
    memory: int | None = None
    exclusive: bool | None = None
    id: str | None = None
    on_exists: OnExists | None = None
    unique: str | None = None
    unique_for: UniqueFor | int | None = None
    debounce: int | None = None
    keep: bool | int | None = None
    at_most_once: bool | None = None
    after: tuple[str, ...] | None = None
    on_failed: OnFailed | None = None
    limits: tuple[str, ...] | None = None
    fields: dict[str, str] | None = None
    tags: tuple[str, ...] | None = None
    scope: str | None = None
    batch: str | None = None
    share: str | None = None
    deadline: int | None = None
    deadline_at: int | None = None  # a deadline that was given as a time
    runner: Runner | None = None
    when_unreachable: WhenUnreachable | None = None
    acknowledge: Acknowledge | None = None

    def replace(self, **given: Unpack[JobOptions]) -> CheckedOptions:
        """Check options, and return a copy with these options replaced. Fields and tags are added to the others.

        Raises:
            Invalid: an option is unknown or invalid, or contradicts another.
        """
        if given.get("delay") is not None and given.get("at") is not None:
            raise Invalid("delay and at are both given; give one of them")
        values = {name: checked(name, value) for name, value in given.items()}
        if values.get("delay") is not None:
            values["at"] = None
        elif values.get("at") is not None:
            values["delay"] = None
        if isinstance(given.get("deadline"), datetime):
            values["deadline"], values["deadline_at"] = None, values["deadline"]
        elif "deadline" in values:
            values["deadline_at"] = None
        values |= self._retries(values) | _budgets(values)
        if values.get("fields") and self.fields:
            values["fields"] = check_number("fields", {**self.fields, **values["fields"]})
        if values.get("tags") and self.tags:
            values["tags"] = marks.check_number("tags", (*self.tags, *values["tags"]))
        options = msgspec.structs.replace(self, **values)
        _check_consistency(options)
        return options

    def _retries(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the options that follow from `retries` and `backoff`: a later one of them replaces an earlier one."""
        given, backoff = values.get("retries"), values.get("backoff")
        if "retries" not in values:
            inherited = self.retry_policy or NO_POLICY
            return {} if backoff is None else {"retry_policy": _stored(msgspec.structs.replace(inherited, waits=()))}
        if not isinstance(given, Retries):
            return {"retry_policy": None}
        if given.policy.waits and backoff is not None:
            raise Invalid("backoff and the waits of retries are both given; give one of them")
        return {"retries": given.max, "retry_policy": _stored(given.policy)}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the store's `enqueue` that all jobs with these options share."""
        values = zip(_TO_STORE, _values_for_store(self), strict=True)
        sent = {name: value for name, value in values if value is not None and value not in ((), {})}
        sent.setdefault("queue", DEFAULT_QUEUE)
        for name, default in (("keep", True), ("at_most_once", False)):
            if sent.get(name) is default:
                del sent[name]
        if not self.after:
            sent.pop("on_failed", None)
        if self.debounce is not None:
            sent |= {"delay": self.debounce, "unique_for": "queued"}
        if self.deadline_at is not None:
            sent["deadline_at"] = self.deadline_at
        if (run := self.run.encode()) is not None:
            sent["run"] = run
        return sent

    def stage_arguments(self) -> dict[str, Any]:
        """Return the arguments of the store for a job that continues with these options: see `Advance`."""
        return {name: value for name, value in self.arguments().items() if name not in _NOT_FOR_STAGES}

    @property
    def run(self) -> RunOptions:
        """The options that only workers read."""
        values = _values_for_worker(self)
        if not any(values):
            return NO_RUN_OPTIONS
        return RunOptions(**{name: value for name, value in zip(_FOR_WORKER, values, strict=True) if value})


DEFAULTS = CheckedOptions()


def _stored(policy: RetryPolicy) -> RetryPolicy | None:
    return None if policy == NO_POLICY else policy


def _budgets(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that follow from the budgets for attempts that a limit stops: numbers, and policies."""
    found: dict[str, Any] = {}
    for name in BUDGETS.values():
        policy = POLICIES[name]
        if name in values:
            given = values[name]
            is_policy = isinstance(given, Retries)
            found |= {name: given.max, policy: _stored(given.policy)} if is_policy else {policy: None}
    return found


def default_options(given: JobOptions) -> CheckedOptions:
    """Check the defaults of an app: the options of all its tasks, unless a task overrides them.

    Raises:
        Invalid: an option is unknown or invalid, or applies to a single job.
    """
    if not isinstance(given, dict):
        raise Invalid(f'defaults is {given!r}; it must be a dict of options, such as {{"queue": "video"}}')
    try:
        for name in not_for("defaults"):
            if name in given:
                raise Invalid(f"{name} applies to a single job and cannot be a default; set it with task.options(...)")
        return DEFAULTS.replace(**given)
    except Invalid as error:
        raise Invalid(f"defaults: {error}") from None


def _check_consistency(options: CheckedOptions) -> None:
    """Raise Invalid if an option contradicts another."""
    if options.unique_for is not None and options.unique is None:
        raise Invalid("unique_for is given without unique; give the unique key as well")
    if options.debounce is not None:
        for name in ("delay", "at", "unique_for", "on_exists"):
            if getattr(options, name) is not None:
                raise Invalid(f"debounce and {name} are both given; omit {name}: debounce decides when the job is due")
    for due, latest in ((options.debounce or options.delay, options.deadline), (options.at, options.deadline_at)):
        if due is not None and latest is not None and latest <= due:
            raise Invalid("the job would be due after its deadline; set a later deadline")
    if options.timeout and options.soft_timeout and options.soft_timeout >= options.timeout:
        soft, hard = humanize(options.soft_timeout), humanize(options.timeout)
        raise Invalid(
            f"soft_timeout is {soft}; it must be shorter than timeout, which is {hard}, so that the job can still save"
        )
    if options.keep is False and options.unique_for not in (None, "queued", "pending"):
        span = humanize(options.unique_for) if isinstance(options.unique_for, int) else options.unique_for
        raise Invalid(
            f"keep is False, but unique_for is {span!r}: the unique key would outlive the record of its job; omit "
            "keep, or set unique_for to 'queued' or 'pending'"
        )
