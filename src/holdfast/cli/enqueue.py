"""Storing a job from the command line, with the help of the app's signature or without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from inspect import formatannotation
from typing import Any, NamedTuple

import click
import msgspec

from holdfast import Holdfast, commands, errors
from holdfast.cli.imports import import_app
from holdfast.cli.output import complain, json_text, write
from holdfast.cli.records import decoded, full_record
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.names import check_task, new_id
from holdfast.signature import Parameter
from holdfast.storing import DEFAULT_QUEUE
from holdfast.task import Given, Options, Task


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


@command(
    "enqueue",
    "holdfast enqueue tasks.transcode source=in.mov height=1080",
    "holdfast enqueue tasks.transcode in.mov --app tasks --wait --timeout 1h",
    "holdfast enqueue billing.run --id billing-2024-07 --at 2024-07-01T02:00+02:00",
)
@click.argument("task")
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@click.option(
    "--app",
    "path",
    envvar="HOLDFAST_APP",
    show_envvar=True,
    metavar="APP",
    help="Module of the app: check the arguments.",
)
@click.option("--queue", help="Queue, instead of the task's own.")
@click.option("--id", help="Id of the job. While a job of that id is kept, no second one is stored.")
@click.option("--priority", type=int, help="-256 to 255; lower runs first.")
@duration_option("--delay", "Run it after this time: 30s, 1h30m.")
@click.option("--at", metavar="ISO", help="Run it at this time: 2024-07-01T02:00+02:00; without a zone, local time.")
@click.option("--retries", type=int, help="How often it is tried again after an error.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print its result.")
@duration_option("--timeout", "Wait no longer than this.")
@pass_session
def enqueue(
    session: Session,
    /,
    task: str,
    words: Sequence[str],
    path: str | None,
    *,
    wait: bool,
    timeout: timedelta | None,
    at: str | None,
    **options: Any,
) -> int:
    """Store a job, for a worker to run, and print its id.

    An ARGUMENT is name=value; with --app it may also be a value alone. A value is read as JSON if it is JSON, else it
    is text: height=1080 is a number, source=in.mov is text, and tag='"42"' is the text 42. With --app the task's
    annotations decide, so text that looks like a number stays text where text is wanted. Without --app nothing is
    checked, and a task that no worker knows waits until one does.

    With --wait the result is printed, as JSON; exit code 1 if the job failed or was cancelled, 5 if it has not ended
    within --timeout. An app with a URL or namespace of its own uses those.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait; give both.")
    given = Given(**options, at=_moment(at))  # type: ignore[typeddict-item]
    arguments = Arguments.of(words)
    if path:
        session.share_address()
        app = import_app(path)
        id, created = _by_signature(app, find_task(app, task), arguments, given)
    else:
        app = session.app
        id, created = _by_name(app, task, arguments, given)
    return _wait(session, app, id, timeout) if wait else _say(session, id, created)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time like 2024-07-01T02:00+02:00", param_hint="--at") from None
    return value if value.tzinfo else value.astimezone()


def find_task(app: Holdfast, name: str) -> Task[..., Any]:
    """Return a task by its name, or by the last part of it if that is enough."""
    if name in app.tasks:
        return app.tasks[name]
    meant = [known for known in app.tasks if known.endswith(f".{name}")]
    if len(meant) == 1:
        return app.tasks[meant[0]]
    raise errors.Invalid(f"the app has no task {name}; it has {', '.join(sorted(app.tasks)) or 'none'}")


def _by_signature(app: Holdfast, task: Task[..., Any], arguments: Arguments, given: Given) -> tuple[str, bool]:
    parameters = {each.key: each for each in task.signature.parameters}
    keys: list[str | None] = [*task.signature.positional, *[None] * len(arguments.positional)]
    args = [_value(word, parameters.get(key or "")) for word, key in zip(arguments.positional, keys, strict=False)]
    kwargs = {name: _value(word, parameters.get(name)) for name, word in arguments.named.items()}
    chosen: Given = {name: value for name, value in given.items() if value is not None}  # type: ignore[assignment]
    job = app.enqueue(task.options(**chosen).bind(*args, **kwargs))
    return job.id, job.created


def _value(word: str, parameter: Parameter | None) -> Any:
    """Read a value as its parameter wants it: as JSON, else as text."""
    if parameter is None:
        return _json_or_text(word)
    for data in (word.encode(), msgspec.json.encode(word)):
        with suppress(errors.Invalid):
            return parameter.shape.decode(data, parameter.key)
    wanted = formatannotation(parameter.annotation)
    raise errors.Invalid(f"argument {parameter.key!r} is {word!r}; it must be what {wanted} takes")


def _json_or_text(word: str) -> Any:
    return msgspec.json.decode(word) if _is_json(word) else word


def _is_json(word: str) -> bool:
    try:
        msgspec.json.decode(word)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _by_name(app: Holdfast, task: str, arguments: Arguments, given: Given) -> tuple[str, bool]:
    if arguments.positional:
        raise click.UsageError(
            f"{arguments.positional[0]!r} has no name: write name=value, or give --app for the task's signature."
        )
    chosen = Options().but(**given)
    job = commands.NewJob(
        id=chosen.id or new_id(),
        payload=msgspec.json.encode({name: _json_or_text(word) for name, word in arguments.named.items()}),
        queue=chosen.queue or DEFAULT_QUEUE,
        task=check_task(task),
        priority=chosen.priority,
        delay=chosen.delay,
        due=chosen.at,
        retries=chosen.retries,
    )
    stored = app.store.run(commands.enqueue([job]))
    return job.id, stored.created[0]


def _say(session: Session, id: str, created: bool) -> int:
    if session.output.mode == "json":
        session.output.json({"id": id, "created": created})
    else:
        write(id)
    if not created:
        complain(f"job {id} is there already; nothing was stored")
    return 0


def _wait(session: Session, app: Holdfast, id: str, timeout: timedelta | None) -> int:
    """Wait for a job. Its result goes to the standard output, so its id is said elsewhere."""
    complain(f"job {id} is stored; waiting for it")
    try:
        app.result(app.get(id), timeout)
    except (errors.JobFailed, errors.JobCancelled) as error:
        if session.output.mode == "json":
            session.output.json(full_record(app.get(id)))
        complain(f"{error}; see `holdfast show {id}`")
        return 1
    job = app.get(id)
    if session.output.mode == "json":
        session.output.json(full_record(job))
    else:
        write(json_text(decoded(job.result_bytes)))
    return 0
