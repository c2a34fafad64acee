"""Celery with acks_late; with BENCH_ACKS=early as by default, which loses what a killed worker had."""

import os

import common
from celery import Celery

URL = f"redis+socket://{common.SOCKET}" if common.SOCKET else common.URL
app = Celery("peer", broker=URL)
app.conf.update(
    task_acks_late=os.environ.get("BENCH_ACKS") != "early",
    task_default_queue="bench",
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=64,  # "64, or 128, for example", its guide says of lots of short tasks
)

TASKS = {
    "count": app.task(common.count, name="count"),
    "stamp": app.task(common.stamp, name="stamp"),
    "stay": app.task(common.stay, name="stay"),
}
WORK = ["-m", "celery", "-A", "peer", "worker", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
KINDS = {
    "one": [*WORK, "--pool", "solo"],
    "two": [*WORK, "--pool", "prefork", "--concurrency", "2"],
    "stay": [*WORK, "--pool", "prefork", "--concurrency", "1"],
    "per-job": [*WORK, "--pool", "prefork", "--concurrency", "2", "--max-tasks-per-child", "1"],
}


async def send(kind: str, value: int) -> None:
    TASKS[kind].delay(value)


async def bulk(numbers) -> None:
    """It has no call for many; one producer for all of them spares the pool."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in numbers:
            TASKS["count"].apply_async((number,), producer=producer)


if __name__ == "__main__":
    common.serve(send, bulk, KINDS)
