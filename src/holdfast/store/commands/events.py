"""Events and subscriptions: read the stream, and hand events to the jobs of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.events.event import Event, gap_before, read_event
from holdfast.store.commands.command import Command, Fields, omit_none, read_record, read_texts


class EventPage(NamedTuple):
    """Events in order, a gap among them; and where to read on."""

    events: list[Event]
    key: bytes  # of the stream
    position: str  # of the last event that was looked at; "" if there is none
    has_more: bool


def events(
    after: str | None = None, *, before: str | None = None, limit: int = DEFAULT_PAGE, types: Sequence[str] = ()
) -> Command[EventPage]:
    """Return the events after a position, perhaps only of some types; without a position, the latest.

    `before` an event, or "end": those before it, the latest first.
    """

    def read(reply: list[Any]) -> EventPage:
        key, has_more, gap, last, *rows = reply
        missing = [gap_before(gap.decode(), after or "")] if gap else []
        return EventPage([*missing, *map(read_event, rows)], key, last.decode(), has_more == 1)

    return Command("events", omit_none(after=after, before=before, limit=limit, types=list(types) or None), read)


def declare_subscription(name: str, spec: str, batch: Fields, revision: int, start: str) -> Command[bool]:
    args = {"name": name, "spec": spec, "batch": batch, "revision": revision, "start": start}
    return Command("declare_subscription", args, lambda reply: reply == 1)


class LeasedSubscription(NamedTuple):
    """A subscription that a worker holds."""

    name: str
    position: str
    spec: str
    is_paused: bool


def lease_subscriptions(names: Sequence[str], worker: str, lease: int) -> Command[list[LeasedSubscription]]:
    """Lease subscriptions, or give them back with a lease of 0. Return those that the worker holds."""

    def read(reply: list[bytes]) -> list[LeasedSubscription]:
        parts = iter(read_texts(reply))
        return [LeasedSubscription(*row[:3], row[3] == "1") for row in zip(parts, parts, parts, parts, strict=True)]

    return Command("lease_subscriptions", {"names": list(names), "worker": worker, "lease": lease}, read)


def deliver(
    name: str, worker: str, expected: str, position: str, jobs: Sequence[tuple[str, bytes]] = ()
) -> Command[tuple[str, bool]]:
    """Enqueue jobs of a handler, each an id and a payload, and move the position; return it, and whether it moved."""
    args = {"name": name, "worker": worker, "expected": expected, "position": position}
    blobs = (" ".join(id for id, _ in jobs).encode(), *(payload for _, payload in jobs)) if jobs else ()
    return Command("deliver", args, lambda reply: (reply[0].decode(), reply[1] == 1), blobs)


def pause_subscription(name: str) -> Command[bool]:
    return Command("pause_subscription", {"name": name}, lambda reply: reply == 1)


def resume_subscription(name: str) -> Command[bool]:
    return Command("resume_subscription", {"name": name}, lambda reply: reply == 1)


def unsubscribe(name: str) -> Command[bool]:
    return Command("unsubscribe", {"name": name}, lambda reply: reply == 1)


def subscriptions(names: Sequence[str] | None = None, *, after: str | None = None) -> Command[list[Fields]]:
    """Return the subscriptions of these names, or one page of all: those whose names sort after `after`."""

    def read(reply: list[list[Any]]) -> list[Fields]:
        return [read_record(part) for part in reply]

    return Command("subscriptions", omit_none(names=names, after=after), read)
