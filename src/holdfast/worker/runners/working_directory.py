"""The working directory of a job's own process: that of its attempt, for workers with `in_directory`.

A process has one working directory, so jobs that share the executor's process cannot have one each.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast.server.home import SEARCHED_FROM


class Home:
    """The directory that a process for many jobs returns to after each. It may be gone or unreadable meanwhile."""

    def __init__(self) -> None:
        self._descriptor = os.open(".", os.O_PATH | os.O_DIRECTORY)

    def go_back(self) -> bool:
        """Return to it. Return whether that was possible: the job may have closed our descriptor."""
        try:
            os.fchdir(self._descriptor)
            os.close(self._descriptor)
        except OSError:
            return False
        return True


def make_directory(path: str) -> None:
    """Make the directory of an attempt; that of its executor is made with the first job."""
    for each in (os.path.dirname(path), path):
        os.makedirs(each, mode=0o700, exist_ok=True)


def work_in(path: str) -> None:
    """Make a directory and change to it. Modules, the embedded server and the outbox are found as before."""
    with suppress(OSError):  # the old directory is gone, and nothing can be found from it
        sys.path[:] = [each if os.path.isabs(each) else os.path.abspath(each) for each in sys.path]
        os.environ.setdefault(SEARCHED_FROM, os.getcwd())
        if outbox := os.environ.get("HOLDFAST_OUTBOX"):
            os.environ["HOLDFAST_OUTBOX"] = os.path.abspath(os.path.expanduser(outbox))
    make_directory(path)
    os.chdir(path)
