"""RQ: SimpleWorker runs jobs in its own process, Worker forks one for each."""

import os

import common
import redis
from rq import Queue, Retry

queue = Queue("bench", connection=redis.Redis.from_url(common.URL))
OPTIONS = {"retry": Retry(max=int(os.environ["BENCH_RETRIES"]))} if "BENCH_RETRIES" in os.environ else {}
WORK = ["-m", "rq.cli", "worker", "bench", "--url", common.URL, "--quiet", "--path", "..", "--worker-class"]
KINDS = {"one": [*WORK, "rq.SimpleWorker"], "per-job": [*WORK, "rq.Worker"], "stay": [*WORK, "rq.Worker"]}


async def send(kind: str, value: int) -> None:
    queue.enqueue(f"common.{kind}", value, **OPTIONS)


async def bulk(numbers) -> None:
    for first in range(0, len(numbers), 1000):
        queue.enqueue_many([Queue.prepare_data("common.count", (number,)) for number in numbers[first : first + 1000]])


if __name__ == "__main__":
    common.serve(send, bulk, KINDS)
