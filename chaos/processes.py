"""The server and the workers of a run, as processes on simulated nodes. Each is restarted when it dies.

Workers 0 and 1 are on one node, so that each finds at once that the other is dead; worker 2 is on another, and is found
by the end of its leases, or by its own successor.

The server has the settings of the embedded one. It appends each write to its file before it answers (`appendonly yes`,
`appendfsync no`): then a kill -9 of the server loses nothing that was acknowledged, for the kernel has it. With
`everysec` it would hold writes back, after their acknowledgement, while a sync is under way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.support.workers import ROOT, children, descendants

from chaos.app import LEDGER
from holdfast.server import keeper
from holdfast.server.binary import find_binary

LEASE = 4.0  # seconds
NODES = ("left", "left", "right")
PLACES = 25  # jobs at once, of each kind, in each worker: two workers can do all 50, also if each needs a process
PATIENCE = 40.0  # seconds for something that has to come
TICK = 0.02  # seconds between two looks


class Failed(Exception):
    """The harness itself cannot go on."""


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Server:
    """A Valkey server, whose data outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = str(folder / "s")
        self.url = f"unix://{self.socket}"
        (folder / "data").mkdir()
        self.start()
        self.wait_until_up()

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        line = [str(find_binary())]
        for name, value in {**keeper.SETTINGS, "dir": f"{self._folder}/data", "unixsocket": self.socket}.items():
            line += [f"--{name}", value]
        with (self._folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def is_up(self) -> bool:
        return keeper.ping(self.socket, timeout=0.2) == keeper.PONG

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.is_up():
            if self.is_dead() or time.monotonic() > deadline:
                raise Failed(f"the server does not answer: look at {self._folder / 'server.log'}")
            time.sleep(TICK)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Worker:
    """`holdfast work`, again and again."""

    def __init__(self, number: int, environ: dict[str, str], folder: Path) -> None:
        self.number = number
        self.node = NODES[number % len(NODES)]
        self.log = folder / f"worker-{number}.log"
        runtime, temporary = folder / f"{self.node}.run", folder / f"{self.node}.tmp"
        for made in (runtime, temporary):
            made.mkdir(mode=0o700, exist_ok=True)
        self._environ = environ | {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary)}
        self.start()

    def start(self) -> None:
        line = [sys.executable, "-m", "holdfast", "work", "chaos.app", "--node", self.node, "--hide-output"]
        line += ["--processes", str(PLACES), "--concurrency", str(PLACES), "--lease", f"{LEASE:g}s"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                line, cwd=ROOT, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def tree(self) -> list[int]:
        """Its processes, parents first."""
        return [self.pid, *descendants(self.pid)]

    @property
    def executors(self) -> list[int]:
        return [pid for pid in children(self.pid) if _is_executor(pid)]

    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def stop_still(self) -> list[int]:
        """Have all of its processes stand still; also those that are being started. Returns them."""
        before: list[int] = []
        while (now := self.tree) != before:
            send(signal.SIGSTOP, now)
            before = now
        return before

    def stop(self) -> int | None:
        """Stop it as a deploy does. Returns the exit code; None if it does not stop."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return None


def _is_executor(pid: int) -> bool:
    with suppress(OSError):
        return b"holdfast.entrypoints.executor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class Processes:
    """The server and all workers."""

    def __init__(self, folder: Path, namespace: str, workers: int) -> None:
        self._mark = f"{LEDGER}={folder / 'ledger'}"
        (folder / "ledger").mkdir()
        self.server = Server(folder)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environ |= {"HOLDFAST_URL": self.server.url, "HOLDFAST_NAMESPACE": namespace}
        environ |= {LEDGER: str(folder / "ledger")}
        self.workers = [Worker(number, environ, folder) for number in range(workers)]

    def is_ours(self, pid: int) -> bool:
        """Whether a process is the server, a worker's or a job's: a number may be used again."""
        if pid == self.server.pid:
            return not self.server.is_dead()
        with suppress(OSError):
            return self._mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    def left(self) -> list[int]:
        """All processes of workers and jobs that are alive."""
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [pid for pid in numbers if pid not in (os.getpid(), self.server.pid) and self.is_ours(pid)]

    def end(self) -> None:
        """Leave nothing behind."""
        deadline = time.monotonic() + PATIENCE
        while (left := self.left()) and time.monotonic() < deadline:
            send(signal.SIGKILL, left)
            for worker in self.workers:
                worker.is_dead()  # reaps it
            time.sleep(TICK)
        self.server.end()
