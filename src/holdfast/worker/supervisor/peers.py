"""A locked file per worker, held by all of its processes: when a sibling can lock it, all of them are dead.

The files lie in a directory of this user on this node. Each says whose worker it is, in which store, and where it keeps
its jobs' directories. The path of that folder is written before the folder is made, and the store when it is known: so
a worker that is killed while it starts leaves nothing that its siblings cannot find.

Workers of this node that died: what they held is taken back as soon as all of their processes are dead.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.constants import DEFAULT_WORKER_AGE
from holdfast.errors import HoldfastError
from holdfast.server.home import describe_user
from holdfast.store import Address
from holdfast.worker.output.files import FOLDER
from holdfast.worker.output.shipping import send_rest
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.waiting import remove

FORGOTTEN_AFTER = DEFAULT_WORKER_AGE / 1000  # seconds
TOUCH_EVERY = 3600  # seconds
PREFIX = "holdfast-"


def _folder() -> Path:
    """The directory of lock files. In a temporary directory that others can write to, it must be ours and private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime or tempfile.gettempdir()) / f"holdfast-workers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise HoldfastError(
            f"{folder} is not a private directory of this user (it belongs to {describe_user(about.st_uid)}, with mode"
            f" {stat.S_IMODE(about.st_mode):04o}): remove it, or set XDG_RUNTIME_DIR to a directory of your own"
        )
    return folder


def _files() -> list[Path]:
    """All lock files; none, if the directory is gone, as that of a user who has logged out."""
    try:
        return list(_folder().iterdir())
    except FileNotFoundError:
        return []


def _store_mark(address: Address) -> str:
    where = f"{address.url}\0{address.home}\0{address.namespace}"
    return hashlib.sha256(where.encode()).hexdigest()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class DeadWorker(NamedTuple):
    """A worker that died on this node. `file` is to be removed when all else is done.

    It `held_jobs` if it was one of the same store, and knew that: else there is nothing to take back.
    """

    name: str
    directory: Path
    file: Path
    held_jobs: bool

    @property
    def has_folder(self) -> bool:
        """Whether its folder is there: one of ours, by its name and by its owner."""
        try:
            about = self.directory.lstat()
        except OSError:
            return False
        is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
        return is_own and self.directory.name.startswith(PREFIX)


class WorkerFolder:
    """A worker's own folder, in a place from which old files are removed, as systemd does in /tmp: not if it is locked.

    A job may run for longer than files are kept there.
    """

    def __init__(self, lock: WorkerLock) -> None:
        self.path = _make_folder(lock)
        (self.path / FOLDER).mkdir(mode=0o700)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._descriptor)


def _make_folder(lock: WorkerLock) -> Path:
    while True:
        path = Path(tempfile.gettempdir()) / f"{PREFIX}{os.urandom(8).hex()}"
        lock.write(path)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path


class WorkerLock:
    """This worker's lock, and a look at those of its siblings."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._mark = ""
        self._others: set[Path] = set()  # files of workers of other stores
        self._path = _folder() / worker.replace("/", "@")
        self.descriptor = _open_locked(self._path)

    def write(self, directory: Path) -> None:
        """Write to the file where the worker keeps its jobs' directories; and its store, once that is known."""
        os.pwrite(self.descriptor, f"{self._mark}\n{self._worker}\n{directory}\n".encode(), 0)

    def belongs_to(self, address: Address, directory: Path) -> None:
        """Say in the file which store the worker works for, once that is known."""
        self._mark = _store_mark(address)
        self.write(directory)

    def dead_siblings(self) -> Iterator[DeadWorker]:
        """Yield the workers of the same store that died on this node, and those that died before they knew theirs.

        While the caller looks at one, its file is locked: nobody else takes it for dead, or its name.
        """
        if time.time() - os.fstat(self.descriptor).st_mtime > TOUCH_EVERY:
            os.utime(self.descriptor)  # what is old may be removed, and is not looked at
            self._others.clear()  # some may be old by now
        for path in _files():
            if path == self._path or path in self._others:
                continue
            with suppress(OSError), _opened(path) as descriptor:
                if dead := self._dead(path, descriptor):
                    yield dead

    def _dead(self, path: Path, descriptor: int) -> DeadWorker | None:
        if self._is_others(path, descriptor) or not _try_lock(descriptor):
            return None
        if self._is_others(path, descriptor):  # which it wrote just before it died
            return None
        mark, worker, directory = _read(descriptor)
        return DeadWorker(worker, Path(directory), path, held_jobs=mark == self._mark)

    def _is_others(self, path: Path, descriptor: int) -> bool:
        """Whether a worker is left to those of its own store. After a day nobody waits for them."""
        mark, *_ = _read(descriptor)
        is_old = time.time() - os.fstat(descriptor).st_mtime > FORGOTTEN_AFTER
        if mark in ("", self._mark) or is_old:
            return False
        self._others.add(path)
        return True

    def remove(self) -> None:
        """The worker has gone, and has left nothing behind."""
        self._path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _open_locked(path: Path) -> int:
    """Make a file and lock it. A sibling may have removed it in between: it was nobody's then."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> list[str]:
    """Return what a file says: the mark of a store, a worker, a directory. What is not known yet is empty."""
    return (os.pread(descriptor, 4096, 0).decode(errors="replace") + "\n\n\n").split("\n")[:3]


log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 1.0  # seconds


class Peers:
    """The other workers of a node, as one of them sees them."""

    def __init__(self, lock: WorkerLock, store: RetryingStore, leases: Leases) -> None:
        self._lock = lock
        self._store = store
        self._leases = leases
        self._lost: set[str] = set()  # whose logs are not sent yet

    async def keep(self) -> None:
        await self._store.connected()
        while True:
            for dead in self._lock.dead_siblings():
                await self._bury(dead)
            await asyncio.sleep(LOOK_EVERY)

    async def _bury(self, dead: DeadWorker) -> None:
        if dead.held_jobs and not await self._take_back(dead):
            return  # tried again soon
        if dead.has_folder:
            await remove(dead.directory)
        dead.file.unlink(missing_ok=True)
        self._lost.discard(dead.name)

    async def _take_back(self, dead: DeadWorker) -> bool:
        """Requeue the jobs of a dead worker and send its logs. Returns whether the store took them."""
        if dead.name not in self._lost:
            log.warning("worker %s on this node is dead", dead.name)
            await self._leases.lose(worker=dead.name, reason="the worker died")
            self._lost.add(dead.name)
        return not dead.has_folder or await send_rest(self._store, dead.directory)
