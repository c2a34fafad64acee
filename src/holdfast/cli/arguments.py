"""Calls of a task, from the command line: its options, and its arguments as words or as lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from inspect import formatannotation
from typing import Any, NamedTuple

import click
import msgspec

from holdfast import Holdfast, errors
from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_limit, complete_queue
from holdfast.cli.imports import import_app
from holdfast.cli.session import F, Session, duration, duration_option, note_new_server
from holdfast.constants import MAX_DURATION
from holdfast.job.options import Given, Options
from holdfast.names import check_task, new_id
from holdfast.task.signature import Parameter
from holdfast.task.task import BoundCall, Task, make_task
from holdfast.text import did_you_mean
from holdfast.units import size_in_bytes

AnyTask = Task[..., Any]


def read_moment(_: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    """Read an option that is a time; without a zone it is local."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        hint = parameter.opts[0]
        raise click.BadParameter(f"{text!r} is no time like 2024-07-01T02:00+02:00", param_hint=hint) from None
    return value if value.tzinfo else value.astimezone()


def _deadline(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | datetime | None:
    if text is None or "-" in text or "T" in text:
        return read_moment(context, parameter, text)
    return duration(text, "--deadline", least=1, most=MAX_DURATION)


def _size(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else size_in_bytes(value, what=parameter.opts[0])


_OPTIONS = (
    click.option("--app", "path", envvar="HOLDFAST_APP", metavar="APP", help="Module of the app: check the arguments."),
    click.option("--queue", shell_complete=complete_queue, help="Queue, instead of the task's own."),
    click.option("--priority", type=int, help="-256 to 255; lower runs first."),
    click.option("--retries", type=int, help="How often it is tried again after an error."),
    click.option(
        "--limit", "limits", multiple=True, metavar="NAME[:KEY]", shell_complete=complete_limit,
        help="A limit in which it takes part, perhaps counted by a key; may be given several times.",
    ),
    click.option("--share", metavar="KEY", help="Whose it is, among those that share the queue."),
    click.option(
        "--deadline", metavar="DURATION|ISO", callback=_deadline,
        help="It must have started within this time, or by then; else it fails.",
    ),
    click.option("--keep/--no-keep", default=None, help="Whether its record is kept when it has ended."),
    click.option("--at-most-once", is_flag=True, default=None, help="Rather not at all than twice."),
    duration_option("--run-timeout", "How long an attempt may run.", least=1, most=MAX_DURATION),
    duration_option("--soft-timeout", "When it is asked to save and make room.", least=1, most=MAX_DURATION),
    duration_option("--stalled", "How long it may say and print nothing.", least=1, most=MAX_DURATION),
    click.option("--memory", metavar="SIZE", callback=_size, help="Memory of all its processes: 512M, 2G."),
    click.option("--exclusive", is_flag=True, default=None, help="Never two attempts at a time."),
)  # fmt: skip


def call_options(function: F) -> F:
    """Declare the options that all calls of a task have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Arguments(NamedTuple):
    """The words after the task's name, sorted into those without a name and those with one."""

    positional: list[str]
    named: dict[str, str]

    @classmethod
    def of(cls, words: Sequence[str]) -> Arguments:
        positional, named = [], {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                positional.append(word)
            elif name in named:
                raise click.UsageError(f"the argument {name} is given twice.")
            else:
                named[name] = value
        return cls(positional, named)


def given_options(options: Mapping[str, Any]) -> Given:
    """Return what was said of a call, by the names that tasks know; --timeout is how long to wait for it."""
    said = {"timeout" if name == "run_timeout" else name: value for name, value in options.items()}
    return {name: value for name, value in said.items() if value not in (None, ())}  # type: ignore[return-value]


def choose_task(session: Session, path: str | None, name: str, options: Mapping[str, Any]) -> tuple[AnyTask, Holdfast]:
    """Return the task with the options that were given, and its app; without an app, a task that is a name only."""
    given = given_options(options)
    if path:
        session.share_address()
        app = import_app(path)
        made = find_task(app, name).options(**given)
        note_new_server(app)
        session.app = app  # it may have an address of its own
        return made, app
    check_task(name)
    if sys.stderr.isatty():
        note(
            f"without --app (or HOLDFAST_APP) the options of {name} are not known: its queue, retries, at_most_once ..."
        )
    return _named_task(session.new_app, name, Options().but(**given)), session.new_app


def make_call(task: AnyTask, words: Sequence[str], *, checked: bool) -> BoundCall[Any]:
    """Bind the words of a command line to a task, checked by its signature or not."""
    arguments = Arguments.of(words)
    if checked:
        return call_of_words(task, arguments)
    if arguments.positional:
        raise click.UsageError(
            f"{arguments.positional[0]!r} has no name: write name=value, or give --app for the task's signature."
        )
    return unchecked_call(task, {name: json_or_text(word) for name, word in arguments.named.items()})


def find_task(app: Holdfast, name: str) -> AnyTask:
    """Return a task by its name, or by the last part of it if that is enough."""
    if name in app.tasks:
        return app.tasks[name]
    meant = [known for known in app.tasks if known.endswith(f".{name}")]
    if len(meant) == 1:
        return app.tasks[meant[0]]
    there_are = f"; it has {', '.join(sorted(app.tasks)) or 'none'}"
    raise errors.Invalid(f"the app has no task {name}{did_you_mean(name, app.tasks) or there_are}")


def call_of_words(task: AnyTask, arguments: Arguments) -> BoundCall[Any]:
    """Bind words to a task, read as its signature wants them."""
    parameters = _parameters(task)
    keys: list[str | None] = [*task.signature.positional, *[None] * len(arguments.positional)]
    args = [_value(word, parameters.get(key or "")) for word, key in zip(arguments.positional, keys, strict=False)]
    kwargs = {name: _value(word, parameters.get(name)) for name, word in arguments.named.items()}
    return task.bind(*args, **kwargs)


def call_of_line(task: AnyTask, named: Mapping[str, msgspec.Raw]) -> BoundCall[Any]:
    """Bind an object of JSON to a task."""
    parameters = _parameters(task)
    return task.bind(**{name: _decoded(bytes(data), name, parameters.get(name)) for name, data in named.items()})


def _named_task(app: Holdfast, name: str, chosen: Options) -> AnyTask:
    """Return a task of which only the name is known: `unchecked_call` makes its calls."""

    def unknown() -> Any: ...

    task: AnyTask = make_task(unknown, app, chosen, name)
    return task


def unchecked_call(task: AnyTask, named: Mapping[str, Any]) -> BoundCall[Any]:
    """Return a call whose arguments nobody has checked."""
    return BoundCall(task.chosen.id or new_id(), task, msgspec.json.encode(named))


def json_or_text(word: str) -> Any:
    """Return what a word says in JSON, else the word itself."""
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return word


def _parameters(task: AnyTask) -> dict[str, Parameter]:
    return {each.key: each for each in task.signature.parameters}


def _value(word: str, parameter: Parameter | None) -> Any:
    """Read a value as its parameter wants it: as JSON, else as text."""
    if parameter is None:
        return json_or_text(word)
    for data in (word.encode(), msgspec.json.encode(word)):
        with suppress(errors.Invalid):
            return parameter.shape.decode(data, parameter.key)
    wanted = formatannotation(parameter.annotation)
    raise errors.Invalid(f"argument {parameter.key!r} is {word!r}; it must be what {wanted} takes")


def _decoded(data: bytes, name: str, parameter: Parameter | None) -> Any:
    return parameter.shape.decode(data, f"argument {name!r}") if parameter else msgspec.json.decode(data)
