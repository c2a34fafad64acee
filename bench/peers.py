"""What is measured, for each queue: seconds to enqueue or to drain so many jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import redis
from huey import RedisHuey
from rq import Queue

from holdfast import Holdfast
from holdfast.names import new_id

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEADLINE = 300.0


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _drained(url: str, line: list[str], left: Callable[[], int]) -> float:
    """Start a worker, and time it from the first job done to the last: starting a program is not what is measured."""
    total = left()
    process = subprocess.Popen(
        [sys.executable, "-m", *line],
        env={**os.environ, "BENCH_URL": url, "HOLDFAST_URL": url},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        first = _wait(lambda: left() < total)
        missed = total - left()
        last = _wait(lambda: left() == 0)
        return (last - first) * total / max(1, total - missed)
    finally:
        process.terminate()
        process.wait()


def _wait(condition: Callable[[], bool]) -> float:
    deadline = time.perf_counter() + DEADLINE
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("the worker did not get on")
        time.sleep(0.002)
    return time.perf_counter()


def bare_enqueue(url: str, count: int) -> float:
    """One call of a function per job that stores a hash and an index entry, and nothing else: about the limit."""
    client = redis.Redis.from_url(url)
    client.function_load(
        "#!lua name=bare\n"
        "redis.register_function('bare', function(k, a) "
        "redis.call('HSET', k[1] .. a[1], 's', 'w', 'p', a[2]) "
        "redis.call('ZADD', k[1], 1, a[1]) end)",
        replace=True,
    )
    seconds = _timed(lambda: [client.fcall("bare", 1, "bare", new_id(), b'{"number":1}') for _ in range(count)])
    client.close()
    return seconds


def _tasks(url: str) -> Any:
    os.environ["BENCH_URL"] = url
    sys.modules.pop("bench.tasks", None)
    import bench.tasks

    return bench.tasks


def holdfast_enqueue(url: str, count: int) -> float:
    task = _tasks(url).nothing
    task.enqueue(0)
    return _timed(lambda: [task.enqueue(number) for number in range(count)])


def holdfast_enqueue_many(url: str, count: int) -> float:
    tasks = _tasks(url)
    tasks.nothing.enqueue(0)
    return _timed(lambda: tasks.app.enqueue_many([tasks.nothing.bind(number) for number in range(count)]))


def _holdfast_drain(url: str, task: Any, count: int, queue: str) -> float:
    app: Holdfast = _tasks(url).app
    app.enqueue_many([task.bind(number) for number in range(count)])
    line = ["holdfast.cli", "work", "bench.tasks:app", "--queues", queue]
    return _drained(url, line, lambda: app.count(queue=queue, state="pending"))


def holdfast_drain(url: str, count: int) -> float:
    return _holdfast_drain(url, _tasks(url).nothing, count, "default")


def holdfast_drain_forked(url: str, count: int) -> float:
    return _holdfast_drain(url, _tasks(url).nothing_forked, count, "forked")


def _rq(url: str) -> Queue:
    return Queue("bench", connection=redis.Redis.from_url(url))


def rq_enqueue(url: str, count: int) -> float:
    queue = _rq(url)
    return _timed(lambda: [queue.enqueue("bench.rq_tasks.nothing", number) for number in range(count)])


def rq_enqueue_many(url: str, count: int) -> float:
    queue = _rq(url)
    return _timed(
        lambda: queue.enqueue_many([Queue.prepare_data("bench.rq_tasks.nothing", (number,)) for number in range(count)])
    )


def _rq_drain(url: str, count: int, worker: str) -> float:
    queue = _rq(url)
    rq_enqueue_many(url, count)
    line = ["rq.cli", "worker", "bench", "--url", url, "--burst", "--quiet", "--worker-class", worker]
    return _drained(url, line, lambda: len(queue) + queue.started_job_registry.count)


def rq_drain(url: str, count: int) -> float:
    return _rq_drain(url, count, "rq.SimpleWorker")


def rq_drain_forked(url: str, count: int) -> float:
    return _rq_drain(url, count, "rq.Worker")


def huey_enqueue(url: str, count: int) -> float:
    task = _tasks(url).nothing_huey
    return _timed(lambda: [task(number) for number in range(count)])


def huey_drain(url: str, count: int) -> float:
    huey: RedisHuey = _tasks(url).huey
    huey_enqueue(url, count)
    line = ["huey.bin.huey_consumer", "bench.tasks.huey", "-w", "1", "-q"]
    return _drained(url, line, lambda: int(huey.pending_count()))
