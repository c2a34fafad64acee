"""What all peers share: what their jobs do, and the words that the benchmark says to them.

    peer.py enqueue N     store N jobs, one by one        peer.py bulk N     the same, the fastest way there is
    peer.py stamp N MS    one job each MS milliseconds    peer.py stay N     jobs that stay, the first time they run
    peer.py work KIND     become a worker

The first two say on stdout how long it took: `{"jobs": N, "seconds": S}`. A job tells that it ran by a byte at the end
of the file $BENCH_MARKS: it costs a microsecond, asks nothing of the server, and is the same for every peer.

Only the standard library is imported here: each peer has an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
SOCKET = URL.removeprefix("unix://") if URL.startswith("unix://") else ""
KIND = os.environ.get("BENCH_KIND", "one")  # of the worker that is to run the jobs
CONCURRENCY = 100  # of those that run jobs in an event loop
STAY = 3600.0  # seconds

Send = Callable[[str, int], Awaitable[object]]
Bulk = Callable[[Sequence[int]], Awaitable[object]]
Work = list[str] | Callable[[], None]
Open = Callable[[], AbstractAsyncContextManager[object]]

_marks = -1


def _mark(text: bytes) -> None:
    global _marks  # noqa: PLW0603 - kept open
    if _marks < 0:
        _marks = os.open(os.environ["BENCH_MARKS"], os.O_RDWR | os.O_APPEND)
    os.write(_marks, text)


def count(number: int) -> int:
    """The job of most measures."""
    _mark(b".")
    return number


def stamp(sent: int) -> int:
    """Say how many nanoseconds ago it was sent; the clock is the same for all processes."""
    _mark(b"%d\n" % (time.monotonic_ns() - sent))
    return sent


def begin(number: int) -> bool:
    """Say that job `number` began, and return whether it is to stay: the first time only."""
    _mark(b"%d\n" % number)
    with open(os.environ["BENCH_MARKS"], "rb") as file:
        return file.read().split().count(b"%d" % number) == 1


def stay(number: int) -> int:
    if begin(number):
        time.sleep(STAY)
    return number


async def async_stay(number: int) -> int:
    if begin(number):
        await asyncio.sleep(STAY)
    return number


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


async def _speak(word: str, numbers: list[int], send: Send, bulk: Bulk) -> None:
    jobs = numbers[0]
    if word != "stay":
        await send("count", jobs)  # so that it is connected, and has loaded what it needs
    if word in ("enqueue", "bulk"):
        began = time.perf_counter()
        if word == "bulk":
            await bulk(range(jobs))
        else:
            for number in range(jobs):
                await send("count", number)
        print(json.dumps({"jobs": jobs, "seconds": time.perf_counter() - began}), flush=True)
    elif word == "stamp":
        for _ in range(jobs):
            await asyncio.sleep(numbers[1] / 1000 * random.uniform(0.5, 1.5))
            await send("stamp", time.monotonic_ns())
    elif word == "stay":
        for number in range(jobs):
            await send("stay", number)
    else:
        raise SystemExit(f"unknown: {word}")


async def _converse(word: str, numbers: list[int], send: Send, bulk: Bulk, opened: Open) -> None:
    async with opened():
        await _speak(word, numbers, send, bulk)


def serve(send: Send, bulk: Bulk, work: dict[str, Work], opened: Open = _nothing) -> None:
    """Do what the command line says. `work` has each kind of worker: a command line, or a call."""
    word, *rest = sys.argv[1:]
    if word == "work":
        worker = work[rest[0]]
        if not callable(worker):
            os.execv(sys.executable, [sys.executable, *worker])  # noqa: S606
        worker()
        return
    loop = None
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]

        loop = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_converse(word, [int(part) for part in rest], send, bulk, opened))
