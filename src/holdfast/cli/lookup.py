"""Finding what users name, and what they may have meant if there is nothing of that name."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from holdfast import Holdfast
from holdfast.cli.complaints import note
from holdfast.cli.exits import NotFound
from holdfast.errors import Invalid, JobNotFound
from holdfast.job.job import PENDING, STATES, Job
from holdfast.names import check_queue
from holdfast.store.commands import Queue
from holdfast.text import did_you_mean, listed

T = TypeVar("T")

WORDS = (*STATES, "pending")
SORTED = 20_000  # jobs that are put in order; more are not
FULLEST, RECENT = 10, 100  # queues, and jobs of each of their states, among which a mistyped id is looked for
ALIKE = 0.85  # ids that are close in time begin alike, so more than the beginning must agree


def chosen_states(words: Sequence[str]) -> list[str]:
    """Return the states that words stand for: `a,b`, or `pending` for the first five; all if there are no words."""
    wanted: set[str] = set()
    for word in (part.strip() for each in words for part in each.split(",")):
        if word not in WORDS:
            question = did_you_mean(word, WORDS)
            there_are = f"there are {', '.join(STATES)}, and pending for the first five"
            raise Invalid(f"there is no state {word!r}{question or f'; {there_are}'}")
        wanted.update(PENDING if word == "pending" else [word])
    return [state for state in STATES if state in wanted or not wanted]


def pick(kind: str, known: Mapping[str, T], name: str) -> T:
    """Return what has this name.

    Raises:
        NotFound: nothing has; the message says what is like it.
    """
    if name in known:
        return known[name]
    there_are = f"; there are {', '.join(sorted(known)[:10])}" if known else ", nor any other"
    raise NotFound(f"there is no {kind} {name}{did_you_mean(name, known) or there_are}")


def find_queue(app: Holdfast, name: str) -> Queue:
    """Return a queue by its name, or say that there is none."""
    return pick("queue", {queue.name: queue for queue in app.queues()}, name)


def note_new_queue(app: Holdfast, queue: str) -> None:
    """Say that a queue is not known yet: its name may be mistyped; or refuse a name that is none."""
    check_queue(queue)
    names = [each.name for each in app.queues()]
    if queue not in names:
        note(f"queue {queue} has no jobs yet{did_you_mean(queue, names)}")


def note_undefined_limits(app: Holdfast, limits: Sequence[str]) -> None:
    """Say to people that a limit does not hold: its name may be mistyped."""
    names = {limit.partition(":")[0] for limit in limits}
    known = [limit.name for limit in app.limits() if limit.is_defined] if names else []
    note_undefined(names.difference(known), known)


def note_undefined(names: Iterable[str], known: Sequence[str]) -> None:
    """Say which limits nobody has defined, and which may have been meant."""
    for name in sorted(names):
        note(f"limit {name} is not defined, so it has no effect{did_you_mean(name, known)}")


def select(
    app: Holdfast, queues: Sequence[Queue], states: Sequence[str], *, newest: bool, limit: int | None
) -> Iterator[Job[Any]]:
    """Return the jobs of some queues in some states, by the time of their last change.

    The store lists queue by queue and state by state, some by other times; so we sort. Of what is too much for that the
    lists are merged as they come, and the order is only about that of time.
    """
    places = [(queue.name, state) for queue in queues for state in states if queue.counts[state]]
    total = sum(queue.counts[state] for queue in queues for state in states)
    lists = [app.list(queue=name, state=state, newest=newest, limit=limit) for name, state in places]
    if len(lists) == 1:
        return lists[0]
    if limit is not None or total <= SORTED:
        return iter(sorted(chain(*lists), key=_since, reverse=newest)[:limit])
    return heapq.merge(*lists, key=_since, reverse=newest)


def _since(job: Job[Any]) -> datetime:
    return job.since


@contextmanager
def saying_which(app: Holdfast, *ids: str) -> Iterator[None]:
    """Have an error about a job that does not exist say which one may have been meant; its id is one of these."""
    try:
        yield
    except JobNotFound as error:
        said = str(error).replace(";", " ").split()
        missing = next((id for id in ids if id in said), None)
        raise JobNotFound(f"{error}{Ids(app).did_you_mean(missing) if missing else ''}") from None


class Ids:
    """Says which job a mistyped id may have been meant for. It only says so: a part of an id is never accepted as one,
    for what it leads to may be deleted."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @cached_property
    def _recent(self) -> list[str]:
        """Some ids, of the fullest queues: a mistake is not to cost thousands of calls."""
        fullest = sorted(self._app.queues(), key=lambda queue: -sum(queue.counts.values()))[:FULLEST]
        places = [(queue.name, state) for queue in fullest for state in STATES if queue.counts[state]]
        lists = [self._app.list(queue=name, state=state, newest=True, limit=RECENT) for name, state in places]
        return [job.id for job in chain(*lists) if not job.unreadable]  # or one that is gone would be suggested itself

    def did_you_mean(self, id: str) -> str:
        begun = [each for each in self._recent if each.startswith(id)]
        near = begun[:3] or get_close_matches(id, self._recent, cutoff=ALIKE)
        return f"; did you mean {listed(near)}?" if near else ""
