"""Subscriptions of event handlers."""

from __future__ import annotations

from operator import attrgetter

from holdfast.client.subscriptions import Subscription
from holdfast.records.formatting import short_duration
from holdfast.records.table import Table, Time, column, done_column, field

_NAME = column("subscription", str, "name of the subscription", attrgetter("name"), whole=True)


def _events(subscription: Subscription) -> str:
    if subscription.filter is None:
        return "conditions that this release does not know"
    return subscription.filter.describe()


SUBSCRIPTIONS = Table(
    "subscription",
    _NAME,
    column("events", str, "types and conditions of the events", _events),
    column("task", str, "name of the task that handles them"),
    column("queue", str, "queue of the handler's jobs"),
    column("delivered", int, "number of jobs of the handler so far", right=True),
    column("last_at", Time | None, "when the last one was enqueued", title="LAST", right=True),
    column(
        "lag_seconds", float,
        "time from the last event that was looked at to the latest; a few seconds are normal",
        attrgetter("lag"), title="LAG", right=True, volatile=True,
        show=lambda record, _: short_duration(record["lag_seconds"]),
    ),
    column(
        "paused", bool, "whether it is paused", title="STATE", coloured=True, whole=True,
        show=lambda record, _: "paused" if record["paused"] else "active",
    ),
    column(
        "worker", str | None, "worker that delivers its events; null if none does", lambda each: each.worker or None
    ),
    field("last_job", str | None, "id of the last job of the handler", lambda each: each.last_job or None),
    field("position", str, "position in the events; `holdfast events --after` reads on from there", volatile=True),
)  # fmt: skip
REMOVED = Table("subscription", _NAME, done_column("removed"), name="RemovedSubscription")
