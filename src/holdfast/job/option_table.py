"""The table of job options: each option is declared once, here.

The checks, the arguments of the store, the text for workers, the options of `holdfast enqueue` and the reference derive
from it. `options.py` repeats the names for type checkers. `tests/job/test_options.py` compares them, and the lists of
the Lua library, with this table.

The table is in `job/` and not in `task/`, because running jobs and items, which have no task, use it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from holdfast.constants import MAX_BACKOFF, MAX_PRIORITY, MAX_RETRIES, MIN_KEEP, MIN_PRIORITY
from holdfast.errors import Invalid
from holdfast.hints import HINTS
from holdfast.job.option_kinds import (
    BATCH,
    BUDGET,
    FIELDS,
    FLAG,
    IDS,
    LIMITS,
    MOMENT,
    MOMENT_OR_DURATION,
    RETRIES,
    SIZE,
    TAGS,
    Kind,
    choice,
    choice_or_duration,
    duration,
    flag_or_duration,
    integer,
    text,
)
from holdfast.names import check_new_id, check_queue, check_scope, check_share, check_unique_key
from holdfast.text import suggestion

OnExists = Literal["return", "error", "replace"]
UniqueFor = Literal["queued", "pending", "kept"]
OnFailed = Literal["block", "cancel", "run"]
Runner = Literal["fork", "spawn", "process", "thread", "async"]
Acknowledge = Literal["primary", "replica"]
WhenUnreachable = Literal["raise", "inline", "outbox"]

# Where an option is sent: to the store, with each job or with the whole call; to the worker, as text that the store
# does not read; or nowhere, because the client or the worker reads it from the task.
Destination = Literal["job", "call", "worker", "nowhere"]
# Who cannot use an option: the defaults of an app, a schedule, an item, the next stage of a pipeline (`Advance`), a
# fork of a job.
User = Literal["defaults", "schedule", "item", "stage", "fork"]


class Option(NamedTuple):
    """One option of a job."""

    name: str
    kind: Kind
    help: str
    default: str = ""
    goes_to: Destination = "job"
    not_for: tuple[User, ...] = ()
    needs_process: bool = False  # it applies only to a job that has a process of its own


OPTIONS = (
    Option("queue", text(check_queue), "Queue of the job.", "`default`", not_for=("item",)),
    Option("priority", integer(MIN_PRIORITY, MAX_PRIORITY), "-256 to 255; lower runs first.", "0"),
    Option("delay", duration(0), "Start the job after this time.", not_for=("schedule",)),
    Option("at", MOMENT, "Start the job at this time, with a time zone.", not_for=("defaults", "schedule")),
    Option("retries", RETRIES, "Allowed retries after errors, or a retry policy.", "the queue's setting, 3"),
    Option(
        "backoff",
        duration(0, MAX_BACKOFF),
        "Wait before the first retry; it doubles with each retry.",
        "the queue's setting, 20s",
    ),
    Option("crashes", integer(0, MAX_RETRIES), "Allowed crashes of its process.", "the queue's setting, 3"),
    Option("lost", integer(0, MAX_RETRIES), "Allowed lost leases.", "the queue's setting, 10"),
    Option(
        "timeouts",
        BUDGET,
        "Allowed timeouts, or a retry policy for them.",
        "they use up retries",
        not_for=("item",),
    ),
    Option(
        "stalls",
        BUDGET,
        "Allowed attempts that stall, or a retry policy for them.",
        "they use up retries",
        not_for=("item",),
    ),
    Option(
        "out_of_memory",
        BUDGET,
        "Allowed attempts that exceed their memory, or a retry policy for them.",
        "they use up retries",
        not_for=("item",),
    ),
    Option("timeout", duration(1), "How long an attempt may run.", "no limit", not_for=("item",)),
    Option(
        "soft_timeout",
        duration(1),
        "After this time an attempt is asked to save and yield.",
        "never",
        "worker",
        not_for=("item",),
    ),
    Option(
        "stalled",
        duration(1),
        "How long an attempt may be silent: no save, report, note, step or output.",
        "no limit",
        "worker",
        not_for=("item",),
    ),
    Option(
        "memory",
        SIZE,
        "Memory limit of all processes of an attempt: 512M, 2G.",
        "no limit",
        "worker",
        not_for=("item",),
        needs_process=True,
    ),
    Option(
        "exclusive",
        FLAG,
        "Kill an attempt before its lease expires, so that two attempts never overlap.",
        goes_to="worker",
        not_for=("item",),
        needs_process=True,
    ),
    Option(
        "id",
        text(check_new_id),
        "Id of the job; while a job with this id exists, no second one is stored.",
        "a new id",
        "nowhere",
        not_for=("defaults", "schedule", "stage"),
    ),
    Option(
        "on_exists",
        choice(*get_args(OnExists)),
        "If a job with this id or unique key exists: return it, raise an error, or replace it.",
        "`return`",
        "call",
        not_for=("schedule", "stage", "fork"),
    ),
    Option(
        "unique",
        text(check_unique_key),
        "Unique key: while a job holds it, no second job with this key is stored.",
        not_for=("defaults", "schedule", "stage", "fork"),
    ),
    Option(
        "unique_for",
        choice_or_duration(*get_args(UniqueFor)),
        "How long the job holds its unique key: until it starts (queued), ends (pending) or is removed (kept), "
        "or a duration.",
        "`pending`",
        not_for=("defaults", "schedule", "stage", "fork"),
    ),
    Option(
        "debounce",
        duration(1),
        "Start after this time without another call with the same unique key, or task; the last call counts.",
        goes_to="nowhere",  # the store gets it as a delay
        not_for=("schedule", "fork"),
    ),
    Option(
        "keep",
        flag_or_duration(MIN_KEEP),
        "How long its record is kept after its end; False: not at all, but that of a failed job always is.",
        "as long as the settings of its queue say",
        not_for=("stage",),
    ),
    Option("at_most_once", FLAG, "Run at most once; never retried."),
    Option(
        "after",
        IDS,
        "Jobs that have to end first: a job, bound call or id, or a list of them.",
        not_for=("defaults", "schedule"),
    ),
    Option(
        "on_failed",
        choice(*get_args(OnFailed)),
        "If one of those fails or is cancelled: stay blocked, be cancelled, or run.",
        "`block`",
        not_for=(
            "defaults",
        ),  # a schedule ignores it: without `after` it is not sent, and the task's other calls use it
    ),
    Option(
        "limits", LIMITS, "Limits that the job takes part in: `api`, `api:acme` to count by key, or a declared `Limit`."
    ),
    Option("fields", FIELDS, "Texts to store with the job, by name; added to those of the task."),
    Option("tags", TAGS, "Tags of the job, to find it by; added to those of the app and the task."),
    Option(
        "scope",
        text(check_scope),
        "Scope of the job, a path such as /tenant/7, to find it by.",
        "that of the running job, or the app's",
        not_for=("defaults",),
    ),
    Option(
        "batch",
        BATCH,
        "Batch that the job belongs to: an open one, or its name.",
        not_for=("defaults", "schedule", "item", "stage"),
    ),
    Option("share", text(check_share), "Key of its share of a fair queue, such as a customer."),
    Option(
        "deadline", MOMENT_OR_DURATION, "No attempt starts after this time; then the job fails.", "none"
    ),  # the store gets a time as `deadline_at`
    Option(
        "runner",
        choice(*get_args(Runner)),
        "Where the job runs.",
        "by the kind of function",
        "nowhere",
        not_for=("item", "fork"),
    ),
    Option(
        "when_unreachable",
        choice(*get_args(WhenUnreachable)),
        "What to do if the server is unreachable.",
        "the app's",
        "nowhere",
        not_for=("schedule", "item", "fork"),
    ),
    Option(
        "acknowledge",
        choice(*get_args(Acknowledge)),
        "Who has the job when `enqueue` returns: the primary, or a replica, too.",
        "primary",
        "nowhere",
        not_for=("schedule", "item", "fork"),
    ),
)
BY_NAME = {option.name: option for option in OPTIONS}
NEED_A_PROCESS = tuple(option.name for option in OPTIONS if option.needs_process)


def not_for(user: User) -> tuple[str, ...]:
    """Return the names of the options that this user cannot use."""
    return tuple(option.name for option in OPTIONS if user in option.not_for)


def check_options(names: Iterable[str], also: Sequence[str] = ()) -> None:
    """Raise Invalid if one of the names is neither an option of a job nor one of `also`."""
    for name in names:
        if name not in BY_NAME and name not in also:
            known = HINTS["option"].get(name)
            hint = f"; {known}" if known else suggestion(name, (*BY_NAME, *also))
            raise Invalid(f"unknown option {name!r}{hint}")


def checked(name: str, value: Any) -> Any:
    """Return the value of an option as it is stored; None stays None.

    Raises:
        Invalid: the option is unknown, or the value is invalid.
    """
    if name not in BY_NAME:
        check_options([name])
    return None if value is None else BY_NAME[name].kind.check(name, value)
