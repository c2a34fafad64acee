"""The program `holdfast`: its commands put together, and how it ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli import (
    completion,
    config,
    doctor,
    drain,
    enqueue,
    events,
    exits,
    items,
    jobs,
    kept,
    limits,
    logs,
    notes,
    queues,
    schedules,
    server,
    stack,
    steer,
    upkeep,
    waiting,
    work,
    workers,
)
from holdfast.cli.complaints import complain, voice
from holdfast.cli.session import Group, shared_options
from holdfast.errors import HoldfastError
from holdfast.version import __version__

COMMANDS: tuple[click.Command, ...] = (
    work.work, enqueue.enqueue, waiting.wait, jobs.jobs, jobs.show, logs.logs, stack.stack, jobs.count, jobs.peek,
    steer.cancel, steer.retry, steer.delete, steer.move, steer.release, steer.fail, steer.depend, notes.attach,
    notes.note, queues.queues, queues.pause, queues.resume, queues.forget, queues.load, upkeep.upkeep, limits.limits,
    limits.limit, limits.unlimit, limits.weigh, schedules.schedules, workers.workers, workers.nodes, drain.drain,
    events.events, config.config, items.items, kept.kept, kept.send, server.server, doctor.doctor,
    completion.completion, work.demo,
)  # fmt: skip
VARIABLE = "_HOLDFAST_COMPLETE"  # set by the completion scripts
EXAMPLES = (
    "holdfast work tasks --queues mail,default",
    "holdfast enqueue tasks.send to=ann@example.org",
    "holdfast jobs --state failed --json",
)


class Program(Group):
    """All commands, in the order of their use."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), words) for code, words in exits.WORDS])
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whoever reads its output may go away at any time."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _write_no_more()
            return exits.PIPE_CLOSED
        return code


@click.group(
    cls=Program, params=shared_options(environment=True), examples=EXAMPLES,
    context_settings={
        "help_option_names": ["-h", "--help"], "max_content_width": 100, "auto_envvar_prefix": "HOLDFAST",
    },
)  # fmt: skip
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def program() -> None:
    """Holdfast: jobs that must finish, on Valkey or Redis.

    Prints tables on a terminal, tab-separated lines without a header when piped, and JSON with --json. Each command's
    --help has examples.
    """


for each in COMMANDS:
    program.add_command(each)


def main() -> None:
    """Run the program, and exit."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line, and return its exit code. What users did wrong is one sentence, not a traceback."""
    voice.json = _wants_json(words)
    if VARIABLE in os.environ:
        _register_shells()
    try:
        _check_text(words)
        code = program.main(list(words), prog_name="holdfast", standalone_mode=False)
    except click.Abort:
        return exits.INTERRUPTED
    except click.ClickException as error:
        return _explain(error)
    except (HoldfastError, ExceptionGroup) as error:
        cause = _first(error)
        if not isinstance(cause, HoldfastError):
            raise
        return _refuse(str(cause), cause.code, exits.exit_code(cause))
    except OSError as error:
        return _refuse(_about_the_system(error), "ERROR", exits.REFUSED)
    return code if isinstance(code, int) else 0


def _about_the_system(error: OSError) -> str:
    """Say what the operating system refused, and was not about the store."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return "the working directory is not there any more; change to another"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF):
        raise error
    _write_no_more()
    return f"the output cannot be written: {error.strerror}"


def _write_no_more() -> None:
    """Let what is left in the standard output go nowhere, or the end of the process would fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _register_shells() -> None:
    from holdfast.cli.shells import register

    register()


def _wants_json(words: Sequence[str]) -> bool:
    """Whether errors are to be JSON: known before the words are understood, for that may be the error."""
    before = list(words)[: words.index("--")] if "--" in words else words
    return "--json" in before or ("--plain" not in before and _is_set("HOLDFAST_JSON"))


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "t", "yes", "y", "on")


def _check_text(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word!r} is not UTF-8.") from None


def _explain(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    code = "USAGE" if isinstance(error, click.UsageError) else getattr(error, "code", "ERROR")
    refused = _refuse(error.format_message(), code, error.exit_code)
    if context is not None and not voice.json:
        sys.stderr.write(f"Try '{context.command_path} --help'.\n")
    return refused


def _refuse(message: str, code: str, exit_code: int) -> int:
    complain(message, code, exit_code=exit_code)
    return exit_code


def _first(error: Exception) -> Exception:
    """Return the first error of a group of errors, as a task group raises it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
