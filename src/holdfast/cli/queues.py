"""Commands on queues, workers and events."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from holdfast import Holdfast
from holdfast.cli.output import Column
from holdfast.cli.records import Record, event_record, queue_record, worker_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.commands import Event
from holdfast.job import STATES

LOOK_EVERY = 0.25  # seconds, for new events
PAGE = 1000
BEGINNING = "0-0"


@command("queues", "holdfast queues", "holdfast queues --json | jq '.[] | select(.failed > 0) | .queue'")
@pass_session
def queues(session: Session) -> None:
    """List queues, with their numbers of jobs in each state.

    When piped, the columns are queue, paused or active, then the numbers of scheduled, waiting, blocked, throttled,
    running, succeeded, failed and cancelled jobs. With --json, an array.
    """
    columns = [
        Column("QUEUE", lambda queue: queue["queue"], whole=True),
        Column("", lambda queue: "paused" if queue["paused"] else "active", coloured=True),
        *(Column(state.upper(), lambda queue, state=state: queue[state], right=True) for state in STATES),  # type: ignore[misc]
    ]
    session.output.list([queue_record(queue) for queue in session.app.queues()], columns, "no queues")


@command("pause", "holdfast pause mail")
@click.argument("queue")
@pass_session
def pause(session: Session, queue: str) -> None:
    """Start no more jobs of a queue; those that run go on."""
    _say_paused(session, queue, changed=session.app.pause(queue), paused=True)


@command("resume", "holdfast resume mail")
@click.argument("queue")
@pass_session
def resume(session: Session, queue: str) -> None:
    """Start jobs of a paused queue again."""
    _say_paused(session, queue, changed=session.app.resume(queue), paused=False)


def _say_paused(session: Session, queue: str, *, changed: bool, paused: bool) -> None:
    if session.output.mode == "json":
        return session.output.json({"queue": queue, "paused": paused, "changed": changed})
    columns = [
        Column("QUEUE", lambda row: row["queue"], whole=True),
        Column("", lambda row: row["state"], coloured=True),
        Column("", lambda row: row["was"]),
    ]
    row = {"queue": queue, "state": "paused" if paused else "active", "was": "" if changed else "it was so before"}
    return session.output.list([row], columns, "")


@command("workers", "holdfast workers", "holdfast workers --json | jq -r '.[].jobs[].id'")
@pass_session
def workers(session: Session) -> None:
    """List workers, with the jobs that they hold.

    Those that were heard of last come first. When piped, the columns are worker, last seen, process id, app, queues,
    ids of the jobs. With --json, an array.
    """
    columns = [
        Column("WORKER", lambda worker: worker["worker"], whole=True),
        Column("SEEN", lambda worker: worker["seen_at"], right=True),
        Column("PID", lambda worker: worker["pid"], right=True),
        Column("APP", lambda worker: worker["app"]),
        Column("QUEUES", lambda worker: worker["queues"]),
        Column("JOBS", _held),
    ]
    session.output.list([worker_record(worker) for worker in session.app.workers()], columns, "no workers")


def _held(worker: Record) -> list[str]:
    return [job["id"] for job in worker["jobs"]]


@command("events", "holdfast events -f", "holdfast events --limit 1000 --json | jq 'select(.type == \"failed\")'")
@click.option("-f", "--follow", is_flag=True, help="Go on as more happens, until interrupted.")
@click.option("--limit", type=click.IntRange(0, PAGE), default=20, show_default=True, help="How many of the past.")
@pass_session
def events(session: Session, follow: bool, limit: int) -> None:
    """Show what happened last.

    Each line is a time, what happened, who did it, and the ids of the jobs (or the names of queues). With --json, an
    object per line.
    """
    columns = [
        Column("AT", lambda event: event["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        Column("TYPE", lambda event: event["type"], coloured=True),
        Column("WHO", lambda event: event["who"]),
        Column("JOBS", lambda event: event["jobs"]),
    ]
    for event in _happening(session.app, limit, follow=follow):
        session.output.stream(event_record(event), columns)


def _happening(app: Holdfast, limit: int, *, follow: bool) -> Iterator[Event]:
    past = app.events(limit=max(limit, 1))
    yield from past[:limit]
    last = past[-1].id if past else BEGINNING
    while follow:
        for event in app.events(last, limit=PAGE):
            yield event
            last = event.id
        time.sleep(LOOK_EVERY)
