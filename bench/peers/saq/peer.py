"""SAQ with 100 jobs at once, and retries; with BENCH_RETRIES=1, one attempt, as by default."""

import asyncio
import os
from contextlib import asynccontextmanager

import common
import redis.asyncio
from saq.queue.redis import RedisQueue

RETRIES = int(os.environ.get("BENCH_RETRIES", "3"))  # attempts: with one, what a sweep finds is aborted
queue = RedisQueue(redis.asyncio.from_url(common.URL))  # its `from_url` knows no unix sockets


async def count(_context, *, value: int) -> int:
    return common.count(value)


async def stamp(_context, *, value: int) -> int:
    return common.stamp(value)


async def stay(_context, *, value: int) -> int:
    return await common.async_stay(value)


settings = {"queue": queue, "functions": [count, stamp, stay], "concurrency": common.CONCURRENCY}
WORK = ["-m", "saq", "peer.settings", "--quiet"]


@asynccontextmanager
async def opened():
    await queue.connect()
    yield
    await queue.disconnect()


async def send(kind: str, value: int) -> None:
    await queue.enqueue(kind, value=value, retries=RETRIES)


async def bulk(numbers) -> None:
    """It has no call for many that does not wait for results; a hundred calls at a time share the wait."""
    for first in range(0, len(numbers), 100):
        await asyncio.gather(*(send("count", number) for number in numbers[first : first + 100]))


if __name__ == "__main__":
    common.serve(send, bulk, {"one": WORK, "two": [*WORK, "--workers", "2"]}, opened)
