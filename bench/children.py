"""Start child processes, wait for them with a time limit, and end them with all their descendants.

This process adopts the orphans of its children, so that nobody is left behind, whatever session they began, and their
use of the machine is counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 60.0  # seconds

_interrupted = threading.Event()


class Failed(Exception):
    """A child failed; the message is the last line that it printed."""


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int | None = None) -> list[int]:
    """All processes that this one, or another, has started, those of them first that are nearest."""
    everyone: list[int] = []
    found = [pid or os.getpid()]
    while found:
        found = [child for parent in found for child in _children(parent)]
        everyone += found
    return everyone


def _children(pid: int) -> list[int]:
    try:
        threads = [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def start(
    line: list[str], *, env: Mapping[str, str], cwd: Path, log: Path, output: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a child whose words go to a file; those on stdout to `output` if it is given."""
    with log.open("ab") as file:
        return subprocess.Popen(
            line, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output or file, stderr=file
        )


def ask(line: list[str], *, env: Mapping[str, str], cwd: Path, log: Path, timeout: float = PATIENCE) -> dict[str, Any]:
    """Run a child to its end; what it prints last is JSON.

    Raises:
        Failed: it took too long, or its exit code is not 0.
    """
    child = start(line, env=env, cwd=cwd, log=log, output=subprocess.PIPE)
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {timeout:.0f} s") from None
    finally:
        kill(child)
        if child.stdout:
            child.stdout.close()
    if child.returncode:
        raise Failed(last_line(log) or f"exit code {child.returncode}")
    lines = output.decode().strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return answer


def last_line(log: Path) -> str:
    """Return the last line that a child printed; of Node's output, the last line that names an error."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if lines and lines[-1].startswith("Node.js v"):
        lines = [line for line in lines if "Error" in line] or lines
    return lines[-1][:300] if lines else ""


def wait_until(condition: Callable[[], object], *, timeout: float = PATIENCE, every: float = 0.002) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline or _interrupted.is_set():
            return False
        time.sleep(every)
    return True


def interrupt() -> None:
    """Have the waits of all threads end, and all children."""
    _interrupted.set()
    end_all()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child with all that it started."""
    for pid in [child.pid, *descendants(child.pid)] if child.poll() is None else []:
        _signal(pid)
    child.wait()


def end_all(spare: tuple[int, ...] = ()) -> None:
    """Kill all descendants except `spare` and their descendants, and reap them."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = set(descendants()) - {*spare, *(pid for each in spare for pid in descendants(each))}
        if not left:
            return
        for pid in left:
            _signal(pid)
        _bury(left)
        time.sleep(0.01)


def _bury(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
