"""Commands on many jobs: named by ids, possibly from a pipe, or selected by --all; and a progress bar."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import click

from holdfast.cli.client import Client
from holdfast.cli.completers import (
    complete_fingerprint,
    complete_group,
    complete_queue,
    complete_states,
    complete_task,
)
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import REFUSED, exit_code
from holdfast.cli.options import Decorator, F, yes_option
from holdfast.cli.selection import count_jobs, read_states
from holdfast.cli.suggestions import JobIds, find_queue
from holdfast.cli.table import Record, Table, column
from holdfast.client.bulk import NOT_RUNNING, WORK_WAS_DONE
from holdfast.constants import MAX_BATCH
from holdfast.errors import HoldfastError, JobNotFound
from holdfast.job.job import FINAL, PENDING, STATES
from holdfast.store import commands
from holdfast.text import listed, pluralize

T = TypeVar("T")
Answer = tuple[str, str | HoldfastError]  # an id, and the job's new state or why nothing was done

DEFAULT_STATES = {
    "cancel": PENDING, "retry": ["failed"], "delete": FINAL, "move": NOT_RUNNING, "release": ["running"],
    "fail": PENDING,
}  # fmt: skip
DONE = {*STATES, "cancelling", "deleted"}  # other answers are reasons why nothing was done
HELP = """\
Without an ID, ids are read from standard input: the first column of each line. --all selects jobs instead, and prints
the number of jobs for each new state.
"""
MAX_INPUT = 256 << 20  # bytes: more than a million of the longest ids
MAX_SUGGESTIONS = 3  # unknown ids for which similar ones are looked for

CHANGED_JOBS = Table(
    "job",
    column("id", "id of the job", whole=True),
    column("state", "its new state, or deleted; refusals are printed to standard error", coloured=True),
)
COUNTED_STATES = Table(
    "job",
    column("state", "new state", coloured=True, whole=True),
    column("jobs", "number of jobs", right=True, whole=True),
)


def read_ids(ids: Sequence[str]) -> list[str]:
    """Return ids from the command line, or from standard input if there are none or a dash."""
    if ids and list(ids) != ["-"]:
        return list(dict.fromkeys(ids))
    if sys.stdin is None:
        return []
    if sys.stdin.isatty() and not ids:
        raise click.UsageError("expected ID: name jobs, or pipe ids in, one per line.")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise click.UsageError(f"expected ids, one per line; standard input has more than {MAX_INPUT >> 20} MiB.")
    lines = data.decode(errors="replace").splitlines()
    return list(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.strip()))


def expand_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids of an option; a dash stands for those of standard input, if any."""
    found = [each for id in ids for each in (read_ids(["-"]) if id == "-" else [id])]
    if ids and not found:
        print_note("standard input contains no ids")
    return list(dict.fromkeys(found))


class Selection(NamedTuple):
    """Jobs selected by their properties instead of named by ids."""

    all: bool
    yes: bool
    queue: str | None
    state: Sequence[str]
    task: str | None
    group: str | None = None
    fingerprint: str | None = None

    def states(self, verb: str) -> list[str]:
        return read_states(self.state) if self.state else list(DEFAULT_STATES[verb])

    def criteria(self, verb: str) -> Record:
        """Return the arguments for the client."""
        named = {name: getattr(self, name) for name in ("queue", "task", "group", "fingerprint")}
        return {**named, "state": self.states(verb)}

    def describe(self, verb: str) -> str:
        names = ("queue", "task", "group", "fingerprint")
        more = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name)]
        return f"{verb} all {_state_list(self.states(verb))} jobs{' of ' * bool(more)}{', '.join(more)}"


_FAILURE_OPTIONS = (
    click.option(
        "--group", shell_complete=complete_group, help="With --all: only jobs whose failure has this group."
    ),
    click.option(
        "--fingerprint", shell_complete=complete_fingerprint,
        help="With --all: only jobs whose failure has this fingerprint.",
    ),
)  # fmt: skip


def selection_options(verb: str, *, group: bool = False) -> Decorator:
    """Declare the options that select jobs."""
    options = [
        click.option("--all", is_flag=True, help="Select jobs by the next options instead of by ID."),
        click.option("-Q", "--queue", shell_complete=complete_queue, help="With --all: only jobs of this queue."),
        click.option(
            "-s", "--state", multiple=True, metavar="STATE", shell_complete=complete_states,
            help=f"With --all: only jobs in this state, or several: a,b. Default: {_state_list(DEFAULT_STATES[verb])}.",
        ),
        click.option("--task", shell_complete=complete_task, help="With --all: only jobs of this task."),
        *(_FAILURE_OPTIONS if group else ()),
        yes_option(),
    ]  # fmt: skip

    def declare(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{HELP}"
        return function

    return declare


def _state_list(states: Sequence[str]) -> str:
    return "pending" if list(states) == list(PENDING) else listed(states)


class Action(NamedTuple):
    """An action on jobs: on those with the given ids, or on all that match the selection."""

    verb: str
    on_ids: Callable[[Sequence[str]], Iterable[Answer]]
    on_all: Callable[..., dict[str, int]]  # takes `criteria`, returns the number of jobs for each answer
    in_chunks: bool = True  # False if the answer for one job depends on all that are named


def run_action(client: Client, action: Action, words: Sequence[str], options: Record) -> int:
    """Apply an action to jobs, print their new states, and return the exit code of the first refusal."""
    selection = Selection(**options)
    if selection.all:
        if words:
            raise click.UsageError(f"--all and IDs cannot be combined: remove --all, or the ID {words[0]!r}.")
        return _act_on_all(client, action, selection)
    for option in ("queue", "state", "task", "group", "fingerprint", "yes"):
        if getattr(selection, option):
            raise click.UsageError(f"--{option} needs --all.")
    ids = read_ids(words)
    if not ids:
        print_note(f"nothing to {action.verb}: standard input contains no ids")
    refusals: list[HoldfastError] = []
    client.output.list(_act_on_ids(client, action, ids, refusals), CHANGED_JOBS, "nothing was changed")
    return exit_code(refusals[0]) if refusals else 0


def _act_on_ids(client: Client, action: Action, ids: Sequence[str], refusals: list[HoldfastError]) -> Iterator[Record]:
    with progress_bar(action.verb, len(ids)) as advance:
        for chunk in chunks(ids) if action.in_chunks else [ids]:
            for id, answer in action.on_ids(chunk):
                if isinstance(answer, str):
                    yield {"id": id, "state": answer}
                else:
                    refusals.append(answer)
                    print_refusal(client, answer, id, suggest=len(refusals) <= MAX_SUGGESTIONS)
            advance(len(chunk))


def print_refusal(client: Client, error: HoldfastError, id: str, *, suggest: bool) -> None:
    """Print why nothing was done with a job; for the first unknown ids, suggest similar ones."""
    question = JobIds(client.app).did_you_mean(id) if suggest and isinstance(error, JobNotFound) else ""
    print_error(f"{error}{question}", error.code, id=id)


def _act_on_all(client: Client, action: Action, selection: Selection) -> int:
    """Apply an action to all selected jobs, and print the number of jobs for each answer."""
    verb = action.verb
    queues = [find_queue(client.app, selection.queue)] if selection.queue else client.app.queues()
    total = count_jobs(queues, selection.states(verb))
    _confirm(client, verb, selection, total)
    with progress_bar(verb, total) as advance:
        counts = action.on_all(**selection.criteria(verb), progress=advance)
    if client.output.mode == "json":
        client.output.json(counts)
    elif counts or client.output.on_terminal:
        rows = [{"state": state, "jobs": count} for state, count in counts.items()]
        client.output.list(rows, COUNTED_STATES, "no such jobs")
    else:
        print_note(f"nothing to {verb}: no such jobs")
    if done := counts.get(WORK_WAS_DONE):
        print_note(f"work done but not recorded: {pluralize(done, 'job')}, not retried; --force repeats the work")
    return REFUSED if counts.keys() - DONE else 0


def _confirm(client: Client, verb: str, selection: Selection, total: int) -> None:
    """Ask for confirmation with the number of jobs; without a terminal, require --yes."""
    if selection.yes:
        return
    if selection.task or selection.group or selection.fingerprint:
        total = _count(client, verb, selection)
    question = f"{selection.describe(verb)}: {pluralize(total, 'job')}"
    if not sys.stdin or not sys.stdin.isatty():
        raise click.UsageError(f"{question}. Confirm with --yes.")
    if total:
        click.confirm(f"{question}. Continue?", abort=True, err=True)


def _count(client: Client, verb: str, selection: Selection) -> int:
    """Count jobs by properties of which the store has no counts."""
    criteria: Record = {"states": selection.states(verb), "task": selection.task, "group": selection.group}
    queues, found, cursor = [selection.queue] if selection.queue else None, 0, None
    while True:
        step = client.app.store.run(commands.bulk("count", queues=queues, **criteria, cursor=cursor, limit=MAX_BATCH))
        found, cursor = found + sum(step.answers.values()), step.cursor
        if cursor is None:
            return found


@contextmanager
def progress_bar(
    label: str, total: int | None = None, *, minimum: int = MAX_BATCH + 1
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal; it disappears at the end.

    Yields a function that takes the number of things done since its last call. Fewer than `minimum` things get no bar.
    """
    if not sys.stderr.isatty() or (total is not None and total < minimum):
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from holdfast.cli.output import new_console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console, shared = new_console(stderr=True), sys.stdout.isatty()  # only then the bar makes room for the output
    with Progress(*columns, console=console, transient=True, redirect_stdout=shared) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items into parts for one call each."""
    for start in range(0, len(items), MAX_BATCH):
        yield items[start : start + MAX_BATCH]
