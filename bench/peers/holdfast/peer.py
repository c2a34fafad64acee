"""Holdfast with its defaults: an `async def` runs in the executor's event loop, a `def` in a process forked for it."""

import asyncio

import common

from holdfast import Holdfast

jobs = Holdfast(common.URL)


@jobs.task
async def count(number: int) -> int:
    return common.count(number)


@jobs.task
def count_sync(number: int) -> int:
    return common.count(number)


@jobs.task
async def stamp(sent: int) -> int:
    return common.stamp(sent)


@jobs.task
async def stay(number: int) -> int:
    if common.begin(number):
        await asyncio.sleep(common.STAY)
    return number


COUNT = count if common.KIND in ("one", "two") else count_sync
TASKS = {"count": COUNT, "stamp": stamp, "stay": stay}
WORK = ["-m", "holdfast", "work", "peer"]
KINDS = {
    "one": WORK,
    "two": [*WORK, "--executors", "2"],
    "sync": [*WORK, "--runner", "thread"],
    "other node": [*WORK, "--node", "other"],
    **{runner: [*WORK, "--runner", runner] for runner in ("thread", "process", "fork", "spawn")},
    "per-job": WORK,
}


async def send(kind: str, value: int) -> None:
    TASKS[kind].enqueue(value)


async def bulk(numbers):
    jobs.enqueue_many(COUNT.bind(number) for number in numbers)


if __name__ == "__main__":
    common.serve(send, bulk, KINDS)
