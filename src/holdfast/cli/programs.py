"""Programs as jobs, from the command line: enqueue --exec -- ffmpeg -i in.mov out.mp4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import click

from holdfast import Holdfast
from holdfast.cli.arguments import given_options
from holdfast.cli.imports import import_app
from holdfast.cli.session import F, Session, note_new_server
from holdfast.constants import MAX_PAYLOAD
from holdfast.task.program import Ended
from holdfast.task.task import BoundCall


def _variables(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} has no value; write NAME=VALUE", param_hint="--env")
    return dict(value.split("=", 1) for value in values)


_OF_PROGRAMS = (
    click.option(
        "--exec", is_flag=True,
        help="Run a program, not a task: put -- before it. Workers need --allow-exec.",
    ),
    click.option("--cwd", metavar="DIRECTORY", help="With --exec: where it runs, on the worker's machine."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", callback=_variables, help="With --exec: a variable."),
    click.option("--stdin", type=click.File("rb"), metavar="FILE", help="With --exec: text that it reads; - is ours."),
)  # fmt: skip


def program_options(function: F) -> F:
    """Declare the options of programs."""
    for option in reversed(_OF_PROGRAMS):
        function = option(function)
    return function


def take_program_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take what is for programs out of the options, and return it."""
    found = {name: options.pop(name) for name in ("cwd", "env", "stdin")}
    if not options.pop("exec"):
        if wrong := next((name for name, value in found.items() if value), None):
            raise click.UsageError(f"--{wrong} is about a program; give --exec, and the program after --.")
        return {}
    return found


def program_call(
    session: Session, path: str | None, arguments: Sequence[str], about: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[BoundCall[Ended], Holdfast]:
    """Return the call of a program, and the app that it is enqueued by."""
    app = session.new_app
    if path:
        session.share_address()
        session.app = app = import_app(path)  # for its address, and its defaults
        note_new_server(app)
    call = app.program(list(arguments), cwd=about["cwd"], env=about["env"], stdin=_text(about["stdin"]))
    return call.options(**given_options(options)), app


def _text(file: BinaryIO | None) -> str | None:
    if file is None:
        return None
    data = file.read(MAX_PAYLOAD + 1)  # it may have no end
    if len(data) > MAX_PAYLOAD:
        raise click.BadParameter(
            f"it has more than {MAX_PAYLOAD >> 20} MiB; have the program read a file", param_hint="--stdin"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"it is no text in UTF-8: {error.reason}", param_hint="--stdin") from None
