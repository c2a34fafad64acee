"""What becomes of calls when the store cannot be reached: the choice of the app, of a task, or of a call.

    raise    StoreUnavailable, within two seconds
    inline   the task runs here and now
    keep     the call is written to disk, and sent later: in order, and stored once

While anything is kept, later calls that are to be kept line up behind it: the store is not even asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_args

import msgspec

from holdfast import errors
from holdfast.client.enqueue import Calls, Part, store_part, stored_job, tasks_of, with_call
from holdfast.constants import MAX_BATCH, MAX_PAYLOAD
from holdfast.job import job
from holdfast.job.job import Job
from holdfast.job.options import WhenUnreachable
from holdfast.server.home import find_home
from holdfast.store.deadline import Deadline
from holdfast.store.steps import Action, Steps
from holdfast.store.store import Address
from holdfast.task.task import BoundCall, Task

if TYPE_CHECKING:  # loaded when they are needed: most programs never do
    from logging import Logger

    from holdfast.outbox.outbox import Outbox
    from holdfast.outbox.sender import Place, Sender

R = TypeVar("R")
T = TypeVar("T")
Jobs = list[Job[Any]]


class App(job.App, Protocol):
    """Where calls are stored."""

    @property
    def outage_policy(self) -> OutagePolicy: ...
    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...


def store_calls(calls: Iterable[BoundCall[Any]], app: App, *, fresh: bool = False) -> Steps[Jobs]:
    """Store calls in order; up to 1,000 are stored together or not at all, more in parts of that size.

    While the server works on one part, the jobs of the last are made, and the next is made ready.
    """
    if isinstance(calls, Sequence):
        app.outage_policy.choice_of(tasks_of(calls))  # all are refused, or none
    jobs: Jobs = []
    stored: Iterator[Job[Any]] = iter(())  # those of the last part
    is_begun = False
    parts = _Ahead(_parts(calls, app, fresh))

    def meanwhile() -> None:
        jobs.extend(stored)
        parts.fetch()

    try:
        while part := parts.take():
            latest = yield from store_or_else(part, app, fresh=fresh, meanwhile=meanwhile)
            jobs.extend(stored)  # if there was no time for it
            stored, is_begun = iter(latest), True
    except errors.StoreUnavailable as error:  # of ours, or raised by who makes the calls
        error.maybe_done = error.maybe_done or is_begun
        raise
    jobs.extend(stored)
    return jobs


def store_call(call: BoundCall[R], app: App) -> Steps[Job[R]]:
    """Store one call."""
    [job] = yield from store_or_else(Part.of([call], app), app)
    return job


def _parts(calls: Iterable[BoundCall[Any]], app: App, fresh: bool) -> Iterator[Part]:
    left = iter(calls)
    while some := list(islice(left, MAX_BATCH)):
        yield Part.of(some, app, fresh=fresh)


class _Ahead(Generic[T]):
    """Items, of which one can be fetched before it is taken. What is raised by then is raised when it is taken."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._fetched: tuple[T | None, Exception | None] | None = None

    def fetch(self) -> None:
        self._fetched = self._next()

    def take(self) -> T | None:
        """Return the next item, or None."""
        item, error = self._fetched or self._next()
        self._fetched = None
        if error is not None:
            raise error
        return item

    def _next(self) -> tuple[T | None, Exception | None]:
        try:
            return next(self._items, None), None
        except Exception as error:
            return None, error


def store_or_else(
    part: Part, app: App, *, fresh: bool = False, meanwhile: Callable[[], None] | None = None
) -> Steps[Iterable[Job[Any]]]:
    """Store calls together, or do what they choose if the store cannot be reached."""
    otherwise, choice = app.outage_policy, app.outage_policy.choice_of(part.tasks)
    jobs: Iterable[Job[Any]]
    if choice == "outbox" and otherwise.outbox.has_entries and not (yield otherwise.catching_up()):
        jobs = yield otherwise.keeping(part, app, None)
        return jobs
    _get_ready()
    deadline = Deadline(size=sum(map(len, part.command.blobs)), meanwhile=meanwhile)
    try:
        jobs = yield from store_part(part, app, deadline, fresh=fresh)
        otherwise.is_out = False
    except errors.StoreUnavailable as error:
        if choice == "raise":
            raise
        jobs = yield (
            otherwise.keeping(part, app, error) if choice == "outbox" else otherwise.running(part.calls, app, error)
        )
    return jobs


@cache
def _get_ready() -> None:
    """Load what takes a while the first time: that is not the store's."""
    from holdfast.store import pool  # noqa: F401


class OutagePolicy:
    """An app's choice, and how it is carried out."""

    def __init__(self, app: Place, choice: WhenUnreachable | None) -> None:
        self.is_out = False
        self._app = app
        self.choice = _checked(choice or os.environ.get("HOLDFAST_WHEN_UNREACHABLE") or "raise")
        self._folder = _find_folder(app.address)

    @cached_property
    def sender(self) -> Sender:
        """Sends what is kept."""
        from holdfast.outbox.sender import Sender

        return Sender(self._app, self._folder)

    @property
    def outbox(self) -> Outbox:
        """The calls that are kept."""
        return self.sender.outbox

    def choice_of(self, tasks: Iterable[Task[..., Any]]) -> WhenUnreachable:
        choices = {task.chosen.when_unreachable or self.choice for task in tasks}
        if len(choices) > 1:
            words = ", ".join(sorted(choices))
            raise errors.Invalid(f"calls that are enqueued together must agree on when_unreachable, not {words}")
        return choices.pop() if choices else self.choice

    # Inline

    def running(self, calls: Calls, app: App, error: errors.StoreUnavailable) -> Action[Jobs]:
        """Make calls here and now, one after the other."""
        from holdfast.outbox.inline import arun_inline, run_inline

        def run() -> Jobs:
            self._check_inline(calls, app, error)
            return [run_inline(call, _unstored(call, app, _now())) for call in calls]

        async def arun() -> Jobs:
            self._check_inline(calls, app, error, awaited=True)
            return [await arun_inline(call, _unstored(call, app, _now())) for call in calls]

        return Action(run, arun)

    def _check_inline(self, calls: Calls, app: App, error: errors.StoreUnavailable, *, awaited: bool = False) -> None:
        """Refuse before the first of them has run.

        Raises:
            StoreUnavailable: one of them cannot be run here and now.
        """
        from holdfast.outbox.inline import cannot_be_run

        for call in calls:
            why = cannot_be_run(call, _now(), awaited=awaited)
            if call.name not in app.tasks:
                why = "its task is not known here"
            if call.chosen.at_most_once and error.maybe_done:
                why = "it may have been stored all the same, and must not run twice"
            if why:
                refusal = errors.StoreUnavailable(f"{error}; and job {call.id} cannot be run inline: {why}")
                refusal.maybe_done = error.maybe_done
                raise refusal from error
        self._say_once("%s; calls run inline until it is back", error)

    # Keep

    def keeping(self, part: Part, app: App, error: Exception | None) -> Action[Jobs]:
        """Write calls down, to be sent later."""

        def run() -> Jobs:
            return self._keep(part, app, error)

        async def arun() -> Jobs:
            import asyncio

            return await asyncio.to_thread(run)

        return Action(run, arun)

    def _keep(self, part: Part, app: App, error: Exception | None) -> Jobs:
        for call in part.calls:
            if len(call.payload) > MAX_PAYLOAD:
                raise errors.TooBig(
                    f"the payload of job {call.id} has {len(call.payload)} bytes; {MAX_PAYLOAD} are allowed"
                )
        from holdfast.outbox.outbox import Entry

        now = _now()
        try:
            self.outbox.add(Entry.of(part.command, now))
        except OSError as reason:
            why = error or f"earlier calls to {self._app.address.display} wait on disk"
            refusal = errors.StoreUnavailable(f"{why}; and it cannot be kept on disk: {reason}")
            refusal.maybe_done = isinstance(error, errors.StoreUnavailable) and error.maybe_done
            raise refusal from error
        if error is not None:
            self._say_once("%s; calls are kept in %s until it is back", error, self.outbox.folder)
        self.sender.start()
        return [msgspec.structs.replace(_unstored(call, app, now), in_outbox=True) for call in part.calls]

    def catching_up(self) -> Action[bool]:
        """Send what another process has kept, before the first call of this one. Returns whether all was sent."""

        def run() -> bool:
            if not self.is_out and self.sender.catch_up():
                return True
            folder = self.outbox.folder
            self._say_once("%s: earlier calls are not sent yet; calls line up behind them", folder)
            return False

        async def arun() -> bool:
            import asyncio

            return await asyncio.to_thread(run)

        return Action(run, arun)

    def sending(self) -> Action[int]:
        """Send what is kept."""

        async def arun() -> int:
            import asyncio

            return await asyncio.to_thread(self.sender.send)

        return Action(self.sender.send, arun)

    def _say_once(self, words: str, *values: object) -> None:
        """Warn when an outage begins."""
        if not self.is_out:
            self.is_out = True
            _log().warning(words, *values)


def _log() -> Logger:
    import logging

    return logging.getLogger("holdfast.outbox")


def _checked(choice: str) -> WhenUnreachable:
    for known in get_args(WhenUnreachable):
        if choice == known:
            found: WhenUnreachable = known
            return found
    raise errors.Invalid(f"when_unreachable is {choice!r}; it must be one of 'raise', 'inline', 'outbox'")


def _find_folder(address: Address) -> Path:
    """Look now, not when it is needed: the process may have gone to another directory by then."""
    if chosen := os.environ.get("HOLDFAST_OUTBOX"):
        return Path(chosen).expanduser().absolute()
    try:
        return (address.home or find_home()) / "outbox"
    except OSError:  # the directory that it is in is gone
        return Path("/nonexistent")


def _unstored(call: BoundCall[Any], app: App, now: int) -> Job[Any]:
    """The snapshot of a job that would be stored now."""
    job = with_call(stored_job(call.variant, now, app), call.id, call)
    return msgspec.structs.replace(job, state="blocked", due_at=None) if call.chosen.after else job


def _now() -> int:
    return time.time_ns() // 1_000_000
