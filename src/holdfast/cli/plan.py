"""`holdfast plan`: when the backlogs of queues will be gone, now and with another number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import Integer
from holdfast.cli.suggestions import find_queue
from holdfast.records.plans import PLAN, QUEUE_PLANS, plan_record

MAX_SLOTS = 100_000


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
    record = plan_record(found)
    if client.output.mode == "json":
        client.output.json(record)
        return
    client.output.list(record["queues"], QUEUE_PLANS, empty="no queue has work")
    for each in record["queues"]:
        for note in each["notes"]:
            print_note(f"{each['queue']}: {note}")
    if found.left_out:
        print_note(f"{found.left_out:,} other queues with work were not simulated: there are too many for one plan")
