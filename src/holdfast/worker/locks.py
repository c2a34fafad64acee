"""A locked file per worker, held by all of its processes: when a sibling can lock it, all of them are dead.

The files lie in a directory of this user on this node. Each says whose worker it is, in which store.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.store import Address


def _folder() -> Path:
    """The directory of lock files. In a temporary directory that others can write to, it must be ours and private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime or tempfile.gettempdir()) / f"holdfast-workers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise HoldfastError(f"{folder} is not a directory of this user: remove it")
    return folder


def _store_mark(address: Address) -> str:
    where = f"{address.url}\0{address.home}\0{address.namespace}"
    return hashlib.sha256(where.encode()).hexdigest()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class WorkerLock:
    """This worker's lock, and a look at those of its siblings."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._path = _folder() / worker.replace("/", "@")
        self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        _try_lock(self.descriptor)

    def belongs_to(self, address: Address) -> None:
        """Say in the file which store the worker works for, once that is known."""
        self._mark = _store_mark(address)
        os.pwrite(self.descriptor, f"{self._mark} {self._worker}".encode(), 0)

    def dead_siblings(self) -> Iterator[tuple[str, Path]]:
        """Yield the workers of the same store that died on this node, each with its file, to be removed afterwards."""
        for path in _folder().iterdir():
            if path != self._path and (worker := self._dead(path)):
                yield worker, path

    def _dead(self, path: Path) -> str | None:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            return None
        try:
            mark, _, worker = os.pread(descriptor, 4096, 0).decode().partition(" ")
            return worker if mark == self._mark and _try_lock(descriptor) else None
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
