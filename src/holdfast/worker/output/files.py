"""What a job prints, to descriptors 1 and 2, goes to a file of its attempt; the supervisor reads it: see `logs`.

    fork, spawn, process   descriptors of the job's process are the file, so what its subprocesses print is there too
    thread, async          `sys.stdout` and `sys.stderr` of the executor look for whose context they are written in

The file is opened for appending and written a line at a time, so nothing that was printed is lost with the process. It
is locked, shared, for as long as anybody has it open: then nobody removes it, whatever is known of its job.
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

from holdfast.names import file_name, id_of_file

FOLDER = "logs"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)  # no reason for a job to fail


class LogName(NamedTuple):
    """Whose log a file is, as its name says."""

    id: str
    created: int
    attempt: int

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        rest, _, attempt = name.rpartition(".")
        id, _, created = rest.rpartition(".")
        try:
            return cls(id_of_file(id), int(created), int(attempt))
        except ValueError:
            return None


def log_path(folder: str, id: str, created: int, attempt: int) -> str:
    """The log of an attempt: its name can be parsed as a `LogName`."""
    return f"{folder}/{file_name(id)}.{created}.{attempt}"


def open_log(path: str) -> int | None:
    """Open a log for appending; None if there is no disk to write to."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    with suppress(OSError):  # some file systems have no locks
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


def is_open(path: Path) -> bool:
    """Whether a job, or something that it has started, has its log open."""
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
    """Write lines to a log."""
    descriptor = open_log(path)
    if descriptor is not None:
        with suppress(OSError):
            os.write(descriptor, lines.encode("utf-8", "backslashreplace"))
        os.close(descriptor)


class Redirected:
    """Has this process print to a file, in a block. Without a disk to write to, it prints where it did before."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        descriptor = open_log(self._path) if self._path else None
        self._before = None if descriptor is None else (sys.stdout, sys.stderr)
        if descriptor is None:
            return
        _remember_outside()
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        sys.stdout, sys.stderr = self._own = _spare.pop() if _spare else _own_streams()

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        for stream in {*self._own, *self._before, sys.stdout, sys.stderr}:
            with suppress(Exception):
                stream.flush()
        sys.stdout, sys.stderr = self._before
        with suppress(OSError):  # a job may have closed all descriptors that it found
            for file, number in zip(_outside, (1, 2), strict=True):
                os.dup2(file.fileno(), number)
        with suppress(OSError):
            if os.stat(self._path).st_size == 0:
                os.unlink(self._path)


# A process that stays for many jobs has threads that earlier ones have left. What these print is not the next job's.

_outside: list[TextIO] = []  # where this process printed before its first job
_strangers: WeakSet[threading.Thread] = WeakSet()


def _remember_outside() -> None:
    for number in () if _outside else (1, 2):
        file = _Patient(os.dup(number), "w")
        _outside.append(io.TextIOWrapper(file, "utf-8", errors="backslashreplace", line_buffering=True))
    if threading.active_count() > 1:
        _strangers.update(thread for thread in threading.enumerate() if thread is not threading.current_thread())


def outside(number: int) -> TextIO | None:
    """Where this thread is to print, if it is not one of the job that runs here."""
    return _outside[number - 1] if _strangers and threading.current_thread() in _strangers else None


class _Patient(io.FileIO):
    """A file whose disk may be full: what does not fit is dropped."""

    def write(self, data: object) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type] # bytes of any kind
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            return len(data)  # type: ignore[arg-type] # as above


class _Own(io.TextIOWrapper):
    """What the job that runs here prints, by the number of its descriptor."""

    def __init__(self, number: int) -> None:
        self._number = number
        super().__init__(_Patient(number, "w", closefd=False), "utf-8", errors="backslashreplace", line_buffering=True)

    def write(self, text: str) -> int:
        elsewhere = outside(self._number)
        return super().write(text) if elsewhere is None else elsewhere.write(text)


def _own_streams() -> tuple[_Own, _Own]:
    """Streams that write each line at once; those that were there may hold back, or be a test's."""
    return _Own(1), _Own(2)


_spare: list[tuple[_Own, _Own]] = []


def make_spare_streams(path: str) -> None:
    """Make those of the first job of each process that will be forked from this one; `path` is a log."""
    with Redirected(path):  # so that they know a file
        _spare.append(_own_streams())
