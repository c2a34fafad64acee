"""Commands that look at jobs: list them, count them, show one, see which come next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import click

from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_ids, complete_queue, complete_states
from holdfast.cli.exits import INTERRUPTED
from holdfast.cli.fields import COUNT, FULL_JOB, JOB
from holdfast.cli.lookup import chosen_states, find_queue, pick, saying_which, select
from holdfast.cli.output import Column, Output
from holdfast.cli.progress import progress_text
from holdfast.cli.records import Record, brief_record, full_record
from holdfast.cli.session import Decorator, Session, command, pass_session
from holdfast.cli.show import describe
from holdfast.cli.watch import NO_ROWS, Followed, View, follow, follow_option
from holdfast.constants import MAX_BATCH
from holdfast.job.job import Job
from holdfast.job.usage import JobUsage
from holdfast.store.commands import Queue

ON_A_TERMINAL = 50  # jobs, unless --limit says something else
FOLLOWED = 1000  # jobs, the same
VOLATILE = ("lease_ends_at",)

_queue = click.option("--queue", shell_complete=complete_queue, help="Only jobs of this queue.")
_state = click.option(
    "--state", multiple=True, metavar="STATE", shell_complete=complete_states,
    help="Only jobs in this state; also a,b, or pending.",
)  # fmt: skip


def job_columns(output: Output) -> list[Column]:
    """The columns of a list of jobs."""
    return [
        Column("ID", lambda job: job["id"], whole=True),
        Column("TASK", lambda job: job["task"]),
        Column("QUEUE", lambda job: job["queue"]),
        Column("STATE", lambda job: "cancelling" if job["cancelling"] else job["state"], coloured=True, whole=True),
        Column("TRY", lambda job: job["attempt"], right=True, whole=True),
        Column("SINCE", lambda job: job["since"], right=True, whole=True),
        Column("PROGRESS", lambda job: progress_text(job, output)),
        Column("WORKER", lambda job: job["worker"] if job["state"] == "running" else ""),
    ]


def _limit(words: str, default: int | None = None, most: int | None = None) -> Decorator:
    return click.option("--limit", type=click.IntRange(1, most), metavar="NUMBER", default=default, help=words)


@command(
    "jobs",
    "holdfast jobs --state failed --queue mail",
    "holdfast jobs --state pending --oldest --limit 10",
    "holdfast jobs --state failed | holdfast retry",
    fields=JOB,
)
@_queue
@_state
@_limit(f"At most so many; else {ON_A_TERMINAL} on a terminal, and all when piped.")
@click.option("--newest/--oldest", default=True, help="Which come first: those that changed last (default), or first.")
@follow_option(f"Refresh until Ctrl-C; when piped, print the jobs that change, of the last {FOLLOWED:,}.")
@pass_session
def jobs(
    session: Session, queue: str | None, state: Sequence[str], limit: int | None, *, newest: bool, watch: bool
) -> None:
    """List jobs, those that changed last first.

    States are scheduled, waiting, blocked, throttled, running, succeeded, failed and cancelled; pending stands for the
    first five. The jobs of one queue in one state come in the order of the queue. When piped, the columns are id, task,
    queue, state, attempt, since, progress (of a failed job the group of its failure), worker. With --json, an array;
    with --follow, an object on each line.
    """
    states, output = chosen_states(state), session.output
    columns = job_columns(output)
    most = limit or _most(output, watch)

    def look() -> tuple[Iterable[Record], list[Queue]]:
        queues = {each.name: each for each in session.app.queues()}
        chosen = [pick("queue", queues, queue)] if queue else list(queues.values())
        return map(brief_record, select(session.app, chosen, states, newest=newest, limit=most)), chosen

    if watch:
        what = Followed(lambda: View(list(look()[0])), partial(_draw, output, columns), columns, "id", VOLATILE)
        follow(output, what)
        return
    found, chosen = look()
    output.list(found, columns, "no jobs")
    total = sum(queue.counts[state] for queue in chosen for state in states)
    if limit is None and most is not None and total > most:
        note(f"{most:,} of {total:,} jobs; --limit shows more, and a pipe gets all")


def _most(output: Output, watch: bool) -> int | None:
    """How many jobs to list if nobody says: what fits on a screen, or is read by people; in a pipe all."""
    if output.mode != "table":
        return FOLLOWED if watch else None
    return max(1, output.console.height - NO_ROWS) if watch else ON_A_TERMINAL


def _draw(output: Output, columns: Sequence[Column], view: View) -> Any:
    return output.table(view.records, columns, "no jobs")


@command(
    "count", "holdfast count --state pending", "holdfast count --queue mail --state failed,cancelled", fields=COUNT
)
@_queue
@_state
@pass_session
def count(session: Session, queue: str | None, state: Sequence[str]) -> None:
    """Count jobs: all, or those of a queue, or in some states."""
    states = chosen_states(state)
    queues = [find_queue(session.app, queue)] if queue else session.app.queues()
    total = sum(each.counts[name] for each in queues for name in states)
    session.output.value({"count": total}, "count")


@command("peek", "holdfast peek mail", "holdfast peek mail --limit 10 --json | jq '.[].arguments'", fields=FULL_JOB)
@click.argument("queue", shell_complete=complete_queue)
@_limit("How many, up to 1,000.", default=1, most=MAX_BATCH)
@pass_session
def peek(session: Session, queue: str, limit: int) -> None:
    """Show the jobs of a queue that run next, without taking them.

    When piped, a description of each, as of `show`. With --json, an array.
    """
    find_queue(session.app, queue)
    ids = [job.id for job in session.app.list(queue=queue, state="waiting", limit=limit)]
    records = [full_record(job) for job in (session.app.get_many(ids) if ids else []) if job]
    if session.output.mode == "json":
        session.output.list(records, [], "")
    for record in records if session.output.mode != "json" else []:
        session.output.facts(describe(record, session.output))
    if not records:
        note(f"no job of queue {queue} waits")


@command(
    "show", "holdfast show 0QwErTyUiOpAsDfG", "holdfast show 0QwErTyUiOpAsDfG -f",
    "holdfast show 0QwErTyUiOpAsDfG --json | jq '.attempts[].because'", fields=FULL_JOB,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@follow_option("Refresh until the job has ended; when piped, print each change.")
@pass_session
def show(session: Session, id: str, watch: bool) -> int:
    """Show all that is known of a job.

    Below its state stands why it does not run: which jobs it waits for and how these ended, which limit has no free
    slot, that its queue is paused or served by nobody.

    Each attempt has its outcome (succeeded, advanced, error, crash, lost, released, snoozed, unknown, cancelled,
    running), and why it was made: `first`, the outcome of the attempt before it, or `retry` if a user asked for it. A
    terminal shows the beginning of what is long; pipes and --json get all. With --json, an object.

    With --follow it ends when the job has ended. When piped, the lines are those of `jobs`, or with --json objects.
    """
    output, job = session.output, _get(session, id)
    if watch and not _follow_one(session, id):
        return INTERRUPTED
    if watch and output.mode != "table":
        return 0
    job = _get(session, id) if watch else job
    record = full_record(job, _usage(session, job))
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(describe(record, output, _hint(session, record)))
    return 0


def _usage(session: Session, job: Job[Any]) -> JobUsage | None:
    return None if job.unreadable else session.app.usage(job.id)


def _hint(session: Session, record: Record) -> str:
    """Say why a job waits, if that has to do with its queue."""
    name = record["queue"]
    queue = next((each for each in session.app.queues() if each.name == name), None)
    if record["state"] != "waiting" or queue is None:
        return ""
    if queue.paused:
        return f"queue {name} is paused; `holdfast resume {name}`"
    return "" if queue.listeners else f"no live worker serves queue {name}"


def _follow_one(session: Session, id: str) -> bool:
    def look() -> View:
        job = session.app.get(id)
        usage = _usage(session, job) if output.mode == "table" else None
        return View([full_record(job, usage)], over=job.is_final or job.unreadable != "")

    output = session.output

    def draw(view: View) -> Any:
        return output.grid(describe(view.records[0], output))

    return follow(output, Followed(look, draw, job_columns(output), "id", VOLATILE))


def _get(session: Session, id: str) -> Job[Any]:
    with saying_which(session.app, id):
        return session.app.get(id)
