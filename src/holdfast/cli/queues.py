"""Commands on queues."""

from __future__ import annotations

import click

from holdfast.cli.completers import complete_queue
from holdfast.cli.fields import FORGOTTEN, PAUSED, QUEUE
from holdfast.cli.lookup import find_queue
from holdfast.cli.output import Column
from holdfast.cli.records import queue_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.watch import View, follow_option, show_list
from holdfast.job import STATES


@command(
    "queues", "holdfast queues", "holdfast queues -f",
    "holdfast queues --json | jq '.[] | select(.failed > 0) | .queue'", fields=QUEUE,
)  # fmt: skip
@follow_option("Refresh until Ctrl-C; when piped, print the queues that change.")
@pass_session
def queues(session: Session, watch: bool) -> None:
    """List queues, with their numbers of jobs in each state.

    When piped, the columns are queue, paused or active, live workers, then the numbers of scheduled, waiting, blocked,
    throttled, running, succeeded, failed and cancelled jobs. With --json, an array; with --follow, an object on each
    line.
    """
    columns = [
        Column("QUEUE", lambda queue: queue["queue"], whole=True),
        Column("", lambda queue: "paused" if queue["paused"] else "active", coloured=True),
        Column("WORKERS", lambda queue: queue["listeners"], right=True),
        *(Column(state.upper(), lambda queue, state=state: queue[state], right=True) for state in STATES),  # type: ignore[misc]
    ]

    def look() -> View:
        return View([queue_record(queue) for queue in session.app.queues()])

    show_list(session.output, look, columns, "queue", watch=watch)


@command("pause", "holdfast pause mail", "holdfast pause mail --create", fields=PAUSED)
@click.argument("queue", shell_complete=complete_queue)
@click.option("--create", is_flag=True, help="Also a queue that has no jobs yet.")
@pass_session
def pause(session: Session, queue: str, create: bool) -> None:
    """Start no more jobs of a queue; those that run go on.

    Exit code 3 if there is no such queue: with --create it is paused before its first job comes.
    """
    if not create:
        find_queue(session.app, queue)
    _say_paused(session, queue, changed=session.app.pause(queue), paused=True)


@command("resume", "holdfast resume mail", fields=PAUSED)
@click.argument("queue", shell_complete=complete_queue)
@pass_session
def resume(session: Session, queue: str) -> None:
    """Start jobs of a paused queue again. Exit code 3 if there is no such queue."""
    find_queue(session.app, queue)
    _say_paused(session, queue, changed=session.app.resume(queue), paused=False)


@command("forget", "holdfast forget mail", fields=FORGOTTEN)
@click.argument("queue", shell_complete=complete_queue)
@pass_session
def forget(session: Session, queue: str) -> None:
    """Forget a queue that has no jobs: its name, its settings, and that it is paused.

    Exit code 1 if it has jobs, 3 if there is no such queue.
    """
    if not session.app.forget(queue):
        find_queue(session.app, queue)
    columns = [Column("QUEUE", lambda row: row["queue"], whole=True), Column("", lambda _: "forgotten")]
    session.output.one({"queue": queue, "forgotten": True}, columns)


def _say_paused(session: Session, queue: str, *, changed: bool, paused: bool) -> None:
    columns = [
        Column("QUEUE", lambda row: row["queue"], whole=True),
        Column("", lambda row: "paused" if row["paused"] else "active", coloured=True),
        Column("", lambda row: "" if row["changed"] else "it was so before"),
    ]
    session.output.one({"queue": queue, "paused": paused, "changed": changed}, columns)
