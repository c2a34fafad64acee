"""The lock file and the folder of a worker.

All processes of a worker hold its lock file: when another worker can lock it, all of them are dead, and that worker
requeues their jobs (`dead_workers`). The files are in a directory of this user on this node. Each contains the name of
the worker, its store, and the path of its folder. The path is written before the folder is created, and the store when
it is known, so a worker that is killed while it starts leaves nothing that other workers cannot find.
"""

from __future__ import annotations

import fcntl
import hashlib
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

MAX_FILE_AGE = DEFAULT_WORKER_AGE / 1000  # seconds
TOUCH_INTERVAL = 3600  # seconds
PREFIX = "holdfast-"


def _folder() -> Path:
    """Return the directory of lock files. It must belong to this user and be private: others can write to /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime or tempfile.gettempdir()) / f"holdfast-workers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise HoldfastError(
            f"{folder} is not a private directory of this user (it belongs to {describe_user(about.st_uid)}, mode"
            f" {stat.S_IMODE(about.st_mode):04o}): remove it, or set XDG_RUNTIME_DIR to a directory of your own"
        )
    return folder


def _files() -> list[Path]:
    """Return all lock files; none if the directory is gone, as after the user has logged out."""
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
    """A worker that died on this node."""

    name: str
    directory: Path
    file: Path  # removed last
    held_jobs: bool  # it had connected to the same store; else there is nothing to requeue

    @property
    def has_folder(self) -> bool:
        """Whether its folder exists, with a name and an owner that fit."""
        try:
            about = self.directory.lstat()
        except OSError:
            return False
        is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
        return is_own and self.directory.name.startswith(PREFIX)


class WorkerFolder:
    """A worker's own folder in the temporary directory.

    It is locked, so that systemd does not remove it as an old file: a job may run for longer than files are kept there.
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
    """This worker's lock file; also finds those of dead workers."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._mark = ""
        self._foreign: set[Path] = set()  # files of workers of other stores
        self._path = _folder() / worker.replace("/", "@")
        self.descriptor = _open_locked(self._path)

    def write(self, directory: Path) -> None:
        """Write the path of the worker's folder to the file, and its store if known."""
        os.pwrite(self.descriptor, f"{self._mark}\n{self._worker}\n{directory}\n".encode(), 0)

    def set_store(self, address: Address, directory: Path) -> None:
        """Write the worker's store to the file."""
        self._mark = _store_mark(address)
        self.write(directory)

    def dead_workers(self) -> Iterator[DeadWorker]:
        """Yield the workers of the same store that died on this node, and those that died before they had a store.

        Each file stays locked until the next one is yielded, so no other worker handles it, or takes its name.
        """
        if time.time() - os.fstat(self.descriptor).st_mtime > TOUCH_INTERVAL:
            os.utime(self.descriptor)  # old files may be removed, and are ignored
            self._foreign.clear()  # some may be old by now
        for path in _files():
            if path == self._path or path in self._foreign:
                continue
            with suppress(OSError), _opened(path) as descriptor:
                if dead := self._dead(path, descriptor):
                    yield dead

    def _dead(self, path: Path, descriptor: int) -> DeadWorker | None:
        if self._is_foreign(path, descriptor) or not _try_lock(descriptor):
            return None
        if self._is_foreign(path, descriptor):  # it wrote its store just before it died
            return None
        mark, worker, directory = _read(descriptor)
        return DeadWorker(worker, Path(directory), path, held_jobs=mark == self._mark)

    def _is_foreign(self, path: Path, descriptor: int) -> bool:
        """Return whether a file is left to the workers of its own store. After a day any worker may clean up."""
        mark, *_ = _read(descriptor)
        is_old = time.time() - os.fstat(descriptor).st_mtime > MAX_FILE_AGE
        if mark in ("", self._mark) or is_old:
            return False
        self._foreign.add(path)
        return True

    def remove(self) -> None:
        """Remove the file: the worker ends and leaves nothing behind."""
        self._path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _open_locked(path: Path) -> int:
    """Create and lock a file. Another worker may remove it in between, while it is not locked; then try again."""
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
    """Return the contents of a file: the mark of a store, a worker, a directory. Unknown parts are empty."""
    return (os.pread(descriptor, 4096, 0).decode(errors="replace") + "\n\n\n").split("\n")[:3]
