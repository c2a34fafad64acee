"""The setting of one measurement: a server, a connection to it, the file that jobs append to, and peer commands."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import children, environments
from bench.children import Failed
from bench.roster import Peer
from bench.server import Look, Server, Way

NODES = ("here", "other node")
SETTLING = 1.5  # seconds until several workers are all up
LAST = 0.95  # of the jobs: the rest is a tail, when some have nothing to do
FILLING = 400.0  # seconds for storing the jobs of a measure
READY = 40.0  # seconds until a worker has run its first job


@dataclass(frozen=True)
class Size:
    """How much to measure."""

    seconds: float  # of each throughput
    samples: int  # of a latency
    patience: float  # seconds until a job of a killed worker counts as not recovered
    is_quick: bool = False

    def jobs(self, pace: float) -> int:
        return max(50, int(pace * self.seconds))


@dataclass(frozen=True)
class Stretch:
    """Jobs that were run between two looks, when a worker was in full swing."""

    jobs: int
    seconds: float
    before: Look
    after: Look


class Scene:
    def __init__(self, server: Server, way: Way, folder: Path) -> None:
        self.server, self.way = server, way
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._marks = folder / "marks"
        self._log = folder / "log"
        self._marks.touch()
        for name in NODES:
            (folder / name).mkdir(exist_ok=True)

    def clear(self) -> None:
        self.server.clear()
        os.truncate(self._marks, 0)
        self._log.write_bytes(b"")
        self._workers.clear()

    def marks(self) -> int:
        return self._marks.stat().st_size

    def forget_marks(self) -> None:
        os.truncate(self._marks, 0)

    def lines(self) -> list[int]:
        """The numbers that jobs have left, besides plain marks."""
        return [int(line) for line in self._marks.read_text().replace(".", "").split()]

    def run_command(self, peer: Peer, *words: object, kind: str = "one", timeout: float = 120.0) -> dict[str, Any]:
        """Say something to a peer, and return its answer."""
        line = environments.line(peer, *map(str, words))
        return children.ask(
            line, env=self._environment(peer, kind), cwd=environments.folder(peer), log=self._log, timeout=timeout
        )

    def fill(self, peer: Peer, jobs: int, kind: str) -> None:
        """Store jobs for workers of a kind, one more than that, by the shortest way: it is not what is measured."""
        environment = {**self._environment(peer, kind), "BENCH_URL": self.server.url}
        line = environments.line(peer, "bulk", str(jobs))
        children.ask(line, env=environment, cwd=environments.folder(peer), log=self._log, timeout=FILLING)

    @contextmanager
    def worker(self, peer: Peer, kind: str) -> Iterator[None]:
        """Have workers of a kind."""
        word, number = peer.kind(kind)
        workers = [self.start(peer, word) for _ in range(number)]
        try:
            yield
        finally:
            for worker in workers:
                children.kill(worker)

    def start(self, peer: Peer, word: str) -> subprocess.Popen[bytes]:
        line = environments.line(peer, "work", word)
        worker = children.start(line, env=self._environment(peer, word), cwd=environments.folder(peer), log=self._log)
        self._workers.append(worker)
        return worker

    def _are_gone(self) -> bool:
        """Whether workers were started, and none is left."""
        return bool(self._workers) and all(worker.poll() is not None for worker in self._workers)

    def _environment(self, peer: Peer, kind: str) -> dict[str, str]:
        return {
            **environments.environment(peer),
            "BENCH_URL": self.way.url,
            "BENCH_MARKS": str(self._marks),
            "BENCH_KIND": kind,
            "TMPDIR": str(self._folder),
            "XDG_RUNTIME_DIR": str(self._folder / (kind if kind in NODES else NODES[0])),
        }

    def await_marks(self, number: int, what: str, timeout: float = READY) -> None:
        children.wait_until(lambda: self.marks() >= number or self._are_gone(), timeout=timeout)
        if self.marks() < number:
            when = "before it ended" if self._are_gone() else f"within {timeout:.0f} s"
            raise Failed(f"{what} {when}; last words: {children.last_line(self._log)}")

    def stretch(self, total: int, most: float, *, are_several: bool = False) -> Stretch:
        """Watch workers run jobs, without the first and the last of them, for `most` seconds at most.

        Starts are counted, and as many jobs have ended between two starts as have begun, so neither what was
        claimed ahead nor what is still to be acknowledged makes a worker look faster than it is. Several workers
        do not come up at the same time, so more of the first jobs are left out.
        """
        self.await_marks(1, "the worker ran nothing")
        share, settling = (0.4, SETTLING) if are_several else (0.1, max(0.3, most / 8))
        children.wait_until(lambda: self.marks() >= total * share, timeout=settling)
        before, marks, began = self.server.look(), self.marks(), time.perf_counter()
        children.wait_until(lambda: self.marks() >= total * LAST, timeout=most)
        seconds, jobs = time.perf_counter() - began, self.marks() - marks
        after = self.server.look()
        if jobs <= 0:
            raise Failed(f"too little to see: {marks} of {total}; last words: {children.last_line(self._log)}")
        return Stretch(jobs, seconds, before, after)


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder in memory, if there is one: marks are to cost nothing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="hfb-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
