"""`holdfast plan`: when the backlogs of queues will be gone, now and with another number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import click
import msgspec

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.formatting import short_duration
from holdfast.cli.options import Integer
from holdfast.cli.output import Output
from holdfast.cli.suggestions import find_queue
from holdfast.cli.table import Field, Record, Table, column, field

MAX_SLOTS = 100_000
FORECAST = (
    "workers, after, earliest, latest (seconds; null: not within 30 days), rate (attempts per second), held_up_by"
    " (slots, limit, concurrency, paused, no_worker, task, retries, running, arrivals, unknown, complexity, or"
    " empty), name (of that limit or task), reason"
)
BLOCKED = ("paused", "no_worker", "task", "arrivals")  # the backlog never goes


def _number(name: str, help: str, suffix: str = "") -> Field:
    def show(record: Record, output: Output) -> str:
        value = record[name]
        return "" if value is None else f"{value:.3g}{suffix}" if output.on_terminal else f"{value:.3f}"

    return column(name, help, show=show, right=True)


def _run_time(record: Record, output: Output) -> str:
    value = record["run_time"]
    return "" if value is None else short_duration(value) if output.on_terminal else f"{value:.3f}"


def _forecast(name: str, help: str) -> Field:
    def read(queue: Any) -> Record | None:
        found = getattr(queue, name)
        return None if found is None else {**msgspec.structs.asdict(found), "reason": found.reason}

    def show(record: Record, output: Output) -> str:
        found = record[name]
        if found is None:
            return ""
        if not output.on_terminal:
            return "" if found["after"] is None else f"{found['after']:.3f}"
        workers = f"{found['workers']:,} worker{'s' * (found['workers'] != 1)}"
        return f"{workers}: {_when(found)}{', ' * bool(found['reason'])}{found['reason']}"

    return column(name, f"{help}: {FORECAST}", read, show=show, wraps=True)


def _when(found: Record) -> str:
    """Return when a backlog will be gone: 50m00s (46m00s to 54m20s)."""
    if found["held_up_by"] in ("unknown", "complexity"):
        return "unknown"
    if found["after"] is None:
        return "never" if found["held_up_by"] in BLOCKED else "not in 30 days"
    if not found["held_up_by"]:
        return "no backlog"
    latest = "more than 30d" if found["latest"] is None else span(found["latest"])
    return f"{span(found['after'])} ({span(found['earliest'])} to {latest})"


def span(seconds: float) -> str:
    """Return a time to come in its two largest units: 0.8s, 12s, 4m05s, 2h10m, 3d4h."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size}{large}{whole % size // part:0{1 if size > 3600 else 2}}{small}"
    return f"{whole}s"


QUEUE_PLANS = Table(
    "queue",
    column("queue", "name of the queue", whole=True),
    column("backlog", "number of jobs that wait for a slot, a limit or a retry", right=True, whole=True),
    field("running", "number of running jobs"),
    field("delayed", "number of jobs that were enqueued for later"),
    _number("arriving", "jobs that arrive per second, without retries", "/s"),
    _number("ending", "attempts that ended per second, in the last minutes", "/s"),
    column("run_time", "seconds that a job of the backlog runs on average", show=_run_time, right=True),
    field("runs", "number of completed attempts that the run times are known from"),
    _forecast("now", "with the workers of today"),
    _forecast("then", "with --workers, else null"),
    field("notes", "what makes the forecast uncertain"),
)
PLAN = Table(
    "plan",
    field("workers", "number of live workers that serve one of the queues", attrgetter("workers")),
    field("workers_then", "their number with --workers, else null"),
    field("queues", f"an array; of each queue: {', '.join(QUEUE_PLANS.help)}"),
    field("left_out", "number of queues with work that are not a part of the plan, because there are too many"),
)


@command(
    "plan", "holdfast plan", "holdfast plan mail --workers +10", "holdfast plan mail video --workers 8 --arriving 0",
    "holdfast plan video --workers +1 --processes 16", "holdfast plan mail --json | jq '.queues[0].now.after'",
    output=PLAN,
)  # fmt: skip
@click.argument("names", nargs=-1, metavar="[QUEUE...]", shell_complete=complete_queue)
@click.option("--workers", metavar="NUMBER", help="What if: +10 more, -2 fewer, or 8 in total that serve the queues.")
@click.option("--processes", type=Integer(1, MAX_SLOTS), help="Of each added worker. Default: as today.")
@click.option("--concurrency", type=Integer(1, MAX_SLOTS), help="Of each added worker. Default: as today.")
@click.option("--arriving", type=float, metavar="RATE", help="Jobs per second. Default: as in the last hour.")
@pass_client
def plan(client: Client, /, names: Sequence[str], **given: Any) -> None:
    """Forecast when backlogs will be gone, and what more workers would do.

    NOW is the forecast with the workers of today, THEN the one with --workers: the middle of many simulations, the
    range in which eight of ten end, and what determines that time. Without QUEUE, all queues with work. Added workers
    are like the most common ones of today, and start at once; if there are none, give --processes or --concurrency.
    Exit code 3 if a queue does not exist.
    """
    for name in names:
        find_queue(client.app, name)
    found = client.app.plan(*names, **given)
    queues = QUEUE_PLANS.records(found.queues)
    if client.output.mode == "json":
        client.output.json(PLAN.record(found, queues=queues))
        return
    client.output.list(queues, QUEUE_PLANS, empty="no queue has work")
    for each in queues:
        for note in each["notes"]:
            print_note(f"{each['queue']}: {note}")
    if found.left_out:
        print_note(f"{found.left_out:,} other queues with work were not simulated: there are too many for one plan")
