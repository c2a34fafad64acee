"""`holdfast events`: what happened to jobs, queues and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_event_type, complete_ids, complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import limit_option
from holdfast.cli.watch import follow_option, sleep
from holdfast.client.events import EventReader
from holdfast.constants import MAX_BATCH
from holdfast.errors import StoreUnavailable
from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.records.events import EVENTS
from holdfast.store import commands, drive

MAX_WAIT = 0.5  # seconds until the end of a pipe is noticed
PAST = 20  # events


_FILTERS = (
    click.option("--type", "types", multiple=True, metavar="TYPE", shell_complete=complete_event_type,
                 help="Only events of this type; may be repeated."),
    click.option("--queue", shell_complete=complete_queue, help="Only of jobs in this queue, and of the queue."),
    click.option("--job", metavar="ID", shell_complete=complete_ids, help="Only of this job."),
    click.option("--worker", metavar="NAME", help="Only those that this node, worker or executor caused."),
    click.option("--tag", help="Only of jobs with this tag."),
    click.option("--scope", metavar="PATH", help="Only of jobs in this scope, or below it."),
    click.option("--tracked", is_flag=True, help="Only of tracked jobs."),
)  # fmt: skip


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options that select events."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@command(
    "events",
    "holdfast events -f --queue mail --type failed",
    "holdfast events -f --job KEY",
    "holdfast events --after start --json | jq -r 'select(.type == \"failed\").jobs[]'",
    output=EVENTS,
)
@follow_option("Print new events until Ctrl-C.")
@limit_option(
    "Number of past events, among the last 1,000. Default: 20; with --after, all.", minimum=0, maximum=MAX_BATCH
)
@click.option("--after", metavar="ID", help="Begin after the event with this id, or with `start` at the oldest one.")
@filter_options
@pass_client
def events(client: Client, /, following: bool, limit: int | None, after: str | None, **conditions: Any) -> None:
    """Print the latest events, or follow them.

    Of an event with several jobs, only those that match are printed. If events after --after are no longer kept, an
    event of the type `gap` comes first. With --json, an object per line; its `event` is the id to continue after.
    """
    selects = EventFilter.of(**conditions)
    with suppress(KeyboardInterrupt):
        for event in _read(client, selects, after, limit, follow=following):
            client.output.stream(EVENTS.record(event), EVENTS)


def _read(
    client: Client, selects: EventFilter, after: str | None, limit: int | None, *, follow: bool
) -> Iterator[Event]:
    run = client.app.store.run
    if after is None:
        page = run(commands.events(limit=MAX_BATCH, types=selects.types))
        past = [event for event in map(selects.select, page.events) if event]
        count = PAST if limit is None else limit
        yield from past[len(past) - min(count, len(past)) :]
        after = page.position or "0-0"
        if not follow:
            return
    reader, left = EventReader(selects, after, max_wait=MAX_WAIT), limit
    while follow or reader.may_have_more:
        for event in _poll(client, reader):
            if left == 0 and not follow:
                return
            left = None if left is None else left - 1
            yield event
        if follow:
            sleep(0)


def _poll(client: Client, reader: EventReader) -> list[Event]:
    """Read the next events. During an outage, note it once and try again."""
    noted = False
    while True:
        try:
            return drive(reader.poll(client.app), client.app.store.run)
        except StoreUnavailable as error:
            if not noted:
                print_note(f"{error}; trying again")
            noted = True
            sleep()
