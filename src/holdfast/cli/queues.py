"""`holdfast queues` and `holdfast load`: queues, their jobs in each state, and the concurrency they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_queue
from holdfast.cli.formatting import short_duration
from holdfast.cli.options import duration_option
from holdfast.cli.output import Output, write
from holdfast.cli.suggestions import find_queue
from holdfast.cli.table import Field, Record, Table, changed_column, column, done_column, field
from holdfast.cli.watch import show_list, watch_option

_NAME = column("queue", "name of the queue", attrgetter("name"), whole=True)


def _paused_or_active(record: Record, _: Output) -> str:
    return "paused" if record["paused"] else "active"


def _count(state: str, help: str) -> Field:
    return column(state, help, lambda queue: queue.counts[state], right=True)


QUEUES = Table(
    "queue",
    _NAME,
    column("paused", "whether its jobs are held back", title="", show=_paused_or_active, coloured=True),
    column("workers", "number of live workers that serve it", right=True, whole=True),
    field("pending", "number of jobs that have not ended"),
    _count("scheduled", "number of jobs due later"),
    _count("waiting", "number of jobs waiting for a worker"),
    _count("blocked", "number of jobs waiting for other jobs"),
    _count("throttled", "number of jobs waiting for a limit"),
    _count("running", "number of running jobs"),
    _count("succeeded", "number of retained jobs that succeeded"),
    _count("failed", "number of retained jobs that failed"),
    _count("cancelled", "number of retained jobs that were cancelled"),
)
PAUSED = Table(
    "queue",
    _NAME,
    column("paused", "whether the queue is paused now", title="", show=_paused_or_active, coloured=True),
    changed_column(),
)
FORGOTTEN = Table("queue", _NAME, done_column("forgotten"))


@click.group(
    "queues", cls=Group, default="list",
    examples=("holdfast queues -w", "holdfast queues pause mail", "holdfast queues resume mail"),
)  # fmt: skip
def queues() -> None:
    """List, pause and resume queues.

    Without a command, queues are listed.
    """


_queue = click.argument("queue", shell_complete=complete_queue)


@command(
    "list", "holdfast queues", "holdfast queues -w", "holdfast queues --json | jq '.[] | select(.failed > 0) | .queue'",
    output=QUEUES,
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print the queues that change.")
@pass_client
def list_queues(client: Client, watching: bool) -> None:
    """List queues with their number of jobs in each state."""
    show_list(client.output, lambda: QUEUES.records(client.app.queues()), QUEUES, watching=watching)


@command("pause", "holdfast queues pause mail", "holdfast queues pause mail --create", output=PAUSED)
@_queue
@click.option("--create", is_flag=True, help="Pause the queue even if it has no jobs yet.")
@pass_client
def pause(client: Client, queue: str, create: bool) -> None:
    """Pause a queue: its jobs are not started; running jobs continue.

    Exit code 3 if the queue does not exist; --create pauses it before its first job.
    """
    if not create:
        find_queue(client.app, queue)
    client.output.one({"queue": queue, "paused": True, "changed": client.app.pause(queue)}, PAUSED)


@command("resume", "holdfast queues resume mail", output=PAUSED)
@_queue
@pass_client
def resume(client: Client, queue: str) -> None:
    """Start jobs of a paused queue again.

    Exit code 3 if the queue does not exist.
    """
    find_queue(client.app, queue)
    client.output.one({"queue": queue, "paused": False, "changed": client.app.resume(queue)}, PAUSED)


@command("forget", "holdfast queues forget mail", output=FORGOTTEN)
@_queue
@pass_client
def forget(client: Client, queue: str) -> None:
    """Remove an empty queue: its name, its settings, and its pause.

    Exit code 1 if it has jobs, 3 if it does not exist.
    """
    if not client.app.forget(queue):
        find_queue(client.app, queue)
    client.output.one({"queue": queue, "forgotten": True}, FORGOTTEN)


for each in (list_queues, pause, resume, forget):
    queues.add_command(each)


# The load of queues


def _number(name: str, help: str, spell: Callable[[float], str], title: str | None = None) -> Field:
    """Declare a number that is rounded for people."""

    def show(record: Record, output: Output) -> Any:
        value = record[name]
        return "" if value is None else spell(value) if output.on_terminal else f"{value:.3f}"

    return column(name, help, title=title, show=show, right=True)


_per_second = "{:.3g}/s".format

QUEUE_LOADS = Table(
    "queue",
    column("queue", "name of the queue", whole=True),
    column("needed", "number of jobs that have to run at once", right=True, whole=True),
    column("workers", "number of live workers that serve it", right=True, whole=True),
    column("waiting", "number of jobs waiting for a worker", right=True),
    column("running", "number of running jobs", right=True),
    column("scheduled", "number of jobs due later", right=True),
    column("blocked", "number of jobs waiting for other jobs", right=True),
    column("throttled", "number of jobs waiting for a limit", right=True),
    column("overdue", "number of jobs, schedules, limits and deadlines that are due and not processed", right=True),
    _number("oldest", "seconds that the oldest job has been waiting", short_duration),
    _number("arriving", "jobs that arrive per second", _per_second),
    _number("ending", "attempts that end per second", _per_second),
    _number("run_time", "seconds that an attempt takes on average", short_duration),
    column(
        "paused", "whether the queue is paused", title="", coloured=True,
        show=lambda record, _: "paused" if record["paused"] else "",
    ),
)  # fmt: skip
LOAD = Table(
    "load",
    field("needed", "number of jobs that have to run at once, in all queues together"),
    field("target_seconds", "time within which a job should start"),
    field("overdue", "jobs, leases, schedules, limits and deadlines of the namespace that are due and not processed"),
    field("queues", f"an array; of each queue: {', '.join(QUEUE_LOADS.help)}"),
)


@command(
    "load", "holdfast load", "holdfast load mail video --target 30s", "holdfast load --needed",
    "holdfast load mail --json | jq .needed", output=LOAD,
)  # fmt: skip
@click.argument("names", nargs=-1, metavar="[QUEUE...]", shell_complete=complete_queue)
@duration_option("--target", help="Time within which a job should start.", default="1m", minimum=1)
@click.option("--needed", is_flag=True, help="Print only the number of jobs that have to run at once.")
@pass_client
def load(client: Client, names: Sequence[str], target: timedelta, needed: bool) -> None:
    """Show queue load and the concurrency it needs, for autoscaling.

    NEEDED is the number of jobs that have to run at once so that waiting and arriving jobs start within --target.
    Divide it by the --processes or --concurrency of your workers. Counts are exact; rates are averages of the last five
    minutes. A queue that does not exist needs nothing.

    With --json, `needed` is the number for KEDA or a script. It is at least 1 while something in a queue is overdue,
    because only workers (or `holdfast upkeep`) process that; so it is right without any worker.
    """
    loads = QUEUE_LOADS.records(client.app.load(*names, target=target))
    total = sum(each["needed"] for each in loads)
    if client.output.mode == "json":
        seconds, overdue = target.total_seconds(), client.app.overdue()
        client.output.json({"needed": total, "target_seconds": seconds, "overdue": overdue, "queues": loads})
    elif needed:
        write(str(total))
    else:
        client.output.list(loads, QUEUE_LOADS)
