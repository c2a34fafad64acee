"""Items: bytes in a queue, without tasks and workers."""

from __future__ import annotations

from typing import Any

from holdfast.job.as_dict import decoded
from holdfast.records.table import Table, column, field
from holdfast.redis_work_queue.names import to_bytes

_ID = column("id", str, "id of the item", whole=True)


def printable_id(id: str | bytes) -> str:
    """Return an id as text for people: bytes that are not UTF-8 are escaped."""
    return to_bytes(id, "an id").decode("utf-8", "backslashreplace")


STORED_ITEM = Table(
    "item",
    _ID,
    field("created", bool, "whether it was stored now; false if an item with this id existed"),
    name="StoredItem",
)
CLAIMED_ITEM = Table(
    "item",
    field("token", str, "token that renews and ends it"),
    field("id", str, "id of the item", lambda item: printable_id(item.id)),
    field("queue", str, "name of the queue"),
    field("attempt", int | None, "number of claims, including this one", lambda item: getattr(item, "attempt", None)),
    field("lease_seconds", float, "length of the lease", lambda item: item.lease),
    field("payload", Any, "its bytes as text, or in base64 in an object", lambda item: decoded(item.payload, "raw")),
    field(
        "data", Any, "data saved by an earlier attempt, in the same form",
        lambda item: decoded(getattr(item, "data", None), "raw"),
    ),
    name="ClaimedItem",
)  # fmt: skip
RENEWED_ITEM = Table(
    "item",
    field("id", str, "id of the item"),
    field("cancelled", bool, "whether it was cancelled: stop, and release it"),
    name="RenewedItem",
)
ENDED_ITEM = Table("item", _ID, column("ended", str, "completed, failed or released", title=""), name="EndedItem")
CLEANED_QUEUE = Table(
    "queue",
    column("queue", str, "name of the queue", whole=True),
    column("put_back", int, "number of abandoned items that were put back", right=True),
    name="CleanedQueue",
)
LENGTHS = Table(
    "queue",
    column("queue", str, "name of the queue", whole=True),
    column("length", int, "number of items that wait", right=True),
    column("in_progress", int, "number of items in progress, or abandoned", right=True),
    name="QueueLength",
)
