"""A call as it is kept on disk, and the file of such records.

    K 00001 000000412 1a2b3c4d {"at":1700000000000,"args":{...},"ids":["..."],"blobs":["..."],"format":2}⏎
    │ calls length    checksum

K becomes S, in place, when the record was sent. A record that is not whole is known by its length or its checksum; as
JSON has no line breaks, the next one begins after the next line break. Its first byte becomes X when it was set aside.

Calls that are kept on disk while the store cannot be reached, to be sent later, in order.

    outbox/<store>/    mode 0700; a store is an address and a namespace
    ├── about         which store that is, for people
    ├── calls         one record per enqueue
    ├── refused       what the store refused when it was sent, with the reason
    ├── damaged       what is no record: the rest of a write that a power cut broke off
    ├── write.lock    held while `calls` is written to or cut
    └── send.lock     held by whoever sends

A record is marked when it was sent; when all were, the file is emptied. Whoever is killed between sending and marking
leaves a record that is sent again: the same command, with the same ids and token, so it is stored once.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from holdfast import errors
from holdfast.server.home import OTHERS_MAY_WRITE, check_trust, describe_user, write_once
from holdfast.store import Address, Command

MAX_BYTES = 64 << 20
FORMAT = 2
SET_ASIDE = b"X\n"  # how a damaged line begins that was set aside, and an empty one, where nothing is to be

_HEADER = re.compile(rb"([KS]) (\d{5}) (\d{9}) ([0-9a-f]{8}) ")
HEADER_SIZE = 27


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An enqueue that waits on disk: when it was kept, in milliseconds of this machine's clock, and what to send."""

    at: int
    args: dict[str, Any]
    ids: list[str]
    blobs: tuple[bytes, ...]
    format: int = 1  # of those that do not say

    @classmethod
    def of(cls, command: Command[Any], now: int) -> Entry:
        """Delay and deadline count from now on. And an id must be looked up then, however new it is today."""
        batches = [_with_times(batch, now) for batch in command.args["batches"]]
        args = {name: value for name, value in command.args.items() if name != "fresh"}
        ids, *payloads = command.blobs
        return cls(now, {**args, "batches": batches}, ids.decode().split(" "), tuple(payloads), FORMAT)

    @property
    def command(self) -> Command[None]:
        return Command("enqueue", self.args, lambda _: None, (" ".join(self.ids).encode(), *self.blobs))

    @property
    def batches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.args["batches"]
        return found

    @property
    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each id, and what is said of it and of its like."""
        ids = iter(self.ids)
        for batch in self.batches:
            for _ in range(batch.get("count", 1)):
                yield next(ids), batch


def _with_times(batch: dict[str, Any], now: int) -> dict[str, Any]:
    """Say when, in the place of how long from now."""
    names = {"delay": "at", "deadline": "deadline_at"}
    return {names.get(name, name): now + value if name in names else value for name, value in batch.items()}


class Refused(msgspec.Struct, frozen=True):
    """A kept call that the store refused when it was sent: when, with which code and words."""

    at: int
    code: str
    reason: str
    entry: Entry

    @property
    def error(self) -> errors.HoldfastError:
        return errors.BY_CODE.get(self.code, errors.HoldfastError)(self.reason)


class Record(NamedTuple):
    """What stands in the file from `place` to `end`.

    `data` is nothing of a part that is damaged; that is never sent, but once set aside it counts as if it were.
    """

    place: int
    end: int
    is_sent: bool
    calls: int
    data: bytes | None

    @property
    def kept(self) -> Entry:
        """What is kept.

        Raises:
            MsgspecError: another release wrote it, in a form that is not known here.
        """
        kept = msgspec.json.decode(self.data or b"", type=Entry)
        if kept.format != FORMAT:
            raise msgspec.ValidationError(f"the form of the record is {kept.format}, not {FORMAT}")
        return kept


def line_of(kept: Entry) -> bytes:
    data = msgspec.json.encode(kept)
    return b"K %05d %09d %08x %b\n" % (len(kept.ids), len(data), crc32(data), data)


def read_records(file: BinaryIO, place: int = 0) -> Iterator[Record]:
    """Read from a place on. What is no record is passed over, up to the end of its line."""
    file.seek(place)
    while header := file.read(HEADER_SIZE):
        found = _HEADER.fullmatch(header)
        body = file.read(int(found[3]) + 1) if found and int(found[3]) <= MAX_BYTES else b""
        data = body[:-1]
        if found and len(data) == int(found[3]) and body.endswith(b"\n") and crc32(data) == int(found[4], 16):
            record = Record(place, place + len(header) + len(body), found[1] == b"S", int(found[2]), data)
        else:
            file.seek(place)
            record = Record(place, place + len(file.readline()), header[:1] in SET_ASIDE, calls=0, data=None)
        yield record
        place = record.end
        file.seek(place)


CALLS, REFUSED, DAMAGED, WRITING, SENDING = "calls", "refused", "damaged", "write.lock", "send.lock"
MAX_CALLS = 10_000
CHUNK = 4 << 20  # bytes that are read at once, at least one record
SHORT, LONG = 5.0, 60.0  # seconds that a lock is waited for, by those who write and who send
PAUSE = 0.005

log = logging.getLogger("holdfast.outbox")

_locks: set[int] = set()  # descriptors of this process


def _forget_locks() -> None:
    """Let go, in a forked process, of the locks of its parent: they would be held for as long as it lives."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_forget_locks)


class _Counted(NamedTuple):
    """How many calls were in a file of so many bytes, that began with this record: another has been emptied since."""

    first: bytes = b""
    size: int = 0
    calls: int = 0


class Outbox:
    """The calls that are kept for one store. Any number of processes use it at once."""

    def __init__(self, folder: Path, address: Address) -> None:
        self._about = f"{address.display}, namespace {address.namespace}"
        self._is_chosen = bool(os.environ.get("HOLDFAST_OUTBOX"))
        self.folder = folder / sha256(self._about.encode()).hexdigest()[:16]
        self._calls = str(self.folder / CALLS)
        self._counted = _Counted()

    @property
    def has_entries(self) -> bool:
        """Whether anything is to be sent, or was just being sent."""
        return self.size > 0

    @property
    def size(self) -> int:
        try:
            self._check()
            return os.stat(self._calls).st_size
        except OSError:
            return 0

    def _check(self) -> None:
        """Refuse a folder that another user may have prepared. One that is not there is no danger.

        Raises:
            OSError: it is not trusted.
        """
        if not self._is_chosen:
            check_trust(self.folder.parent.parent)
        try:
            found = os.lstat(self.folder)
        except FileNotFoundError:
            return
        is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & OTHERS_MAY_WRITE
        if not is_private or found.st_uid not in self._owners():
            words = f"it is not private, or belongs to another user, {describe_user(found.st_uid)}: set HOLDFAST_OUTBOX"
            raise OSError(errno.EPERM, words, str(self.folder))

    def _owners(self) -> set[int]:
        """Who may own the folder of a store: this user, and the owner of the outbox or home that the user chose."""
        chosen = self.folder.parent if self._is_chosen else self.folder.parent.parent
        return {os.geteuid(), os.stat(chosen).st_uid}

    # Writing

    def add(self, kept: Entry) -> None:
        """Write a call down, behind those that are there. When this returns, it is on the disk.

        Raises:
            OSError: it could not be written, or there is no room for more.
        """
        line = line_of(kept)
        self._prepare()
        with self._locked(WRITING), _opened(self._calls, os.O_RDWR | os.O_CREAT) as file:
            size = self._mend(file)
            self._check_room(file, size, len(line), len(kept.ids))
            _append(file, size, line)
            if size == 0:
                _sync_folder(self.folder)

    def _prepare(self) -> None:
        self._check()
        if self.folder.is_dir():
            return
        missing = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(folder.parent)
        self._check()  # perhaps somebody else has just made it
        write_once(self.folder.parent / ".gitignore", "*\n")
        write_once(self.folder / "about", f"{self._about}\n")

    def _mend(self, file: BinaryIO) -> int:
        """Set aside what a write that was broken off has left at the end. Returns the size of what is whole."""
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return 0
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return size
        whole = _last_line_end(file, size)
        file.seek(whole)
        self._set_aside(file.read())
        os.ftruncate(file.fileno(), whole)
        return whole

    def _set_aside(self, data: bytes) -> None:
        _append_line(self.folder / DAMAGED, data.rstrip(b"\n"))
        log.error("%s: %d bytes are no whole record; they are set aside in %s", self._calls, len(data), DAMAGED)

    def _check_room(self, file: BinaryIO, size: int, more_bytes: int, more_calls: int) -> None:
        """What was sent counts too, until all was sent: then the file is emptied."""
        first = os.pread(file.fileno(), HEADER_SIZE, 1)  # without the mark whether it was sent
        counted = self._counted if self._counted.first == first and self._counted.size <= size else _Counted()
        calls = counted.calls + sum(record.calls for record in read_records(file, counted.size))
        self._counted = _Counted(first, size, calls)
        if calls + more_calls > MAX_CALLS or size + more_bytes > MAX_BYTES:
            words = f"{calls:,} calls of {size / 2**20:.1f} MiB are kept already; {MAX_CALLS:,} and {MAX_BYTES >> 20}"
            raise OSError(errno.EDQUOT, f"{words} MiB are allowed", self._calls)

    # Sending

    def send(self, deliver: Callable[[Entry], None], *, lock_timeout: float = LONG) -> int:
        """Send all that is kept, in order, and return how many calls that were.

        What the store refuses is set aside. If it cannot be reached or is full, `deliver` raises that, and the rest
        stays as it is.

        Raises:
            OSError: another process has been sending for as long as there is patience.
        """
        number, place = 0, 0
        self._check()
        if not self.has_entries:
            return 0
        with self._locked(SENDING, lock_timeout):
            while records := self._next(place):
                for record in records:
                    if record.data is not None and not record.is_sent:
                        number += self._send(record, deliver)
                    place = record.end
        return number

    def _send(self, record: Record, deliver: Callable[[Entry], None]) -> int:
        try:
            deliver(record.kept)
        except (*_REFUSALS, msgspec.MsgspecError) as error:
            self._refuse(record, error)
        with _opened(self._calls, os.O_RDWR) as file:
            os.pwrite(file.fileno(), b"S", record.place)
        return record.calls

    def _next(self, place: int) -> list[Record]:
        """Read the next records; at the end, empty the file."""
        with self._locked(WRITING), _opened(self._calls, os.O_RDWR) as file:
            size = self._mend(file)
            if place >= size:
                os.ftruncate(file.fileno(), 0)
                return []
            found: list[Record] = []
            for record in read_records(file, place):
                found.append(record)
                if record.data is None and not record.is_sent:
                    file.seek(record.place)
                    self._set_aside(file.read(record.end - record.place))
                    os.pwrite(file.fileno(), SET_ASIDE[:1], record.place)
                if record.end - place > CHUNK:
                    break
            return found

    def _refuse(self, record: Record, error: Exception) -> None:
        code = error.code if isinstance(error, errors.HoldfastError) else "ERROR"
        try:
            line = msgspec.json.encode(Refused(_now(), code, str(error), record.kept))
        except msgspec.MsgspecError:  # written by another release
            return self._set_aside(record.data or b"")
        with self._locked(WRITING):
            _append_line(self.folder / REFUSED, line)
        log.error("%s: refused when it was sent later, see `holdfast outbox`: %s", ", ".join(record.kept.ids), error)
        return None

    # Looking

    def entries(self) -> Iterator[Entry]:
        """Return what is to be sent, in order."""
        self._check()
        try:
            with _opened(self._calls, os.O_RDONLY) as file:
                for record in read_records(file):
                    if record.data and not record.is_sent:
                        with suppress(msgspec.MsgspecError):  # written by another release
                            yield record.kept
        except FileNotFoundError:
            return

    def refused(self) -> Iterator[Refused]:
        self._check()
        try:
            with _opened(str(self.folder / REFUSED), os.O_RDONLY) as file:
                for line in file:
                    with suppress(msgspec.MsgspecError):  # broken off by a power cut
                        yield msgspec.json.decode(line, type=Refused)
        except FileNotFoundError:
            return

    def has_job(self, id: str) -> bool:
        """Whether a job is still to be sent.

        Raises:
            HoldfastError: the store refused it.
        """
        if any(id in kept.ids for kept in self.entries()):
            return True
        for refused in self.refused():
            if id in refused.entry.ids:
                raise refused.error
        return False

    @contextmanager
    def _locked(self, name: str, patience: float = SHORT) -> Iterator[None]:
        """Hold a lock of the folder."""
        lock = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _locks.add(lock)
        try:
            _take(lock, self.folder / name, patience)
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
)  # each concerns one call; anything else concerns all, and may pass


def _take(lock: int, path: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise OSError(errno.EBUSY, "another process holds it", str(path)) from None
            time.sleep(PAUSE)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[BinaryIO]:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "rb") as file:  # only read through it: writing is by descriptor, at a place
        yield file


def _append(file: BinaryIO, size: int, data: bytes) -> None:
    """Write to the end of a file and wait until it is on the disk; if that fails, leave the file as it was."""
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(file.fileno(), data[written:], size + written)
        os.fsync(file.fileno())
    except BaseException:
        os.ftruncate(file.fileno(), size)
        raise


def _append_line(path: Path, line: bytes) -> None:
    """Write a line to the end of a file, which may end with part of another."""
    with _opened(str(path), os.O_RDWR | os.O_CREAT) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        before = b"\n" if size and file.read(1) != b"\n" else b""
        _append(file, size, before + line + b"\n")


def _last_line_end(file: BinaryIO, size: int) -> int:
    """Return where the last whole line of a file ends."""
    end = size
    while end > 0:
        start = max(0, end - CHUNK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _now() -> int:
    return time.time_ns() // 1_000_000
