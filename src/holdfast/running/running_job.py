"""The running job, as its task sees it by `current_job()`.

job = current_job()
for page in job.each(range(1000)):   # resumes after the last attempt, reports progress, yields at a deploy
    ...
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from holdfast.codec import check_checkpoint_type, decode_checkpoint, encode_checkpoint
from holdfast.constants import MAX_BATCH, MAX_CHECKPOINT, MAX_NOTE
from holdfast.errors import HoldfastError, Invalid, TooBig
from holdfast.hints import with_hints
from holdfast.job.dependencies import dependency_result, ids_of, in_batches, require_all, split_ended
from holdfast.job.fields import check_fields, check_removed
from holdfast.job.job import Job
from holdfast.job.marks import check_tags
from holdfast.job.options import Awaited, CheckedOptions
from holdfast.job.progress import Number, Reporter
from holdfast.names import check_text
from holdfast.running.link import Link, unwrap
from holdfast.running.loops import AsyncEach, Each, Loops
from holdfast.running.steps import Step

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class YieldNow(BaseException):
    """Raised by `yield_now`. Not an Exception, so that `except Exception` in a task does not catch it."""


class WaitFor(BaseException):
    """Raised by `wait_for`. Not an Exception, like `YieldNow`."""


class BoundCall(Protocol[R]):
    """A call that a job enqueues as its child: a `BoundCall` of `holdfast.task`."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def effective_options(self) -> CheckedOptions: ...
    @property
    def job_template(self) -> Job[R]: ...
    def options(self, *, id: str) -> Self: ...


class App(Protocol):
    """The app that looks up other jobs and enqueues children."""

    def get(self, id: str, /) -> Job[Any]: ...
    async def aget(self, id: str, /) -> Job[Any]: ...
    def get_many(self, ids: Sequence[str]) -> list[Job[Any] | None]: ...
    async def aget_many(self, ids: Sequence[str]) -> list[Job[Any] | None]: ...
    def enqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]: ...
    async def aenqueue_many(self, calls: Sequence[BoundCall[Any]]) -> list[Job[Any]]: ...


@with_hints
class RunningJob:
    """The running attempt of a job, as its task sees it."""

    arguments: Mapping[str, Any] = MappingProxyType({})  # arguments of the call, by name, for middleware
    _children = 0
    _has_directory = False  # whether the task used it

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
        scope: str = "",
        batch: str = "",
    ) -> None:
        self._app = app
        self.id = id
        self.attempt = attempt
        self.task = task
        self.queue = queue
        self.scope = scope
        self.batch = batch  # the batch that it belongs to, or at whose end it runs
        self._link = link
        self._checkpoint = checkpoint
        self._directory = directory
        self._began = time.monotonic()
        self._resumes = bool(checkpoint)

    @cached_property
    def _reporter(self) -> Reporter:
        made = Reporter(self.attempt, resumes=self._resumes, began=self._began)
        first: Reporter = vars(self).setdefault("_reporter", made)  # the first one wins if threads race
        return first

    @property
    def _has_reported(self) -> bool:
        """Whether it has reported progress or counted."""
        return "_reporter" in vars(self)

    @cached_property
    def _loops(self) -> Loops:
        first: Loops = vars(self).setdefault("_loops", Loops(self._reporter, self._save_checkpoint))
        return first

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} {self.task} attempt {self.attempt}>"

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping: then save, and return or call `yield_now`; the job continues elsewhere."""
        return self._link.stopping

    @property
    def stop_reason(self) -> str:
        """Why `stopping` is true: "worker" or "soft_timeout"; "" if it is false."""
        return self._link.stop_reason

    @property
    def directory(self) -> Path:
        """A directory of this attempt, made on first use and removed when the attempt has ended."""
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
        """Save a checkpoint for the next attempt.

        job.save({"page": 7}, progress=0.45, message="page 7")

        Return at once; the checkpoint is stored some tenths of a second later. With `flush` it is stored on return.

        Raises:
            Invalid: the value cannot be stored, `progress` is not from 0 to 1, or the task uses `each`.
            TooBig: the value is over 256 KiB.
            LeaseLost: with `flush`: this attempt has lost its lease.
        """
        self._save(value, progress, message)
        if flush:
            unwrap(self._link.request("flush"))

    async def asave(self, value: object, *, progress: float | None = None, message: str | None = None) -> None:
        """Save a checkpoint, like `save` with `flush`."""
        self._save(value, progress, message)
        unwrap(await self._link.arequest("flush"))

    def once(self, step: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function unless an earlier attempt has, and return its result, which is stored with the job.

        receipt = job.once("charge-card", charge, order)

        The result is read as the type that the function returns. If the process crashes in the milliseconds between
        the end of the function and the storing of its result, the function is called again: pass `job.id` on where
        that matters. A function that raises has not done its step. A name stands for one step of the job.

        Raises:
            Invalid: the name of the step is invalid, or the object is not a function.
            Fail: the step was done, and its result cannot be stored, or is over 64 KiB; a retry would repeat the step.
            TooBig: the job has a thousand steps.
            LeaseLost: this attempt has lost its lease.
        """
        found = Step.of(step, function)
        found.refuse_coroutine(function)
        known = unwrap(self._link.request("once", step, None))
        if known is None:
            result = found.encode(function(*args, **kwargs))
            known = found.stored(self._link.request("once", step, result))
        value: T = found.decode(known)
        return value

    async def aonce(self, step: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await a coroutine function unless an earlier attempt has, like `once`.

        receipt = await job.aonce("charge-card", charge, order)
        """
        found = Step.of(step, function)
        known = unwrap(await self._link.arequest("once", step, None))
        if known is None:
            done = function(*args, **kwargs)
            result = found.encode(await done if inspect.isawaitable(done) else done)
            known = found.stored(await self._link.arequest("once", step, result))
        value: T = found.decode(known)
        return value

    def _save(self, value: object, progress: float | None, message: str | None) -> None:
        self._loops.refuse_save()
        self._save_checkpoint(value, self._reporter.report(progress, message))

    def _save_checkpoint(self, value: object, progress: str | None) -> None:
        checkpoint = encode_checkpoint(value)
        if len(checkpoint) > MAX_CHECKPOINT:
            raise TooBig(f"the checkpoint is {len(checkpoint)} bytes (limit {MAX_CHECKPOINT}); save a reference")
        self._checkpoint = checkpoint
        self._link.save(checkpoint, progress)

    def report(self, fraction: float | None = None, message: str | None = None) -> None:
        """Report progress, from 0 to 1, or a message, without a checkpoint. Return at once."""
        self._link.save(None, self._reporter.report(fraction, message))

    def count(self, **amounts: Number) -> None:
        """Add to counters of this attempt, up to 8, whose rates are shown. Cheap enough for inner loops.

        job.count(rows=1, bytes=len(row))
        """
        if (text := self._reporter.count(amounts)) is not None:
            self._link.save(None, text)

    def log(self, text: str) -> None:
        """Write a line to the log of this attempt: `holdfast logs`. Most runners add the output of the job too."""
        self._link.log(f"{check_text(text, 'the line')}\n")

    def note(self, text: str) -> None:
        """Add a note to the job's history, up to 1,000 bytes. Return at once."""
        size = len(check_text(text, "the note").encode())
        if size == 0:
            raise Invalid("the note is empty; write something")
        if size > MAX_NOTE:
            raise TooBig(f"the note is {size} bytes (limit {MAX_NOTE})")
        self._link.save(None, None, text)

    def attach(self, fields: Mapping[str, str] = MappingProxyType({}), *, remove: Sequence[str] = ()) -> dict[str, str]:
        """Attach fields to the job, up to 64 texts of 4 KiB, and remove others. Return all its fields.

        current_job().attach({"invoice": "2024-17"})

        Without arguments, return the fields as they are, such as those that the job was enqueued with.

        Raises:
            Invalid, TooBig: a name or a text is not allowed, or the job would have too many fields.
            LeaseLost: this attempt has lost its lease; nothing was stored.
        """
        found: dict[str, str] = unwrap(self._link.request("attach", *_checked_fields(fields, remove)))
        return found

    async def aattach(
        self, fields: Mapping[str, str] = MappingProxyType({}), *, remove: Sequence[str] = ()
    ) -> dict[str, str]:
        """Attach fields to the job, like `attach`."""
        found: dict[str, str] = unwrap(await self._link.arequest("attach", *_checked_fields(fields, remove)))
        return found

    def tag(self, *tags: str, remove: Sequence[str] = ()) -> list[str]:
        """Add tags to the job, and remove others. Return all its tags.

        current_job().tag("slow", f"order-{order.id}")

        Raises:
            Invalid, TooBig: one of them is not a tag, or the job would have more than 32.
            LeaseLost: this attempt has lost its lease; nothing was stored.
        """
        found: list[str] = unwrap(self._link.request("tag", check_tags("tags", tags), check_tags("remove", remove)))
        return found

    async def atag(self, *tags: str, remove: Sequence[str] = ()) -> list[str]:
        """Add tags to the job, like `tag`."""
        given = check_tags("tags", tags), check_tags("remove", remove)
        found: list[str] = unwrap(await self._link.arequest("tag", *given))
        return found

    def checkpoint(self, kind: type[T], default: T) -> T:
        """Return the last checkpoint, of this attempt or an earlier one, as a value of `kind`; else `default`.

        done = job.checkpoint(int, default=0)
        at = job.checkpoint(Position | None, default=None)

        Raises:
            Invalid: the checkpoint has another type.
            TypeError: no checkpoint can be read as this type.
        """
        if self._checkpoint:
            return decode_checkpoint(self._checkpoint, kind)
        check_checkpoint_type(kind)  # now, not only after a crash
        return default

    def dependencies(self) -> list[Job[Any]]:
        """Return the jobs that this one waited for (`after=`), in their order, as they ended.

        Raises:
            JobNotFound: one of them no longer exists.
        """
        ids = [each.id for each in self._required_app.get(self.id).after]
        return require_all(ids, self._required_app.get_many(ids) if ids else [])

    async def adependencies(self) -> list[Job[Any]]:
        """Return the jobs that this one waited for, like `dependencies`."""
        ids = [each.id for each in (await self._required_app.aget(self.id)).after]
        return require_all(ids, await self._required_app.aget_many(ids) if ids else [])

    def results(self, kind: type[T]) -> list[T]:
        """Return the results of the jobs that this one waited for (`after=`), in their order.

        Raises:
            JobFailed, JobCancelled: one of them did not succeed. See `dependencies`.
            JobNotFound: one of them no longer exists.
        """
        return [dependency_result(job, kind) for job in self.dependencies()]

    async def aresults(self, kind: type[T]) -> list[T]:
        """Return the results of the jobs that this one waited for, like `results`."""
        return [dependency_result(job, kind) for job in await self.adependencies()]

    def wait_for(self, *jobs: Awaited | str | Sequence[Awaited | str]) -> list[Job[Any]]:
        """Wait until these jobs have ended in any state: until then this job is blocked, and holds no slot.

        Unless all have ended, this call ends the attempt, and the next attempt starts at the top. So save what the next
        attempt needs, and give the jobs ids, so that they are not enqueued again. Return the ended jobs, in order.

        Raises:
            JobNotFound: one of them does not exist.
        """
        ids = ids_of(jobs)
        return _ended_or_wait(ids, [job for part in in_batches(ids) for job in self._required_app.get_many(part)])

    async def await_for(self, *jobs: Awaited | str | Sequence[Awaited | str]) -> list[Job[Any]]:
        """Wait until these jobs have ended, like `wait_for`."""
        ids = ids_of(jobs)
        return _ended_or_wait(
            ids, [job for part in in_batches(ids) for job in await self._required_app.aget_many(part)]
        )

    def gather(self, *calls: BoundCall[R]) -> list[Job[R]]:
        """Enqueue calls as children of this job, and wait until all have ended in any state, like `wait_for`.

        Each attempt must make the same calls in the same order, and finds the children of the first attempt: their ids
        consist of the id of the job and a number, unless they have ids. Return the ended children, in order.

        done = current_job().gather(*[count.bind(path) for path in paths])
        """
        children = self._named(calls)
        if children:
            self._required_app.enqueue_many(children)
        return self.wait_for(children)

    async def agather(self, *calls: BoundCall[R]) -> list[Job[R]]:
        """Enqueue calls as children of this job, and wait until all have ended, like `gather`."""
        children = self._named(calls)
        if children:
            await self._required_app.aenqueue_many(children)
        return await self.await_for(children)

    def _named(self, calls: Sequence[BoundCall[R]]) -> list[BoundCall[R]]:
        named = []
        own, mark, partition = self.id.partition("~")
        for call in calls:
            if not hasattr(call, "payload"):
                raise Invalid(f"expected a bound call, as task.bind(...), got {call!r}")
            if call.effective_options.keep is False:
                raise Invalid(
                    f"{call.name} has keep=False, but `gather` reads the records of its children: remove that option"
                )
            self._children += 1
            named.append(
                call if call.effective_options.id else call.options(id=f"{own}.{self._children}{mark}{partition}")
            )
        return named

    @property
    def _required_app(self) -> App:
        if self._app is None:
            raise HoldfastError(
                "this task was called as a function, so it has no access to other jobs: enqueue it; in a test, run it "
                "with the workbench of holdfast.testing"
            )
        return self._app

    def yield_now(self) -> None:
        """Requeue the job, ahead of later jobs, to continue from its checkpoint. No retry is counted."""
        raise YieldNow

    def each(
        self,
        items: Iterable[T] | Callable[[Any], Iterable[T]],
        *,
        key: Callable[[T], Any] | None = None,
        total: int | None = None,
    ) -> Iterator[T]:
        """Iterate over items, resuming after those that earlier attempts have done.

        for page in job.each(range(1000)): ...

        The items are a sequence or an iterable, an open file, which resumes at its line, or with `key` a function that
        gets the key of the last item done, or None, and returns the items after it. Pass `total` to report progress
        over items without a length.

        Only the position of the loop is saved, not the variables of the task: store elsewhere what it computes from the
        items, or use `checkpoint` and `save`, for a sum for example. The position is saved a few times a second: after
        a crash, the items since then are repeated.
        """
        return Each(self._loops.begin(self, items, key, total))

    def aeach(
        self,
        items: AsyncIterable[T] | Iterable[T] | Callable[[Any], AsyncIterable[T] | Iterable[T]],
        *,
        key: Callable[[T], Any] | None = None,
        total: int | None = None,
    ) -> AsyncIterator[T]:
        """Iterate over items that may be asynchronous, like `each`: `async for row in job.aeach(rows)`."""
        return AsyncEach(self._loops.begin(self, items, key, total))

    def _end(self) -> None:
        """Send unreported counts: the task has ended."""
        if (text := self._reporter.unreported()) is not None:
            self._link.save(None, text)

    def _remove_directory(self) -> None:
        if self._directory is not None:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def _ended_or_wait(ids: list[str], jobs: list[Job[Any] | None]) -> list[Job[Any]]:
    """Return the jobs if all have ended; otherwise raise WaitFor, which ends this attempt."""
    ended, pending = split_ended(ids, jobs)
    if pending:
        raise WaitFor(*pending[:MAX_BATCH])  # the next attempt waits for the others
    return ended


def _checked_fields(fields: Mapping[str, str], remove: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    return check_fields("fields", fields), check_removed(remove)
