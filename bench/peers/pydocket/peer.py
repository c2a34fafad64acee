"""Docket with 100 tasks at once."""

from contextlib import asynccontextmanager

import common
from docket import Docket


async def count(number: int) -> int:
    return common.count(number)


async def stamp(sent: int) -> int:
    return common.stamp(sent)


async def stay(number: int) -> int:
    return await common.async_stay(number)


tasks = [count, stamp, stay]
TASKS = {task.__name__: task for task in tasks}
URL = f"{common.URL}?max_connections=500"  # the client's default is 100, at which 100 tasks at once come to a stop
WORK = ["-m", "docket", "worker", "--docket", "bench", "--url", URL, "--tasks", "peer:tasks"]
WORK += ["--concurrency", str(common.CONCURRENCY), "--logging-level", "ERROR"]


class Open:
    docket = None


@asynccontextmanager
async def opened():
    async with Docket("bench", URL) as Open.docket:
        yield


async def send(kind: str, value: int) -> None:
    await Open.docket.add(TASKS[kind])(value)


async def bulk(numbers) -> None:
    await Open.docket.add_many([Open.docket.call(count)(number) for number in numbers])


if __name__ == "__main__":
    common.serve(send, bulk, {"one": WORK}, opened)
