"""Zygotes for one job, on a machine without free resources."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

import pytest

from holdfast.worker import messages
from holdfast.worker.attempt import Attempt
from holdfast.worker.runners import zygote
from holdfast.worker.runners.process_runner import AloneRunner
from holdfast.worker.runners.zygote_client import ZygoteClient
from tests.support.workers import children, descendants, until


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many files, and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, limits[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_is_asked_of_a_dead_zygote_does_not_start() -> None:
    async def is_dead() -> bool:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own = ZygoteClient(ours)
        its.close()  # its guard could not fork it
        process = own.start(messages.FORK)
        own.report_all_dead()
        process.close()
        own.close()
        return process.is_dead

    assert asyncio.run(is_dead())  # and nobody waits for it for ever


def test_a_zygote_for_a_job_that_cannot_be_started_is_let_go() -> None:
    async def run() -> None:
        runner = AloneRunner(ZygoteClient(control), messages.FORK)
        with descriptors_left(2), pytest.raises(OSError, match="Too many open files"):
            await runner.run(cast(Attempt, None))  # it does not come to that
        await asyncio.to_thread(until, lambda: not descendants(pid), what="the end of the zygote for one job")

    before = set(children(os.getpid()))
    with zygote.start_spawning("tests.apps.killer_app", "INFO", None).control as control:
        (pid,) = set(children(os.getpid())) - before
        asyncio.run(run())
    os.waitpid(pid, 0)
