"""The job that runs: what a task sees of itself, by `current_job()`.

    job = current_job()
    for page in job.each(range(1000)):   # resumes where the last attempt was, reports progress, yields at a deploy
        ...

Which job that is says `current`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from holdfast.codec import decode_checkpoint, encode_checkpoint
from holdfast.constants import MAX_BATCH, MAX_CHECKPOINT, MAX_NOTE
from holdfast.errors import HoldfastError, Invalid, TooBig
from holdfast.job.dependencies import all_there, ended_and_left, ids_of, in_parts, result_of
from holdfast.job.job import Job
from holdfast.job.options import Awaited, Options
from holdfast.job.progress import Number, Reporter
from holdfast.names import check_text
from holdfast.running.channel import Link, unwrap
from holdfast.running.loops import AsyncEach, Each, Loops
from holdfast.running.steps import Step

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class HandOver(BaseException):
    """Leaves a task that yields because its worker stops. Not an Exception: tasks that catch those still yield."""


class WaitFor(BaseException):
    """Leaves a task that waits for other jobs. Not an Exception, as `HandOver`."""


class BoundCall(Protocol[R]):
    """A call that a job enqueues as its child: a `BoundCall` of `holdfast.task`."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def chosen(self) -> Options: ...
    @property
    def outline(self) -> Job[R]: ...
    def options(self, *, id: str) -> Self: ...


class App(Protocol):
    """Where other jobs are looked up, and children stored."""

    def get(self, id: str, /) -> Job[Any]: ...
    async def aget(self, id: str, /) -> Job[Any]: ...
    def get_many(self, ids: Sequence[str]) -> list[Job[Any] | None]: ...
    async def aget_many(self, ids: Sequence[str]) -> list[Job[Any] | None]: ...
    def enqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]: ...
    async def aenqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]: ...


class RunningJob:
    """One attempt at a job, as its task sees it."""

    arguments: Mapping[str, Any] = MappingProxyType({})  # of the call, by name; for middleware
    _children = 0
    _has_directory = False  # that was asked for

    def __init__(
        self,
        link: Link,
        *,
        id: str,
        attempt: int,
        task: str,
        queue: str,
        checkpoint: bytes = b"",
        directory: Path | str | None = None,
        app: App | None = None,
    ) -> None:
        self._app = app
        self.id = id
        self.attempt = attempt
        self.task = task
        self.queue = queue
        self._link = link
        self._checkpoint = checkpoint
        self._directory = directory
        self._began = time.monotonic()
        self._resumes = bool(checkpoint)

    @cached_property
    def _reporter(self) -> Reporter:
        made = Reporter(self.attempt, resumes=self._resumes, began=self._began)
        first: Reporter = vars(self).setdefault("_reporter", made)  # of threads that ask at once
        return first

    @property
    def _has_reported(self) -> bool:
        """Whether it has said how far it is, or counted."""
        return "_reporter" in vars(self)

    @cached_property
    def _loops(self) -> Loops:
        first: Loops = vars(self).setdefault("_loops", Loops(self._reporter, self._keep))
        return first

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} {self.task} attempt {self.attempt}>"

    @property
    def stopping(self) -> bool:
        """Whether the worker is to stop: then save, and return or call `yield_now`; the job goes on elsewhere."""
        return self._link.stopping

    @property
    def stop_reason(self) -> str:
        """Why `stopping` is true: "worker", which stops, or "soft_timeout"; "" if it is not."""
        return self._link.stop_reason

    @property
    def directory(self) -> Path:
        """A directory of this attempt's own, made when first asked for and removed when the attempt has ended."""
        if self._directory is None:
            import tempfile

            self._directory = tempfile.mkdtemp(prefix="holdfast-job-")
        self._has_directory = True
        directory = Path(self._directory)
        for path in (directory.parent, directory):  # that of the executor is made with its first job
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def save(
        self, value: object, *, progress: float | None = None, message: str | None = None, flush: bool = False
    ) -> None:
        """Keep where the job is, for its next attempt to find.

        job.save({"page": 7}, progress=0.45, message="page 7")

        Returns at once; it is in the store some tenths of a second later. With `flush` it is there when this returns.

        Raises:
            Invalid: the value cannot be stored, `progress` is not from 0 to 1, or the task uses `each`.
            TooBig: it is over 256 KiB.
            LeaseLost: with `flush`: the job is another's by now.
        """
        self._save(value, progress, message)
        if flush:
            unwrap(self._link.ask("flush"))

    async def asave(self, value: object, *, progress: float | None = None, message: str | None = None) -> None:
        """Keep where the job is, as `save` with `flush` does."""
        self._save(value, progress, message)
        unwrap(await self._link.aask("flush"))

    def once(self, step: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function unless an earlier attempt has, and return its result, which is kept with the job.

        receipt = job.once("charge-card", charge, order)

        The result comes back as the function's annotation says. A crash between the end of the function and the moment
        when its result is kept, some milliseconds, has it called again: pass `job.id` on where that matters. A function
        that raises has not done its step. A name stands for one step of the job: used again, it has the same result.

        Raises:
            Invalid: the name of the step is not acceptable, or it is no function.
            Fail: it was done, and its result cannot be stored, or is over 64 KiB: no retry, which would do it again.
            TooBig: there are a thousand steps.
            LeaseLost: the job is another's by now.
        """
        found = Step.of(step, function)
        found.refuse_coroutine(function)
        known = unwrap(self._link.ask("once", step, None))
        if known is None:
            result = found.encode(function(*args, **kwargs))
            known = found.kept(self._link.ask("once", step, result))
        value: T = found.decode(known)
        return value

    async def aonce(self, step: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await a coroutine function unless an earlier attempt has, as `once` does.

        receipt = await job.aonce("charge-card", charge, order)
        """
        found = Step.of(step, function)
        known = unwrap(await self._link.aask("once", step, None))
        if known is None:
            done = function(*args, **kwargs)
            result = found.encode(await done if inspect.isawaitable(done) else done)
            known = found.kept(await self._link.aask("once", step, result))
        value: T = found.decode(known)
        return value

    def _save(self, value: object, progress: float | None, message: str | None) -> None:
        self._loops.refuse_save()
        self._keep(value, self._reporter.report(progress, message))

    def _keep(self, value: object, progress: str | None) -> None:
        checkpoint = encode_checkpoint(value)
        if len(checkpoint) > MAX_CHECKPOINT:
            raise TooBig(f"the checkpoint has {len(checkpoint)} bytes; {MAX_CHECKPOINT} are allowed: save a reference")
        self._checkpoint = checkpoint
        self._link.save(checkpoint, progress)

    def report(self, fraction: float | None = None, message: str | None = None) -> None:
        """Say how far the job is, from 0 to 1, or what it does, without saving anything. Returns at once."""
        self._link.save(None, self._reporter.report(fraction, message))

    def count(self, **amounts: Number) -> None:
        """Count what this attempt does: up to 8 counters, of which rates are shown. Costs next to nothing.

        job.count(rows=1, bytes=len(row))
        """
        if (text := self._reporter.count(amounts)) is not None:
            self._link.save(None, text)

    def log(self, words: str) -> None:
        """Write a line to the log of this attempt: `holdfast logs`. What a job prints is there too, in most runners."""
        self._link.log(f"{check_text(words, 'the line')}\n")

    def note(self, words: str) -> None:
        """Add an entry to the job's history, up to 1,000 bytes of text. Returns at once."""
        size = len(check_text(words, "the note").encode())
        if size == 0:
            raise Invalid("the note is empty; it must be a text")
        if size > MAX_NOTE:
            raise TooBig(f"the note has {size} bytes; {MAX_NOTE} are allowed")
        self._link.save(None, None, words)

    def checkpoint(self, kind: type[T], default: T) -> T:
        """Return what was saved last, by this attempt or one before, as a value of `kind`; else `default`.

        done = job.checkpoint(int, default=0)
        at = job.checkpoint(Position | None, default=None)

        Raises:
            Invalid: what was saved is no such value.
        """
        return decode_checkpoint(self._checkpoint, kind) if self._checkpoint else default

    def dependencies(self) -> list[Job[Any]]:
        """Return the jobs that this one waited for (`after=`), in their order, as they ended.

        Raises:
            JobNotFound: one is not kept any more.
        """
        ids = [each.id for each in self._known_app.get(self.id).after]
        return all_there(ids, self._known_app.get_many(ids) if ids else [])

    async def adependencies(self) -> list[Job[Any]]:
        """Return the jobs that this one waited for, as `dependencies` does."""
        ids = [each.id for each in (await self._known_app.aget(self.id)).after]
        return all_there(ids, await self._known_app.aget_many(ids) if ids else [])

    def results(self, kind: type[T]) -> list[T]:
        """Return the results of the jobs that this one waited for (`after=`), in their order.

        Raises:
            JobFailed, JobCancelled: one of them did not succeed. See `dependencies`.
            JobNotFound: one is not kept any more.
        """
        return [result_of(job, kind) for job in self.dependencies()]

    async def aresults(self, kind: type[T]) -> list[T]:
        """Return the results of the jobs that this one waited for, as `results` does."""
        return [result_of(job, kind) for job in await self.adependencies()]

    def wait_for(self, *jobs: Awaited | str | Sequence[Awaited | str]) -> list[Job[Any]]:
        """Go on when these jobs have ended, however: until then this job is blocked, and holds no slot.

        Unless all have ended already it leaves the task; the next attempt begins at the top. So save before what it is
        to know then, and give the jobs ids of their own, that they are not enqueued again. Returns the ended jobs, in
        order.

        Raises:
            JobNotFound: one of them does not exist any more.
        """
        ids = ids_of(jobs)
        return _ended_or_leave(ids, [job for part in in_parts(ids) for job in self._known_app.get_many(part)])

    async def await_for(self, *jobs: Awaited | str | Sequence[Awaited | str]) -> list[Job[Any]]:
        """Go on when these jobs have ended, as `wait_for` does."""
        ids = ids_of(jobs)
        return _ended_or_leave(ids, [job for part in in_parts(ids) for job in await self._known_app.aget_many(part)])

    def gather(self, *calls: BoundCall[R]) -> list[Job[R]]:
        """Enqueue calls as children of this job, and go on when all have ended, however, as `wait_for` does.

        Each attempt makes the same calls in the same order, and finds the children of the first: they have ids of the
        job and their number, unless they have their own. Returns the ended children, in order.

        done = current_job().gather(*[count.bind(path) for path in paths])
        """
        children = self._named(calls)
        if children:
            self._known_app.enqueue_many(children)
        return self.wait_for(children)

    async def agather(self, *calls: BoundCall[R]) -> list[Job[R]]:
        """Enqueue calls as children of this job, and go on when all have ended, as `gather` does."""
        children = self._named(calls)
        if children:
            await self._known_app.aenqueue_many(children)
        return await self.await_for(children)

    def _named(self, calls: Sequence[BoundCall[R]]) -> list[BoundCall[R]]:
        named = []
        own, mark, partition = self.id.partition("~")
        for call in calls:
            if not hasattr(call, "payload"):
                raise Invalid(f"{call!r} is no call that can be stored; bind a task to its arguments: task.bind(...)")
            if call.chosen.keep is False:
                raise Invalid(f"a child must be kept, to be seen when it has ended; {call.name} has keep=False")
            self._children += 1
            named.append(call if call.chosen.id else call.options(id=f"{own}.{self._children}{mark}{partition}"))
        return named

    @property
    def _known_app(self) -> App:
        if self._app is None:
            raise HoldfastError(
                "this task was called as a function, so it knows no other jobs: enqueue it, and in a test run it by "
                "the workbench of holdfast.testing"
            )
        return self._app

    def yield_now(self) -> None:
        """Hand the job back: it goes on from its checkpoint, ahead of later jobs, and no attempt is charged."""
        raise HandOver

    def each(
        self,
        items: Iterable[T] | Callable[[Any], Iterable[T]],
        *,
        key: Callable[[T], Any] | None = None,
        total: int | None = None,
    ) -> Iterator[T]:
        """Iterate over items, resuming after those that earlier attempts have done.

        for page in job.each(range(1000)): ...

        They are a sequence or an iterable, an open file (which resumes at its line), or with a `key` a function that
        is called with the key of the last item done, or None, and returns those that follow it. A `total` is for the
        progress of what has no length.

        Only where the loop is is kept, not the variables of the task: what it computes from the items must be outside
        of it. For a sum, say, use `checkpoint` and `save`. It is kept a few times a second: after a crash, what was
        done since then is done again.
        """
        return Each(self._loops.begin(self, items, key, total))

    def aeach(
        self,
        items: AsyncIterable[T] | Iterable[T] | Callable[[Any], AsyncIterable[T] | Iterable[T]],
        *,
        key: Callable[[T], Any] | None = None,
        total: int | None = None,
    ) -> AsyncIterator[T]:
        """Iterate over items that may come asynchronously, as `each` does: `async for row in job.aeach(rows)`."""
        return AsyncEach(self._loops.begin(self, items, key, total))

    def _end(self) -> None:
        """Say what is left to say: the task has ended."""
        if (text := self._reporter.rest()) is not None:
            self._link.save(None, text)

    def _remove_directory(self) -> None:
        if self._directory is not None:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def _ended_or_leave(ids: list[str], jobs: list[Job[Any] | None]) -> list[Job[Any]]:
    ended, left = ended_and_left(ids, jobs)
    if left:
        raise WaitFor(*left[:MAX_BATCH])  # the others are waited for by the next attempt
    return ended
