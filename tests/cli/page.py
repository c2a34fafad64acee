"""The pages of docs/cli, made from the program: `python -m tests.cli.page` writes them, and a test compares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from holdfast.cli import exit_codes
from holdfast.cli.command import Command, Group, first_sentence, variable_of
from holdfast.cli.help import VARIABLE_RULE, VARIABLES
from holdfast.cli.options import SHARED, shared_options
from holdfast.cli.program import program
from holdfast.records.table import Table

FOLDER = Path(__file__).parents[2] / "docs" / "cli"


class Page(NamedTuple):
    title: str
    opening: str
    commands: tuple[str, ...]


PAGES = {
    "running.md": Page(
        "Running and enqueuing jobs",
        "Start workers, enqueue jobs, wait for them, and see the state of everything at a glance.",
        ("work", "enqueue", "wait", "status", "top", "demo"),
    ),
    "jobs.md": Page(
        "Jobs",
        "Find jobs, and see what they did.",
        ("jobs", "show", "why", "logs", "failures", "count", "export", "peek", "stack"),
    ),
    "actions.md": Page(
        "Changing jobs",
        "Change jobs by id, or all that match filters.",
        ("retry", "fork", "cancel", "delete", "move", "release", "fail", "depend", "attach", "note", "operations"),
    ),
    "tags.md": Page(
        "Tags, scopes and tracked jobs",
        "Tag jobs, count them by tag and scope, and track single jobs.",
        ("tags", "tag", "untag", "scopes", "tracked", "track", "untrack"),
    ),
    "queues.md": Page(
        "Queues and settings",
        "Pause queues, see how much work they have and how long it takes, and change settings while everything runs.",
        ("queues", "load", "stats", "metrics", "plan", "config"),
    ),
    "limits.md": Page(
        "Limits and schedules",
        "Limit how many jobs run at once or start in a period, and enqueue jobs periodically.",
        ("limits", "schedules"),
    ),
    "batches.md": Page(
        "Batches",
        "Group jobs, see how far they are, wait for them, and cancel them together.",
        ("batches",),
    ),
    "operations.md": Page(
        "Workers, servers and outages",
        "Drain workers, follow events, check the server, and send calls that were stored on disk during an outage.",
        ("workers", "nodes", "events", "subscriptions", "doctor", "fsck", "server", "upkeep", "outbox"),
    ),
    "web.md": Page(
        "The dashboard and the REST API",
        "Serve them, and manage their users and tokens. [How to secure them](../web-security.md).",
        ("web",),
    ),
    "tools.md": Page(
        "Items, own Lua, completion and help",
        "Use queues from shell scripts, call functions of your own Lua, complete words with Tab, and get help.",
        ("items", "call", "conformance", "completion", "help"),
    ),
}

OPENING = """\
# The command line

`holdfast COMMAND --help` explains a command with examples; `holdfast help commands` lists all of them. `python -m
holdfast` is the same program. These pages are generated from it by `python -m tests.cli.page`.

```sh
holdfast status                                  # the server, queues, workers and problems at a glance
holdfast jobs --state failed                     # a table
holdfast jobs --state failed | holdfast retry    # tab-separated lines
holdfast jobs --state failed --json | jq length  # JSON
```
"""

COMMON = """
## Common behaviour

**Output.** A terminal shows tables with colours, relative times and cut values. A pipe gets a line of tab-separated
columns per record, without a header, with times in UTC, and complete lists. `--json` prints an array or an object;
commands that print records as they come (`wait`, `events`, `-w`, `-f`) print an object per line. Fields that do not
apply are null. Control characters in data are escaped in all three.

**Errors** are one sentence on standard error, and an exit code. With `--json` an error is an object on one line:

```json
{"code": "NOTFOUND", "message": "job 4711 does not exist; it may have been deleted", "exit_code": 3}
```

Codes are those of `holdfast.errors`, and USAGE for an invalid command line. A refusal for one of many jobs has an `id`
instead of the exit code; the command continues with the others. Notes are `{"note": "..."}`.

**Watching and following.** `-w` (`--watch`) refreshes lists, `show` and `status` every second, in place on a terminal;
in a pipe it prints records that are new or have changed. `-f` (`--follow`) appends new output of `logs` and `events`.
Ctrl-C ends both with exit code 0; `show -w` ends when the job has ended, and Ctrl-C before that is exit code 130. A
command ends at once when the reader of its output closes it: `holdfast events -f | head -1`.

**Names.** For an unknown command, option, state, queue, setting, task, job, worker, limit, schedule or time zone,
similar names are suggested. A part of an id is never accepted as the id, because the command may delete the job.

**Ids from a pipe.** `cancel`, `retry`, `delete`, `move`, `release`, `fail` and `wait` read ids from standard input if
none are given: the first column of each line. With empty input they do nothing (exit code 0); on a terminal, an ID is
required.
`--after -` and `--on -` read ids from standard input, too.

**Many jobs.** `cancel`, `retry`, `delete`, `move`, `release`, `fail`, `tag` and `untag` take `--all` instead of ids,
and the filters of `jobs` ([queries](../queries.md)). The number of jobs is shown before anything happens; a terminal
asks for confirmation, anything else needs `--yes`. Jobs enqueued meanwhile are not affected. The number of jobs for
each new state is printed, with `--json` as one object: `{"cancelled": 12}`. Refusals are counted by reason; then the
exit code is 1. Ctrl-C stops the operation (exit code 130), and `holdfast operations resume` continues it. `--detach`
leaves it to the workers.

**The embedded server** is used if no URL is given. Commands that only read or change existing data do not create one
(exit code 4): they are probably run in the wrong directory. `enqueue`, `items put`, `work`, `limits set`, `limits
share`, `schedules add`, `config set`, `config reset`, `doctor` and `server start` do, and print a note.

**Completion.** `eval "$(holdfast completion bash)"`, or `zsh`, or `holdfast completion fish | source`. Pressing Tab
never starts a server, and waits for one at most HOLDFAST_COMPLETION_TIMEOUT seconds (0.6).
"""


def pages() -> dict[str, str]:
    """Return all pages by their file names."""
    made = {name: "\n".join(_page(page)) for name, page in PAGES.items()}
    return {"README.md": "\n".join(_overview()), **made}


def every_command() -> Iterator[tuple[str, Command | Group]]:
    """Yield each command with its name; those of a group after the group."""
    yield from _commands_of(program)


def _commands_of(group: click.Group) -> Iterator[tuple[str, Command | Group]]:
    for name, each in group.commands.items():
        assert isinstance(each, Command | Group)
        yield name, each
        for inner, command in _commands_of(each) if isinstance(each, Group) else ():
            yield f"{name} {inner}", command


def context_of(name: str, command: click.Command) -> click.Context:
    """Return the context in which the program runs a command."""
    context = click.Context(program, info_name="holdfast", auto_envvar_prefix="HOLDFAST")
    *groups, last = name.split()
    for group in groups:
        assert isinstance(context.command, click.Group)
        context = click.Context(context.command.commands[group], info_name=group, parent=context)
    prefix = command.context_settings.get("auto_envvar_prefix")
    return click.Context(command, info_name=last, parent=context, auto_envvar_prefix=prefix)


def variable(option: click.Option, name: str, command: click.Command) -> str:
    """Return the variable that an option reads."""
    if isinstance(option.envvar, str):
        return option.envvar
    return variable_of(option, context_of(name, command))


def _overview() -> Iterator[str]:
    yield OPENING
    for file, page in PAGES.items():
        yield f"## [{page.title}]({file})\n\n| command | |\n|---|---|"
        for name in page.commands:
            summary = _escaped(first_sentence(program.commands[name]))
            yield f"| [`{name}`]({file}#holdfast-{name}) | {summary} |"
        yield ""
    yield COMMON
    yield "## Exit codes\n\n| code | meaning |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in exit_codes.MEANINGS)
    yield f"\n## Environment variables\n\n{VARIABLE_RULE}\n\n| variable | meaning |\n|---|---|"
    yield from (f"| {name} | {_escaped(meaning)} |" for name, meaning in VARIABLES)
    yield "\n## Shared options\n\nThey stand before or after the command's name.\n\n| option | meaning |\n|---|---|"
    yield from (
        f"| `{each.opts[0]}` | {_escaped(each.help)} |" for each in shared_options() if isinstance(each, click.Option)
    )
    yield ""


def _page(page: Page) -> Iterator[str]:
    yield f"# {page.title}\n\n{page.opening} [Overview of all commands](README.md)\n"
    documented: dict[int, str] = {}  # the command at which a table is listed
    for name, command in sorted(every_command(), key=lambda each: _position(page, each[0])):
        if name.split()[0] not in page.commands:
            continue
        yield f"{'#' * (2 + name.count(' '))} holdfast {name}\n"
        if not isinstance(command, Group):
            usage = " ".join(command.collect_usage_pieces(context_of(name, command)))
            yield f"    holdfast {name} {usage}\n"
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"
        yield f"{_paragraphs(command.help or '')}\n"
        yield from _options(command)
        if isinstance(command, Command) and command.output:
            yield from _fields(command, command.output, name, documented)


def _position(page: Page, name: str) -> int:
    first = name.split(maxsplit=1)[0]
    return page.commands.index(first) if first in page.commands else len(page.commands)


def _options(command: click.Command) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in SHARED]
    if not options:
        return
    yield "| option | meaning |\n|---|---|"
    for option in options:
        yield f"| {_spelled(option)} | {_escaped(option.help)}{_default(option)} |"
    yield ""


def _spelled(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {_escaped(_metavar(option))}"


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or ("NUMBER" if isinstance(option.type, click.types.IntParamType) else "TEXT")


def _default(option: click.Option) -> str:
    if option.is_flag or option.default in (None, "", ()) or not isinstance(option.default, str | int):
        return ""
    return " (number of cores)" if option.name == "processes" else f" ({option.default})"


def _fields(command: Command, table: Table, name: str, documented: dict[int, str]) -> Iterator[str]:
    if command.columns:
        yield f"Columns when piped: {', '.join(command.columns)}.\n"
    if id(table) in documented:
        yield f"JSON fields: those of `{documented[id(table)]}`.\n"
        return
    documented[id(table)] = name
    known = table.base.help if table.base and id(table.base) in documented else {}
    if known and table.base:
        yield f"JSON fields: those of `{documented[id(table.base)]}`, and\n"
    yield "| JSON field | meaning |\n|---|---|"
    yield from (f"| `{name}` | {_escaped(text)} |" for name, text in table.help.items() if name not in known)
    yield ""


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _escaped(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
