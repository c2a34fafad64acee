"""Finding things by name, and suggesting similar names if nothing has the name that was given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import TypeVar

from holdfast import Holdfast
from holdfast.cli.errors import print_note
from holdfast.client.finding import find
from holdfast.errors import JobNotFound
from holdfast.job.job import STATES
from holdfast.names import check_queue
from holdfast.store.commands import Queue
from holdfast.text import did_you_mean, listed

T = TypeVar("T")

FULLEST, RECENT = 10, 100  # queues, and jobs of each of their states, among which similar ids are looked for
MIN_SIMILARITY = 0.85  # ids of the same hour share a beginning, so more than that has to agree


def find_queue(app: Holdfast, name: str) -> Queue:
    """Return the queue of this name.

    Raises:
        NotFound: there is none; the message suggests similar names.
    """
    return find("queue", {queue.name: queue for queue in app.queues()}, name)


def note_new_queue(app: Holdfast, queue: str) -> None:
    """Note that a queue does not exist yet: its name may be misspelt.

    Raises:
        Invalid: a queue cannot have this name.
    """
    check_queue(queue)
    names = [each.name for each in app.queues()]
    if queue not in names:
        print_note(f"queue {queue} has no jobs yet{did_you_mean(queue, names)}")


def note_undefined_limits(app: Holdfast, limits: Sequence[str]) -> None:
    """Note which limits of a job are not defined: their names may be misspelt. Workers define those of the app."""
    names = {limit.partition(":")[0] for limit in limits}.difference(app.declared_limits)
    defined = [limit.name for limit in app.limits() if limit.is_defined] if names else []
    note_undefined(names.difference(defined), defined)


def note_undefined(names: Iterable[str], defined: Sequence[str]) -> None:
    for name in sorted(names):
        print_note(f"limit {name} is not defined, so it has no effect{did_you_mean(name, defined)}")


@contextmanager
def suggesting_ids(app: Holdfast, *ids: str) -> Iterator[None]:
    """Add suggestions to an error about a missing job, if its id is one of these."""
    try:
        yield
    except JobNotFound as error:
        words = str(error).replace(";", " ").split()
        missing = next((id for id in ids if id in words), None)
        raise JobNotFound(f"{error}{JobIds(app).did_you_mean(missing) if missing else ''}") from None


class JobIds:
    """Suggests ids of recent jobs for a misspelt one.

    A part of an id is never accepted as the id: the command may delete the job.
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @cached_property
    def _recent(self) -> list[str]:
        """Recent ids of the fullest queues; a bounded number, as a typing error must not cost thousands of calls."""
        fullest = sorted(self._app.queues(), key=lambda queue: -sum(queue.counts.values()))[:FULLEST]
        pairs = [(queue.name, state) for queue in fullest for state in STATES if queue.counts[state]]
        lists = [self._app.list(queue=name, state=state, newest=True, limit=RECENT) for name, state in pairs]
        return [job.id for job in chain(*lists) if not job.unreadable]  # else a missing job could be suggested itself

    def did_you_mean(self, id: str) -> str:
        beginning = [each for each in self._recent if each.startswith(id)]
        similar = beginning[:3] or get_close_matches(id, self._recent, cutoff=MIN_SIMILARITY)
        return f"; did you mean {listed(similar)}?" if similar else ""
