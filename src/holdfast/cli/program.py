"""The program `holdfast`: its commands by section, its errors and its exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli import exit_codes
from holdfast.cli.batches import batches
from holdfast.cli.call import call
from holdfast.cli.command import Group, first_sentence, suggesting
from holdfast.cli.completion import VARIABLE, completion, register
from holdfast.cli.config import config
from holdfast.cli.conformance import conformance
from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.enqueue import enqueue
from holdfast.cli.errors import message_format, print_error
from holdfast.cli.events import events
from holdfast.cli.export import export
from holdfast.cli.failures import failures
from holdfast.cli.fork import fork
from holdfast.cli.fsck import fsck
from holdfast.cli.help import help
from holdfast.cli.items import items
from holdfast.cli.job_actions import attach, cancel, delete, depend, fail, move, note, release, retry
from holdfast.cli.jobs import count, jobs
from holdfast.cli.limits import limits
from holdfast.cli.logs import logs
from holdfast.cli.metrics import metrics
from holdfast.cli.operations import operations
from holdfast.cli.options import shared_options
from holdfast.cli.outbox import outbox
from holdfast.cli.plan import plan
from holdfast.cli.queues import load, queues
from holdfast.cli.schedules import schedules
from holdfast.cli.server import server
from holdfast.cli.show import peek, show
from holdfast.cli.stack import stack
from holdfast.cli.stats import stats
from holdfast.cli.status import status
from holdfast.cli.subscriptions import subscriptions
from holdfast.cli.tags import scopes, tag, tags, track, tracked, untag, untrack
from holdfast.cli.top import top
from holdfast.cli.upkeep import upkeep
from holdfast.cli.wait import wait
from holdfast.cli.web import web
from holdfast.cli.why import why
from holdfast.cli.work import NAME_APP, work
from holdfast.cli.workers import nodes, workers
from holdfast.errors import HoldfastError
from holdfast.text import did_you_mean, listed
from holdfast.version import __version__

EVERYDAY: tuple[click.Command, ...] = (
    work, enqueue, status, jobs, show, logs, wait, retry, cancel, queues, workers, schedules,
)  # fmt: skip
MORE: dict[str, tuple[click.Command, ...]] = {
    "on jobs": (
        why,
        count,
        export,
        peek,
        stack,
        operations,
        fork,
        delete,
        move,
        release,
        fail,
        depend,
        attach,
        note,
        tag,
        untag,
        track,
        untrack,
    ),
    "finding jobs": (failures, batches, tags, scopes, tracked),
    "operations": (
        top,
        load,
        stats,
        metrics,
        plan,
        nodes,
        limits,
        config,
        events,
        subscriptions,
        outbox,
        upkeep,
        doctor,
        fsck,
    ),
    "tools": (web, server, items, call, conformance, completion, demo, help),
}
FOREIGN_NAMES = {  # commands of other queues and of earlier versions, and the command that does the same here
    "batch": "batches",
    "beat": "schedules",
    "clear": "cancel --all --state waiting",
    "control": "workers",
    "cron": "schedules",
    "dashboard": "web",
    "empty": "cancel --all --state waiting",
    "flower": "web",
    "info": "status",
    "inspect": "status",
    "kept": "outbox",
    "kill": "cancel",
    "limit": "limits set",
    "list": "jobs",
    "ls": "jobs",
    "monitor": "top",
    "ping": "status",
    "ps": "workers",
    "publish": "enqueue",
    "purge": "cancel --all --state waiting",
    "push": "enqueue",
    "repair": "fsck --repair",
    "report": "doctor",
    "requeue": "retry",
    "result": "show",
    "results": "show",
    "revoke": "cancel",
    "run": "work",
    "scheduler": "schedules",
    "stats": "status",
    "submit": "enqueue",
    "suspend": "queues pause",
    "unlimit": "limits remove",
    "weigh": "limits share",
    "worker": "work",
}
EXAMPLES = (
    "holdfast work tasks --queues mail,default",
    "holdfast enqueue tasks.send to=ann@example.org",
    "holdfast jobs --state failed --json",
)


class Program(Group):
    """All commands, by section."""

    def sections(self) -> list[tuple[str, tuple[click.Command, ...]]]:
        return [("Everyday commands", EVERYDAY), *((name.capitalize(), each) for name, each in MORE.items())]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with suggesting({"-A": NAME_APP}, ctx):
            return super().parse_args(ctx, args)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the everyday commands with a summary each, the others by name."""
        with formatter.section("Everyday commands"):
            formatter.write_dl([(each.name or "", first_sentence(each)) for each in EVERYDAY])
        with formatter.section("More commands"):
            formatter.write_dl([(name, ", ".join(each.name or "" for each in more)) for name, more in MORE.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("See `holdfast help COMMAND`; topics: `commands`, `exit-codes`, `environment`.")

    def suggest(self, name: str) -> str:
        """Suggest the command for a name of another queue, commands of groups with this name, or similar names."""
        if name in FOREIGN_NAMES:
            return f"; did you mean `{FOREIGN_NAMES[name]}`?"
        groups = [each for each in self.commands.values() if isinstance(each, Group)]
        inner = [f"`{group.name} {name}`" for group in groups if name in group.commands]
        if inner:
            return f"; did you mean {listed(inner)}?"
        return did_you_mean(name, self.commands) or "; see `holdfast help commands`"

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; the reader of its output may close it at any time."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            return exit_codes.BROKEN_PIPE
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

    Prints tables on a terminal, tab-separated lines in a pipe, and JSON with --json.
    """


for each in (*EVERYDAY, *(command for more in MORE.values() for command in more)):
    program.add_command(each)


def main() -> None:
    """Run the program, and exit."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process exits
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line, and return its exit code. Users' mistakes are one sentence, not a traceback."""
    message_format.json = _wants_json(words)
    if VARIABLE in os.environ:
        register()
    try:
        _check_utf8(words)
        code = program.main(list(words), prog_name="holdfast", standalone_mode=False)
    except click.Abort:
        return exit_codes.INTERRUPTED
    except click.ClickException as error:
        return _report_click_error(error)
    except (HoldfastError, ExceptionGroup) as error:
        cause = _first(error)
        if not isinstance(cause, HoldfastError):
            raise
        return _report(str(cause), cause.code, exit_codes.exit_code(cause))
    except OSError as error:
        return _report(_system_error(error), "ERROR", exit_codes.REFUSED)
    return code if isinstance(code, int) else 0


def _system_error(error: OSError) -> str:
    """Return a sentence about an error of the operating system; raise those that cannot be the user's."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return "the working directory has been removed; change to another"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF):
        raise error
    _discard_output()
    return f"cannot write the output: {error.strerror}"


def _discard_output() -> None:
    """Redirect standard output to nowhere; otherwise flushing it at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether errors are printed as JSON, before the words are parsed: parsing may be what fails."""
    before = list(words)[: words.index("--")] if "--" in words else words
    return "--json" in before or ("--plain" not in before and _is_set("HOLDFAST_JSON"))


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "t", "yes", "y", "on")


def _check_utf8(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"expected UTF-8, got {word!r}.") from None


def _report_click_error(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    code = "USAGE" if isinstance(error, click.UsageError) else getattr(error, "code", "ERROR")
    result = _report(error.format_message(), code, error.exit_code)
    if context is not None and not message_format.json:
        sys.stderr.write(f"Try '{context.command_path} --help'.\n")
    return result


def _report(message: str, code: str, exit_code: int) -> int:
    print_error(message, code, exit_code=exit_code)
    return exit_code


def _first(error: Exception) -> Exception:
    """Return the first error of a group, as a task group raises it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
