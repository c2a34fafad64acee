"""An event, as readers of the stream get it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.events.types import BY_NAME, GAP
from holdfast.units import utc


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job can be found by besides its queue and state."""

    tags: tuple[str, ...] = ()
    scope: str | None = None
    batch: str | None = None
    tracked: bool = False

    @classmethod
    def parse(cls, text: str) -> Marks:
        """Read the marks of a job as its record has them: an entry a line, a letter and a name."""
        tags: list[str] = []
        scope = batch = None
        tracked = False
        for line in text.split("\n"):
            match line[:1]:
                case "#":
                    tags.append(line[1:])
                case "/":
                    scope = line
                case "=":
                    batch = line[1:]
                case "!":
                    tracked = True
        return cls(tuple(tags), scope, batch, tracked)


NO_MARKS = Marks()
_FIELDS = 6  # of an entry of the stream, with its id


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened, to one or several jobs in one call.

    `queues`, `details` and `marks` have an entry for each of the `jobs`, in their order; `details` and `marks` are
    empty if no job has any. The `id` is opaque; pass it as `after` to continue after this event.
    """

    id: str
    at: datetime
    type: str
    jobs: tuple[str, ...] = ()  # ids of jobs; or names of what the event is about: queues, limits, schedules, workers
    who: str = ""  # worker, executor or client that caused it
    queues: tuple[str, ...] = ()  # "" for what has no queue
    details: tuple[dict[str, str], ...] = ()
    marks: tuple[Marks, ...] = ()

    @property
    def job(self) -> str:
        """The id of the first job, which is often the only one; "" if the event is not about a job."""
        return self.jobs[0] if self.jobs and self.is_about_jobs else ""

    @property
    def queue(self) -> str:
        """The queue of the first job, or the queue that the event is about; "" if there is none."""
        return self.queues[0] if self.queues else ""

    @property
    def detail(self) -> dict[str, str]:
        """The details of the first job."""
        return self.details[0] if self.details else {}

    @property
    def is_about_jobs(self) -> bool:
        """Whether `jobs` are ids of jobs."""
        return self.type not in BY_NAME or BY_NAME[self.type].about == "job"

    @property
    def is_gap(self) -> bool:
        """Whether events before this one are missing: they were no longer kept when they were read."""
        return self.type == GAP

    def select(self, places: Sequence[int]) -> Event:
        """Return the event with only these of its jobs."""
        if len(places) == len(self.jobs):
            return self

        def chosen(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(values[place] for place in places) if values else ()

        return msgspec.structs.replace(
            self,
            jobs=chosen(self.jobs),
            queues=chosen(self.queues),
            details=chosen(self.details),
            marks=chosen(self.marks),
        )


def gap_before(id: str, after: str) -> Event:
    """Return the event that stands for those missing before the one with this id; `after`: the last position known."""
    return Event(f"={id}", time_of(id), GAP, details=({"after": after},))


def time_of(id: str) -> datetime:
    return utc(int(id.lstrip("=").partition("-")[0]))


def read_event(row: Iterable[bytes]) -> Event:
    """Read an entry of the stream: its id, and its fields by position.

    Earlier releases wrote no queues and nothing after them, and later ones may add fields. What is damaged is left out:
    a reader that stopped at such an entry would never get past it.
    """
    parts = [part.decode(errors="replace") for part in row]
    id, kind, names, who, queues, more, *_ = [*parts, *[""] * (_FIELDS - len(parts))]
    jobs = tuple(names.split())
    details, _, marks = more.partition("\n")
    return Event(
        id,
        time_of(id),
        kind,
        jobs,
        who,
        _read_queues(queues, len(jobs)),
        _read_details(kind, details, len(jobs)),
        _read_marks(marks, len(jobs)),
    )


def _texts(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text or "[]", type=list[str])
    except msgspec.MsgspecError:
        return []


def _read_queues(text: str, count: int) -> tuple[str, ...]:
    """Read `name count name count ... name`; the last name covers the rest."""
    found: list[str] = []
    *runs, last = text.split(" ")
    for name, number in zip(runs[::2], runs[1::2], strict=False):
        found += [name] * min(int(number) if number.isdecimal() else 0, count)
    found += [last] * (count - len(found))
    return tuple("" if name == "*" else name for name in found[:count])


def _read_details(kind: str, text: str, count: int) -> tuple[dict[str, str], ...]:
    """Read the details of each job, or those that all jobs share. Names of a newer release are unknown here."""
    texts, names = _texts(text), BY_NAME[kind].details if kind in BY_NAME else ()
    if not names or not texts:
        return ()
    size = len(texts) // count if count and len(texts) >= len(names) * count else len(texts)
    each = [
        {name: value for name, value in zip(names, texts[place : place + size], strict=False) if value}
        for place in range(0, len(texts), size)
    ]
    if len(each) == 1:
        return tuple(each * count)
    return tuple(each) if len(each) == count else ()


def _read_marks(text: str, count: int) -> tuple[Marks, ...]:
    """Read the marks of each job, or those that all jobs share."""
    each = [Marks.parse(marks) for marks in _texts(text)]
    if len(each) == 1:
        return tuple(each * count)
    return tuple(each) if len(each) == count else ()
