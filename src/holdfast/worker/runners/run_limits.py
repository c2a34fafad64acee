"""Limits of a run: what an attempt may not do, and what becomes of it then.

    timeout        it runs for longer: where it is is kept, and it is stopped
    soft_timeout   it sees `stopping`, and is expected to save and yield; nothing else happens
    stalled        it has said nothing for so long: the stacks of its threads are kept, and it is stopped
    memory         all its processes together use too much: they are killed at once, and the last figure is kept
    exclusive      its lease cannot be renewed: it is stopped before the lease can lapse, and handed back

A job without limits is not looked at. Who stops it is the runner: see `ending`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.job.options import Run
from holdfast.job.outcome import Release, failed
from holdfast.store.commands import ClaimedJob
from holdfast.units import size_words
from holdfast.worker.attempt import SOFT, Attempt
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import memory_of_tree
from holdfast.worker.stacks import PATIENCE
from holdfast.worker.waiting import Duty, Threads

log = logging.getLogger("holdfast.worker")

MEMORY_EVERY = 0.1  # seconds
LEASE_EVERY = 0.5  # seconds, at most: the clock that `sleep` goes by stands still while the machine sleeps
LOOKS_AT_OUTPUT = 10  # in the time that a job may be silent
ASK_AT = 1 / 4  # of its lease before the end an exclusive job is asked to end
LAPSING = Release("its lease could not be renewed")

looking = Threads("look", 8)

Stack = Callable[[], str]


def patience(job: ClaimedJob) -> int:
    """Milliseconds after which something is to be done about a job, if nothing is heard of it; 0: nothing is."""
    stalled = Run.decode(job.run).stalled if job.run else None
    return min(job.timeout, stalled) if job.timeout and stalled else job.timeout or stalled or 0


class Watch:
    """Looks after an attempt's limits until it has ended; one that breaks a limit is interrupted."""

    def __init__(self, attempt: Attempt, stack: Stack) -> None:
        self._attempt = attempt
        self._stack = stack
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: list[asyncio.Task[None]] = []
        run, timeout = attempt.run, attempt.job.timeout
        if timeout:
            self._at(timeout, self._watch, partial(_time_out, attempt, stack))
        if run.soft_timeout:
            self._at(run.soft_timeout, attempt.stop, SOFT)
        if run.memory:
            self._watch(partial(_watch_memory, attempt, run.memory))
        if run.stalled:
            self._watch(partial(_watch_words, attempt, run.stalled / 1000, stack))
        if run.exclusive:
            self._watch(partial(_watch_lease, attempt))

    def _at(self, milliseconds: int, do: Callable[..., object], *args: Any) -> None:
        self._timers.append(self._loop.call_later(milliseconds / 1000, do, *args))

    def _watch(self, duty: Duty) -> None:
        self._tasks.append(self._loop.create_task(_insist(self._attempt, duty)))

    def end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()


async def _insist(attempt: Attempt, watch: Duty) -> None:
    """Watch, also on a machine that has no threads or descriptors left for a while."""
    while True:
        try:
            return await watch()
        except Exception:
            log.exception("%s: a limit of attempt %d cannot be watched; trying again", *attempt.key)
            await asyncio.sleep(1)


async def _time_out(attempt: Attempt, stack: Stack) -> None:
    """Its time is over: where it was is said with the failure. It may end while that is asked for."""
    doing = await asked(stack)
    words = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
    attempt.interrupt("timeout", failed("Timeout", words, group="timeout", traceback=doing))


async def _watch_memory(attempt: Attempt, most: int) -> None:
    while (used := await looking.call(memory_of_tree, attempt.pid or 0, most)) <= most:
        await asyncio.sleep(MEMORY_EVERY)
    words = f"the job's processes used {size_words(used)} of memory, more than their limit of {size_words(most)}"
    attempt.interrupt("memory", failed("MemoryLimit", f"{words}, and were killed", group="memory"))


async def _watch_words(attempt: Attempt, longest: float, stack: Stack) -> None:
    """What counts is any word to the worker, or a line in the log: a program can say no more than that."""
    printed, printed_at = _size(attempt.log), time.monotonic()
    while (silent := time.monotonic() - max(attempt.heard_at, printed_at)) < longest:
        await asyncio.sleep(min(longest - silent, longest / LOOKS_AT_OUTPUT))
        if (size := await looking.call(_size, attempt.log)) != printed:
            printed, printed_at = size, time.monotonic()
    doing = await asked(stack)
    words = f"the job said nothing for {longest:g} s: no save, report, note, step or printed line; it was stopped"
    attempt.interrupt("stalled", failed("Stalled", words, group="stalled", traceback=doing))


async def asked(stack: Stack) -> str:
    """What a job does that is to be stopped. It is stopped all the same if that cannot be said, or not soon."""
    doing = ""
    with suppress(Exception):  # of a machine that has nothing left, or a process that does not answer
        async with asyncio.timeout(PATIENCE):
            doing = await looking.call(stack)
    return doing


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


async def _watch_lease(attempt: Attempt) -> None:
    """By what this process knows of renewals; the supervisor, which knows more, kills what is still there later."""
    while (left := _left(attempt)) > 0:
        await asyncio.sleep(min(left, LEASE_EVERY))
    attempt.interrupt("lapsing", LAPSING)


def may_start(attempt: Attempt) -> bool:
    """Whether there is time left: not if it is exclusive, and its worker stood still since it was claimed."""
    return not attempt.run.exclusive or _left(attempt) > 0


def _left(attempt: Attempt) -> float:
    """Seconds until an exclusive attempt is asked to end."""
    return attempt.lease_from() + attempt.job.lease / 1000 * (1 - ASK_AT) - boot_time()
