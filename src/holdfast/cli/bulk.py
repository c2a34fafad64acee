"""Commands on many jobs: named by ids, possibly from a pipe, or selected by --all; and a progress bar."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click

from holdfast.cli.client import Client
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import INTERRUPTED, REFUSED, exit_code
from holdfast.cli.filters import describe_filters, filter_options, given_filters, option_name
from holdfast.cli.options import Decorator, F, yes_option
from holdfast.cli.suggestions import JobIds, find_queue
from holdfast.client.operations import DEFAULT_STATES, WORK_WAS_DONE, Operation
from holdfast.constants import MAX_BATCH
from holdfast.errors import HoldfastError, JobNotFound
from holdfast.job.job import PENDING, STATES
from holdfast.records.job_actions import CHANGED_JOBS
from holdfast.records.operations import COUNTED_STATES, OPERATIONS, counted_records
from holdfast.records.table import Record, Table
from holdfast.text import listed, pluralize

T = TypeVar("T")
Answer = tuple[str, str | HoldfastError]  # an id, and the job's new state or why nothing was done
OnIds = Callable[[Sequence[str]], Iterable[Answer]]

DONE = {
    *STATES,
    "cancelling",
    "deleted",
    "tagged",
    "untagged",
    "unchanged",
}  # other answers are reasons why nothing was done
HELP = """\
Without an ID, ids are read from standard input: the first column of each line. --all selects jobs instead, and prints
the number of jobs for each new state. Ctrl-C stops it; `holdfast operations resume` continues it. If this program is
killed, workers continue it.
"""
MAX_INPUT = 256 << 20  # bytes: more than a million of the longest ids
MAX_SUGGESTIONS = 3  # unknown ids for which similar ones are looked for


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
    """Jobs selected by filters instead of named by ids."""

    all: bool
    yes: bool
    detach: bool
    filters: Record

    @classmethod
    def read(cls, options: Record) -> Selection:
        return cls(options["all"], options["yes"], options["detach"], given_filters(options))

    def criteria(self, verb: str) -> Record:
        """Return the filters for the client."""
        return {"state": list(DEFAULT_STATES.get(verb, STATES)), **self.filters}

    def describe(self, verb: str) -> str:
        more = describe_filters(self.filters)
        states = _state_list(self.criteria(verb)["state"])
        return f"{verb} all {f'{states} jobs'.removeprefix('all ')}{' of ' * bool(more)}{more}"


def selection_options(verb: str, *, without: Sequence[str] = ()) -> Decorator:
    """Declare the options that select jobs."""
    options = [
        click.option("--all", is_flag=True, help="Select jobs by the next options instead of by ID."),
        filter_options(
            "With --all: only jobs",
            without=without,
            state=f"Default: {_state_list(DEFAULT_STATES.get(verb, STATES))}.",
        ),
        yes_option(),
        click.option("--detach", is_flag=True, help="With --all: return at once; workers do the work."),
    ]

    def declare(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{HELP}"
        return function

    return declare


def _state_list(states: Sequence[str]) -> str:
    return {PENDING: "pending", STATES: "all"}.get(tuple(states)) or listed(states)


def _refuse_selection(**_: Any) -> Operation:
    raise click.UsageError("--all is not possible: name jobs by ID.")


class Action(NamedTuple):
    """An action on jobs: on those with the given ids, or on all that match the selection."""

    verb: str
    on_ids: OnIds
    on_all: Callable[..., Operation] = _refuse_selection  # takes `criteria`, starts an operation
    in_chunks: bool = True  # False if the answer for one job depends on all that are named
    output: Table = CHANGED_JOBS
    answer: str = "state"  # the column of the job's new state, or of what was done


def run_action(client: Client, action: Action, words: Sequence[str], options: Record) -> int:
    """Apply an action to jobs, print their new states, and return the exit code of the first refusal."""
    selection = Selection.read(options)
    if selection.all:
        if words:
            raise click.UsageError(f"--all and IDs cannot be combined: remove --all, or the ID {words[0]!r}.")
        return _act_on_all(client, action, selection)
    for name in [*selection.filters, *(name for name in ("yes", "detach") if options[name])]:
        raise click.UsageError(f"{option_name(name)} needs --all.")
    return run_on_ids(client, action, words)


def run_on_ids(client: Client, action: Action, words: Sequence[str]) -> int:
    """Apply an action to the jobs that are named, print the answers, and return the exit code of the first refusal."""
    ids = read_ids(words)
    if not ids:
        print_note(f"nothing to {action.verb}: standard input contains no ids")
    refusals: list[HoldfastError] = []

    def records() -> Iterator[Record]:
        with progress_bar(action.verb, len(ids)) as advance:
            for chunk in chunks(ids) if action.in_chunks else [ids]:
                for id, done in action.on_ids(chunk):
                    if isinstance(done, str):
                        yield {"id": id, action.answer: done}
                    else:
                        refusals.append(done)
                        print_refusal(client, done, id, suggest=len(refusals) <= MAX_SUGGESTIONS)
                advance(len(chunk))

    client.output.list(records(), action.output, "nothing was changed")
    return exit_code(refusals[0]) if refusals else 0


def print_refusal(client: Client, error: HoldfastError, id: str, *, suggest: bool) -> None:
    """Print why nothing was done with a job; for the first unknown ids, suggest similar ones."""
    question = JobIds(client.app).did_you_mean(id) if suggest and isinstance(error, JobNotFound) else ""
    print_error(f"{error}{question}", error.code, id=id)


def _act_on_all(client: Client, action: Action, selection: Selection) -> int:
    """Apply an action to all selected jobs, and print the number of jobs for each answer."""
    if queue := selection.filters.get("queue"):
        find_queue(client.app, queue)
    _confirm(client, action.verb, selection)
    operation = action.on_all(**selection.criteria(action.verb), wait=False)
    if selection.detach:
        client.output.one(OPERATIONS.record(operation), OPERATIONS)
        print_note(f"workers do the work; `holdfast operations stop {operation.id}` stops it")
        return 0
    return drive(client, operation)


def drive(client: Client, operation: Operation) -> int:
    """Drive an operation to its end, and print the number of jobs for each answer. Ctrl-C stops it."""
    left = None if operation.total is None else max(0, operation.total - operation.looked_at)
    try:
        with progress_bar(operation.action, left) as advance:
            operation = operation.wait(progress=advance)
    except KeyboardInterrupt:
        operation = operation.stop()
    _print_counts(client, operation)
    if operation.state == "stopped":
        print_note(f"stopped; `holdfast operations resume {operation.id}` continues it")
        return INTERRUPTED
    return REFUSED if operation.counts.keys() - DONE else 0


def _print_counts(client: Client, operation: Operation) -> None:
    counts, verb = operation.counts, operation.action
    if client.output.mode == "json":
        client.output.json(counts)
    elif counts or client.output.on_terminal:
        client.output.list(counted_records(counts), COUNTED_STATES, "no such jobs")
    else:
        print_note(f"nothing to {verb}: no such jobs")
    if done := counts.get(WORK_WAS_DONE):
        print_note(f"work done but not recorded: {pluralize(done, 'job')}, not retried; --force repeats the work")


def _confirm(client: Client, verb: str, selection: Selection) -> None:
    """Ask for confirmation with the number of jobs; without a terminal, require --yes."""
    if selection.yes:
        return
    total = client.app.count(**selection.criteria(verb))
    question = f"{selection.describe(verb)}: {pluralize(total, 'job')}"
    if not sys.stdin or not sys.stdin.isatty():
        raise click.UsageError(f"{question}. Confirm with --yes.")
    if total:
        click.confirm(f"{question}. Continue?", abort=True, err=True)


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
