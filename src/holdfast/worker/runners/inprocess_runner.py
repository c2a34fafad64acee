"""Calls that threads post to an event loop. They are made in their order, and many of them cost one wake-up.

Runners inside of the executor's own process.

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
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from holdfast.errors import Invalid
from holdfast.job.outcome import Outcome
from holdfast.running.running_job import RunningJob
from holdfast.task.call import app_of, call_task, outcome_of_exception, outcome_of_return, start_call
from holdfast.task.task import Task
from holdfast.worker.attempt import ASKED_TO_FORCED, Attempt
from holdfast.worker.output.capture import captured
from holdfast.worker.runners.endings import forced_outcome, unable
from holdfast.worker.runners.run_limits import Watch
from holdfast.worker.stacks import coroutine_stack, stack_of, thread_stack

AT_ONCE = 100  # calls that the loop makes before it looks after others
FAR_AHEAD = 1000  # calls that wait; then it is time to wait for the loop
PATIENCE = 0.001  # seconds


class Posted:
    """What was posted to one loop. It is called in the context of who made this, not of who posts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False  # the loop, for what was posted last

    def put(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called by the loop, soon. Any thread may post."""
        self._calls.append((function, args))
        if not self._is_woken:
            self._wake()

    def put_patiently(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called, as `put` does. A thread that posts faster than the loop can call is slowed down."""
        self.put(function, *args)
        if len(self._calls) > FAR_AHEAD:
            time.sleep(PATIENCE)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function, in the loop: now, unless something that was posted before has to be called first."""
        if self._calls:
            self.put(function, *args)
        else:
            self._context.copy().run(function, *args)  # a copy: what was posted may call this, and has the context

    def catch_up(self) -> None:
        """Make the calls that were posted so far, in the loop."""
        if self._calls:
            self._context.copy().run(self._make_calls, len(self._calls))

    def _wake(self) -> None:
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._make_calls, context=self._context)
        except BaseException:  # whoever posts next tries again
            self._is_woken = False
            raise

    def _make_calls(self, most: int = AT_ONCE) -> None:
        self._is_woken = False  # first: whoever posts after the last look wakes the loop again
        try:
            for _ in range(min(most, len(self._calls))):  # though threads may post faster than that, and without end
                function, args = self._calls.popleft()
                try:
                    function(*args)
                except Exception as error:  # no reason to forget the others, nor any matter of who catches up
                    self._loop.call_exception_handler({"message": f"{function!r} raised", "exception": error})
        finally:
            if self._calls and not self._is_woken:
                self._wake()


Tasks = Mapping[str, Task[..., Any]]


class Forks:
    """How many there were of this process."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


os.register_at_fork(before=Forks.add)


class Inside:
    """The jobs that run in this process. `on_abandoned` is called with each that does not end when it is asked to."""

    def __init__(self, tasks: Tasks, *, on_abandoned: Callable[[Attempt], None]) -> None:
        self.tasks = tasks
        self.loop = asyncio.get_running_loop()
        self.posted = Posted(self.loop)
        self.on_abandoned = on_abandoned
        self.pid = os.getpid()
        self.work: set[Work] = set()  # or a coroutine that nobody knows would be thrown away

    def close(self) -> None:
        """Ask all to end: nobody will hear of them any more."""
        for work in list(self.work):
            if not work.is_asked:
                work.ask_to_end()


class Work:
    """A job that runs here, and the link of its task.

    Its words are handed to the event loop, in their order, whichever thread it says them in. After its end nothing is
    heard that it left running.
    """

    coroutine: asyncio.Task[None] | None = None  # that runs it
    thread: int | None = None  # or that does
    job: RunningJob | None = None  # once it has begun
    _watch: Watch | None = None
    is_asked = False  # to end
    _is_to_end = False  # by its next word
    _may_be_ended = True
    _is_over = False
    _forks_before = 0

    def __init__(self, attempt: Attempt, inside: Inside) -> None:
        self.attempt = attempt
        self._inside = inside
        inside.work.add(self)
        attempt.look, attempt.on_interrupt = self._look, self._interrupted
        attempt.started(inside.pid)
        if attempt.has_limits:
            self._watch = Watch(attempt, lambda: self._look() or stack_of(inside.pid))

    def begin(self) -> Task[..., Any] | None:
        """Be the current job of this context. Returns its task; None if it was asked to end before it began."""
        if self.is_asked:
            return None
        task = self._inside.tasks[self.attempt.job.task]
        self._forks_before = Forks.count
        self.job = self.attempt.make_current(self, app_of(task))
        return task

    def _look(self) -> str:
        if self.coroutine is not None:
            return coroutine_stack(self.coroutine)
        return "" if self.thread is None else thread_stack(self.thread)

    # Its end

    def _interrupted(self) -> None:
        self.ask_to_end()
        self._inside.loop.call_later(ASKED_TO_FORCED, self._give_up)

    def ask_to_end(self) -> None:
        """Cancel a coroutine; have the next word of a thread end it. Only that one: then it may save, as after SIGTERM.

        What has not begun will not.
        """
        self.is_asked = True
        if self.coroutine is None:
            self._is_to_end = True
        elif self.job is not None:
            self.coroutine.cancel()

    def _give_up(self) -> None:
        if self.attempt.outcome is None:
            self._inside.on_abandoned(self.attempt)
            self._tell(forced_outcome(self.attempt, None))

    def raised(self, error: BaseException) -> Outcome:
        """Whatever left the task, it was the job's, also what is meant to end a process: there are others in this one.

        What is still said for the job, and asked of it, ends nothing any more.
        """
        self._may_be_ended = False
        try:
            return outcome_of_exception(error)
        except BaseException as failure:
            return unable(self.attempt, failure)

    def fall_silent(self) -> None:
        self._is_over = True

    def end(self, outcome: Outcome | None) -> None:
        """It has ended, in the event loop; None: before it began."""
        self._inside.work.discard(self)
        if self.job is None:  # then it counts as never started, to those that run at most once above all
            self.attempt.pid = self.attempt.start_delay = None
            self.attempt.may_have_directory = False
        else:  # or a child that was forked meanwhile has made it
            self.attempt.may_have_directory = self.job._has_directory or self._forks_before != Forks.count
        self._tell(forced_outcome(self.attempt, outcome) if self.is_asked or outcome is None else outcome)
        self.coroutine = self.job = None  # they know of this one in turn: without that, no garbage has to be looked for
        del self.attempt.look, self.attempt.on_interrupt

    def _tell(self, outcome: Outcome) -> None:
        if self._watch:
            self._watch.end()
        self.attempt.end(outcome)

    # Its words

    @property
    def _is_in_loop(self) -> bool:
        return asyncio._get_running_loop() is self._inside.loop

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        self._end_if_asked()
        if self._is_over:
            return
        say = self._inside.posted.call if self._is_in_loop else self._inside.posted.put_patiently
        say(self.attempt.save, checkpoint, progress, note)

    def log(self, lines: str) -> None:
        self._end_if_asked()
        if not self._is_over:
            self.attempt.write_log(lines)

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        self._end_if_asked()
        if self._is_in_loop:  # which has to answer, and would wait for itself
            raise Invalid(f"this would block the event loop of all coroutines here: write {_AWAITED[word]}")
        return asyncio.run_coroutine_threadsafe(self._request(word, *parts), self._inside.loop).result()

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]:
        """From the executor's loop, or from one of the job's own."""
        self._end_if_asked()
        asked = asyncio.run_coroutine_threadsafe(self._request(word, *parts), self._inside.loop)
        return await asyncio.wrap_future(asked)

    async def _request(self, word: str, *parts: Any) -> tuple[str, Any]:
        self._inside.posted.catch_up()  # what was said before is heard before
        return await self.attempt.request(word, *parts)

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        self._end_if_asked()
        return self.attempt.stop_reason

    def _end_if_asked(self) -> None:
        if self._is_to_end and self._may_be_ended:
            self._is_to_end = False
            raise SystemExit(128 + signal.SIGTERM)


_AWAITED = {"once": "`await job.aonce(...)`", "flush": "`await job.asave(...)`"}  # by word


class AsyncRunner:
    """Runs coroutine functions in this event loop, each in a task of its own."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    def begin(self, attempt: Attempt) -> None:
        work = Work(attempt, self._inside)
        work.coroutine = self._inside.loop.create_task(self._run(work))

    async def _run(self, work: Work) -> None:
        outcome = None
        try:
            if task := work.begin():
                with captured(work.attempt.output):
                    outcome = outcome_of_return(task, await start_call(task, work.attempt.job.payload))
        except BaseException as error:
            # A cancellation of ours too: this task ends here anyway, and what it returns is not heard.
            outcome = work.raised(error)
        work.fall_silent()
        self._inside.posted.call(work.end, outcome)  # what threads of it have said is heard before


class ThreadRunner:
    """Runs functions in threads, up to `most` at once, and as many that were abandoned.

    A thread takes what waits, one after the other, and before it begins with one it has another thread come for the
    rest. So whatever a job does, the next one starts; and of many that are short a thread runs several on its way.
    """

    def __init__(self, inside: Inside, most: int) -> None:
        self._inside = inside
        self._pool = ThreadPoolExecutor(2 * most, thread_name_prefix="job")
        self._waiting: deque[tuple[Work, Context]] = deque()
        self._is_called = False  # a thread, which has not come yet

    def begin(self, attempt: Attempt) -> None:
        self._waiting.append((Work(attempt, self._inside), copy_context()))
        self._call_thread()

    def close(self) -> None:
        """Let threads end that have nothing to do."""
        self._pool.shutdown(wait=False)

    def _call_thread(self) -> None:
        if self._is_called or not self._waiting:
            return
        self._is_called = True
        try:
            self._pool.submit(self._serve)
        except Exception as error:  # this machine has no thread left, or no memory
            self._is_called = False
            self._hand_back(error)
        except BaseException:
            self._is_called = False
            raise

    def _hand_back(self, error: Exception) -> None:
        for work, _ in self._taken():
            self._inside.posted.put(work.end, unable(work.attempt, error))

    def _serve(self) -> None:
        self._is_called = False  # first: for what comes to wait after the last look, a thread is called again
        for work, context in self._taken():
            outcome = None
            try:
                self._call_thread()
                outcome = context.run(self._run, work)
            except BaseException as error:  # that was thrown at this thread when the task was not, or no longer, in it
                work.fall_silent()
                outcome = unable(work.attempt, error)
            finally:
                self._inside.posted.put(work.end, outcome)

    def _taken(self) -> Iterator[tuple[Work, Context]]:
        """What waits, one after the other; other threads take too."""
        with suppress(IndexError):
            while True:
                yield self._waiting.popleft()

    def _run(self, work: Work) -> Outcome | None:
        outcome = None
        work.thread = threading.get_ident()
        try:
            if task := work.begin():
                with captured(work.attempt.output):
                    outcome = outcome_of_return(task, call_task(task, work.attempt.job.payload))
        except BaseException as error:
            outcome = work.raised(error)
        work.fall_silent()
        return outcome
