"""An embedded server in a home of its own, workers on it, and what kill tests do to them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.demo.ledger import Account, Entry, Ledger, compare
from holdfast.job.job import Job
from holdfast.server import launch, server
from tests.support.workers import ROOT, Worker, descendants, until

APP = "tests.apps.kill_app"


def send(number: int, *pids: int) -> None:
    """Send a signal to processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def tree(worker: Worker) -> list[int]:
    """A worker's processes, parents first. An embedded server that the worker had to start is not one of them."""
    return [worker.pid, *(pid for pid in descendants(worker.pid) if not _is_marked(pid, launch.MARK))]


def kill_tree(worker: Worker) -> None:
    """Kill a worker with all that it started, as if its node had lost power: first it all stands still."""
    before: list[int] = []
    while (now := tree(worker)) != before:
        send(signal.SIGSTOP, *now)
        before = now
    send(signal.SIGKILL, *before)
    worker.wait()


def _is_marked(pid: int, mark: str) -> bool:
    with suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


class Site:
    """A home with an embedded server, the ledger of its jobs, and workers, which may be on different nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "h"
        self.ledger = Ledger(folder / "ledger")
        self.namespace = "t" + secrets.token_hex(6)
        self.workers: list[Worker] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("HOLDFAST_URL", raising=False)
            patch.setenv("HOLDFAST_HOME", str(self.home))
            self.app = Holdfast(namespace=self.namespace)
        self.app.count()  # starts the server: this process does, so that no worker is its parent

    def start(self, *options: str, lease: str = "2s", node: str = "node", app: str = APP, **env: str) -> Worker:
        """Start a worker; those of one `node` see each other's locks."""
        runtime, temporary = self.folder / node, self.folder / "tmp"
        for folder in (runtime, temporary):
            folder.mkdir(mode=0o700, exist_ok=True)
        here = {
            "HOLDFAST_HOME": str(self.home),
            "HOLDFAST_NAMESPACE": self.namespace,
            "LEDGER": str(self.ledger.path),
            "TMPDIR": str(temporary),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        log = self.folder / f"log-{len(self.workers)}"
        line = [sys.executable, "-m", "holdfast", "work", app, "--lease", lease, "--node", node, *options]
        environ = {name: value for name, value in os.environ.items() if name != "HOLDFAST_URL"}
        with log.open("wb") as file:
            process = subprocess.Popen(line, cwd=ROOT, env=environ | here | env, stdout=file, stderr=file)
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def server(self) -> int:
        """The process id of the server, as soon as there is one."""
        return until(lambda: server.status(self.home).pid, what="the server") or 0

    def records(self, ids: Sequence[str]) -> list[Job[Any]]:
        return [job for job in self.app.get_many(ids) if job is not None]

    def entries(self, word: str) -> list[Entry]:
        return [entry for entry in self.ledger.read() if entry.event == word]

    def running(self) -> list[Entry]:
        """The attempts that have started and not ended, by the ledger, and whose processes are alive."""
        ended = {(entry.job, entry.attempt) for entry in self.entries("end")}
        begun = [entry for entry in self.entries("start") if (entry.job, entry.attempt) not in ended]
        return [entry for entry in begun if _is_marked(entry.pid, self.namespace)]

    def wait_for_ends(self, count: int) -> None:
        until(lambda: len(self.entries("end")) >= count, what=f"{count} ends in the ledger")

    def settle(self, ids: Sequence[str]) -> Account:
        """Wait until no job is pending, and compare the store with the ledger."""
        until(lambda: self.app.count(state="pending") == 0, what="the last job")
        return compare(ids, self.records(ids), self.ledger.read())

    def end(self) -> None:
        """Leave nothing behind: find what is ours by the namespace in its environment."""
        for worker in self.workers:
            send(signal.SIGCONT, *tree(worker))
            worker.end()
        print("\n".join(worker.log for worker in self.workers))  # shown if the test failed
        self.app.close()
        server.stop(self.home)
        until(lambda: not self._kill_ours(), what="the end of all processes")

    def _kill_ours(self) -> list[int]:
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        ours = [pid for pid in numbers if pid != os.getpid() and _is_marked(pid, self.namespace)]
        send(signal.SIGKILL, *ours)
        return ours


@contextmanager
def new_site() -> Iterator[Site]:
    """A site in a folder with a short name: its home holds a socket."""
    site = Site(Path(tempfile.mkdtemp(prefix="hf-")))
    try:
        yield site
    finally:
        site.end()
        shutil.rmtree(site.folder, ignore_errors=True)
