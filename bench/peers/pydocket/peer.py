"""Docket with 100 tasks at once. When all places are taken, it looks for a free one after the check interval."""

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import timedelta

import common
from docket import Docket, Worker


async def count(number: int) -> int:
    return common.count(number)


async def stamp(sent: int) -> int:
    return common.stamp(sent)


async def stay(number: int) -> int:
    return await common.async_stay(number)


tasks = [count, stamp, stay]
TASKS = {task.__name__: task for task in tasks}
INTERVAL = timedelta(milliseconds=10)
URL = f"{common.URL}?max_connections=500"  # the client's default is 100, at which 100 tasks at once come to a stop


class Open:
    docket = None


@asynccontextmanager
async def opened():
    async with Docket("bench", URL) as Open.docket:
        yield


async def _work() -> None:
    """Its command line knows no check interval under a second, but the default of 100 ms."""
    async with opened():
        for task in tasks:
            Open.docket.register(task)
        async with Worker(Open.docket, concurrency=common.CONCURRENCY, minimum_check_interval=INTERVAL) as worker:
            await worker.run_forever()


def work() -> None:
    logging.getLogger("docket").setLevel(logging.ERROR)
    asyncio.run(_work())


async def send(kind: str, value: int) -> None:
    await Open.docket.add(TASKS[kind])(value)


async def bulk(numbers) -> None:
    await Open.docket.add_many([Open.docket.call(count)(number) for number in numbers])


if __name__ == "__main__":
    common.serve(send, bulk, {"one": work}, opened)
