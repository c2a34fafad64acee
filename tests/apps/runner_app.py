"""The app of the runners' tests: each program is a task under every runner.

A program is written once, as a coroutine function that waits by `pause` only. For the `async` runner it is the task;
for the others the task is a plain function that drives it, without an event loop. LEDGER and GATES are those of
`worker_app`.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from holdfast import Fail, Holdfast, Retry, Snooze, Task, current_job
from holdfast.job.option_table import Runner
from tests.apps.worker_app import is_open, write

RUNNERS: tuple[Runner, ...] = get_args(Runner)

jobs = Holdfast()
colour: ContextVar[str] = ContextVar("colour", default="none")
remembered = ["nothing"]
_tasks: dict[tuple[str, Runner], Task[..., Any]] = {}

if "START_THREAD" in os.environ:
    threading.Thread(target=threading.Event().wait, name="restless", daemon=True).start()


def find(name: str, runner: Runner) -> Task[..., Any]:
    return _tasks[name, runner]


class _Turn(Awaitable[None]):
    def __await__(self) -> Generator[None, None, None]:
        yield


async def pause() -> None:
    """Wait a moment: in the event loop, or, where there is none, as `_drive` does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await _Turn()
    else:
        await asyncio.sleep(0.01)


def _drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        while True:
            coroutine.send(None)
            time.sleep(0.01)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()


def _plain(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return _drive(function(*args, **kwargs))

    return plain


def program(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    for runner in RUNNERS:
        name = function.__name__
        made: Callable[..., Any] = function if runner == "async" else _plain(function)
        _tasks[name, runner] = jobs.task(name=f"{name}.{runner}", runner=runner)(made)
        if runner != "async":
            _tasks[f"{name} as async def", runner] = jobs.task(name=f"{name}.{runner}.async", runner=runner)(function)
    return function


# Ways to end


@dataclass
class Order:
    number: int
    at: datetime
    lines: dict[str, tuple[int, float]]


@program
async def echo(order: Order) -> Order:
    await pause()
    return order


@program
async def nothing() -> None:
    await pause()


@program
async def big(size: int) -> str:
    return "x" * size


@program
async def give(name: str, what: str) -> int:
    """Returns what is no int, and says each time that it has done so."""
    await pause()
    write(name, "charged")
    values = {"text": "seven", "object": object(), "nan": float("nan"), "tuple": (1, 2)}
    return values[what]  # type: ignore[return-value]


def _give_late(name: str) -> object:
    """Ends when it is asked to, with what cannot be stored."""
    write(name, "runs", os.getpid())
    with suppress(SystemExit):
        while not is_open("never"):
            _ = current_job().stopping
            time.sleep(0.01)
    write(name, "charged")
    return object()


async def _agive_late(name: str) -> object:
    write(name, "runs", os.getpid())
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    write(name, "charged")
    return object()


for _runner in RUNNERS:
    _tasks["give_late", _runner] = jobs.task(name=f"give_late.{_runner}", runner=_runner)(
        _agive_late if _runner == "async" else _give_late
    )


def divide(by: int) -> float:
    return 1 / by


@program
async def fail() -> None:
    await pause()
    divide(by=0)


@program
async def try_until(attempt: int, how: str) -> int:
    """Raises until the attempt of this number."""
    here = current_job().attempt
    if here >= attempt:
        return here
    raise {"retry": Retry(0, "again"), "snooze": Snooze(0), "fail": Fail("for good", group="hopeless")}[how]


@program
async def die(name: str, way: str) -> None:
    """Ends its process, when its gate is open."""
    write(name, "runs", os.getpid())
    while not is_open(name):
        await pause()
    ways: dict[str, Callable[[], object]] = {
        "os._exit": lambda: os._exit(3),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "sys.exit": lambda: sys.exit(4),
    }
    ways[way]()


# Being told to stop


@program
async def hold(name: str, looks: bool) -> str:
    """Waits for its gate; one that looks asks its job each time whether it is to stop."""
    write(name, "runs", os.getpid())
    try:
        while not is_open(name):
            if looks:
                _ = current_job().stopping
            await pause()
        write(name, "ends")
        return name
    finally:
        current_job().save("clean")
        write(name, "cleaned")


@program
async def ignore(name: str) -> None:
    """Does not stop, whoever asks."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(name, "runs", os.getpid())
    while not is_open(name):
        with suppress(asyncio.CancelledError):
            await pause()


@program
async def step(name: str, items: int) -> list[int]:
    """Do so many items, each when its gate is open, resuming after those that are done."""
    done = []
    for item in current_job().each(range(items)):
        write(name, "item", item)
        while not is_open(f"{name}-{item}"):
            await pause()
        done.append(item)
    return done


@program
async def hold_gil(name: str, seconds: float) -> None:
    """Runs no other thread of its interpreter for so long, as a solver in C does."""
    write(name, "runs", os.getpid())
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


# What a job has, and leaves


@program
async def save(name: str) -> str:
    job = current_job()
    before = job.checkpoint(str, default="nothing")
    job.save(f"saved by {job.attempt}", progress=0.25, message="a quarter")
    while not is_open(name):
        await pause()
    return before


@program
async def label(fields: dict[str, str], remove: list[str]) -> dict[str, str]:
    job = current_job()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return job.attach(fields, remove=remove)
    return await job.aattach(fields, remove=remove)


@program
async def label_and_wait(name: str) -> str:
    """Attaches until it is stopped."""
    write(name, "runs", os.getpid())
    try:
        while True:
            await label({"n": "1"}, [])
            await pause()
    finally:
        write(name, "ends")


@program
async def haunt(name: str) -> None:
    """Leaves a thread behind that goes on saving for it."""
    job = current_job()

    def save_for_ever() -> None:
        write(name, "haunts")
        while not is_open(name):
            job.save("a ghost's")
            time.sleep(0.001)

    threading.Thread(target=save_for_ever, daemon=True).start()


@program
async def save_in_thread() -> None:
    """Has its work done in another thread, as a coroutine does that must not block."""
    context = copy_context()
    worker = threading.Thread(target=lambda: context.run(lambda: current_job().save("from a thread")))
    worker.start()
    while worker.is_alive():
        await pause()


@program
async def shout(words: str) -> None:
    print(words, "on stdout")
    print(words, "on stderr", file=sys.stderr)


@program
async def paint(value: str) -> tuple[str, str]:
    """Returns the colour it found, and the job that it is."""
    found = colour.get()
    colour.set(value)
    await pause()
    assert colour.get() == value
    return found, current_job().id


@program
async def remember(value: str) -> str:
    """Returns what the last job left in this process."""
    found, remembered[0] = remembered[0], value
    return found


@program
async def leave_child(name: str) -> None:
    write(name, "started", os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ))


@program
async def where() -> str:
    """Returns how the program was started that this runs in."""
    return Path("/proc/self/cmdline").read_text()


# A program as users write them


@dataclass
class Report:
    pages: list[int]
    words: int
    kept: bool


@program
async def read_book(book: dict[int, str]) -> Report:
    job = current_job()
    words = 0
    pages = []
    for number in job.each(sorted(book)):
        await pause()
        words += len(book[number].split())
        (job.directory / f"{number}.txt").write_text(book[number])
        pages.append(number)
    kept = [(job.directory / f"{number}.txt").read_text() == book[number] for number in pages]
    return Report(pages, words, all(kept))


# Tasks that name no runner


@jobs.task
def sync_task() -> tuple[int, str]:
    return os.getpid(), threading.current_thread().name


@jobs.task
async def async_task() -> tuple[int, bool]:
    return os.getpid(), inspect.iscoroutinefunction(async_task.function)
