"""An app that imports a library with a thread, and then another module."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import Holdfast
from tests.apps.worker_app import write

if "THREAD" in os.environ:  # in a worker
    import tests.apps.native_pool
    import tests.apps.other_app  # noqa: F401 - which has no part in it

    write("threads", len(os.listdir("/proc/self/task")))

jobs = Holdfast()


def where() -> tuple[int, str]:
    """Returns the process that this runs in, and how the program was started that it runs in."""
    return os.getpid(), Path("/proc/self/cmdline").read_text()


forked = jobs.task(name="forked", runner="fork")(where)
kept = jobs.task(name="kept", runner="process")(where)
