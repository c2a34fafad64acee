"""BullMQ for Python with 100 jobs at once."""

import asyncio
import sys
from contextlib import asynccontextmanager

import common
from bullmq import Queue, Worker


class Open:
    queue = None


@asynccontextmanager
async def opened():
    Open.queue = Queue("bench", {"connection": common.URL})
    yield
    await Open.queue.close()


async def send(kind: str, value: int) -> None:
    await Open.queue.add(kind, {"value": value})


async def bulk(numbers) -> None:
    for first in range(0, len(numbers), 1000):
        await Open.queue.addBulk(
            [{"name": "count", "data": {"value": value}} for value in numbers[first : first + 1000]]
        )


async def process(job, _token):
    value = job.data["value"]
    if job.name == "stay":
        return await common.async_stay(value)
    return common.stamp(value) if job.name == "stamp" else common.count(value)


async def work() -> None:
    Worker("bench", process, {"connection": common.URL, "concurrency": common.CONCURRENCY})
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(work())
    else:
        common.serve(send, bulk, {}, opened)
