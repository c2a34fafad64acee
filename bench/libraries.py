"""Jobs of apps that import numpy, scipy, pandas, scikit-learn and torch, beside those of an app that imports none.

They start threads when they are imported: see docs/runners.md. Holdfast does not depend on them, so this runs in an
environment of its own:

    python3 -m venv ~/libraries
    ~/libraries/bin/pip install -e . numpy scipy pandas pyarrow scikit-learn torch==2.13.0
    ~/libraries/bin/python -m bench.libraries

Rounds are interleaved: every app once, then all again. A ratio is that of the times of one round, the median of all.
It exits with 1 if one is above 1.5, if a library has started no thread (then nothing was shown), if a product was
computed by one thread, or if an app that has used torch when it was imported was forked.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers import running_server

from bench import library_app
from holdfast import Holdfast, Task

ROOT = Path(__file__).parent.parent
APPS = {
    "none": "",
    "numpy": "numpy",
    "scipy": "scipy.linalg",
    "pandas, pyarrow": "pandas pyarrow",
    "scikit-learn": "sklearn.linear_model",
    "torch": "torch",
}
RUNNERS: dict[str, Task[[], None]] = {"fork": library_app.nothing, "process": library_app.nothing_kept}
JOBS = 100
ROUNDS = 7
MAX_RATIO = 1.5
SPAWNED = "started threads that a fork would not copy: 'python' of bench.library_app."

LOOK = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


@dataclass
class Worker:
    """A worker of an app that imports some libraries, in a namespace of its own."""

    client: Holdfast
    log: Path
    seconds: dict[str, list[float]] = field(default_factory=lambda: {runner: [] for runner in RUNNERS})

    def run(self, runner: str, count: int) -> float:
        """Run jobs, and return the seconds from the first enqueue to the last end."""
        began = time.monotonic()
        jobs = self.client.enqueue_many([RUNNERS[runner].bind() for _ in range(count)])
        for job in jobs:
            job.result(timeout=300)
        return time.monotonic() - began

    def ratio(self, other: Worker, runner: str) -> float:
        pairs = zip(self.seconds[runner], other.seconds[runner], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def rate(self, runner: str) -> float:
        return JOBS / statistics.median(self.seconds[runner])


@contextmanager
def working(url: str, folder: Path, libraries: str, **more: str) -> Iterator[Worker]:
    """Start a worker, and wait until it has run a job of each runner."""
    namespace = f"n{len(list(folder.iterdir()))}"
    variables = {"HOLDFAST_URL": url, "HOLDFAST_NAMESPACE": namespace, "LIBRARIES": libraries, **more}
    log = folder / namespace
    line = [sys.executable, "-m", "holdfast", "work", "bench.library_app", "--processes", "2"]
    with log.open("wb") as file:
        process = subprocess.Popen(line, cwd=ROOT, env=os.environ | variables, stdout=file, stderr=file)
    try:
        with closing(Holdfast(url, namespace=namespace)) as client:
            client.tasks.update(library_app.jobs.tasks)
            worker = Worker(client, log)
            for runner in RUNNERS:
                worker.run(runner, 4)
            yield worker
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def threads_after(libraries: str) -> int:
    """How many threads a process has that has imported these libraries, and nothing of ours."""
    found = subprocess.run([sys.executable, "-c", LOOK, *libraries.split()], capture_output=True, check=True)
    return int(found.stdout)


def compare(url: str, folder: Path) -> Iterator[str]:
    """Measure and print all apps. Yields what is not as it should be."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(working(url, folder, words)) for name, words in APPS.items()}
        for _ in range(ROUNDS):
            for runner in RUNNERS:
                for worker in workers.values():
                    worker.seconds[runner].append(worker.run(runner, JOBS))
        print("| the app imports | threads after the import | fork, jobs/s | process, jobs/s | threads of a product |")
        print("|---|---|---|---|---|")
        for name, worker in workers.items():
            yield from _row(name, worker, workers["none"])


def _row(name: str, worker: Worker, none: Worker) -> Iterator[str]:
    threads = threads_after(APPS[name])
    ratios = {runner: worker.ratio(none, runner) for runner in RUNNERS}
    rates = [f"{worker.rate(runner):.0f} ({ratio:.2f})" for runner, ratio in ratios.items()]
    computing = "-"
    if APPS[name]:
        is_right, before, after = worker.client.enqueue(library_app.multiply.bind()).result(timeout=300)
        computing = str(after)
        if not is_right or before != 1 or after < 2:
            yield f"{name}: a product had {before}, then {after} threads; it is {'right' if is_right else 'wrong'}"
        if threads < 2:
            yield f"{name}: importing it started no thread here, so this shows nothing"
    print(f"| {name} | {threads} | {rates[0]} | {rates[1]} | {computing} |")
    yield from (f"{name}: {runner} takes {ratio:.2f} times" for runner, ratio in ratios.items() if ratio > MAX_RATIO)


def use_at_import(url: str, folder: Path) -> Iterator[str]:
    """An app that computes with torch when it is imported. Yields what is not as it should be."""
    with working(url, folder, "torch", USED="yes") as worker:
        fork, process = worker.run("fork", 4), worker.run("process", JOBS)
        print(f"torch used at import: fork {4 / fork:.1f} jobs/s (spawned), process {JOBS / process:.0f} jobs/s (kept)")
        warning = next((line for line in worker.log.read_text().splitlines() if SPAWNED in line), "")
        print(warning.partition("WARNING ")[2])
        if not warning:
            yield "torch used at import: the worker did not say that jobs are spawned"


def main() -> int:
    with running_server() as url, tempfile.TemporaryDirectory() as temporary:
        print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
        wrong: list[Any] = [*compare(url, Path(temporary)), *use_at_import(url, Path(temporary))]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
