"""What a job prints, to descriptors 1 and 2, goes to a file of its attempt; the supervisor reads it: see `logs`.

    fork, spawn, process   descriptors of the job's process are the file, so what its subprocesses print is there too
    thread, async          `sys.stdout` and `sys.stderr` of the executor look for whose context they are written in

The file is opened for appending and written a line at a time, so nothing that was printed is lost with the process.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TextIO, cast
from urllib.parse import quote, unquote

FOLDER = "logs"


class LogName(NamedTuple):
    """Whose log a file is, as its name says."""

    id: str
    created: int
    attempt: int

    def path(self, directory: Path) -> Path:
        return directory / FOLDER / f"{quote(self.id, safe=':@~')}.{self.created}.{self.attempt}"

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        rest, _, attempt = name.rpartition(".")
        id, _, created = rest.rpartition(".")
        try:
            return cls(unquote(id), int(created), int(attempt))
        except ValueError:
            return None


def _open(path: str) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return None


@contextmanager
def redirected(path: str) -> Iterator[None]:
    """Have this process print to a file. Without a disk to write to, it prints where it did before."""
    descriptor = _open(path) if path else None
    if descriptor is None:
        yield
        return
    before = [os.dup(1), os.dup(2)]
    try:
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        with _fresh_streams():
            yield
    finally:
        is_empty = os.fstat(1).st_size == 0
        for number, saved in enumerate(before, 1):
            os.dup2(saved, number)
            os.close(saved)
        if is_empty:
            with suppress(OSError):
                os.unlink(path)


@contextmanager
def _fresh_streams() -> Iterator[None]:
    """Streams that write each line at once; those that were there may hold back, or be a test's."""
    before = sys.stdout, sys.stderr
    fresh = [
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", errors="backslashreplace", line_buffering=True)
        for number in (1, 2)
    ]
    sys.stdout, sys.stderr = fresh
    try:
        yield
    finally:
        for stream in {*fresh, *before, sys.stdout, sys.stderr}:
            with suppress(Exception):
                stream.flush()
        sys.stdout, sys.stderr = before


class LogFile:
    """The log of an attempt that shares its process with others. There is no file until it has a line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._line = b""
        self._lock = Lock()  # a job may have threads
        self._is_over = False

    def write(self, text: str) -> bool:
        """Write whole lines; keep the rest until its end comes. Returns whether anybody will read it."""
        with self._lock:
            if self._is_over:
                return False
            lines, newline, self._line = (self._line + text.encode("utf-8", "backslashreplace")).rpartition(b"\n")
            return self._put(lines + newline)

    def close(self) -> None:
        with self._lock:
            self._put(self._line)
            self._is_over = True
            if self._descriptor is not None:
                os.close(self._descriptor)

    def _put(self, data: bytes) -> bool:
        if data and self._descriptor is None:
            self._descriptor = _open(self._path)
        if data and self._descriptor is not None:
            with suppress(OSError):  # a full disk is no reason for a job to fail
                os.write(self._descriptor, data)
        return True


_log: ContextVar[LogFile | None] = ContextVar("holdfast-log", default=None)


@contextmanager
def captured(path: str) -> Iterator[None]:
    """Have what is printed in this context go to a file."""
    if not path:
        yield
        return
    file = LogFile(path)
    token = _log.set(file)
    try:
        yield
    finally:
        _log.reset(token)
        file.close()


class _Stream(io.TextIOBase):
    """Writes to the log of the context that it is written in, or where it did before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        file = _log.get()
        if file is None or not file.write(text):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def capture_by_context() -> None:
    """Have `sys.stdout` and `sys.stderr` look for whose context they are written in, from now on."""
    sys.stdout, sys.stderr = cast(TextIO, _Stream(sys.stdout)), cast(TextIO, _Stream(sys.stderr))
