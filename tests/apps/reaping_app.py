"""An app that reaps children whenever one has ended, or does something at a fork, as libraries that it imports may."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from holdfast import Holdfast

jobs = Holdfast()
heard: list[int] = []


def reap(*_: object) -> None:
    heard.append(os.getpid())
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if "REAP" in os.environ:  # in a worker
    signal.signal(signal.SIGCHLD, reap)
if "RESET" in os.environ:  # as asyncio does from Python 3.12
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
if "IGNORE" in os.environ:  # then nobody can ask how a child ended
    os.register_at_fork(after_in_parent=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))


@jobs.task(crashes=0)
def leave(code: int) -> None:
    os._exit(code)


@jobs.task
def nothing() -> None: ...


@jobs.task
def is_heard_here() -> bool:
    if os.fork() == 0:
        os._exit(0)
    while not heard:
        os.sched_yield()
    return heard == [os.getpid()]


@jobs.task
def returns_twice() -> str:
    if os.fork() == 0:
        return "a copy"
    time.sleep(0.05)
    return "the task"
