"""arq with 100 jobs at once. Its command line would log each job; this is what it calls."""

import asyncio
from contextlib import asynccontextmanager

import common
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import run_worker

SETTINGS = RedisSettings.from_dsn(common.URL)


async def count(_context, number: int) -> int:
    return common.count(number)


async def stamp(_context, sent: int) -> int:
    return common.stamp(sent)


async def stay(_context, number: int) -> int:
    return await common.async_stay(number)


class WorkerSettings:
    functions = (count, stamp, stay)
    redis_settings = SETTINGS
    max_jobs = common.CONCURRENCY
    poll_delay = 0.1  # seconds; it takes up to 500 jobs each time
    log_results = False


class Pool:
    open = None


@asynccontextmanager
async def opened():
    Pool.open = await create_pool(SETTINGS)
    yield
    await Pool.open.aclose()


async def send(kind: str, value: int) -> None:
    await Pool.open.enqueue_job(kind, value)


async def bulk(numbers) -> None:
    """It has no call for many; a hundred calls at a time share the wait."""
    for first in range(0, len(numbers), 100):
        await asyncio.gather(*(send("count", number) for number in numbers[first : first + 100]))


if __name__ == "__main__":
    common.serve(send, bulk, {"one": lambda: run_worker(WorkerSettings)}, opened)
