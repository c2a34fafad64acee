"""streaQ with 100 tasks at once, on uvloop, as its documentation advises.

Its command line would log each job; this is what it calls.
"""

from contextlib import asynccontextmanager

import common
from streaq import Worker

worker = Worker(common.URL, concurrency=common.CONCURRENCY, anyio_kwargs={"use_uvloop": True})


@worker.task
async def count(number: int) -> int:
    return common.count(number)


@worker.task
async def stamp(sent: int) -> int:
    return common.stamp(sent)


@worker.task
async def stay(number: int) -> int:
    return await common.async_stay(number)


@worker.task
def count_sync(number: int) -> int:
    return common.count(number)


COUNT = count_sync if common.KIND == "sync" else count
TASKS = {"count": COUNT, "stamp": stamp, "stay": stay}


@asynccontextmanager
async def opened():
    async with worker:
        yield


async def send(kind: str, value: int) -> None:
    await TASKS[kind].enqueue(value)


async def bulk(numbers) -> None:
    for first in range(0, len(numbers), 1000):
        await worker.enqueue_many([COUNT.enqueue(number) for number in numbers[first : first + 1000]])


if __name__ == "__main__":
    common.serve(send, bulk, {"one": worker.run_sync, "sync": worker.run_sync}, opened)
