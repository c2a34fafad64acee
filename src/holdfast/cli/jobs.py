"""Commands on jobs: look at them, and steer them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from holdfast import Holdfast
from holdfast.cli.exits import exit_code
from holdfast.cli.output import Column, complain
from holdfast.cli.records import Record, brief_record, full_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.show import describe
from holdfast.errors import HoldfastError, Invalid
from holdfast.job import FINAL, STATES, Job

BAR = 8  # characters


def _state(record: Record) -> str:
    return "cancelling" if record["cancelling"] else str(record["state"])


def progress_text(record: Record, *, bar: bool) -> str:
    """How far a job is: 45%, with a bar before it and the job's words after it."""
    if record["state"] == "succeeded" or not isinstance(record["progress"], dict):
        return ""
    said = record["progress"]
    share, parts = said.get("progress"), []
    if isinstance(share, int | float):
        filled = round(min(max(share, 0), 1) * BAR)
        parts = ["█" * filled + "░" * (BAR - filled)] if bar else []
        parts.append(f"{share:.0%}")
    return " ".join([*parts, *([str(said["message"])] if "message" in said else [])])


def _columns(*, bar: bool) -> list[Column]:
    return [
        Column("ID", lambda job: job["id"], whole=True),
        Column("TASK", lambda job: job["task"]),
        Column("QUEUE", lambda job: job["queue"]),
        Column("STATE", _state, coloured=True, whole=True),
        Column("TRY", lambda job: job["attempt"], right=True, whole=True),
        Column("SINCE", lambda job: job["since"], right=True, whole=True),
        Column("PROGRESS", lambda job: progress_text(job, bar=bar)),
        Column("WORKER", lambda job: job["worker"] if job["state"] == "running" else ""),
    ]


@command(
    "jobs",
    "holdfast jobs --state failed --queue mail",
    "holdfast jobs --state pending --oldest --limit 10",
    "holdfast jobs --state failed | cut -f1 | xargs holdfast retry",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only jobs in this state; also a,b, or pending."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--newest/--oldest", default=True, help="Which come first: those that changed last (default), or first.")
@pass_session
def jobs(session: Session, queue: str | None, states: tuple[str, ...], limit: int, newest: bool) -> None:
    """List jobs, those that changed last first.

    States are scheduled, waiting, blocked, throttled, running, succeeded, failed and cancelled; pending stands for the
    first five. The jobs of one queue in one state come in the order of the queue. When piped, the columns are id, task,
    queue, state, attempt, since, progress, worker. With --json, an array.
    """
    wanted = _chosen_states(states)
    found = _select(session.app, queue, wanted, newest=newest, limit=limit)
    columns = _columns(bar=session.output.mode == "table")
    session.output.list([brief_record(job) for job in found], columns, "no jobs")


def _chosen_states(words: Sequence[str]) -> list[str]:
    wanted: set[str] = set()
    for word in (part.strip() for words_ in words for part in words_.split(",")):
        if word != "pending" and word not in STATES:
            raise Invalid(f"there is no state {word!r}; there are {', '.join(STATES)}, and pending for the first five")
        wanted.update(set(STATES).difference(FINAL) if word == "pending" else [word])
    return [state for state in STATES if state in wanted or not wanted]


def _select(app: Holdfast, queue: str | None, states: list[str], *, newest: bool, limit: int) -> list[Job[Any]]:
    """The store lists queue by queue and state by state; we put them together by time."""
    places = [
        (each.name, state)
        for each in app.queues()
        for state in states
        if each.counts[state] and queue in (None, each.name)
    ]
    found = [job for name, state in places for job in app.list(queue=name, state=state, newest=newest, limit=limit)]
    if len(places) > 1:
        found.sort(key=lambda job: job.since, reverse=newest)
    return found[:limit]


@command("show", "holdfast show 0QwErTyUiOpAsDfG", "holdfast show 0QwErTyUiOpAsDfG --json | jq '.attempts[].because'")
@click.argument("id")
@pass_session
def show(session: Session, id: str) -> None:
    """Show all that is known of a job.

    Each attempt has its outcome (succeeded, error, crash, lost, released, snoozed, unknown, cancelled, running), and
    why it was made: `first`, the outcome of the attempt before it, or `retry` if a user asked for it. With --json, an
    object.
    """
    record = full_record(session.app.get(id))
    if session.output.mode == "json":
        session.output.json(record)
    else:
        session.output.facts(describe(record))


@command("cancel", "holdfast cancel 0QwErTyUiOpAsDfG --reason 'wrong file'")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="", help="Why; it is kept with the job.")
@pass_session
def cancel(session: Session, ids: Sequence[str], reason: str) -> int:
    """Stop jobs.

    A job that runs is `cancelling` until its worker has stopped it; any other is `cancelled` at once. Exit code 1 if
    one has ended already, 3 if one does not exist; the others are cancelled all the same.
    """
    return _each(session, ids, lambda id: session.app.cancel(id, reason=reason))


@command("retry", "holdfast retry 0QwErTyUiOpAsDfG", "holdfast jobs --state failed | cut -f1 | xargs holdfast retry")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@pass_session
def retry(session: Session, ids: Sequence[str]) -> int:
    """Run jobs that have ended once more.

    All their budgets are as new; checkpoints are kept. Exit code 1 if one has not ended, 3 if one does not
    exist; the others are retried all the same.
    """

    def again(id: str) -> str:
        session.app.retry(id)
        return "waiting"

    return _each(session, ids, again)


@command("delete", "holdfast delete 0QwErTyUiOpAsDfG")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@pass_session
def delete(session: Session, ids: Sequence[str]) -> int:
    """Remove jobs that have ended, with their results and history.

    Exit code 1 if one has not ended, 3 if one does not exist; the others are removed all the same.
    """

    def remove(id: str) -> str:
        session.app.delete(id)
        return "deleted"

    return _each(session, ids, remove)


def _each(session: Session, ids: Sequence[str], do: Callable[[str], str]) -> int:
    """Do something with each job, say what became of it, and return the exit code of the first refusal."""
    codes: list[int] = []

    def answers() -> Iterator[Record]:
        for id in ids:
            try:
                yield {"id": id, "answer": do(id)}
            except HoldfastError as error:
                codes.append(exit_code(error))
                if codes[-1] not in (1, 3):
                    raise
                complain(str(error))

    columns = [
        Column("ID", lambda row: row["id"], whole=True),
        Column("STATE", lambda row: row["answer"], coloured=True),
    ]
    session.output.list(list(answers()), columns, "nothing was changed")
    return next(iter(codes), 0)
