"""RQ: SimpleWorker runs jobs in its own process, Worker forks one for each. With BENCH_RETRIES=0 as by default."""

import os

import common
import redis
from rq import Queue, Retry

queue = Queue("bench", connection=redis.Redis.from_url(common.URL))
RETRIES = int(os.environ.get("BENCH_RETRIES", "3"))
OPTIONS = {"retry": Retry(max=RETRIES)} if RETRIES else {}  # without, a job of a killed worker has failed
WORK = ["-m", "rq.cli", "worker", "bench", "--url", common.URL, "--quiet", "--path", "..", "--worker-class"]
KINDS = {"one": [*WORK, "rq.SimpleWorker"], "per-job": [*WORK, "rq.Worker"], "stay": [*WORK, "rq.Worker"]}


async def send(kind: str, value: int) -> None:
    queue.enqueue(f"common.{kind}", value, **OPTIONS)


async def bulk(numbers) -> None:
    for first in range(0, len(numbers), 1000):
        some = numbers[first : first + 1000]
        queue.enqueue_many([Queue.prepare_data("common.count", (number,), **OPTIONS) for number in some])


if __name__ == "__main__":
    common.serve(send, bulk, KINDS)
