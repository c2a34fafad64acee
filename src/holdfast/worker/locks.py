"""A locked file per worker, held by all of its processes: when a sibling can lock it, all of them are dead.

The files lie in a directory of this user on this node. Each says whose worker it is, in which store, and where it keeps
its jobs' directories.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.store import Address
from holdfast.worker.output import FOLDER

FORGOTTEN_AFTER = 86_400  # seconds: the store does not know a silent worker for longer
TOUCH_EVERY = 3600  # seconds
PREFIX = "holdfast-"


def _folder() -> Path:
    """The directory of lock files. In a temporary directory that others can write to, it must be ours and private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime or tempfile.gettempdir()) / f"holdfast-workers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise HoldfastError(f"{folder} is not a private directory of this user: remove it")
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
    """A worker that died on this node. `file` is to be removed when all else is done."""

    name: str
    directory: Path
    file: Path


class WorkerFolder:
    """A worker's own folder, in a place from which old files are removed, as systemd does in /tmp: not if it is locked.

    A job may run for longer than files are kept there.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.path / FOLDER).mkdir()
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._descriptor)


class WorkerLock:
    """This worker's lock, and a look at those of its siblings."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._mark = ""
        self._others: set[Path] = set()  # files of workers of other stores
        self._path = _folder() / worker.replace("/", "@")
        self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def belongs_to(self, address: Address, directory: Path) -> None:
        """Say in the file which store the worker works for, once that is known."""
        self._mark = _store_mark(address)
        os.pwrite(self.descriptor, f"{self._mark}\n{self._worker}\n{directory}".encode(), 0)

    def dead_siblings(self) -> Iterator[DeadWorker]:
        """Yield the workers of the same store that died on this node."""
        if time.time() - os.fstat(self.descriptor).st_mtime > TOUCH_EVERY:
            os.utime(self.descriptor)  # what is old may be removed, and is not looked at
            self._others.clear()  # some may be old by now
        for path in _files():
            if path != self._path and path not in self._others and (dead := self._dead(path)):
                yield dead

    def _dead(self, path: Path) -> DeadWorker | None:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            return None
        try:
            mark, worker, directory = (os.pread(descriptor, 4096, 0).decode() + "\n\n").split("\n")[:3]
            is_old = time.time() - os.fstat(descriptor).st_mtime > FORGOTTEN_AFTER
            if mark not in ("", self._mark) and not is_old:
                self._others.add(path)
            if not (mark == self._mark or is_old) or not _try_lock(descriptor):
                return None
            if mark == self._mark:
                return DeadWorker(worker, Path(directory), path)
            path.unlink(missing_ok=True)
            return None
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """The worker has gone, and has left nothing behind."""
        self._path.unlink(missing_ok=True)
        os.close(self.descriptor)
