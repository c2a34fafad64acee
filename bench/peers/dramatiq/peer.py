"""Dramatiq, 8 threads in each worker process, as by default, or BENCH_THREADS; results are not kept, as by default."""

import os

import common
import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=common.URL)
dramatiq.set_broker(broker)

TASKS = {
    "count": dramatiq.actor(common.count),
    "stamp": dramatiq.actor(common.stamp),
    "stay": dramatiq.actor(common.stay),
}
WORK = ["-m", "dramatiq", "peer", "--threads", os.environ.get("BENCH_THREADS", "8"), "--processes"]


async def send(kind: str, value: int) -> None:
    TASKS[kind].send(value)


async def bulk(numbers) -> None:
    """It has no call for many: a group sends one by one."""
    dramatiq.group([TASKS["count"].message(number) for number in numbers]).run()


if __name__ == "__main__":
    common.serve(send, bulk, {"one": [*WORK, "1"], "two": [*WORK, "2"]})
