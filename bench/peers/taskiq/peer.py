"""Taskiq: the broker on streams, which acknowledges; with BENCH_BROKER=list the one on lists, which does not.

What a killed worker left unacknowledged is claimed (XAUTOCLAIM, since April 2025) by whoever has just read a
message, once it is `idle_timeout` old, ten minutes by default. An idle queue does not look.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import common
from taskiq_redis import ListQueueBroker, RedisStreamBroker

BROKERS = {"list": ListQueueBroker, "stream": RedisStreamBroker}
broker = BROKERS[os.environ.get("BENCH_BROKER", "stream")](common.URL, max_connection_pool_size=500)


@broker.task(task_name="count")
async def count(number: int) -> int:
    return common.count(number)


@broker.task(task_name="stamp")
async def stamp(sent: int) -> int:
    return common.stamp(sent)


@broker.task(task_name="stay")
async def stay(number: int) -> int:
    return await common.async_stay(number)


TASKS = {"count": count, "stamp": stamp, "stay": stay}
WORK = ["-m", "taskiq", "worker", "peer:broker", "--log-level", "ERROR"]
WORK += ["--max-async-tasks", str(common.CONCURRENCY), "--max-prefetch", os.environ.get("BENCH_PREFETCH", "0")]
WORK += ["--workers"]


@asynccontextmanager
async def opened():
    await broker.startup()
    yield
    await broker.shutdown()


async def send(kind: str, value: int) -> None:
    await TASKS[kind].kiq(value)


async def bulk(numbers) -> None:
    """It has no call for many; a hundred calls at a time share the wait."""
    for first in range(0, len(numbers), 100):
        await asyncio.gather(*(count.kiq(number) for number in numbers[first : first + 100]))


if __name__ == "__main__":
    common.serve(send, bulk, {"one": [*WORK, "1"], "two": [*WORK, "2"]}, opened)
