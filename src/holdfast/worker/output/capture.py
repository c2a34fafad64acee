"""The output of jobs that share a process: `sys.stdout` and `sys.stderr` write to the log of the current context.

Threads that a job starts, and calls that it submits to a thread pool, run in its context. So their output is the job's,
and `current_job()` works in them.
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

from holdfast.worker.output.console import ConsoleStream
from holdfast.worker.output.files import DISK_ERRORS, open_log, original_stream

MAX_HELD = 8192  # bytes of an incomplete line


class LogFile:
    """The log of an attempt that shares its process with others. The file is created with the first line."""

    _descriptor: int | None = None
    _is_over = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: dict[int, bytes] = {}  # by thread, an incomplete line: `print` writes the newline separately
        self._lock = Lock()  # a job may have threads

    def write(self, data: bytes) -> bool:
        """Write complete lines, and hold an incomplete one. Return False if the log is closed."""
        own = get_ident()
        with self._lock:
            if self._is_over:
                return False
            lines, newline, rest = (self._lines.pop(own, b"") + data).rpartition(b"\n")
            self._put(lines + newline)
            if rest:
                self._lines[own] = rest
            if len(rest) > MAX_HELD:
                self._put_lines(own)
            return True

    def flush(self) -> None:
        with self._lock:
            if not self._is_over:
                self._put_lines(get_ident())

    def __enter__(self) -> None:
        """Capture the output of this context."""
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
            with suppress(OSError):  # a full disk does not fail a job
                os.write(self._descriptor, data)


_log: ContextVar[LogFile | None] = ContextVar("holdfast-log", default=None)


def captured(path: str) -> AbstractContextManager[object]:
    """Capture the output of this context in a file; '': do not capture it."""
    return LogFile(path) if path else _UNCAPTURED


_UNCAPTURED = nullcontext()


class _Stream(io.TextIOBase):
    """Writes to the log of the current context, or else to the original stream."""

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
        """Write to the original stream. In a job's own process that is its log, for logging handlers of the app too."""
        try:
            (original_stream(self._number) or self._stream).write(text)
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
    """Replace `sys.stdout` and `sys.stderr` by streams that write to the log of the current context."""
    sys.stdout, sys.stderr = by_context(sys.stdout, 1), by_context(sys.stderr, 2)
    _pass_context_to_threads()


def by_context(stream: TextIO | ConsoleStream, number: int) -> TextIO:
    """Return a stream that writes to the log of the current context, or else to this stream."""
    return cast(TextIO, _Stream(cast(TextIO, stream), number))


def _pass_context_to_threads() -> None:
    start, submit = Thread.start, ThreadPoolExecutor.submit

    def start_in_context(self: Thread) -> None:
        # A thread of a pool runs in the context of each submitted call, not of the call that started it.
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
