"""What jobs print that share a process: `sys.stdout` and `sys.stderr` look for whose context they are written in.

Threads that a job starts, and what it hands to a pool of threads, belong to its context. So what they print is the
job's, and `current_job()` is too.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from threading import Lock, Thread, get_ident
from typing import Any, TextIO, cast

from holdfast.worker.output.console import Outlet
from holdfast.worker.output.files import DISK_ERRORS, open_log, outside

LONGEST_HELD = 8192  # bytes of a line that has no end yet


class LogFile:
    """The log of an attempt that shares its process with others. There is no file until it has a line."""

    _descriptor: int | None = None
    _is_over = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: dict[int, bytes] = {}  # by thread, what has no end yet: `print` writes that by itself
        self._lock = Lock()  # a job may have threads

    def write(self, data: bytes) -> bool:
        """Write whole lines; keep the rest until its end comes. Returns whether anybody will read it."""
        own = get_ident()
        with self._lock:
            if self._is_over:
                return False
            lines, newline, rest = (self._lines.pop(own, b"") + data).rpartition(b"\n")
            self._put(lines + newline)
            if rest:
                self._lines[own] = rest
            if len(rest) > LONGEST_HELD:
                self._put_lines(own)
            return True

    def flush(self) -> None:
        with self._lock:
            if not self._is_over:
                self._put_lines(get_ident())

    def __enter__(self) -> None:
        """Have what is printed in this context go here."""
        self._token = _log.set(self)

    def __exit__(self, *_: object) -> None:
        _log.reset(self._token)
        self.close()

    def close(self) -> None:
        with self._lock:
            self._put_lines(*self._lines)
            self._is_over = True
            if self._descriptor is not None:
                os.close(self._descriptor)

    def _put_lines(self, *threads: int) -> None:
        for thread in threads:
            self._put(self._lines.pop(thread, b""))

    def _put(self, data: bytes) -> None:
        if data and self._descriptor is None:
            self._descriptor = open_log(self._path)
        if data and self._descriptor is not None:
            with suppress(OSError):  # a full disk is no reason for a job to fail
                os.write(self._descriptor, data)


_log: ContextVar[LogFile | None] = ContextVar("holdfast-log", default=None)


def captured(path: str) -> AbstractContextManager[object]:
    """Have what is printed in this context go to a file; '': where it did before."""
    return LogFile(path) if path else _NOT


_NOT = nullcontext()


class _Stream(io.TextIOBase):
    """Writes to the log of the context that it is written in, or where it did before."""

    def __init__(self, stream: TextIO, number: int) -> None:
        self._stream = stream
        self._number = number

    @property
    def buffer(self) -> _Buffer:
        return _Buffer(self._stream)

    def write(self, text: str) -> int:
        file = _log.get()
        if file is None or not file.write(text.encode("utf-8", "backslashreplace")):
            self._write_through(text)
        return len(text)

    def _write_through(self, text: str) -> None:
        """In a job's own process, where handlers that were made before it still write here, this is its log."""
        try:
            (outside(self._number) or self._stream).write(text)
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise

    def flush(self) -> None:
        file = _log.get()
        if file is None:
            self._stream.flush()
        else:
            file.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Buffer(io.RawIOBase):
    """The same for bytes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        file = _log.get()
        if file is None or not file.write(bytes(data)):
            self._stream.buffer.write(data)
        return len(data)

    def flush(self) -> None:
        (_log.get() or self._stream).flush()


def capture_by_context() -> None:
    """Have `sys.stdout` and `sys.stderr` look for whose context they are written in, from now on."""
    sys.stdout, sys.stderr = by_context(sys.stdout, 1), by_context(sys.stderr, 2)
    _have_threads_inherit()


def by_context(stream: TextIO | Outlet, number: int) -> TextIO:
    """A stream that writes to the log of the job in whose context it is written, or else to this one."""
    return cast(TextIO, _Stream(cast(TextIO, stream), number))


def _have_threads_inherit() -> None:
    start, submit = Thread.start, ThreadPoolExecutor.submit

    def start_in_context(self: Thread) -> None:
        # A thread of a pool works for whoever hands it something, not for whoever made it necessary.
        if _log.get() is not None and getattr(self, "_target", None) is not _pool_worker:
            self.run = _in_context(self.run)  # type: ignore[method-assign] # of this one
        start(self)

    def submit_in_context(self: ThreadPoolExecutor, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        work = function if _log.get() is None else _in_context(function)
        return submit(self, work, *args, **kwargs)

    Thread.start = start_in_context  # type: ignore[method-assign] # in executors only
    ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign, assignment] # in executors only


def _in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    context = copy_context()
    return lambda *args, **kwargs: context.run(function, *args, **kwargs)


_pool_worker = vars(sys.modules[ThreadPoolExecutor.__module__])["_worker"]
