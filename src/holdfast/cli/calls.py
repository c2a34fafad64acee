"""Calls of tasks and programs from the command line: their options, and their arguments as words or lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import formatannotation
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from holdfast import Holdfast, errors
from holdfast.cli.app_import import import_app
from holdfast.cli.client import Client, note_new_server
from holdfast.cli.errors import print_note
from holdfast.cli.job_options import given_options
from holdfast.cli.options import F
from holdfast.constants import MAX_PAYLOAD
from holdfast.job.options import CheckedOptions
from holdfast.names import check_task, new_id
from holdfast.task.program import ProgramResult
from holdfast.task.signature import Parameter
from holdfast.task.task import BoundCall, Task, make_task
from holdfast.text import did_you_mean

AnyTask = Task[..., Any]


def app_option(function: F) -> F:
    """Declare -A/--app."""
    return click.option(
        "-A", "--app", "path", envvar="HOLDFAST_APP", metavar="APP",
        help="Module of the app; checks the arguments and applies the task's options.",
    )(function)  # fmt: skip


# Calls of tasks


def choose_task(client: Client, path: str | None, name: str, options: Mapping[str, Any]) -> tuple[AnyTask, Holdfast]:
    """Return a task with the options that were given, and its app; without an app, only its name is known."""
    given = given_options(options)
    if path:
        app = imported_app(client, path)
        return find_task(app, name).options(**given), app
    check_task(name)
    if sys.stderr.isatty():
        print_note(f"without --app (or HOLDFAST_APP), options that {name} declares do not apply (queue, retries ...)")
    app = client.app_starting_server
    return _unknown_task(app, name, CheckedOptions().replace(**given)), app


def imported_app(client: Client, path: str) -> Holdfast:
    """Import an app; from now on the client uses its address, which may be its own."""
    client.share_address()
    client.app = app = import_app(path)
    note_new_server(app)
    return app


def find_task(app: Holdfast, name: str) -> AnyTask:
    """Return a task by its name, or by the last part of its name if that is unique."""
    if name in app.tasks:
        return app.tasks[name]
    matches = [known for known in app.tasks if known.endswith(f".{name}")]
    if len(matches) == 1:
        return app.tasks[matches[0]]
    known = f"; the app has {', '.join(sorted(app.tasks)) or 'no tasks'}"
    raise errors.Invalid(f"unknown task {name}{did_you_mean(name, app.tasks) or known}")


def _unknown_task(app: Holdfast, name: str, options: CheckedOptions) -> AnyTask:
    """Return a task of which only the name is known; `unchecked_call` makes its calls."""

    def unknown() -> Any: ...

    task: AnyTask = make_task(unknown, app, options, name)
    return task


class Arguments(NamedTuple):
    """The words after the task's name: positional and named."""

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
                raise click.UsageError(f"argument {name} is given twice.")
            else:
                named[name] = value
        return cls(positional, named)


def make_call(task: AnyTask, words: Sequence[str], *, checked: bool) -> BoundCall[Any]:
    """Bind words to a task, checked by its signature or not."""
    arguments = Arguments.of(words)
    if checked:
        return _checked_call(task, arguments)
    if arguments.positional:
        raise click.UsageError(
            f"expected name=value, got {arguments.positional[0]!r}; a value without a name needs --app."
        )
    return unchecked_call(task, {name: json_or_text(word) for name, word in arguments.named.items()})


def _checked_call(task: AnyTask, arguments: Arguments) -> BoundCall[Any]:
    """Bind words to a task, converted as its signature requires."""
    parameters = _parameters(task)
    keys: list[str | None] = [*task.signature.positional, *[None] * len(arguments.positional)]
    args = [_convert(word, parameters.get(key or "")) for word, key in zip(arguments.positional, keys, strict=False)]
    kwargs = {name: _convert(word, parameters.get(name)) for name, word in arguments.named.items()}
    return task.bind(*args, **kwargs)


def checked_json_call(task: AnyTask, named: Mapping[str, msgspec.Raw]) -> BoundCall[Any]:
    """Bind a JSON object to a task, checked by its signature."""
    parameters = _parameters(task)
    return task.bind(**{name: _decode(bytes(data), name, parameters.get(name)) for name, data in named.items()})


def unchecked_call(task: AnyTask, named: Mapping[str, Any]) -> BoundCall[Any]:
    """Return a call whose arguments are not checked."""
    return BoundCall(task.effective_options.id or new_id(), task, msgspec.json.encode(named))


def _parameters(task: AnyTask) -> dict[str, Parameter]:
    return {each.key: each for each in task.signature.parameters}


def json_or_text(word: str) -> Any:
    """Return the value of a word that is JSON, else the word itself."""
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return word


def _convert(word: str, parameter: Parameter | None) -> Any:
    """Convert a word to the type of its parameter: as JSON, else as text."""
    if parameter is None:
        return json_or_text(word)
    for data in (word.encode(), msgspec.json.encode(word)):
        with suppress(errors.Invalid):
            return parameter.codec.decode(data, parameter.key)
    if word.startswith(("{", "[")):  # say which part of it does not fit
        parameter.codec.decode(word.encode(), f"argument {parameter.key!r}")
    expected = formatannotation(parameter.annotation)
    raise errors.Invalid(f"argument {parameter.key!r}: expected {expected}, got {word!r}")


def _decode(data: bytes, name: str, parameter: Parameter | None) -> Any:
    return parameter.codec.decode(data, f"argument {name!r}") if parameter else msgspec.json.decode(data)


# Calls of programs: enqueue --exec -- ffmpeg -i in.mov out.mp4


def _read_variables(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"expected NAME=VALUE, got {value!r}", param_hint="--env")
    return dict(value.split("=", 1) for value in values)


_PROGRAM_OPTIONS = (
    click.option(
        "--exec", is_flag=True, help="Run a program instead of a task; put -- before it. Workers need --allow-exec."
    ),
    click.option("--cwd", metavar="DIRECTORY", help="With --exec: working directory on the worker's machine."),
    click.option(
        "--env", multiple=True, metavar="NAME=VALUE", callback=_read_variables,
        help="With --exec: environment variable; repeatable.",
    ),
    click.option(
        "--stdin", type=click.File("rb"), metavar="FILE",
        help="With --exec: text for its standard input; - is our standard input.",
    ),
)  # fmt: skip


def program_options(function: F) -> F:
    """Declare the options of programs."""
    for option in reversed(_PROGRAM_OPTIONS):
        function = option(function)
    return function


def take_program_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of programs from all options, and return them if a program is to run."""
    found = {name: options.pop(name) for name in ("cwd", "env", "stdin")}
    if not options.pop("exec"):
        if wrong := next((name for name, value in found.items() if value), None):
            raise click.UsageError(f"--{wrong} needs --exec, and the program after --.")
        return {}
    return found


def program_call(
    client: Client, path: str | None, words: Sequence[str], process: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[BoundCall[ProgramResult], Holdfast]:  # fmt: skip
    """Return the call of a program, and the app to enqueue it with."""
    app = imported_app(client, path) if path else client.app_starting_server
    call = app.program(list(words), cwd=process["cwd"], env=process["env"], stdin=_read_text(process["stdin"]))
    return call.options(**given_options(options)), app


def _read_text(file: BinaryIO | None) -> str | None:
    if file is None:
        return None
    data = file.read(MAX_PAYLOAD + 1)  # the file may be endless
    if len(data) > MAX_PAYLOAD:
        raise click.BadParameter(
            f"expected at most {MAX_PAYLOAD >> 20} MiB; let the program read a file", param_hint="--stdin"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"expected text in UTF-8: {error.reason}", param_hint="--stdin") from None
