"""Very many jobs: named by ids, perhaps from a pipe, or chosen by what they are; and a bar while it lasts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import click

from holdfast.cli.complaints import complain, note
from holdfast.cli.completers import complete_queue, complete_states, complete_task
from holdfast.cli.exits import REFUSED, exit_code
from holdfast.cli.lookup import Ids, chosen_states, find_queue
from holdfast.cli.output import Column
from holdfast.cli.records import Record
from holdfast.cli.session import Decorator, F, Session
from holdfast.client.bulk import NOT_RUNNING, WORK_WAS_DONE
from holdfast.constants import MAX_BATCH
from holdfast.errors import HoldfastError, JobNotFound
from holdfast.job.job import FINAL, PENDING, STATES
from holdfast.store import commands
from holdfast.text import listed

T = TypeVar("T")
Answer = tuple[str, str | HoldfastError]  # about the job of an id

MEANT = {
    "cancel": PENDING, "retry": ["failed"], "delete": FINAL, "move": NOT_RUNNING, "release": ["running"],
    "fail": PENDING,
}  # fmt: skip
DONE = {*STATES, "cancelling", "deleted"}  # other answers say why nothing was done
HOW_TO_CHOOSE = """\
Without an ID, ids are read from the standard input: the first column of each line. With --all, the number of jobs for
each new state is printed.
"""
MAX_INPUT = 256 << 20  # bytes: over a million of the longest ids
MOST_QUESTIONS = 3  # so many unknown ids are looked for


def given_ids(ids: Sequence[str]) -> list[str]:
    """Return ids from the command line, or from the standard input if there are none, or a dash."""
    if ids and list(ids) != ["-"]:
        return list(dict.fromkeys(ids))
    if sys.stdin is None:
        return []
    if sys.stdin.isatty() and not ids:
        raise click.UsageError("no ID is given: name some, or pipe them in, one on each line.")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise click.UsageError(
            f"the standard input has more than {MAX_INPUT >> 20} MiB: pipe in ids, one on each line."
        )
    lines = data.decode(errors="replace").splitlines()
    return list(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.strip()))


def optional_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids that an option was given; a dash stands for those of the standard input, which may be none."""
    found = [each for id in ids for each in (given_ids(["-"]) if id == "-" else [id])]
    if ids and not found:
        note("no ids came from the standard input")
    return list(dict.fromkeys(found))


class Chosen(NamedTuple):
    """All jobs that are so, instead of some that are named."""

    all: bool
    yes: bool
    queue: str | None
    state: Sequence[str]
    task: str | None
    group: str | None = None

    def states(self, verb: str) -> list[str]:
        return chosen_states(self.state) if self.state else list(MEANT[verb])

    def kind(self, verb: str) -> Record:
        """As the client takes it."""
        return {"queue": self.queue, "state": self.states(verb), "task": self.task, "group": self.group}

    def words(self, verb: str) -> str:
        """What is to be done, in words."""
        more = [f"{name} {getattr(self, name)}" for name in ("queue", "task", "group") if getattr(self, name)]
        return ", ".join([f"{verb} all jobs that are {_listed(self.states(verb))}", *more])


def choosing(verb: str, *, group: bool = False) -> Decorator:
    """Declare the options that choose jobs."""
    options = [
        click.option("--all", is_flag=True, help="Instead of IDs: all jobs that are as the next options say."),
        click.option("--queue", shell_complete=complete_queue, help="Of all, those of this queue."),
        click.option(
            "--state", multiple=True, metavar="STATE", shell_complete=complete_states,
            help=f"Of all, those in this state; also a,b; else {_listed(MEANT[verb])}.",
        ),
        click.option("--task", shell_complete=complete_task, help="Of all, those of this task."),
        *([click.option("--group", help="Of all, those that failed with this group.")] if group else []),
        click.option("--yes", is_flag=True, help="Do not ask whether all are meant."),
    ]  # fmt: skip

    def declare(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{HOW_TO_CHOOSE}"
        return function

    return declare


def _listed(states: Sequence[str]) -> str:
    return "pending" if list(states) == list(PENDING) else listed(states)


class Action(NamedTuple):
    """What is done, by which verb: to jobs of some ids, or to all that were chosen."""

    verb: str
    to_some: Callable[[Sequence[str]], Iterable[Answer]]
    to_all: Callable[..., dict[str, int]]  # with a `Kind` of jobs; returns how many there were of each answer
    in_parts: bool = True  # False: what is done to one depends on all that are named


def steer(session: Session, action: Action, words: Sequence[str], how: Record) -> int:
    """Do something with jobs, say what became of them, and return the exit code of the first refusal.

    They are those of some ids, or those that were chosen; `how` has the options of that.
    """
    chosen = Chosen(**how)
    if chosen.all:
        if words:
            raise click.UsageError(f"--all chooses the jobs, so {words[0]!r} cannot be one of them.")
        return _steer_all(session, action, chosen)
    if chosen.queue or chosen.state or chosen.task or chosen.group or chosen.yes:
        raise click.UsageError("--queue, --state, --task, --group and --yes choose among --all; give that too.")
    ids = given_ids(words)
    if not ids:
        note(f"nothing to {action.verb}: no ids came")
    refusals: list[HoldfastError] = []
    session.output.list(_answers(session, action, ids, refusals), id_and("answer"), "nothing was changed")
    return exit_code(refusals[0]) if refusals else 0


def id_and(field: str) -> list[Column]:
    """The columns of a job's id, and of its state, which is in a field."""
    return [
        Column("ID", lambda row: row["id"], whole=True),
        Column("STATE", lambda row: row[field], coloured=True),
    ]


def _answers(session: Session, action: Action, ids: Sequence[str], refusals: list[HoldfastError]) -> Iterator[Record]:
    with meter(action.verb, len(ids)) as advance:
        for part in in_parts(ids) if action.in_parts else [ids]:
            for id, answer in action.to_some(part):
                if isinstance(answer, str):
                    yield {"id": id, "answer": answer}
                else:
                    refusals.append(answer)
                    _complain(session, answer, id, is_early=len(refusals) <= MOST_QUESTIONS)
            advance(len(part))


def _complain(session: Session, error: HoldfastError, id: str, *, is_early: bool) -> None:
    """Say what was refused; of the first few ids that are none, also what they may have been meant for."""
    question = Ids(session.app).did_you_mean(id) if is_early and isinstance(error, JobNotFound) else ""
    complain(f"{error}{question}", error.code, id=id)


def _steer_all(session: Session, action: Action, chosen: Chosen) -> int:
    """Do something with all jobs that were chosen, and print how many there were of each answer."""
    verb = action.verb
    queues = [find_queue(session.app, chosen.queue)] if chosen.queue else session.app.queues()
    total = sum(queue.counts[state] for queue in queues for state in chosen.states(verb))
    _confirm(session, verb, chosen, total)
    with meter(verb, total) as advance:
        counts = action.to_all(**chosen.kind(verb), progress=advance)
    columns = [
        Column("STATE", lambda row: row[0], coloured=True, whole=True),
        Column("JOBS", lambda row: row[1], right=True, whole=True),
    ]
    if session.output.mode == "json":
        session.output.json(counts)
    elif counts or session.output.mode == "table":
        session.output.list(counts.items(), columns, "there are no such jobs")
    else:
        note(f"nothing to {verb}: there are no such jobs")
    if done := counts.get(WORK_WAS_DONE):
        note(f"not retried: {done:,} whose work was done, only not recorded; --force does that work again")
    return REFUSED if counts.keys() - DONE else 0


def _confirm(session: Session, verb: str, chosen: Chosen, total: int) -> None:
    """Say how many there are, and ask whether they are meant; who cannot be asked has to say --yes."""
    if chosen.yes:
        return
    if chosen.task or chosen.group:
        total = _count(session, verb, chosen)
    question = f"{chosen.words(verb)}: {total:,}"
    if not sys.stdin or not sys.stdin.isatty():
        raise click.UsageError(f"{question}. If that is meant, say --yes.")
    if total:
        click.confirm(f"{question}. Go on?", abort=True, err=True)


def _count(session: Session, verb: str, chosen: Chosen) -> int:
    """Count jobs by more than the store has numbers of."""
    which: Record = {"states": chosen.states(verb), "task": chosen.task, "group": chosen.group}
    queues, found, cursor = [chosen.queue] if chosen.queue else None, 0, None
    while True:
        step = session.app.store.run(commands.bulk("count", queues=queues, **which, cursor=cursor, limit=MAX_BATCH))
        found, cursor = found + sum(step.answers.values()), step.cursor
        if cursor is None:
            return found


@contextmanager
def meter(what: str, total: int | None = None, *, least: int = MAX_BATCH + 1) -> Iterator[Callable[[int], None]]:
    """Show how far something is: a bar on the standard error, if that is a terminal, and gone when it is done.

    Yields what is to be called with the number of things done since the last call. Fewer than `least` things are not
    worth a bar.
    """
    if not sys.stderr.isatty() or (total is not None and total < least):
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from holdfast.cli.output import new_console

    looks = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console, shared = new_console(stderr=True), sys.stdout.isatty()  # only then the bar has to give way to the output
    with Progress(*looks, console=console, transient=True, redirect_stdout=shared) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def in_parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield items in parts that fit into one call."""
    for first in range(0, len(items), MAX_BATCH):
        yield items[first : first + MAX_BATCH]
