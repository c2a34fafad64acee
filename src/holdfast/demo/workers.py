"""The workers of the demonstration: processes that can be killed, entirely or in part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.demo import tasks
from holdfast.worker.processes import all_pids, children_of, environment, is_server, tree

KINDS = ("worker", "job", "executor", "worker", "supervisor", "job")  # what to kill, repeated in this order
SLOTS = "4"  # concurrent jobs of each kind
STOP_TIMEOUT = 20.0  # seconds


class DemoWorker:
    """A `holdfast work` process in its own session, so that Ctrl-C reaches only the demonstration."""

    def __init__(self, environ: Mapping[str, str], log: Path, lease: float) -> None:
        self._environ = dict(environ)
        self._log = log
        self._lease = lease
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        app = f"{tasks.__name__}:app"
        line = [sys.executable, "-m", "holdfast", "work", app, "--lease", f"{self._lease:g}s"]
        line += ["--processes", SLOTS, "--concurrency", SLOTS, "--stop-within", "5s"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                line, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def restart_if_dead(self) -> bool:
        if self._process.poll() is None:
            return False
        self._process = self._start()
        return True

    def kill(self, kind: str) -> list[int]:
        """Kill a process of a kind, or the whole worker. Return the pids; none if no such process is running."""
        executors = _children(self.pid)
        jobs = [job for executor in executors for zygote in _children(executor) for job in _children(zygote)]
        victims = {
            "worker": list(tree(self.pid, servers=False)),
            "supervisor": [self.pid],
            "executor": executors[:1],
            "job": jobs[:1],
        }[kind]
        _send(signal.SIGKILL, victims)
        return victims

    def stop(self) -> None:
        """Stop the worker gracefully, and kill it if that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill("worker")
            self._process.wait()


def kill_marked(mark: str) -> bool:
    """Kill all processes with this text in their environment, except this one. Return whether there were any."""
    found = [
        pid for pid in all_pids() if pid != os.getpid() and mark.encode() in environment(pid) and not is_server(pid)
    ]
    _send(signal.SIGKILL, found)
    return bool(found)


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """Return the children of a process, except an embedded server that it had to start."""
    with suppress(OSError):
        return [child for child in children_of(pid) if not is_server(child)]
    return []
