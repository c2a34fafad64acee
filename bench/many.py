"""Measure what many workers and many queues cost: `python -m bench.many`, or `python -m bench.many --workers 1000`.

For each number of workers and of queues, on a server of its own: what one look at all queues, their load and all
workers takes of the server's time, in all and in its longest call; what an idle worker that serves all queues by a
pattern takes in a second; and how long a job waits there until it starts. The workers that are looked at are their
heartbeats and no processes; the one that runs jobs is real.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.workers import Crew, new_crew

from bench import many_app
from bench.server import Server, between, serving
from holdfast import Holdfast
from holdfast.store import commands

ROUNDS = 9
SECONDS = 6.0  # of idling that are looked at
JOBS = 100  # whose start is timed
PATTERN = "tenant-*"


def names_of(queues: int) -> list[str]:
    return [f"tenant-{number:05}" for number in range(queues)]


def fill(app: Holdfast, workers: int, queues: int) -> None:
    """Store a job that is not due in each queue, and a heartbeat of each worker."""
    task = many_app.clock.options(delay="1d")
    names = names_of(queues)
    for part in (names[first : first + 1000] for first in range(0, len(names), 1000)):
        app.enqueue_many([task.options(queue=queue).bind() for queue in part])
    beat(app, workers)


def beat(app: Holdfast, workers: int) -> None:
    about = json.dumps({"pid": 1, "queues": [PATTERN], "app": "tasks", "memory": 50_000_000})
    for number in range(workers):
        app.store.run(commands.renew(f"node{number % 50}/w{number:05}", [], about=about, queues=[PATTERN]))


def look(server: Server, call: Callable[[], object]) -> dict[str, float]:
    """What a call of the client takes of the server's time, in milliseconds.

    It is repeated, and the least time of each of its calls to the server counts: the others were interrupted by other
    processes of this machine.
    """
    call()
    rounds = [_durations(server, call) for _ in range(ROUNDS)]
    size = min(map(len, rounds))
    least = [min(each) for each in zip(*(taken[:size] for taken in rounds), strict=True)]
    return {"calls": size, "longest": max(least, default=0.1), "in all": sum(least)}


def _durations(server: Server, call: Callable[[], object]) -> list[float]:
    """Of each call to the server, except short ones, the milliseconds that it took."""
    server.client.config_set("slowlog-max-len", 10_000)
    server.client.config_set(
        "slowlog-log-slower-than", 100
    )  # microseconds: to log all commands costs more than they do
    server.client.slowlog_reset()
    call()
    server.client.config_set("slowlog-log-slower-than", 10_000)
    entries = reversed(server.client.slowlog_get(10_000))
    return [entry["duration"] / 1000 for entry in entries if entry["command"].startswith(b"FCALL")]


def looks(server: Server, app: Holdfast) -> dict[str, dict[str, float]]:
    return {
        "queues": look(server, app.queues),
        "load": look(server, app.load),
        "workers": look(server, app.workers),
        "count": look(server, app.count),
    }


def idling(server: Server) -> float:
    """Milliseconds of server time in each second."""
    before, began = server.look(), time.monotonic()
    time.sleep(SECONDS)
    return between(before, server.look()).cpu * 1000 / (time.monotonic() - began)


def start_latency(crew: Crew, queues: list[str]) -> list[float]:
    """Milliseconds from before an enqueue until the task runs."""
    taken = []
    for queue in random.sample(queues, min(JOBS, len(queues))) if len(queues) > 10 else random.choices(queues, k=JOBS):
        began = time.time()
        started = crew.put(many_app.clock.options(queue=queue)).result(timeout="60s")
        taken.append((started - began) * 1000)
        time.sleep(0.03)
    return sorted(taken)


def measure(workers: int, queues: int) -> dict[str, Any]:
    names = names_of(queues)
    with serving() as server, tempfile.TemporaryDirectory() as folder, new_crew(server.url, Path(folder)) as crew:
        app = crew.app
        fill(app, workers, queues)
        found: dict[str, Any] = looks(server, app)
        before = server.look()
        crew.start("--queues", PATTERN, "--executors", "1", app="bench.many_app")
        crew.put(many_app.clock.options(queue=names[0])).result(timeout="60s")
        time.sleep(7)
        found["idle"] = {"a second": idling(server)}
        taken = start_latency(crew, names)
        found["start"] = {"median": statistics.median(taken), "p95": taken[int(len(taken) * 0.95)]}
        found["memory"] = (server.look().memory - before.memory) / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many")
    parser.add_argument("--workers", type=int, nargs="*", default=[10, 1000])
    parser.add_argument("--queues", type=int, nargs="*", default=[10, 10_000])
    options = parser.parse_args()
    for workers in options.workers:
        for queues in options.queues:
            print(f"{workers:,} workers, {queues:,} queues", flush=True)
            for what, figures in measure(workers, queues).items():
                shown = (
                    {name: round(value, 2) for name, value in figures.items()} if isinstance(figures, dict) else figures
                )
                print(f"  {what}: {shown}", flush=True)


if __name__ == "__main__":
    main()
