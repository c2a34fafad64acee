"""Calls of tasks and programs from the command line: their options, and their arguments as words or lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import click

from holdfast import Holdfast
from holdfast.cli.app_import import import_app
from holdfast.cli.client import Client, note_new_server
from holdfast.cli.errors import print_note
from holdfast.cli.job_options import given_options
from holdfast.cli.options import F
from holdfast.constants import MAX_PAYLOAD
from holdfast.names import check_task
from holdfast.task.named import AnyTask, checked_call, find_task, json_or_text, unchecked_call, unknown_task
from holdfast.task.program import ProgramResult
from holdfast.task.task import BoundCall


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
        return find_task(app.tasks, name).options(**given), app
    check_task(name)
    if sys.stderr.isatty():
        print_note(f"without --app (or HOLDFAST_APP), options that {name} declares do not apply (queue, retries ...)")
    app = client.app_starting_server
    return unknown_task(app, name, given), app


def imported_app(client: Client, path: str) -> Holdfast:
    """Import an app; from now on the client uses its address, which may be its own."""
    client.share_address()
    client.app = app = import_app(path)
    note_new_server(app)
    return app


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
        return checked_call(task, arguments.positional, arguments.named)
    if arguments.positional:
        raise click.UsageError(
            f"expected name=value, got {arguments.positional[0]!r}; a value without a name needs --app."
        )
    return unchecked_call(task, {name: json_or_text(word) for name, word in arguments.named.items()})


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
