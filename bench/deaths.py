"""What becomes of a job whose worker is killed: `make bench ARGS=deaths`.

Each queue gets one job and one worker, all with their defaults unless it says otherwise. As soon as the job has begun,
the worker is killed with all that it started (`kill -9`), and another worker is started. What counts is the time until
the job is done after all, or that it is not within so many seconds. Each runs on a server of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.servers import _free_port, running_server

from bench.imports import PYTHON, prepare

PATIENCE = float(os.environ.get("PATIENCE", "100"))  # seconds

WORK = """
import os, time
def work():
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write("begun\\n")
    if open(os.environ["LEDGER"]).read().count("begun") == 1:
        time.sleep(600)
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write("done\\n")
"""


@dataclass(frozen=True)
class Queue:
    """A queue: the module of its tasks, how to enqueue, and the worker's command line."""

    name: str
    app: str
    enqueue: str
    worker: tuple[str, ...]
    ready: str = ""  # what its worker says when it is ready, if a job that came before is not taken


QUEUES = (
    Queue(
        "holdfast",
        "from holdfast import Holdfast\njobs = Holdfast(os.environ['URL'])\ntask = jobs.task(work)",
        "app.task.enqueue()",
        ("-m", "holdfast.cli", "work", "app"),
    ),
    Queue(
        "celery",
        "from celery import Celery\napp = Celery('app', broker=os.environ['URL'])\ntask = app.task(work, name='work')",
        "app.task.delay()",
        ("-m", "celery", "-A", "app", "worker", "--concurrency", "1", "--loglevel", "ERROR"),
    ),
    Queue(
        "celery, acks_late",
        "from celery import Celery\napp = Celery('app', broker=os.environ['URL'])\n"
        "task = app.task(work, name='work', acks_late=True)",
        "app.task.delay()",
        ("-m", "celery", "-A", "app", "worker", "--concurrency", "1", "--loglevel", "ERROR"),
    ),
    Queue(
        "rq",
        "import redis, rq\nqueue = rq.Queue(connection=redis.Redis.from_url(os.environ['URL']))",
        "app.queue.enqueue(app.work)",
        ("-m", "rq.cli", "worker", "--url", "URL", "--quiet"),
    ),
    Queue(
        "rq, 3 retries",
        "import redis, rq\nqueue = rq.Queue(connection=redis.Redis.from_url(os.environ['URL']))",
        "app.queue.enqueue(app.work, retry=app.rq.Retry(max=3))",
        ("-m", "rq.cli", "worker", "--url", "URL", "--quiet"),
    ),
    Queue(
        "dramatiq",
        "import dramatiq\nfrom dramatiq.brokers.redis import RedisBroker\n"
        "dramatiq.set_broker(RedisBroker(url=os.environ['URL']))\ntask = dramatiq.actor(work)",
        "app.task.send()",
        ("-m", "dramatiq", "app", "--processes", "1", "--threads", "1"),
    ),
    Queue(
        "taskiq, lists",
        "from taskiq_redis import ListQueueBroker\nbroker = ListQueueBroker(os.environ['URL'])\n"
        "task = broker.task(task_name='work')(work)",
        "import asyncio; asyncio.run(app.task.kiq())",
        ("-m", "taskiq", "worker", "app:broker", "--workers", "1"),
    ),
    Queue(
        "taskiq, streams",
        "from taskiq_redis import RedisStreamBroker\nbroker = RedisStreamBroker(os.environ['URL'])\n"
        "task = broker.task(task_name='work')(work)",
        "import asyncio; asyncio.run(app.task.kiq())",
        ("-m", "taskiq", "worker", "app:broker", "--workers", "1"),
        "Listening started",
    ),
    Queue(
        "huey",
        "from huey import RedisHuey\nhuey = RedisHuey('app', url=os.environ['URL'])\ntask = huey.task()(work)",
        "app.task()",
        ("-m", "huey.bin.huey_consumer", "app.huey", "-w", "1", "-q"),
    ),
)


def measure(queue: Queue) -> str:
    """Say how many seconds after the death of its worker the job was done."""
    folder = Path(tempfile.mkdtemp(prefix="deaths-"))
    port = _free_port()
    url = f"redis://127.0.0.1:{port}/0"
    ledger = folder / "ledger"
    ledger.touch()
    (folder / "app.py").write_text(f"{WORK}\n{queue.app}\n")
    environment = {**os.environ, "URL": url, "LEDGER": str(ledger), "TMPDIR": str(folder), "PYTHONPATH": str(folder)}
    workers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        line = [str(PYTHON), *(url if part == "URL" else part for part in queue.worker)]
        with (folder / "log").open("ab") as log:
            workers.append(subprocess.Popen(line, cwd=folder, env=environment, stdout=log, stderr=log))

    with running_server(options=("--port", str(port), "--bind", "127.0.0.1")):
        try:
            start()
            assert _wait(lambda: queue.ready in (folder / "log").read_text())
            subprocess.run([PYTHON, "-c", f"import app; {queue.enqueue}"], cwd=folder, env=environment, check=True)
            if not _wait(lambda: "begun" in ledger.read_text()):
                return "did not begin: " + (folder / "log").read_text()[-300:]
            _kill(workers.pop())
            killed = time.monotonic()
            start()
            done = _wait(lambda: "done" in ledger.read_text())
            return f"after {time.monotonic() - killed:.1f} s" if done else f"not within {PATIENCE:.0f} s"
        finally:
            for worker in workers:
                _kill(worker)
            shutil.rmtree(folder, ignore_errors=True)


def _wait(condition: object) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _kill(worker: subprocess.Popen[bytes]) -> None:
    """Kill a process with all its descendants, those that have begun a session of their own too."""
    everyone, found = [worker.pid], [worker.pid]
    while found:
        lists = (Path(f"/proc/{pid}/task/{pid}/children") for pid in found)
        found = [int(child) for path in lists if path.exists() for child in path.read_text().split()]
        everyone += found
    for pid in everyone:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    worker.wait()


def main(only: str = "") -> None:
    prepare()
    chosen = [queue for queue in QUEUES if only in queue.name]
    print(f"a job whose worker is killed, in {sys.platform}; load {os.getloadavg()[0]:.1f}\n")
    with ThreadPoolExecutor(3) as pool:  # at once; mostly they wait
        for queue, words in zip(chosen, pool.map(measure, chosen), strict=True):
            print(
                f"{queue.name:20} runs again {words}" if "begin" not in words else f"{queue.name:20} {words}",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
