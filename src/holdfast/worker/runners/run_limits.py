"""The limits of an attempt, and what happens when it exceeds one.

    timeout        it runs too long: it is stopped, and its failure shows its stack
    soft_timeout   it sees `stopping`, and is expected to save and hand over; nothing else happens
    stalled        it has been silent too long: it is stopped, and its failure shows the stacks of its threads
    memory         its processes together use too much: they are killed at once, and its failure shows the last figure
    exclusive      its lease cannot be renewed: it is stopped before the lease can lapse, and requeued

A job without limits is not watched. Runners stop the attempts that are interrupted here: see `endings`.
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

from holdfast.job.options import RunOptions
from holdfast.job.outcome import Release, failed
from holdfast.store.commands import ClaimedJob
from holdfast.units import humanize_size
from holdfast.worker.attempt import SOFT, Attempt
from holdfast.worker.event_loop import Duty, Threads
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import memory_of_tree
from holdfast.worker.stacks import ANSWER_TIMEOUT

log = logging.getLogger("holdfast.worker")

MEMORY_CHECK_INTERVAL = 0.1  # seconds
LEASE_CHECK_INTERVAL = 0.5  # seconds; short, as the clock of `sleep` stands still while the machine is suspended
OUTPUT_CHECKS = 10  # in the time that a job may be silent
INTERRUPT_AT = 1 / 4  # of its lease is left: an exclusive job is interrupted
LAPSING = Release("its lease could not be renewed")

probes = Threads("probe", 8)

ReadStack = Callable[[], str]


def max_silence(job: ClaimedJob) -> int:
    """Return for how many milliseconds its executor may be unresponsive: its timeout or `stalled`; 0: no limit."""
    stalled = RunOptions.decode(job.run).stalled if job.run else None
    return min(job.timeout, stalled) if job.timeout and stalled else job.timeout or stalled or 0


class LimitWatch:
    """Interrupts an attempt that exceeds a limit. Ends with the attempt."""

    def __init__(self, attempt: Attempt, read_stack: ReadStack) -> None:
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: list[asyncio.Task[None]] = []
        run, timeout = attempt.run, attempt.job.timeout
        if timeout:
            self._at(timeout, self._watch, partial(_time_out, attempt, read_stack))
        if run.soft_timeout:
            self._at(run.soft_timeout, attempt.stop, SOFT)
        if run.memory:
            self._watch(partial(_watch_memory, attempt, run.memory))
        if run.stalled:
            self._watch(partial(_watch_silence, attempt, run.stalled / 1000, read_stack))
        if run.exclusive:
            self._watch(partial(_watch_lease, attempt))

    def _at(self, milliseconds: int, do: Callable[..., object], *args: Any) -> None:
        self._timers.append(self._loop.call_later(milliseconds / 1000, do, *args))

    def _watch(self, duty: Duty) -> None:
        self._tasks.append(self._loop.create_task(_repeat_on_error(self._attempt, duty)))

    def end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()


async def _repeat_on_error(attempt: Attempt, watch: Duty) -> None:
    """Watch a limit, also on a machine that has no threads or descriptors left for a while."""
    while True:
        try:
            return await watch()
        except Exception:
            log.exception("%s: a limit of attempt %d cannot be watched; trying again", *attempt.key)
            await asyncio.sleep(1)


async def _time_out(attempt: Attempt, read_stack: ReadStack) -> None:
    """Interrupt it, and show its stack with the failure. It may end while the stack is read."""
    stack = await _stack_within(read_stack)
    words = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
    attempt.interrupt("timeout", failed("Timeout", words, group="timeout", traceback=stack))


async def _watch_memory(attempt: Attempt, limit: int) -> None:
    while (used := await probes.call(memory_of_tree, attempt.pid or 0, limit)) <= limit:
        await asyncio.sleep(MEMORY_CHECK_INTERVAL)
    words = f"the job's processes used {humanize_size(used)} of memory, more than their limit of {humanize_size(limit)}"
    attempt.interrupt("memory", failed("MemoryLimit", f"{words}, and were killed", group="memory"))


async def _watch_silence(attempt: Attempt, limit: float, read_stack: ReadStack) -> None:
    """Interrupt it if it neither sends a message to the worker nor prints a line; programs can only print."""
    printed, printed_at = _size(attempt.log), time.monotonic()
    while (silent := time.monotonic() - max(attempt.active_at, printed_at)) < limit:
        await asyncio.sleep(min(limit - silent, limit / OUTPUT_CHECKS))
        if (size := await probes.call(_size, attempt.log)) != printed:
            printed, printed_at = size, time.monotonic()
    stack = await _stack_within(read_stack)
    words = f"the job was silent for {limit:g} s: no save, report, note, step or printed line; it was stopped"
    attempt.interrupt("stalled", failed("Stalled", words, group="stalled", traceback=stack))


async def _stack_within(read_stack: ReadStack) -> str:
    """Read the stack of a job that is about to be stopped; '' if that fails or takes too long."""
    stack = ""
    with suppress(Exception):  # no resources are left, or the process does not answer
        async with asyncio.timeout(ANSWER_TIMEOUT):
            stack = await probes.call(read_stack)
    return stack


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


async def _watch_lease(attempt: Attempt) -> None:
    """Interrupt it by the renewals that this process knows of; the supervisor, which knows more, kills it later."""
    while (left := _seconds_left(attempt)) > 0:
        await asyncio.sleep(min(left, LEASE_CHECK_INTERVAL))
    attempt.interrupt("lapsing", LAPSING)


def may_start(attempt: Attempt) -> bool:
    """Return whether an exclusive job has time left: its worker may have been suspended since the claim."""
    return not attempt.run.exclusive or _seconds_left(attempt) > 0


def _seconds_left(attempt: Attempt) -> float:
    """Seconds until an exclusive attempt is asked to end."""
    return attempt.lease_requested_at() + attempt.job.lease / 1000 * (1 - INTERRUPT_AT) - boot_time()
