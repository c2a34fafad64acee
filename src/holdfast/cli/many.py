"""Very many jobs: ids from a pipe, parts that fit into one call, an answer about each, and a bar while it lasts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click

from holdfast.cli.complaints import complain, note
from holdfast.cli.exits import exit_code
from holdfast.cli.lookup import Ids
from holdfast.cli.output import Column
from holdfast.cli.records import Record
from holdfast.cli.session import Session
from holdfast.errors import HoldfastError, JobNotFound

T = TypeVar("T")
Answer = tuple[str, str | HoldfastError]  # about the job of an id
Act = Callable[[Sequence[str]], Iterable[Answer]]

AT_ONCE = 1000  # of anything that is sent in one call
MOST_QUESTIONS = 3  # so many unknown ids are looked for


def given_ids(ids: Sequence[str]) -> list[str]:
    """Return ids from the command line, or from the standard input if there are none, or a dash."""
    if ids and list(ids) != ["-"]:
        return list(dict.fromkeys(ids))
    if sys.stdin is None:
        return []
    if sys.stdin.isatty() and not ids:
        raise click.UsageError("no ID is given: name some, or pipe them in, one on each line.")
    lines = sys.stdin.buffer.read().decode(errors="replace").splitlines()
    return list(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.strip()))


def optional_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids that an option was given; a dash stands for those of the standard input, which may be none."""
    found = given_ids(ids) if ids else []
    if ids and not found:
        note("no ids came from the standard input")
    return found


def steer(session: Session, verb: str, words: Sequence[str], act: Act) -> int:
    """Do something with each job, say what became of it, and return the exit code of the first refusal."""
    ids = given_ids(words)
    if not ids:
        note(f"nothing to {verb}: no ids came")
    refusals: list[HoldfastError] = []
    session.output.list(_answers(session, verb, ids, act, refusals), id_and("answer"), "nothing was changed")
    return exit_code(refusals[0]) if refusals else 0


def id_and(field: str) -> list[Column]:
    """The columns of a job's id, and of its state, which is in a field."""
    return [
        Column("ID", lambda row: row["id"], whole=True),
        Column("STATE", lambda row: row[field], coloured=True),
    ]


def _answers(
    session: Session, verb: str, ids: Sequence[str], act: Act, refusals: list[HoldfastError]
) -> Iterator[Record]:
    with meter(verb, len(ids)) as advance:
        for part in in_parts(ids):
            for id, answer in act(part):
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


@contextmanager
def meter(what: str, total: int | None = None, *, least: int = AT_ONCE + 1) -> Iterator[Callable[[int], None]]:
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
    for first in range(0, len(items), AT_ONCE):
        yield items[first : first + AT_ONCE]
