"""`holdfast queues` and `holdfast load`: queues, their jobs in each state, and the concurrency they need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_queue
from holdfast.cli.options import duration_option
from holdfast.cli.output import write
from holdfast.cli.suggestions import find_queue
from holdfast.cli.watch import show_list, watch_option
from holdfast.records.queues import FORGOTTEN, LOAD, PAUSED, QUEUE_LOADS, QUEUES, load_record


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
    if client.output.mode == "json":
        client.output.json(load_record(client.app, loads, target))
    elif needed:
        write(str(sum(each["needed"] for each in loads)))
    else:
        client.output.list(loads, QUEUE_LOADS)
