"""Batches: named groups of jobs, with progress, wait, cancel, and jobs at their end.

    with jobs.batch("import-7", then=report.bind()) as batch:
        batch.enqueue_many(load.bind(part) for part in parts)
    batch.wait(timeout="1h").failed

A batch is open inside the block, closed after it, and done once all its jobs have ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

import msgspec

from holdfast import errors
from holdfast.client import enqueue, queries
from holdfast.client.results import RECHECK_INTERVAL, deadline_after
from holdfast.constants import MAX_DURATION, MIN_KEEP
from holdfast.job.job import Job
from holdfast.job.option_table import not_for
from holdfast.names import check_batch, check_text, new_id
from holdfast.store import Pages, Steps, Stores, client_method, commands, paged_method, pop_message
from holdfast.store.commands import Callback
from holdfast.task.task import BoundCall, Task
from holdfast.text import pluralize
from holdfast.units import Duration, milliseconds, utc

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store

R = TypeVar("R")
BatchState = Literal["open", "closed", "done"]
STATES: tuple[str, ...] = get_args(BatchState)
MEMBERS_PER_CALL = 100  # that one call cancels
# Options of a single call that a callback cannot have: the store enqueues it later, under its own id.
_NOT_FOR_CALLBACKS = {*not_for("schedule")} - {"id", "delay", "when_unreachable"}


class App(enqueue.App, queries.App, Protocol):
    """The app that a batch belongs to."""


class BatchCallback(NamedTuple):
    """A job that is enqueued when a batch is done; `on` is done, succeeded or failed."""

    on: str
    id: str
    task: str


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a batch. Its counts include jobs whose records have been removed since."""

    name: str
    state: BatchState
    created_at: datetime
    closed_at: datetime | None
    done_at: datetime | None
    cancelled_at: datetime | None  # when `cancel` was called
    expires_at: datetime | None  # when a batch that is done is removed
    total: int
    pending: int  # jobs that have not ended
    succeeded: int
    failed: int
    cancelled: int
    callbacks: tuple[BatchCallback, ...] = ()

    @property
    def ended(self) -> int:
        return self.total - self.pending

    @property
    def fraction(self) -> float:
        """How much of the batch has ended, from 0 to 1. It falls when jobs are added."""
        return self.ended / self.total if self.total else float(self.is_done)

    @property
    def is_done(self) -> bool:
        return self.state == "done"

    @property
    def since(self) -> datetime:
        """When it entered its state."""
        return self.done_at or self.closed_at or self.created_at


class Batch:
    """A batch of jobs. `with` opens it, and closes it at the end of the block, unless that raises.

    Each method has an async counterpart whose name starts with `a`; that of `wait` is `await_`. No method does any I/O
    before it is called, so `jobs.batch("import-7")` is also the way to a batch that another program opened.
    """

    def __init__(self, app: App, name: str, callbacks: dict[str, BoundCall[Any] | None], keep: Duration | None) -> None:
        self.name = check_batch(name)
        self._app = app
        self._callbacks = {on: _check_callback(call) for on, call in callbacks.items() if call is not None}
        self._keep = None if keep is None else milliseconds(keep, what="keep", minimum=MIN_KEEP, maximum=MAX_DURATION)
        self._variants: dict[Task[..., Any], Task[..., Any]] = {}  # of tasks, with this batch

    def __repr__(self) -> str:
        return f"<Batch {self.name}>"

    @property
    def store(self) -> Store:
        return self._app.store

    @property
    def async_store(self) -> AsyncStore:
        return self._app.async_store

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is None:
            self.close()

    async def __aenter__(self) -> Self:
        await self.aopen()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()

    # Opening and closing

    def _open(self) -> Steps[bool]:
        """Open the batch. Return whether it is new; one that is still open is continued.

        Raises:
            WrongState: it is closed or done.
        """
        callbacks = [_stored_callback(self._app, on, call) for on, call in self._callbacks.items()]
        is_new: bool = yield commands.open_batch(self.name, keep=self._keep, callbacks=callbacks)
        return is_new

    def _close(self) -> Steps[bool]:
        """Close the batch: nobody but its own jobs can add more. Return whether it was open.

        Raises:
            BatchNotFound: no batch has this name.
        """
        was_open: bool = yield commands.close_batch(self.name)
        return was_open

    def _cancel(self, *, reason: str = "") -> Steps[dict[str, int]]:
        """Close the batch, and cancel all its jobs that have not ended. Return how many, by their new state.

        Its callbacks run once the last job has stopped, `on_success` only if there was nothing to cancel.

        Raises:
            BatchNotFound: no batch has this name.
        """
        counts: Counter[str] = Counter()
        cursor: str | None = None
        check_text(reason, "reason")
        while True:
            reply: commands.CancelReply = yield commands.cancel_batch(
                self.name, reason=reason, cursor=cursor, limit=MEMBERS_PER_CALL
            )
            counts.update({answer: count for answer, count in reply.answers.items() if answer.islower()})
            cursor = reply.cursor
            if cursor is None:
                return dict(counts)

    def _delete(self) -> Steps[None]:
        """Delete a batch that is done. Its jobs stay.

        Raises:
            BatchNotFound: no batch has this name.
            WrongState: it is not done; `close` or `cancel` it.
        """
        yield commands.delete_batch(self.name)

    # Jobs of the batch

    def _enqueue(self, call: BoundCall[R], /) -> Steps[Job[R]]:
        """Enqueue a call as a job of this batch.

        batch.enqueue(load.bind("part-1"))

        The same as `task.options(batch=batch).enqueue(...)`. While the server is unreachable, calls of a batch raise
        StoreUnavailable, even with another `when_unreachable`.

        Raises:
            BatchNotFound: the batch was not opened.
            WrongState: it is closed, and the caller is not one of its jobs; or it is done or was cancelled.
        """
        return (yield from enqueue.enqueue(self._app, self._member(call)))

    def _enqueue_many(self, calls: Iterable[BoundCall[Any]], *, fresh: bool = False) -> Steps[list[Job[Any]]]:
        """Enqueue calls as jobs of this batch, as `jobs.enqueue_many` does."""
        members: Any = [self._member(call) for call in calls] if isinstance(calls, list) else map(self._member, calls)
        return (yield from enqueue.enqueue_many(self._app, members, fresh=fresh))

    def _member(self, call: Any) -> Any:
        if not isinstance(call, BoundCall):
            return call  # `enqueue` explains what is wrong
        variant = self._variants.get(call.variant)
        if variant is None:
            variant = call.variant.options(batch=self.name)
            if len(self._variants) < 1000:
                self._variants[call.variant] = variant
        return BoundCall(call.id, variant, call.payload)

    def _jobs(self, *, state: str | None = None, limit: int | None = None) -> Pages[Job[Any]]:
        """Iterate over the jobs of the batch that still have a record.

        Without a `state`, they come in the order of their enqueue. `state` is a state, or `pending`, which stands for
        five. The jobs have no payload, result or attempts. `jobs.list(batch=...)` takes more filters.

        Raises:
            BatchNotFound: no batch has this name.
        """
        [found] = yield commands.get_batches([self.name])
        if found is None:
            raise errors.BatchNotFound(f"batch {self.name} does not exist")
        yield from queries.list_jobs(self._app, limit=limit, batch=self.name, state=state)

    # Looking and waiting

    def _status(self) -> Steps[BatchStatus]:
        """Return how far the batch is.

        Raises:
            BatchNotFound: no batch has this name; it may have been removed after it was done.
        """
        [found] = yield commands.get_batches([self.name])
        if found is None:
            raise errors.BatchNotFound(f"batch {self.name} does not exist")
        return read_batch(found)

    def _wait(self, timeout: Duration | None = None) -> Steps[BatchStatus]:
        """Wait until the batch is done, and return how it ended.

        Raises:
            BatchNotFound: no batch has this name.
            ResultTimeout: it was not done within the timeout.
        """
        inbox, deadline = new_id(), deadline_after(timeout)
        while True:
            waiting: commands.BatchWait = yield commands.wait_for_batch(self.name, inbox)
            if waiting.state == "done":
                return (yield from self._status())
            left = RECHECK_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise errors.ResultTimeout(_why_not_done((yield from self._status())))
            yield pop_message(self, waiting.inbox_key, max(0.01, min(RECHECK_INTERVAL, left)))

    open, aopen = client_method(_open)
    close, aclose = client_method(_close)
    cancel, acancel = client_method(_cancel)
    delete, adelete = client_method(_delete)
    enqueue, aenqueue = client_method(_enqueue)
    enqueue_many, aenqueue_many = client_method(_enqueue_many)
    jobs, ajobs = paged_method(_jobs, "jobs")
    status, astatus = client_method(_status)
    wait, await_ = client_method(_wait)


def batch(
    self: App,
    name: str,
    /,
    *,
    then: BoundCall[Any] | None = None,
    on_success: BoundCall[Any] | None = None,
    on_failure: BoundCall[Any] | None = None,
    keep: Duration | None = None,
) -> Batch:
    """Return a batch: a named group of jobs, with progress, wait, cancel, and jobs at its end.

    with jobs.batch("import-7", then=report.bind()) as batch:
        batch.enqueue_many(load.bind(part) for part in parts)

    `then` is enqueued once, when the batch is closed and all its jobs have ended, with any outcome; `on_success` if all
    succeeded, `on_failure` if not. `keep` is how long the batch is kept after that; by default 7 days.
    """
    return Batch(self, name, {"done": then, "succeeded": on_success, "failed": on_failure}, keep)


def batches(_: Stores, *, state: BatchState | None = None, limit: int | None = None) -> Pages[BatchStatus]:
    """Iterate over batches, newest first, optionally those that are `open`, `closed` or `done`."""
    if state is not None and state not in STATES:
        raise errors.Invalid(f"state is {state!r}; it must be one of {', '.join(map(repr, STATES))}")
    cursor, left = None, limit
    while left is None or left > 0:
        found: commands.BatchesPage = yield commands.list_batches(
            states=None if state is None else [state], limit=min(queries.page_size(left), 100), cursor=cursor
        )
        yield [read_batch(fields) for fields in found.batches]
        cursor, left = found.cursor, None if left is None else left - len(found.batches)
        if cursor is None:
            return


def batch_page(
    cursor: str | None = None, *, limit: int, state: BatchState | None = None
) -> Steps[tuple[list[BatchStatus], str | None]]:
    """Return a page of batches, newest first, and the cursor of the next."""
    states, position = None if state is None else [state], None if cursor is None else cursor.split(",")
    found: commands.BatchesPage = yield commands.list_batches(states=states, limit=limit, cursor=position)
    return [read_batch(fields) for fields in found.batches], ",".join(found.cursor) if found.cursor else None


def read_batch(fields: dict[str, Any]) -> BatchStatus:
    counts = {name: fields[name] for name in ("succeeded", "failed", "cancelled")}
    return BatchStatus(
        name=fields["name"],
        state=fields["state"],
        created_at=utc(fields["created"]),
        closed_at=_time(fields["closed"]),
        done_at=_time(fields["done"]),
        cancelled_at=_time(fields["cancelling"]),
        expires_at=_time(fields["expires"]),
        **counts,
        pending=fields["open"],
        total=fields["open"] + sum(counts.values()),
        callbacks=tuple(BatchCallback(*row) for row in fields["callbacks"]),
    )


def _time(ms: int) -> datetime | None:
    return utc(ms) if ms else None


def _check_callback(call: BoundCall[R]) -> BoundCall[R]:
    if not isinstance(call, BoundCall):
        raise errors.Invalid(f"expected a bound call, as task.bind(...), got {call!r}")
    for option in sorted(_NOT_FOR_CALLBACKS):
        if getattr(call.effective_options, option) is not None:
            raise errors.Invalid(f"a job at the end of a batch cannot have the option {option}")
    return call


def _stored_callback(app: App, on: str, call: BoundCall[Any]) -> Callback:
    """Return a callback as the store keeps it, with the scope and the context that it would carry now."""
    command = enqueue.Chunk.of(app, [call]).command
    [job] = command.args["batches"]
    return Callback(on, call.id, job, call.payload)


def _why_not_done(status: BatchStatus) -> str:
    if status.state == "open":
        return f"batch {status.name} is still open, so it cannot be done: close it once no more jobs are added"
    left = f"{status.pending:,} of {pluralize(status.total, 'job')}"
    return f"batch {status.name} was not done within the timeout: {left} have not ended"
