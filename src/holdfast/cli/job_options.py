"""The options of a job on the command line, derived from the table of job options (job/option_table.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from holdfast.cli.completers import (
    complete_batch,
    complete_ids,
    complete_limit,
    complete_queue,
    complete_scope,
    complete_tag,
)
from holdfast.cli.options import Decorator, F, read_duration, read_size, read_time
from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.option_kinds import Kind
from holdfast.job.option_table import BY_NAME, OPTIONS, Option
from holdfast.job.options import JobOptions
from holdfast.job.retries import DEFAULT_JITTER, Retries

SPELLING = {
    "queue": ("-Q", "--queue"),
    "timeout": ("--run-timeout",),  # --timeout is how long to wait for the job
    "limits": ("--limit", "limits"),
    "fields": ("--field", "fields"),
    "tags": ("-t", "--tag", "tags"),
}
HELP = {
    "batch": "Open batch that the job belongs to; see `batches`.",
    "queue": "Queue, instead of the task's.",
    "retries": "Allowed retries after errors.",
    "at": "Start the job at this time: 2024-07-01T02:00+02:00; without a zone, local time.",
    "after": "Id of a job that has to end first; repeatable; - reads ids from standard input.",
    "limits": "Limit that the job takes part in, optionally counted by a key; repeatable.",
    "fields": "Text to store with the job, by name; repeatable.",
    "tags": "Tag of the job, to find it by; repeatable.",
    "keep": "How long its record is kept after its end: 1h; no: not at all, but that of a failed job always is.",
}
METAVARS = {
    "id": "ID", "unique": "KEY", "share": "KEY", "limits": "NAME[:KEY]", "after": "ID", "unique_for": "SPAN",
    "deadline": "DURATION|ISO", "at": "ISO", "fields": "NAME=TEXT", "keep": "DURATION|yes|no",
    "tags": "TAG", "scope": "PATH", "batch": "NAME",
}  # fmt: skip
COMPLETERS = {
    "queue": complete_queue, "limits": complete_limit, "after": complete_ids, "tags": complete_tag,
    "scope": complete_scope, "batch": complete_batch,
}  # fmt: skip
LEFT_OUT = ("runner",)  # a worker takes it from the task
NEEDS = {"on_failed": "after"}  # an option that is about another
RETRY = "retry_"  # prefix of the parts of a retry policy


def _read_waits(_: click.Context, parameter: click.Parameter, text: str | None) -> list[timedelta]:
    """Read durations: 1s,10s,1m."""
    return [read_duration(each, parameter.opts[-1], maximum=MAX_DURATION) for each in text.split(",")] if text else []


def _read_cap(_: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    return None if text is None else read_duration(text, parameter.opts[-1], minimum=1, maximum=MAX_DURATION)


# The parts of a retry policy besides the number, by their names in `Retries`.
RETRY_PARTS: dict[str, dict[str, Any]] = {
    "waits": {
        "callback": _read_waits, "metavar": "DURATION,...",
        "help": "Waits before the first, second ... retry, instead of the backoff; the last one repeats.",
    },
    "cap": {"callback": _read_cap, "metavar": "DURATION", "help": "Longest wait before a retry."},
    "jitter": {
        "type": float, "metavar": "NUMBER",
        "help": f"Random part that is added to each wait, 0 to 1 times the wait. Default: {DEFAULT_JITTER}.",
    },
    "on": {
        "multiple": True, "metavar": "EXCEPTION",
        "help": "Retry only this exception, by its full name: requests.exceptions.Timeout; repeatable.",
    },
    "not_on": {"multiple": True, "metavar": "EXCEPTION", "help": "Never retry this exception; repeatable."},
}  # fmt: skip


def job_options(names: Collection[str] | None = None, *, not_for: str = "", without: Collection[str] = ()) -> Decorator:
    """Declare the options of a job: those of these names, or all that this user can have."""
    chosen = [
        option
        for option in OPTIONS
        if option.name not in (*LEFT_OUT, *without)
        and not_for not in BY_NAME[NEEDS.get(option.name, option.name)].not_for
        and (names is None or option.name in names)
    ]

    def declare(function: F) -> F:
        for option in reversed(chosen):
            if option.name == "retries" and names is None:
                function = _retry_options(function)
            function = _click_option(option)(function)
        return function

    return declare


def _retry_options(function: F) -> F:
    for name, more in reversed(RETRY_PARTS.items()):
        function = click.option(f"--{RETRY}{name}".replace("_", "-"), **more)(function)
    return function


def _click_option(option: Option) -> Decorator:
    help = HELP.get(option.name, option.help) + (f" Default: {option.default}." if option.default else "")
    names = SPELLING.get(option.name, (f"--{option.name.replace('_', '-')}",))
    more: dict[str, Any] = {"metavar": METAVARS[option.name]} if option.name in METAVARS else {}
    return click.option(*names, help=help, shell_complete=COMPLETERS.get(option.name), **_type(option), **more)


def _type(option: Option) -> dict[str, Any]:
    """Return the arguments of `click.option` that follow from the kind of an option."""
    kind = option.kind
    arguments: dict[str, dict[str, Any]] = {
        "text": {},
        "integer": {"type": int, "metavar": "NUMBER"},
        "retries": {"type": int, "metavar": "NUMBER"},
        "flag": {"is_flag": True, "default": None},
        "choice": {"type": click.Choice(kind.choices)},
        "size": {"callback": read_size, "metavar": "SIZE"},
        "moment": {"callback": read_time},
        "moment or duration": {"callback": partial(_read_time_or_duration, kind)},
        "duration": {"callback": partial(_read_bounded, kind), "metavar": "DURATION"},
        "flag or duration": {"callback": partial(_read_flag_or_duration, kind)},
        "choice or duration": {"callback": _read_choice_or_duration},
        "batch": {},
        "ids": {"multiple": True},
        "limits": {"multiple": True},
        "tags": {"multiple": True},
        "fields": {"multiple": True, "callback": read_fields},
    }
    return arguments[kind.name]


def _read_bounded(kind: Kind, _: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    return read_duration(text, parameter.opts[-1], minimum=kind.min or 0, maximum=kind.max or 0)


def _read_time_or_duration(
    kind: Kind, context: click.Context, parameter: click.Parameter, text: str | None
) -> timedelta | datetime | None:
    if text is None or "-" in text or "T" in text:
        return read_time(context, parameter, text)
    return _read_bounded(kind, context, parameter, text)


def _read_flag_or_duration(
    kind: Kind, context: click.Context, parameter: click.Parameter, text: str | None
) -> bool | timedelta | None:
    try:
        return text == "yes" if text in ("yes", "no") else _read_bounded(kind, context, parameter, text)
    except Invalid as error:
        raise Invalid(f"{error}; or yes or no") from None


def _read_choice_or_duration(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    return f"{text}s" if text and text[-1].isdigit() else text


def read_fields(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> dict[str, str] | None:
    """Read NAME=TEXT words."""
    fields = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"expected NAME=TEXT, got {word!r}.")
        fields[name] = text
    return fields or None


def given_options(options: Mapping[str, Any]) -> JobOptions:
    """Return the options that were given, by their names in Python."""
    given = {name: value for name, value in options.items() if value not in (None, (), [])}
    if "run_timeout" in given:
        given["timeout"] = given.pop("run_timeout")
    if parts := {name: given.pop(RETRY + name) for name in RETRY_PARTS if RETRY + name in given}:
        given["retries"] = Retries(given.get("retries"), **parts)
    return given  # type: ignore[return-value]
