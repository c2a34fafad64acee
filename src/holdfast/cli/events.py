"""`holdfast events`: what happened to jobs, queues and workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.formatting import iso_time
from holdfast.cli.options import limit_option
from holdfast.cli.table import Table, column, field
from holdfast.cli.watch import follow_option, sleep
from holdfast.constants import MAX_BATCH
from holdfast.store.commands import Event
from holdfast.units import utc

POLL_INTERVAL = 0.25  # seconds
BEGINNING = "0-0"

EVENTS = Table(
    "event",
    field("event", "id of the event", lambda event: event.id),
    column(
        "at", "when it happened", lambda event: utc(int(event.id.partition("-")[0])),
        show=lambda record, _: iso_time(record["at"]),
    ),
    column("type", "what happened", coloured=True),
    column("who", "worker, executor or client that caused it"),
    column("jobs", "ids of the jobs, or names of the queues"),
)  # fmt: skip


@command(
    "events", "holdfast events -f", "holdfast events -n 1000 --json | jq 'select(.type == \"failed\")'",
    output=EVENTS,
)  # fmt: skip
@follow_option("Print new events until Ctrl-C.")
@limit_option("Number of past events.", default=20, minimum=0, maximum=MAX_BATCH)
@pass_client
def events(client: Client, following: bool, limit: int) -> None:
    """Print the latest events, or follow them.

    With --json, an object per line.
    """
    with suppress(KeyboardInterrupt):
        for event in _read(client.app, limit, follow=following):
            client.output.stream(EVENTS.record(event), EVENTS)


def _read(app: Holdfast, limit: int, *, follow: bool) -> Iterator[Event]:
    past = app.events(limit=max(limit, 1))
    yield from past[:limit]
    last = past[-1].id if past else BEGINNING
    while follow:
        for event in app.events(last, limit=MAX_BATCH):
            yield event
            last = event.id
        sleep(POLL_INTERVAL)
