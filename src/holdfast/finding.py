"""Looking at jobs: one, some, all of a queue, and what happened last. Verbs of the client; see `verbs`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from holdfast import commands, errors
from holdfast.commands import Command
from holdfast.job import PENDING, Job, read_job
from holdfast.program import PROGRAM, RESULT
from holdfast.task import Task
from holdfast.verbs import Steps, Stores

PAGE = 1000  # jobs


class App(Stores, Protocol):
    """A client, and the tasks whose results it can read."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]: ...


def read(app: App, fields: dict[str, Any]) -> Job[Any]:
    """Make a snapshot of what the store says of a job; its result will be what its task is annotated to return."""
    name, owner = fields.get("task", ""), app
    task = app.tasks.get(name)
    returns = task.signature.result if task else RESULT if name == PROGRAM else None
    return read_job(fields, owner, returns)  # type: ignore[arg-type] # what a job asks of it is verbs too


def get(self: App, id: str, /) -> Steps[Job[Any]]:
    """Return a job.

    Raises:
        JobNotFound: there is none of this id.
    """
    found = yield commands.get([id])
    if found[0] is None:
        raise errors.JobNotFound(f"there is no job {id}; it may have been deleted")
    return read(self, found[0])


def get_many(self: App, ids: Sequence[str]) -> Steps[list[Job[Any] | None]]:
    """Return up to 1,000 jobs in one call, None for each that does not exist."""
    found = yield commands.get(ids)
    return [read(self, fields) if fields else None for fields in found]


def list_jobs(
    self: App, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
) -> Iterator[Job[Any]]:
    """Iterate over jobs, of a queue or all, in a state or any (`pending` is five of them), a page at a time.

    They come queue by queue, and state by state. With `newest` those of all queues come together, the last that changed
    first; of waiting and scheduled jobs, the last to run.

    What it yields has no payload, result or attempts: `refresh` a job to see them.
    """
    cursor, left = None, limit
    while left is None or left > 0:
        page = self.store.run(_page(queue, state, newest, left, cursor))
        yield from (read(self, fields) for fields in page.jobs)
        cursor, left = page.cursor, None if left is None else left - len(page.jobs)
        if cursor is None:
            return


async def alist_jobs(
    self: App, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
) -> AsyncIterator[Job[Any]]:
    """Iterate over jobs, as `list` does."""
    cursor, left = None, limit
    while left is None or left > 0:
        page = await self.async_store.run(_page(queue, state, newest, left, cursor))
        for fields in page.jobs:
            yield read(self, fields)
        cursor, left = page.cursor, None if left is None else left - len(page.jobs)
        if cursor is None:
            return


for _made, _name in ((list_jobs, "list"), (alist_jobs, "alist")):  # by which Python says that an argument is wrong
    _made.__name__, _made.__qualname__ = _name, f"Holdfast.{_name}"


def count(_: Stores, *, queue: str | None = None, state: str | None = None) -> Steps[int]:
    """Count jobs, of a queue or all, in a state or any."""
    number: int = yield commands.count(queues=_only(queue), states=_states_of(state))
    return number


def events(_: Stores, after: str | None = None, *, limit: int = 100) -> Steps[list[commands.Event]]:
    """Return what happened after an event, or last."""
    found: list[commands.Event] = yield commands.events(after, limit=limit)
    return found


def _page(
    queue: str | None, state: str | None, newest: bool, left: int | None, cursor: Sequence[str] | None
) -> Command[commands.Page]:
    limit = PAGE if left is None else min(left, PAGE)
    return commands.list_jobs(queues=_only(queue), states=_states_of(state), limit=limit, newest=newest, cursor=cursor)


def _only(queue: str | None) -> list[str] | None:
    return None if queue is None else [queue]


def _states_of(state: str | None) -> list[str] | None:
    """Return the states that a word stands for: `pending` is the first five."""
    if state is None:
        return None
    return list(PENDING) if state == "pending" else [state]
