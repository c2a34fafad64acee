"""Starts the keeper of an embedded server and reads its report."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ServerStartFailed
from holdfast.server import keeper

if TYPE_CHECKING:  # not needed to join a server, only to start one
    from subprocess import Popen

LOG = "server.log"
MAX_LOG = 1 << 20  # bytes; a longer log is emptied at the next start
MARK = "HOLDFAST_KEEPER"  # in the environment of keeper and server: a worker that becomes their parent ignores them
USE_ANOTHER_SERVER = "set HOLDFAST_HOME to a local, writable directory, or HOLDFAST_URL to the address of a server"


def run_keeper(home: Path, binary: str, deadline: float) -> str:
    """Start a keeper and return its report; '' if it was killed, or did not report in time."""
    import subprocess

    arguments = [_interpreter(), "-I", "-S", keeper.__file__, str(home), binary, _idle_seconds(os.environ)]
    log = open_file(home / LOG)
    try:
        if os.fstat(log).st_size > MAX_LOG:
            os.ftruncate(log, 0)
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=home,
            env={**os.environ, MARK: str(home)},
            start_new_session=True,
        )
    except OSError as error:
        raise ServerStartFailed(
            f"{home}: cannot run {arguments[0]} ({error.strerror}); {USE_ANOTHER_SERVER}"
        ) from error
    finally:
        os.close(log)
    with process:
        return _read_report(process, deadline)


def open_file(path: Path) -> int:
    """Open a private file of a home; create it if necessary."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def _read_report(process: Popen[bytes], deadline: float) -> str:
    assert process.stdout  # noqa: S101 - for the type checker
    pipe = process.stdout.fileno()
    poll = select.poll()  # `select` does not support descriptors above 1,023
    poll.register(pipe, select.POLLIN)
    has_report = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    process.kill()  # the launcher, in case it is stuck; the keeper has detached from it
    return os.read(pipe, select.PIPE_BUF).decode(errors="replace") if has_report else ""


def _interpreter() -> str:
    """Return the path of a Python; where it is embedded, as in uWSGI, sys.executable is another program."""
    name = os.path.basename(sys.executable or "")
    return sys.executable if "python" in name else os.path.join(sys.prefix, "bin", "python3")


def _idle_seconds(environ: Mapping[str, str]) -> str:
    """Return after how many seconds without clients a server stops; zero means never."""
    seconds = environ.get("HOLDFAST_SERVER_IDLE") or "300"
    try:
        if 0 <= float(seconds) < float("inf"):
            return seconds
    except ValueError:
        pass
    raise ServerStartFailed(f"expected HOLDFAST_SERVER_IDLE as a number of seconds, or 0 for never; got {seconds!r}")
