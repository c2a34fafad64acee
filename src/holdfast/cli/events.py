"""The command that tells what happened, and what happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import click

from holdfast import Holdfast
from holdfast.cli.fields import EVENT
from holdfast.cli.output import Column
from holdfast.cli.records import event_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.text import moment
from holdfast.cli.watch import follow_option, pause
from holdfast.constants import MAX_BATCH
from holdfast.store.commands import Event

LOOK_EVERY = 0.25  # seconds, for new events
BEGINNING = "0-0"


@command(
    "events", "holdfast events -f", "holdfast events --limit 1000 --json | jq 'select(.type == \"failed\")'",
    fields=EVENT,
)  # fmt: skip
@follow_option("Go on as more happens, until Ctrl-C.")
@click.option(
    "--limit",
    type=click.IntRange(0, MAX_BATCH),
    metavar="NUMBER",
    default=20,
    show_default=True,
    help="How many of the past.",
)
@pass_session
def events(session: Session, watch: bool, limit: int) -> None:
    """Show what happened last.

    Each line is a time, what happened, who did it, and the ids of the jobs (or the names of queues). With --json, an
    object on each line.
    """
    columns = [
        Column("AT", lambda event: moment(event["at"])),
        Column("TYPE", lambda event: event["type"], coloured=True),
        Column("WHO", lambda event: event["who"]),
        Column("JOBS", lambda event: event["jobs"]),
    ]
    with suppress(KeyboardInterrupt):
        for event in _happening(session.app, limit, follow=watch):
            session.output.stream(event_record(event), columns)


def _happening(app: Holdfast, limit: int, *, follow: bool) -> Iterator[Event]:
    past = app.events(limit=max(limit, 1))
    yield from past[:limit]
    last = past[-1].id if past else BEGINNING
    while follow:
        for event in app.events(last, limit=MAX_BATCH):
            yield event
            last = event.id
        pause(LOOK_EVERY)
