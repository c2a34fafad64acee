"""How soon the jobs of a worker that is killed run again, by who is left: `make bench ARGS=recovery`.

A worker has so many jobs in processes when all that it started is killed at once (`kill -9`). Another worker is idle on
the same node; or on another node; or none is there, and the same node starts one, as systemd does. All settings are the
defaults. What counts is the time until all jobs have begun again.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers import running_server

from bench import tasks
from holdfast import Holdfast
from holdfast.worker.usage import tree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = 4
PATIENCE = 120.0


class Scene:
    """A server, workers on nodes, and a file to which jobs write when they begin."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._ledger = folder / "ledger"
        self._ledger.touch()
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, node: str) -> subprocess.Popen[bytes]:
        (self._folder / node).mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "BENCH_URL": self._url,
            "HOLDFAST_URL": self._url,
            "XDG_RUNTIME_DIR": str(self._folder / node),
            "LEDGER": str(self._ledger),
        }
        line = [sys.executable, "-m", "holdfast.cli", "work", "bench.tasks", "--queues", "forked", "--node", node]
        line += ["--processes", str(JOBS), "--log-level", "ERROR"]
        self._workers.append(subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL))
        return self._workers[-1]

    def begun(self) -> int:
        return len(self._ledger.read_text().splitlines())

    def end(self) -> None:
        for worker in self._workers:
            kill(worker)


def kill(worker: subprocess.Popen[bytes]) -> None:
    for pid in list(tree(worker.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    worker.wait()


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing happened")
        time.sleep(0.02)


def measure(where: str) -> float:
    """Seconds from the death of a worker until all its jobs have begun again."""
    with running_server() as url, tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        app, scene = Holdfast(url), Scene(url, Path(folder))
        try:
            victim = scene.start("node")
            app.enqueue_many([tasks.begin_and_stay.bind() for _ in range(JOBS)])
            wait(lambda: scene.begun() == JOBS)
            if where != "nowhere":
                scene.start("node" if where == "here" else "other")
                wait(lambda: len(app.workers()) == 2)
                time.sleep(3)  # so that it is idle
            kill(victim)
            killed = time.monotonic()
            if where == "nowhere":
                scene.start("node")
            wait(lambda: scene.begun() == 2 * JOBS)
            return time.monotonic() - killed
        finally:
            scene.end()
            app.close()


def main(rounds: int = 3) -> None:
    print(f"{JOBS} jobs of a worker that is killed run again; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
    for where, words in (
        ("here", "another worker on the node"),
        ("nowhere", "none, but one is started on the node at once"),
        ("there", "another worker on another node"),
    ):
        times = [measure(where) for _ in range(rounds)]
        print(f"{words:46} after {statistics.median(times):5.1f} s  ({min(times):.1f} to {max(times):.1f})", flush=True)


if __name__ == "__main__":
    main()
