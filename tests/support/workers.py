"""Real workers for tests, of the app in `apps/worker_app.py`, and what tests do to them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import redis

from holdfast import Holdfast, Job
from holdfast.task.task import BoundCall, Task
from tests.model import invariants

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PATIENCE = 40.0  # seconds


def until(condition: Callable[[], T | None], *, what: str = "") -> T:
    """Look until a condition holds. Returns what it returned."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.01)  # between looks at a condition
    return value


def said_of(job: Job[Any]) -> tuple[float | None, str] | None:
    """How far a job says it is, and its words."""
    return (job.progress.fraction, job.progress.message) if job.progress else None


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *descendants(child))]


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Worker:
    """A worker's supervisor, as a process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def executor(self) -> int:
        """The process id of its only executor."""
        return until(lambda: children(self.pid))[0]

    @property
    def zygote(self) -> int:
        return until(lambda: children(self.executor))[0]

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> int:
        """Stop it as a deploy does. Returns the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        everyone = [self.pid, *descendants(self.pid)]
        for pid in everyone:
            _kill(pid)
        self._process.wait(PATIENCE)


class Crew:
    """Workers of one namespace, a client of it, and the files by which the app's tasks speak and hear."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self._workers: list[Worker] = []
        self.namespace = "t" + secrets.token_hex(6)
        self.url = url
        self.app = Holdfast(url, namespace=self.namespace)
        (folder / "gates").mkdir()
        (folder / "ledger").touch()

    def start(
        self,
        *options: str,
        node: str = "node",
        app: str = "tests.apps.worker_app",
        before: Sequence[str] = (),
        output: str = "",
        **env: str,
    ) -> Worker:
        """Start a worker; workers of one `node` see each other's locks. `before` is a command that starts it.

        It writes to its log, or to the file `output`.
        """
        runtime, temporary = self.folder / node, self.folder / "tmp"
        for folder in (runtime, temporary):
            folder.mkdir(exist_ok=True)
        here = {
            "HOLDFAST_URL": self.url,
            "HOLDFAST_NAMESPACE": self.namespace,
            "XDG_RUNTIME_DIR": str(runtime),
            "TMPDIR": str(temporary),
            "LEDGER": str(self.folder / "ledger"),
            "GATES": str(self.folder / "gates"),
            "PYTHONWARNINGS": "error::ResourceWarning,error::RuntimeWarning",
        }
        log = self.folder / f"log-{len(self._workers)}"
        line = [*before, sys.executable, "-m", "holdfast", "work", app, "--node", node, *options]
        log.touch()
        with open(output or log, "ab", buffering=0) as file:
            process = subprocess.Popen(line, cwd=ROOT, env=os.environ | here | env, stdout=file, stderr=file)
        worker = Worker(process, log)
        self._workers.append(worker)
        return worker

    def put(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a call of a task of the app."""
        return self.app.enqueue(task.bind(*args, **kwargs))

    def put_all(self, calls: list[BoundCall[Any]]) -> list[Job[Any]]:
        return self.app.enqueue_many(calls)

    def open(self, gate: str) -> None:
        (self.folder / "gates" / gate).touch()

    def said(self, *words: str) -> list[list[str]]:
        """What stands in the ledger behind these words, for each time that they do."""
        lines = [line.split() for line in (self.folder / "ledger").read_text().splitlines()]
        return [line[len(words) :] for line in lines if tuple(line[: len(words)]) == words]

    def pids(self, name: str, word: str, count: int = 1) -> list[int]:
        """Wait until something said so many process ids, and return them."""
        until(lambda: len(self.said(name, word)) >= count, what=f"{count} times {name} {word}")
        return [int(pid) for (pid,) in self.said(name, word)]

    def get(self, job: Job[Any]) -> Job[Any]:
        return self.app.get(job.id)

    def ended(self, job: Job[Any]) -> Job[Any]:
        """Wait for the end of a job."""
        return until(lambda: now if (now := self.get(job)).is_final else None, what=f"the end of {self.get(job)}")

    def outcomes(self, job: Job[Any]) -> list[str]:
        return [attempt.outcome for attempt in self.get(job).attempts]

    def events(self, kind: str) -> list[list[str]]:
        return [[*event.jobs] for event in self.app.events(limit=1000) if event.type == kind]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        _kill(pid, number)

    def held(self) -> list[str]:
        """Check that all keys fit together, and return the jobs that are held."""
        with redis.Redis.from_url(self.url) as client:
            snapshot = invariants.check(client, self.namespace)
        return [id for held in snapshot.held.values() for id in held]

    def directories(self) -> list[Path]:
        """The workers' own directories."""
        return list(self.folder.glob("tmp/holdfast-*"))

    def calls(self) -> int:
        """How many functions of the library the server has called."""
        with redis.Redis.from_url(self.url) as client:
            return int(client.info("commandstats")["cmdstat_fcall"]["calls"])

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
            print(worker.log)  # shown if the test failed
        for line in (self.folder / "ledger").read_text().splitlines():
            if line.split()[1:2] in (["runs"], ["started"]):
                _kill_ours(int(line.split()[2]), self.namespace)
        self.app.close()


def _kill_ours(pid: int, namespace: str) -> None:
    """End a process that a job started, if it is still that."""
    with suppress(OSError):
        if namespace.encode() in Path(f"/proc/{pid}/environ").read_bytes():
            _kill(pid)


@contextmanager
def new_crew(url: str, folder: Path) -> Iterator[Crew]:
    crew = Crew(url, folder)
    try:
        yield crew
    finally:
        crew.end()
