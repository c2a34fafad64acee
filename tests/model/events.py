"""The events that the model expects: what `emit.lua` is told, job by job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.events.event import Event
from holdfast.store.caller import caller_name
from tests.model.job import Job

LONGEST = 64  # bytes of a text that comes from a user


class Announced(NamedTuple):
    """One job, or one name, of an event."""

    type: str
    name: str
    queue: str
    details: tuple[tuple[str, str], ...]


class Announcements(list[Announced]):
    """What was announced since it was last looked at."""

    def of(self, kind: str, job: Job, details: Mapping[str, str] | None = None) -> None:
        self.about(kind, job.id, details, queue=job.new.queue)

    def about(self, kind: str, name: str, details: Mapping[str, str] | None = None, *, queue: str = "") -> None:
        said = tuple((key, text) for key, text in (details or {}).items() if text)
        self.append(Announced(kind, name, queue, said))


def shortened(text: str) -> str:
    return text.encode()[:LONGEST].decode(errors="ignore")


def asked_to_stop(reason: str) -> dict[str, str]:
    """What is kept of a request to stop a running job."""
    by, _, why = shortened(f"{caller_name()} {reason}").partition(" ")
    return {"by": by, "reason": why}


def announced(events: Sequence[Event]) -> list[Announced]:
    """All jobs of some events, one by one."""
    return [
        Announced(event.type, name, event.queues[place], tuple((event.details[place] if event.details else {}).items()))
        for event in events
        for place, name in enumerate(event.jobs)
    ]
