"""Options that select jobs, made from the table of filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from holdfast.cli.completers import (
    complete_batch,
    complete_fingerprint,
    complete_group,
    complete_live_worker,
    complete_queue,
    complete_scope,
    complete_states,
    complete_tag,
    complete_task,
)
from holdfast.cli.options import Decorator, F, read_duration, read_time
from holdfast.client.filters import FILTERS, NAMES, Filter
from holdfast.client.finding import named_states
from holdfast.errors import Invalid
from holdfast.records.table import Record

_SHORT = {"queue": "-Q", "state": "-s"}
_COMPLETE: dict[str, Callable[..., Any]] = {
    "queue": complete_queue, "state": complete_states, "task": complete_task, "group": complete_group,
    "fingerprint": complete_fingerprint, "tag": complete_tag, "scope": complete_scope, "batch": complete_batch,
    "worker": complete_live_worker,
}  # fmt: skip


def option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def filter_options(help: str = "Only jobs", *, without: Sequence[str] = (), **more: str) -> Decorator:
    """Declare an option for each filter. `more` ends the help of those that it names."""
    options = [_option(each, help, more.get(each.name, "")) for each in FILTERS if each.name not in without]

    def declare(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return declare


def _option(each: Filter, help: str, more: str) -> Decorator:
    names = [_SHORT[each.name]] if each.name in _SHORT else []
    text = f"{help} {each.help}.{f' {more}' if more else ''}"
    settings: dict[str, Any] = {"metavar": each.metavar, "shell_complete": _COMPLETE.get(each.name), "help": text}
    if not each.metavar:
        return click.option(option_name(each.name), each.name, is_flag=True, default=None, help=text)
    if each.name == "state":
        settings["multiple"] = True
    if each.metavar == "TIME":
        settings["callback"] = read_time_or_age
    return click.option(*names, option_name(each.name), each.name, **settings)


def read_time_or_age(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> timedelta | datetime | None:
    """Read a duration, which counts back from now, or a time in ISO 8601."""
    if text is None:
        return None
    try:
        return read_duration(text, parameter.opts[0])
    except Invalid:
        if not text[:4].isdigit():
            raise
        return read_time(context, parameter, text)


def given_filters(options: Record) -> Record:
    """Return the filters among some options, as the client takes them."""
    given = {name: options[name] for name in NAMES if options.get(name) not in (None, ())}
    if "state" in given:
        given["state"] = named_states(given["state"])
    return given


def describe_filters(filters: Record) -> str:
    """Return filters other than the state as text: queue mail, task send."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in filters.items() if name != "state")
