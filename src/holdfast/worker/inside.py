"""Runners inside of the executor's own process.

    async    a task of the executor's event loop
    thread   a thread of a pool

Nothing can kill a coroutine or a thread. A coroutine is asked to end by cancellation; a thread by a SystemExit, as in a
process that gets SIGTERM, which is raised in it when it next asks its job for anything: `stopping`, `save`, `report`,
`each`. One that does not end then is abandoned: its outcome is refused, and its executor claims no more, for only the
end of the process ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from holdfast.calling import app_of, begun, called, raised, returned
from holdfast.errors import Invalid
from holdfast.outcome import Outcome
from holdfast.task import Task
from holdfast.worker.attempt import ASKED_TO_FORCED, Attempt
from holdfast.worker.captured import captured
from holdfast.worker.ending import ends_by_itself, forced_outcome
from holdfast.worker.stacks import coroutine_stack, stack_of, thread_stack

Tasks = Mapping[str, Task[..., Any]]


class Abandoned:
    """Jobs that did not end when they were asked to: only the end of this process ends them.

    `on_one` is called with each.
    """

    def __init__(self, on_one: Callable[[Attempt], None]) -> None:
        self._on_one = on_one
        self._work: set[asyncio.Future[Outcome]] = set()  # or a coroutine that nobody knows would be thrown away

    def _add(self, attempt: Attempt, work: asyncio.Future[Outcome]) -> None:
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        self._on_one(attempt)

    async def follow(self, attempt: Attempt, work: asyncio.Future[Outcome], ask: Callable[[], object]) -> Outcome:
        """See an attempt to its end, which it may have to be asked for, or abandon it."""
        try:
            ends = await ends_by_itself(attempt, work, lambda: attempt.look() or stack_of(os.getpid()))
        except asyncio.CancelledError:
            ask()  # this executor ends, inside of a program: nobody would hear of the job any more
            raise
        if ends:
            return _outcome(work)
        ask()
        await asyncio.wait({work}, timeout=ASKED_TO_FORCED)
        if not work.done():
            self._add(attempt, work)
        return forced_outcome(attempt, _outcome(work) if work.done() else None)


def _outcome(work: asyncio.Future[Outcome]) -> Outcome:
    """How it ended. What is meant to end a process is not let into this event loop: it has jobs besides this one."""
    try:
        return work.result()
    except Exception:
        raise  # the executor says so, and hands the job back
    except BaseException as error:
        return raised(error)


class AsyncRunner:
    """Runs coroutine functions in this event loop."""

    def __init__(self, tasks: Tasks, abandoned: Abandoned) -> None:
        self._tasks = tasks
        self._abandoned = abandoned

    async def run(self, attempt: Attempt) -> Outcome:
        attempt.started(os.getpid())
        work = asyncio.create_task(self._call(attempt))
        attempt.look = partial(coroutine_stack, work)
        return await self._abandoned.follow(attempt, work, work.cancel)

    async def _call(self, attempt: Attempt) -> Outcome:
        task = self._tasks[attempt.job.task]
        link = _Link(attempt)
        attempt.call.introduce(link, app_of(task))
        try:
            with captured(attempt.output):
                return returned(task, await begun(task, attempt.job.payload))
        except BaseException as error:
            # A cancellation of ours too: this task ends here anyway, and what it returns is not heard.
            return raised(error)
        finally:
            link.end()


class ThreadRunner:
    """Runs functions in threads, up to `most` at once, and as many that were abandoned."""

    def __init__(self, tasks: Tasks, abandoned: Abandoned, most: int) -> None:
        self._tasks = tasks
        self._abandoned = abandoned
        self._pool = ThreadPoolExecutor(2 * most, thread_name_prefix="job")

    async def run(self, attempt: Attempt) -> Outcome:
        attempt.started(os.getpid())
        link = _Link(attempt)
        call = partial(copy_context().run, self._call, attempt, link)
        work = asyncio.get_running_loop().run_in_executor(self._pool, call)
        return await self._abandoned.follow(attempt, work, link.ask_to_end)

    def close(self) -> None:
        """Let threads end that have nothing to do."""
        self._pool.shutdown(wait=False)

    def _call(self, attempt: Attempt, link: _Link) -> Outcome:
        task = self._tasks[attempt.job.task]
        attempt.look = partial(thread_stack, threading.get_ident())
        attempt.call.introduce(link, app_of(task))
        try:
            with captured(attempt.output):
                return returned(task, called(task, attempt.job.payload))
        except BaseException as error:
            # Whatever it is, it was the job's: the thread goes back to the pool.
            link.let_go()
            return raised(error)
        finally:
            link.end()


_AWAITED = {"once": "`await job.aonce(...)`", "flush": "`await job.asave(...)`"}  # by word


class _Link:
    """The words of a job are handed to the event loop, in their order, whichever thread it says them in.

    After its end nothing is heard that it left running.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()
        self._is_to_end = False
        self._may_be_ended = True
        self._is_over = False

    def ask_to_end(self) -> None:
        """Have the next word of the job end it. Only that one: then it may save, as after a SIGTERM."""
        self._is_to_end = True

    def let_go(self) -> None:
        """The task has ended: what is still said for it, and asked of its job, ends nothing any more."""
        self._may_be_ended = False

    def end(self) -> None:
        self._is_over = True

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        self._end_if_asked()
        if not self._is_over:
            self._loop.call_soon_threadsafe(self._attempt.save, checkpoint, progress, note)

    def log(self, lines: str) -> None:
        self._end_if_asked()
        if not self._is_over:
            self._attempt.write_log(lines)

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        self._end_if_asked()
        if asyncio._get_running_loop() is self._loop:  # which has to answer, and would wait for itself
            raise Invalid(f"this would block the event loop of all coroutines here: write {_AWAITED[word]}")
        return asyncio.run_coroutine_threadsafe(self._attempt.request(word, *parts), self._loop).result()

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]:
        """From the executor's loop, or from one of the job's own."""
        self._end_if_asked()
        asked = asyncio.run_coroutine_threadsafe(self._attempt.request(word, *parts), self._loop)
        return await asyncio.wrap_future(asked)

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        self._end_if_asked()
        return self._attempt.stop_reason

    def _end_if_asked(self) -> None:
        if self._is_to_end and self._may_be_ended:
            self._is_to_end = False
            raise SystemExit(128 + signal.SIGTERM)
