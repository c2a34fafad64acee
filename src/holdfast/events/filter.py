"""Which events a subscription selects: a predicate on single jobs, because one entry of the stream may name many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.events.event import NO_MARKS, Event, Marks
from holdfast.events.types import BY_NAME
from holdfast.names import HANDLER_PREFIX, check_id, check_name
from holdfast.text import suggestion


class EventFilter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Conditions that must all be true. Without any, everything matches."""

    types: tuple[str, ...] = ()  # any of these
    queue: str | None = None  # of the job; or from which it was moved
    job: str | None = None
    worker: str | None = None  # that caused it; a node, a worker or an executor
    tag: str | None = None
    scope: str | None = None  # of the job, or one above it
    tracked: bool = False

    @classmethod
    def of(
        cls,
        types: str | Sequence[str] | None = None,
        *,
        queue: str | None = None,
        job: str | None = None,
        worker: str | None = None,
        tag: str | None = None,
        scope: str | None = None,
        tracked: bool = False,
    ) -> EventFilter:
        """Check conditions.

        Raises:
            Invalid: a type is unknown, or a name is not valid.
        """
        chosen = (types,) if isinstance(types, str) else tuple(types or ())
        for each in chosen:
            if each not in BY_NAME:
                raise Invalid(f"unknown type of event {each!r}{suggestion(str(each), BY_NAME)}")
        if queue is not None:
            check_name(queue, "a queue")
        if job is not None:
            check_id(job)
        for name, value in (("worker", worker), ("tag", tag), ("scope", scope)):
            if value is not None and (not isinstance(value, str) or not value):
                raise Invalid(f"{name} is {value!r}; it must be text")
        if scope is not None and not scope.startswith("/"):
            raise Invalid(f"scope is {scope!r}; it must begin with a slash, as /{scope}")
        return cls(chosen, queue, job, worker, tag, scope.rstrip("/") if scope else None, bool(tracked))

    def select(self, event: Event, *, handlers: bool = True) -> Event | None:
        """Return the event with the jobs that match; None if none do. A gap always matches.

        Without `handlers`, jobs of handlers do not match.
        """
        if event.is_gap:
            return event
        if self.types and event.type not in self.types:
            return None
        if self.worker is not None and not _is_of(event.who, self.worker):
            return None
        places = [place for place in range(len(event.jobs)) if self._matches(event, place, handlers)]
        return event.select(places) if places else None

    def _matches(self, event: Event, place: int, handlers: bool) -> bool:
        if event.is_about_jobs:
            id = event.jobs[place]
            if (not handlers and id.startswith(HANDLER_PREFIX)) or (self.job is not None and id != self.job):
                return False
        elif self.job is not None:
            return False
        if self.queue is not None and self.queue not in _queues_of(event, place):
            return False
        if not (self.tag or self.scope or self.tracked):
            return True
        return self._matches_marks(event.marks[place] if event.marks else NO_MARKS)

    def _matches_marks(self, marks: Marks) -> bool:
        if self.tag is not None and self.tag not in marks.tags:
            return False
        if self.scope is not None and not f"{marks.scope or ''}/".startswith(f"{self.scope}/"):
            return False
        return marks.tracked or not self.tracked

    def describe(self) -> str:
        """Return the conditions as text."""
        named: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value and name != "types"
        }
        parts = [
            " ".join(self.types),
            *(f"{name}={value}" if value is not True else name for name, value in named.items()),
        ]
        return " ".join(part for part in parts if part)


def _is_of(who: str, worker: str) -> bool:
    """Return whether an executor or a worker is the one that is named, or belongs to it."""
    return who == worker or who.startswith((f"{worker}.", f"{worker}/"))


def _queues_of(event: Event, place: int) -> tuple[str, ...]:
    """Return the queue of a job; if it was moved, also the one that it left."""
    found = (event.queues[place],)
    return (*found, event.details[place].get("from", "")) if event.details else found
