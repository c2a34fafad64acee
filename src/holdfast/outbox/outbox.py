"""The outbox: calls on disk that could not be stored, to be sent later, in order.

    outbox/<store>/    mode 0700; one directory per address and namespace
    ├── about          the address and namespace, for people
    ├── calls          one record per enqueue; see `record_file`
    ├── refused        entries that the store refused when they were sent, with the reason
    ├── damaged        damaged records, such as the rest of a write that a power cut interrupted
    ├── write.lock     held while `calls` is written or truncated
    └── send.lock      held by the process that sends

A record is marked when the store has acknowledged it; when all are marked, the file is truncated. A process killed in
between leaves a record that is sent again: the same command with the same ids and token, so it is stored once.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from holdfast import errors
from holdfast.outbox.entry import Entry, Refused
from holdfast.outbox.record_file import (
    CHUNK,
    HEADER_SIZE,
    MAX_BYTES,
    SENT,
    SET_ASIDE,
    Record,
    append,
    append_line,
    encode_record,
    end_of_last_line,
    opened,
    read_records,
    sync_folder,
)
from holdfast.server.home import OTHERS_MAY_WRITE, check_trust, describe_user, write_once
from holdfast.store import Address

CALLS, REFUSED, DAMAGED, WRITE_LOCK, SEND_LOCK = "calls", "refused", "damaged", "write.lock", "send.lock"
MAX_CALLS = 10_000
WRITE_TIMEOUT, SEND_TIMEOUT = 5.0, 60.0  # seconds to wait for each lock
LOCK_POLL_INTERVAL = 0.005  # seconds

log = logging.getLogger("holdfast.outbox")

_locks: set[int] = set()  # descriptors of this process


def _close_locks() -> None:
    """Close, in a forked process, the locks of its parent: it would hold them for as long as it lives."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_close_locks)


class _Counted(NamedTuple):
    """The number of calls in the first `size` bytes of the file, which is the same file if `first` still matches."""

    first: bytes = b""
    size: int = 0
    calls: int = 0


class SendResult(NamedTuple):
    """How many calls the store accepted, and how many it refused."""

    sent: int
    refused: int


class Outbox:
    """The calls to be sent to one store. Any number of processes may use it at once."""

    def __init__(self, folder: Path, address: Address) -> None:
        self._about = f"{address.display}, namespace {address.namespace}"
        self._is_custom = bool(os.environ.get("HOLDFAST_OUTBOX"))
        self.folder = folder / sha256(self._about.encode()).hexdigest()[:16]
        self._calls = str(self.folder / CALLS)
        self._counted = _Counted()

    @property
    def has_entries(self) -> bool:
        """Whether there are calls to send, or that are being sent."""
        return self.size > 0

    @property
    def size(self) -> int:
        try:
            self._check()
            return os.stat(self._calls).st_size
        except OSError:
            return 0

    def _check(self) -> None:
        """Refuse a directory that another user may have prepared. A missing one is harmless.

        Raises:
            OSError: it is not trusted.
        """
        if not self._is_custom:
            check_trust(self.folder.parent.parent)
        try:
            found = os.lstat(self.folder)
        except FileNotFoundError:
            return
        trusted = self.folder.parent if self._is_custom else self.folder.parent.parent
        is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & OTHERS_MAY_WRITE
        if not is_private or found.st_uid not in (os.geteuid(), os.stat(trusted).st_uid):
            owner = describe_user(found.st_uid)
            why = f"the directory is not private, or has another owner ({owner}); set HOLDFAST_OUTBOX to another one"
            raise OSError(errno.EPERM, why, str(self.folder))

    # Writing

    def add(self, entry: Entry) -> None:
        """Append an entry. When this returns, it is on disk.

        Raises:
            OSError: it could not be written, or the outbox is full.
        """
        line = encode_record(entry)
        self._prepare()
        with self._locked(WRITE_LOCK), opened(self._calls, os.O_RDWR | os.O_CREAT) as file:
            size = self._repair_end(file)
            self._check_limits(file, size, len(line), len(entry.ids))
            append(file, size, line)
            if size == 0:
                sync_folder(self.folder)

    def _prepare(self) -> None:
        """Create the directory."""
        self._check()
        if self.folder.is_dir():
            return
        missing = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)
        self._check()  # another user may have created it first
        write_once(self.folder.parent / ".gitignore", "*\n")
        write_once(self.folder / "about", f"{self._about}\n")

    def _repair_end(self, file: BinaryIO) -> int:
        """Set aside an incomplete line at the end. Return the size of the file without it."""
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return 0
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return size
        end = end_of_last_line(file, size)
        file.seek(end)
        self._set_aside(file.read())
        os.ftruncate(file.fileno(), end)
        return end

    def _set_aside(self, data: bytes) -> None:
        append_line(self.folder / DAMAGED, data.rstrip(b"\n"))
        log.error("%s: %d bytes are damaged, and were set aside in the file %s", self._calls, len(data), DAMAGED)

    def _check_limits(self, file: BinaryIO, size: int, more_bytes: int, more_calls: int) -> None:
        """Count the calls in the file, also those already sent, as they stay until it is truncated."""
        first = os.pread(file.fileno(), HEADER_SIZE, 1)  # without the mark
        counted = self._counted if self._counted.first == first and self._counted.size <= size else _Counted()
        calls = counted.calls + sum(record.calls for record in read_records(file, counted.size))
        self._counted = _Counted(first, size, calls)
        if calls + more_calls > MAX_CALLS or size + more_bytes > MAX_BYTES:
            held = f"the outbox holds {calls:,} calls in {size / 2**20:.1f} MiB"
            raise OSError(errno.EDQUOT, f"{held} (limit {MAX_CALLS:,} in {MAX_BYTES >> 20} MiB)", self._calls)

    # Sending

    def send(self, deliver: Callable[[Entry], None], *, lock_timeout: float = SEND_TIMEOUT) -> SendResult:
        """Send all entries in order, and count their calls.

        Entries that the store refuses are set aside. If it is unreachable or full, `deliver` raises the error, and the
        unsent entries stay.

        Raises:
            OSError: another process is still sending after the timeout.
        """
        sent, refused, start = 0, 0, 0
        self._check()
        if not self.has_entries:
            return SendResult(0, 0)
        with self._locked(SEND_LOCK, lock_timeout):
            while records := self._next_records(start):
                for record in records:
                    if record.is_pending:
                        is_accepted = self._send_record(record, deliver)
                        sent += record.calls if is_accepted else 0
                        refused += 0 if is_accepted else record.calls
                    start = record.end
        return SendResult(sent, refused)

    def _send_record(self, record: Record, deliver: Callable[[Entry], None]) -> bool:
        """Send one record and mark it. Return whether the store accepted it; otherwise it is set aside."""
        is_accepted = True
        try:
            deliver(record.entry)
        except (*_REFUSALS, msgspec.MsgspecError) as error:
            is_accepted = False
            self._refuse(record, error)
        with opened(self._calls, os.O_RDWR) as file:
            os.pwrite(file.fileno(), SENT, record.start)
        return is_accepted

    def _next_records(self, start: int) -> list[Record]:
        """Read the next records; at the end, truncate the file."""
        with self._locked(WRITE_LOCK), opened(self._calls, os.O_RDWR) as file:
            size = self._repair_end(file)
            if start >= size:
                os.ftruncate(file.fileno(), 0)
                return []
            found: list[Record] = []
            for record in read_records(file, start):
                found.append(record)
                if record.is_new_damage:
                    file.seek(record.start)
                    self._set_aside(file.read(record.end - record.start))
                    os.pwrite(file.fileno(), SET_ASIDE, record.start)
                if record.end - start > CHUNK:
                    break
            return found

    def _refuse(self, record: Record, error: Exception) -> None:
        code = error.code if isinstance(error, errors.HoldfastError) else "ERROR"
        try:
            entry = record.entry
        except msgspec.MsgspecError:  # written by another release
            return self._set_aside(record.data or b"")
        with self._locked(WRITE_LOCK):
            refused = Refused(time.time_ns() // 1_000_000, code, str(error), entry)
            append_line(self.folder / REFUSED, msgspec.json.encode(refused))
        log.error("the store refused calls from the outbox (job %s): %s", ", ".join(entry.ids), error)
        return None

    # Reading

    def entries(self) -> Iterator[Entry]:
        """Return the entries to be sent, in order."""
        self._check()
        try:
            with opened(self._calls, os.O_RDONLY) as file:
                for record in read_records(file):
                    if record.is_pending:
                        with suppress(msgspec.MsgspecError):  # written by another release
                            yield record.entry
        except FileNotFoundError:
            return

    def refused(self) -> Iterator[Refused]:
        """Return the entries that the store refused."""
        self._check()
        try:
            with opened(self.folder / REFUSED, os.O_RDONLY) as file:
                for line in file:
                    with suppress(msgspec.MsgspecError):  # interrupted by a power cut
                        yield msgspec.json.decode(line, type=Refused)
        except FileNotFoundError:
            return

    def has_job(self, id: str) -> bool:
        """Return whether a job is still to be sent.

        Raises:
            HoldfastError: the store refused it.
        """
        if any(id in entry.ids for entry in self.entries()):
            return True
        for refused in self.refused():
            if id in refused.entry.ids:
                raise refused.error
        return False

    @contextmanager
    def _locked(self, name: str, timeout: float = WRITE_TIMEOUT) -> Iterator[None]:
        """Hold a lock of the outbox."""
        lock = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _locks.add(lock)
        try:
            _acquire(lock, self.folder / name, timeout)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            _locks.discard(lock)
            os.close(lock)


_REFUSALS = (
    errors.Invalid,
    errors.TooBig,
    errors.JobExists,
    errors.WrongState,
    errors.JobNotFound,
    errors.JobBlocked,
    errors.DependencyCycle,
)  # each concerns one entry; any other error concerns all of them, and may be temporary


def _acquire(lock: int, path: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise OSError(errno.EBUSY, "another process holds the lock", str(path)) from None
            time.sleep(LOCK_POLL_INTERVAL)
