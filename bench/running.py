"""Measure what running jobs cost while they wait, and the memory of a worker: `make bench ARGS=running`.

    renewals   one worker holds many jobs that wait; for some renewals the processor time of its supervisor, its
               executor and the server is taken
    memory     PSS of all processes of a worker, of Holdfast and of RQ: when it is idle, and after a number of jobs

Each on a server of its own, with the defaults of each program but for the number of jobs at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
from tests.support.servers import running_server

from bench import children, environments, tasks
from bench.roster import BY_NAME
from bench.scene import Scene, new_folder
from bench.server import Way, serving
from holdfast import Holdfast
from holdfast.worker.processes import tree, usage_of, usage_of_tree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RENEWALS = 4
INTERVAL = 7.5  # seconds between renewals, with the default lease
PATIENCE = 900.0
LINE = ("holdfast", "work", "bench.tasks", "--log-level", "ERROR", "--stop-within", "1s")


@contextmanager
def worker(url: str, *line: str) -> Iterator[int]:
    """A worker, by its process id."""
    environment = {**os.environ, "BENCH_URL": url, "HOLDFAST_URL": url}
    process = subprocess.Popen([sys.executable, "-m", *line], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the worker did not get on")
        time.sleep(0.1)


def _server_seconds(client: redis.Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def renewals(count: int) -> None:
    with running_server() as url, worker(url, *LINE, "--concurrency", str(count)) as pid:
        app = Holdfast(url)
        app.enqueue_many([tasks.wait_long.bind() for _ in range(count)], fresh=True)
        _wait(lambda: app.count(state="running") == count)
        client = redis.Redis.from_url(url)
        time.sleep(2 * INTERVAL)  # until starting is over
        who = {"supervisor": pid, "executor": list(tree(pid))[1]}
        before = {name: usage_of(each).cpu_seconds for name, each in who.items()}
        began, server = time.monotonic(), _server_seconds(client)
        time.sleep(RENEWALS * INTERVAL)
        seconds = time.monotonic() - began
        used = {name: usage_of(each).cpu_seconds - before[name] for name, each in who.items()}
        used["server"] = _server_seconds(client) - server
        memory = usage_of_tree(pid).memory
        shares = ", ".join(f"{name} {part / seconds:.2%} of a core" for name, part in used.items())
        print(f"renewing {count:6,} jobs: {shares}; the worker has {memory >> 20} MiB")


def holdfast_memory(count: int) -> None:
    with running_server() as url, worker(url, *LINE) as pid:
        app = Holdfast(url)
        app.enqueue(tasks.nothing.bind(0)).result(timeout=60)
        time.sleep(3)
        idle = usage_of_tree(pid).memory
        app.enqueue_many([tasks.nothing.bind(number) for number in range(count)], fresh=True)
        _wait(lambda: app.count(state="running") == app.count(state="waiting") == 0)
        time.sleep(3)
        _say("holdfast", idle, usage_of_tree(pid).memory, count, len(list(tree(pid))))


def rq_memory(count: int) -> None:
    peer = BY_NAME["rq"]
    environments.install(peer)
    with serving() as server, new_folder() as folder:
        scene = Scene(server, Way(server.url), folder)
        scene.clear()
        process = scene.start(peer, "one")
        try:
            scene.run_command(peer, "enqueue", 1)
            scene.await_marks(2, "the worker ran nothing")
            time.sleep(3)
            idle = usage_of_tree(process.pid).memory
            scene.fill(peer, count, "one")
            _wait(lambda: scene.marks() >= count + 3)
            time.sleep(3)
            _say("rq, SimpleWorker", idle, usage_of_tree(process.pid).memory, count, len(list(tree(process.pid))))
        finally:
            children.kill(process)


def _say(who: str, idle: int, after: int, count: int, processes: int) -> None:
    print(
        f"{who:18} idle {idle / 2**20:6.1f} MiB, after {count:,} jobs {after / 2**20:6.1f} MiB, {processes} processes"
    )


def main(quick: bool = False) -> None:
    print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
    renewals(1000 if quick else 10_000)
    holdfast_memory(2000 if quick else 100_000)
    rq_memory(1000 if quick else 10_000)


if __name__ == "__main__":
    main("--quick" in sys.argv)
