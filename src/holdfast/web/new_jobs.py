"""New jobs as bodies of requests, made from the table of job options; and the calls that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec

from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.option_kinds import Kind
from holdfast.job.option_table import OPTIONS, Option
from holdfast.job.options import DEFAULT_QUEUE, JobOptions
from holdfast.job.retries import DEFAULT_JITTER, Retries
from holdfast.names import PROGRAM_TASK
from holdfast.store import new_token
from holdfast.task.named import checked_json_call, unchecked_call, unknown_task
from holdfast.task.task import BoundCall
from holdfast.units import is_duration
from holdfast.web.call import Call
from holdfast.web.durations import read_time
from holdfast.web.problems import Problem
from holdfast.web.resource import about

# Options that a request cannot have: workers take it from the task; and requests fail while the store is away.
LEFT_OUT = ("runner", "when_unreachable")

DurationText = str | Annotated[float, msgspec.Meta(ge=0, le=MAX_DURATION / 1000)]


class NewRetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job is retried; what is left out is as without a policy."""

    max: Annotated[int | None, about("number of retries")] = None
    waits: Annotated[list[DurationText], about("waits before the first retry, the second and so on")] = msgspec.field(
        default_factory=list
    )
    cap: Annotated[DurationText | None, about("the longest wait")] = None
    jitter: Annotated[float, about("how much waits vary at random", ge=0, le=1)] = DEFAULT_JITTER
    on: Annotated[list[str] | None, about("retry only these exceptions, and those derived from them")] = None
    not_on: Annotated[list[str] | None, about("do not retry these exceptions")] = None

    def read(self) -> Retries:
        more: Any = {name: value for name in ("on", "not_on") if (value := getattr(self, name)) is not None}
        return Retries(self.max, waits=self.waits, cap=self.cap, jitter=self.jitter, **more)


def _type(kind: Kind) -> Any:
    """Return the JSON type of a kind of options."""
    if kind.name == "choice":
        return Literal[kind.choices]
    number = Annotated[int, msgspec.Meta(ge=kind.min, le=kind.max)]
    types: dict[str, Any] = {
        "text": str,
        "integer": number,
        "retries": number | NewRetryPolicy,
        "flag": bool,
        "size": str | int,
        "moment": str,
        "moment or duration": DurationText,
        "duration": DurationText,
        "flag or duration": bool | DurationText,
        "choice or duration": DurationText,
        "batch": str,
        "ids": list[str],
        "limits": list[str],
        "tags": list[str],
        "fields": dict[str, str],
    }
    return types[kind.name]


def option_fields(*, not_for: str = "", without: Collection[str] = ()) -> list[tuple[str, Any, Any]]:
    """Return the fields of a struct that has the options of a job, or those that this user can have."""
    return [
        _field(each)
        for each in OPTIONS
        if each.name not in (*LEFT_OUT, *without) and not_for not in each.not_for
    ]  # fmt: skip


def _field(option: Option) -> tuple[str, Any, Any]:
    help = option.help + (f" Default: {option.default}." if option.default else "")
    return option.name, Annotated[_type(option.kind) | None, msgspec.Meta(description=help)], None


def _described(kind: Any, description: str) -> Any:
    return Annotated[kind, msgspec.Meta(description=description)]


_CALL_FIELDS: list[tuple[str, Any, Any]] = [
    ("task", _described(str | None, "name of the task"), None),
    (
        "arguments",
        _described(dict[str, msgspec.Raw], "arguments of the task, by name"),
        msgspec.field(default_factory=dict),
    ),
    (
        "program",
        _described(list[str] | None, "instead of a task: a program and its arguments; workers need --allow-exec"),
        None,
    ),
    ("cwd", _described(str | None, "working directory of the program"), None),
    ("env", _described(dict[str, str] | None, "environment of the program, added to that of the worker"), None),
    ("stdin", _described(str | None, "standard input of the program"), None),
]
_STRICT: dict[str, Any] = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}
NewJob: Any = msgspec.defstruct("NewJob", [*_CALL_FIELDS, *option_fields()], **_STRICT)
NewJobWithId: Any = msgspec.defstruct("NewJobWithId", [*_CALL_FIELDS, *option_fields(without=["id"])], **_STRICT)
# A job that is enqueued later, such as that at the end of a batch: it has no id of its own.
LaterJob: Any = msgspec.defstruct(
    "LaterJob", [*_CALL_FIELDS, *option_fields(not_for="schedule", without=["id"])], **_STRICT
)
ForkOptions: Any = msgspec.defstruct("ForkOptions", option_fields(not_for="fork"), **_STRICT)


def given_options(body: Any) -> JobOptions:
    """Return the options that a body has, as Python has them."""
    known = {each.name: each.kind for each in OPTIONS}
    given: dict[str, Any] = {name: getattr(body, name) for name in body.__struct_fields__ if name in known}
    given = {name: value for name, value in given.items() if value not in (None, [], {})}
    return {name: _read(name, known[name], value) for name, value in given.items()}  # type: ignore[return-value]


def _read(name: str, kind: Kind, value: Any) -> Any:
    if isinstance(value, NewRetryPolicy):
        return value.read()
    if kind.name == "moment" or (
        kind.name == "moment or duration" and isinstance(value, str) and not is_duration(value)
    ):
        return read_time(value, name)
    return value


def make_call(call: Call, body: Any, *, id: str | None = None, later: bool = False) -> BoundCall[Any]:
    """Return the call that a body stands for, after a check of the rights that it needs."""
    options: Any = given_options(body)
    if not later:
        options["when_unreachable"] = "raise"
        if "id" not in options:
            options["id"] = id or new_token()
    found = _program_call(call, body, options) if body.program is not None else _task_call(call, body, options)
    call.check_queue(found.effective_options.queue or DEFAULT_QUEUE)
    check_batch(call, found.effective_options.batch)
    _check_replacing(call, found)
    return found


def _task_call(call: Call, body: Any, options: JobOptions) -> BoundCall[Any]:
    if body.task is None:
        raise Invalid("expected `task`, the name of a task, or `program`")
    if wrong := next((name for name in ("cwd", "env", "stdin") if getattr(body, name) is not None), None):
        raise Invalid(f"{wrong} needs `program`")
    if body.task == PROGRAM_TASK:
        call.check_role("admin")
        raise Invalid(f"{PROGRAM_TASK} is the task of all programs; give `program` instead of `task`")
    named: Mapping[str, msgspec.Raw] = body.arguments
    if body.task in call.app.tasks:
        return checked_json_call(call.app.tasks[body.task].options(**options), named)
    return unchecked_call(unknown_task(call.app, body.task, options), named)


def _program_call(call: Call, body: Any, options: JobOptions) -> BoundCall[Any]:
    """Return the call of a program. Only admins may have programs run: they can do whatever the worker can."""
    call.check_role("admin")
    if body.task is not None or body.arguments:
        raise Invalid("`program` cannot be combined with `task` and `arguments`")
    return call.app.program(body.program, cwd=body.cwd, env=body.env, stdin=body.stdin).options(**options)


def check_batch(call: Call, batch: object) -> None:
    """Refuse to add a job to a batch for users with rights on some queues: it may have jobs of others."""
    if batch is not None and not call.user.has_all_queues:
        raise Problem(403, "FORBIDDEN", "a batch may have jobs of queues without rights")


def _check_replacing(call: Call, found: BoundCall[Any]) -> None:
    """Refuse to replace a job of which nobody knows whether the user has rights on its queue."""
    options = found.effective_options
    if (options.on_exists == "replace" or options.debounce is not None) and not call.user.has_all_queues:
        raise Problem(403, "FORBIDDEN", "the job that would be replaced may be in a queue without rights")
