"""The program `holdfast` for tests: as a process of its own, on a real server, piped and on a terminal; and an executor
that does what the test says."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import Holdfast
from holdfast.job.failure import Failure
from holdfast.job.failure import encode as encode_failure
from holdfast.job.outcome import Outcome
from holdfast.store import commands
from holdfast.store.commands import Finish
from tests.support.new_job import NewJob
from tests.support.zygote import Zygote

PROGRAM = (sys.executable, "-m", "holdfast")
PATIENCE = 30  # seconds for a condition to come true
ESCAPE = "\x1b["
EVIL = "\x1b[31mred\x07\x9b2J\u202e[bold]b[/bold]"

APP = """
from datetime import date
from holdfast import Holdfast, current_job

jobs = Holdfast()

@jobs.task
def add(x: int, y: int = 10) -> int:
    return x + y

@jobs.task(queue="post")
def greet(name: str, on: date | None = None) -> str:
    return f"hello {name} {on}"

@jobs.task(retries=0)
def fail(word: str) -> None:
    raise ValueError(word)
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


class Terminal:
    """A command that runs on a terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = b""

    @property
    def text(self) -> str:
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    def read_until(self, *words: str, after: int = 0) -> int:
        """Wait until all words have been shown after a place, and return the place where the text ends then."""
        deadline = time.monotonic() + PATIENCE
        while not all(word in self.text[after:] for word in words):
            assert self._read(deadline), f"{words} was not shown: {self.text[after:]}"
        return len(self.text)

    def wait(self) -> int:
        """Wait until the command has ended and return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def cook(self) -> None:
        """Have the terminal edit lines and echo keys, as it does between programs."""
        modes = termios.tcgetattr(self._descriptor)
        modes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._descriptor)

    def _read(self, deadline: float) -> bool:
        """Read what there is, waiting for it; false at the end, or when time is over."""
        if not select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        with suppress(OSError):  # at the end
            part = os.read(self._descriptor, 65536)
            self._shown += part
            return bool(part)
        return False


@cache
def _zygote() -> Zygote:
    return Zygote()


class Shell:
    """A directory with an app in it, an environment, and a namespace of its own."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self.folder = folder
        self.client = Holdfast(url, namespace=namespace)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environ = {**ours, "HOLDFAST_URL": url, "HOLDFAST_NAMESPACE": namespace, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
            self.environ.pop(name, None)
        (folder / "tasks.py").write_text(APP)

    def __call__(self, *words: str, stdin: str = "", **environ: str) -> Ended:
        """Run a command with its streams in files, and return how it ended."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            code = _zygote().run(list(words), str(self.folder), {**self.environ, **environ}, streams)
            for file in (out, err):
                file.seek(0)
            return Ended(code, out.read().decode(), err.read().decode())

    def on_a_terminal(self, *words: str, columns: int = 120, rows: int = 50, **environ: str) -> str:
        """Run a command on a terminal, and return what it shows."""
        with self.terminal(*words, columns=columns, rows=rows, **environ) as terminal:
            terminal.wait()
            return terminal.text

    @contextmanager
    def terminal(self, *words: str, columns: int = 120, rows: int = 50, **environ: str) -> Iterator[Terminal]:
        """Run a command on a terminal, for as long as the test looks at it."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen(
            [*(words if "/" in words[0] else (*PROGRAM, *words))],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        shown = Terminal(process, ours)
        try:
            yield shown
        finally:
            shown.close()

    def put(self, id: str, *, task: str = "tasks.add", queue: str = "default", payload: bytes = b"{}") -> None:
        job = NewJob(id=id, payload=payload, queue=queue, task=task)
        self.client.store.run(commands.enqueue([job]))


class Hand:
    """An executor that does what the test says."""

    def __init__(self, client: Holdfast, worker: str = "node/worker") -> None:
        self._client = client
        self._worker = worker
        self._count = 0

    def take(self) -> str:
        id = self.try_to_take()
        assert id, "there is nothing to take"
        return id

    def try_to_take(self) -> str | None:
        self._count += 1
        request = commands.claim_args(["default"], counter=self._count, limit=1)
        jobs = self._client.store.run(commands.claim(f"{self._worker}.1", request)).jobs
        return jobs[0].id if jobs else None

    def end(self, outcome: Outcome) -> None:
        id = self.take()
        attempt = self._client.get(id).attempt
        finish = commands.finish(f"{self._worker}.1", [Finish(id, attempt, outcome, pid=4711)])
        assert self._client.store.run(finish).answers == ["OK"]

    def vanish(self) -> None:
        self.take()
        assert self._client.store.run(commands.requeue_orphaned(worker=self._worker, reason="the worker died"))


def failure(message: str = "boom") -> bytes:
    described = Failure(
        type="ValueError", message=message, traceback=f"ValueError: {message}", group="g", fingerprint="f"
    )
    return encode_failure(described)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this has not come true"
        time.sleep(0.02)  # between looks at a condition


def wait_for_another_millisecond(client: Holdfast) -> None:
    """Jobs that change in one millisecond have no order."""

    def now() -> int:
        seconds, microseconds = client.store.execute("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    start = now()
    wait_until(lambda: now() > start)


@contextmanager
def running_worker(shell: Shell, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with (shell.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*PROGRAM, "work", "tasks", *words], cwd=shell.folder, env=shell.environ, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE)
