"""The log file of an attempt, which gets what the job prints to descriptors 1 and 2. `shipping` sends it to the store.

    fork, spawn, process   the descriptors of the job's process are the file, so its subprocesses write to it too
    thread, async          `sys.stdout` and `sys.stderr` write to the log of the job in whose context they are used

The file is opened for appending and written line by line, so nothing is lost with the process. It carries a shared lock
while any process has it open, and is not removed before.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TextIO
from weakref import WeakSet

from holdfast.names import file_name_to_id, id_to_file_name

FOLDER = "logs"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)  # they do not fail a job


class LogName(NamedTuple):
    """The attempt that a log belongs to, read from its file name."""

    id: str
    created: int
    attempt: int

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        rest, _, attempt = name.rpartition(".")
        id, _, created = rest.rpartition(".")
        try:
            return cls(file_name_to_id(id), int(created), int(attempt))
        except ValueError:
            return None


def log_path(folder: str, id: str, created: int, attempt: int) -> str:
    """Return the path of an attempt's log; `LogName` parses its name."""
    return f"{folder}/{id_to_file_name(id)}.{created}.{attempt}"


def open_log(path: str) -> int | None:
    """Open a log for appending; None if the disk is not writable."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    with suppress(OSError):  # not every file system has locks
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


def is_open(path: Path) -> bool:
    """Return whether a process still has a log open: the job, or one that it started."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def append(path: str, lines: str) -> None:
    """Append lines to a log."""
    descriptor = open_log(path)
    if descriptor is not None:
        with suppress(OSError):
            os.write(descriptor, lines.encode("utf-8", "backslashreplace"))
        os.close(descriptor)


class RedirectedOutput:
    """Redirects the output of this process to a file, in a block; to no file, if the disk is not writable."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        descriptor = open_log(self._path) if self._path else None
        self._before = None if descriptor is None else (sys.stdout, sys.stderr)
        if descriptor is None:
            return
        _open_original_streams()
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        sys.stdout, sys.stderr = self._streams = _spare.pop() if _spare else _job_streams()

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        for stream in {*self._streams, *self._before, sys.stdout, sys.stderr}:
            with suppress(Exception):
                stream.flush()
        sys.stdout, sys.stderr = self._before
        with suppress(OSError):  # a job may have closed all descriptors
            for file, number in zip(_original, (1, 2), strict=True):
                os.dup2(file.fileno(), number)
        with suppress(OSError):
            if os.stat(self._path).st_size == 0:
                os.unlink(self._path)


# A process for many jobs may have threads of earlier ones. Their output is not the next job's.

_original: list[TextIO] = []  # the streams of this process before its first job
_earlier_threads: WeakSet[threading.Thread] = WeakSet()


def _open_original_streams() -> None:
    for number in () if _original else (1, 2):
        file = _LossyFile(os.dup(number), "w")
        _original.append(io.TextIOWrapper(file, "utf-8", errors="backslashreplace", line_buffering=True))
    if threading.active_count() > 1:
        _earlier_threads.update(thread for thread in threading.enumerate() if thread is not threading.current_thread())


def original_stream(number: int) -> TextIO | None:
    """Return the original stream for a thread of an earlier job; None for one of the job that runs here."""
    return _original[number - 1] if _earlier_threads and threading.current_thread() in _earlier_threads else None


class _LossyFile(io.FileIO):
    """A file that drops what does not fit on a full disk."""

    def write(self, data: object) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type] # bytes of any kind
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            return len(data)  # type: ignore[arg-type] # as above


class _JobStream(io.TextIOWrapper):
    """Descriptor 1 or 2 of the job that runs here."""

    def __init__(self, number: int) -> None:
        self._number = number
        super().__init__(
            _LossyFile(number, "w", closefd=False), "utf-8", errors="backslashreplace", line_buffering=True
        )

    def write(self, text: str) -> int:
        original = original_stream(self._number)
        return super().write(text) if original is None else original.write(text)


def _job_streams() -> tuple[_JobStream, _JobStream]:
    """Return streams that write each line at once; existing ones may buffer, or belong to a test."""
    return _JobStream(1), _JobStream(2)


_spare: list[tuple[_JobStream, _JobStream]] = []


def make_spare_streams(path: str) -> None:
    """Create the streams of the first job of each process that is forked from this one; `path` is a log."""
    with RedirectedOutput(path):  # so that they are opened on a file
        _spare.append(_job_streams())
