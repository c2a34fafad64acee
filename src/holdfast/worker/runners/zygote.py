"""The zygote: a process that has imported the app and does nothing but fork.

    executor ──StartProcess, with a socket──▶ zygote ──fork──▶ process
             ◀──ProcessStarted, ProcessEnded──┘

It has one thread, no event loop and no connection, so its children start clean. As their parent it learns at once, by
pidfd, when one dies. It adopts what a job has left running, also outside of the job's group and session, and kills that
before it reports the end of the job. When its executor dies it kills every job, with everything that they started.

A job that may have killed its zygote or its executor runs alone, under a zygote of its own:

    zygote ──fork──▶ guard ──fork──▶ zygote of one job ──fork──▶ process
                                            ▲ executor, by a socket of their own

The job's parent and grandparent are then processes that no other job needs, each in a session of its own. Whichever of
them dies, the first zygote kills the rest and reports the end of the guard, and the job is charged with a crash.

    python -m holdfast.worker.runners.zygote PARENT DESCRIPTOR APP LEVEL STACKS

is a zygote that has not imported the app and can only spawn, for an app that may not be forked (see `fork_safety`).
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from holdfast.worker import linux, processes
from holdfast.worker.messages import (
    ALONE,
    MAX_PACKET,
    UNKNOWN_STATUS,
    ProcessEnded,
    ProcessKind,
    ProcessRefused,
    ProcessStarted,
    StartProcess,
    decoder,
    encode,
)

log = logging.getLogger("holdfast.worker")

ProcessMain = Callable[[ProcessKind, socket.socket], None]

_PARENT_DIED = signal.SIGUSR1
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the supervisor handles them
_LAST_CHECKS = 200  # for children that are still alive, a hundredth of a second apart
_OOM_SCORE = 500  # of 1000
_ANCILLARY = socket.CMSG_SPACE(4)  # bytes, of one descriptor
_CHECKS = 1000  # for processes that dead jobs left behind
_CHECK_INTERVAL = 2  # milliseconds
_decode: Callable[[bytes], StartProcess] = decoder(StartProcess)


class Zygote(NamedTuple):
    """A running zygote: the socket to request processes from it."""

    control: socket.socket
    can_fork: bool  # otherwise it can only spawn


def start(prepare: Callable[[], ProcessMain], *, close: Iterable[socket.socket] = ()) -> Zygote:
    """Fork a zygote, and close sockets in it. `prepare` runs in the zygote, and returns what its children run."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # the garbage collector of a child does not touch existing objects, so their pages stay shared
    parent = os.getpid()
    if linux.fork_quietly() == 0:
        for unused in (ours, *close):
            unused.close()
        _ZygoteServer(theirs, prepare).serve(parent)
    theirs.close()
    return Zygote(ours, can_fork=True)


def start_spawning(app: str, level: str, stacks: int | None) -> Zygote:
    """Start a zygote that can only spawn, without forking this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.set_inheritable(True)
        line = [
            sys.executable,
            "-m",
            __name__,
            str(os.getpid()),
            str(theirs.fileno()),
            app,
            level,
            _inheritable(stacks),
        ]
        os.posix_spawn(sys.executable, line, os.environ)
    return Zygote(ours, can_fork=False)


def spawn(kind: ProcessKind, connection: socket.socket, app: str, level: str, stacks: int | None) -> NoReturn:
    """Become an interpreter that imports the app and runs jobs; `stacks` is the file that it writes its stacks to."""
    connection.set_inheritable(True)
    arguments = [kind, str(connection.fileno()), app, level, _inheritable(stacks)]
    os.execv(sys.executable, [sys.executable, "-m", "holdfast.entrypoints.interpreter", *arguments])  # noqa: S606, no shell is wanted


def _inheritable(descriptor: int | None) -> str:
    """Let the next program inherit a descriptor. Return its number as text, '' if there is none."""
    if descriptor is None:
        return ""
    os.set_inheritable(descriptor, True)
    return str(descriptor)


class _Job(NamedTuple):
    pid: int
    connection: socket.socket  # the job's end; shut down when the job ends, even if other processes inherited it


class _ZygoteServer:
    """Forks processes and reports their ends, until the executor has ended."""

    def __init__(self, control: socket.socket, prepare: Callable[[], ProcessMain]) -> None:
        self._control = linux.Socket(fileno=control.detach())
        self._control.setblocking(True)
        self._prepare = prepare
        self._jobs: dict[int, _Job] = {}  # by pidfd
        self._poll = linux.poll()
        self._ended: list[ProcessEnded] = []  # reported once nothing is left of the jobs
        self._checks = 0
        self._unkillable: set[int] = set()  # left behind by jobs, as processes of another user

    def serve(self, parent: int) -> NoReturn:
        try:
            self._parent, self._pid = parent, os.getpid()
            linux.begin_session()  # a job that kills its parent's group does not kill the executor
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
            self._run = self._prepare()
            linux.set_process_name("hf:zygote")
            gc.freeze()
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._handlers = {number: _handler(number) for number in (_PARENT_DIED, signal.SIGCHLD)}
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the app's handler would reap our children
            self._wake_when(_PARENT_DIED)
            linux.die_with_parent(parent, _PARENT_DIED)
            linux.adopt_orphans()
            _prefer_oom_kill()
            self._poll.register(self._control, select.POLLIN)
            self._children = os.open(f"/proc/{self._pid}/task/{self._pid}/children", os.O_RDONLY | os.O_CLOEXEC)
            while self._serve_once():
                pass
        except ConnectionError:
            pass  # the executor has ended
        except Exception:
            log.exception("a zygote failed, and ends with all its jobs")
        finally:
            _kill_all()
            os._exit(0)

    def _wake_when(self, number: int) -> None:
        """Have a signal end the wait in `poll`, and do nothing else. Signals that the app handles do so too."""
        self._signalled, self._signalling = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._signalling, warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)
        self._poll.register(self._signalled, select.POLLIN)

    def _serve_once(self) -> bool:
        """Handle what happens next. Return whether the executor still runs."""
        for descriptor, _ in self._poll.poll(_CHECK_INTERVAL if self._ended else None):
            if descriptor == self._signalled:
                os.read(self._signalled, 4096)
                if os.getppid() != self._parent:
                    return False
            elif descriptor != self._control.fileno():
                self._note_end(descriptor)
            elif not self._start():
                return False
        if self._ended:
            self._report_ended()
        return True

    def _start(self) -> bool:
        """Fork a process for the executor. Return whether the executor still runs."""
        message, passed, _, _ = self._control.recvmsg(MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return False
        pid = self._fork(_decode(message).kind, _connection(passed[0][2])) if passed else 0
        self._control.send(encode(ProcessStarted(pid) if pid else ProcessRefused()))
        return True

    def _fork(self, kind: ProcessKind, connection: socket.socket) -> int:
        """Fork a job's process. Return its pid; 0 if this machine is out of processes, memory or descriptors."""
        pid = 0
        try:
            pid = os.fork()
            if pid == 0:
                self._become_job(kind, connection)
            pidfd = os.pidfd_open(pid)
        except OSError:
            connection.close()
            if pid:  # it has received no job yet
                processes.kill(pid)
                with suppress(ChildProcessError):
                    linux.waitpid(pid, 0)
            return 0
        self._jobs[pidfd] = _Job(pid, connection)
        self._poll.register(pidfd, select.POLLIN)
        return pid

    def _become_job(self, kind: ProcessKind, connection: socket.socket) -> NoReturn:
        """In the forked process: run the job. The zygote's code must never continue here, even after an error."""
        try:
            linux.begin_session()
            linux.die_with_parent(self._pid)
            linux.adopt_orphans()  # they stay its descendants, and the zygote adopts them at its end
            for number, handler in self._handlers.items():
                linux.set_signal(number, handler)
            signal.set_wakeup_fd(-1)  # from Python 3.12, asyncio has done it already
            for unused in (self._signalling, self._signalled, self._children):
                os.close(unused)
            os.close(self._control.detach())
            for pidfd, job in self._jobs.items():
                os.close(pidfd)
                os.close(job.connection.detach())
            if kind == ALONE:
                _guard(connection, self._run)
            self._run(kind, connection)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _note_end(self, pidfd: int) -> None:
        pid, connection = self._jobs.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        status, memory = _reap(pid)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        os.close(connection.detach())
        self._ended.append(ProcessEnded(pid, status, memory))
        self._checks = 0

    def _report_ended(self) -> None:
        """Kill the processes that dead jobs left behind; once there are none, report that the jobs have ended."""
        try:
            left = self._kill_others() if self._has_others() else []
        except OSError:  # out of descriptors, for a while
            return
        self._checks += 1
        if left and self._checks < _CHECKS:
            return
        if left:
            log.error("cannot kill processes %s of jobs that have ended", left)
            self._unkillable.update(left)
        for message in self._ended:
            self._control.send(encode(message))
        self._ended.clear()

    def _has_others(self) -> bool:
        """Return whether this process, which has one thread, has children other than jobs. Called after each job."""
        found = os.pread(self._children, 4096, 0)
        # Of very many children this was only a part.
        return len(found) > 4000 or found.count(b" ") > len(self._jobs) + len(self._unkillable)

    def _kill_others(self) -> list[int]:
        return processes.kill_children(but={job.pid for job in self._jobs.values()} | self._unkillable)


def _reap(pid: int) -> tuple[int, int]:
    """Kill the rest of a dead job's group. Return the job's status and the bytes of memory that it used at most.

    The group comes first: until its leader is reaped, no other process can get its pid. If something else has reaped
    the leader, the rest of its group is found among our children, as we adopt orphans.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        processes.kill_group(pid)
        _, status, used = linux.wait4(pid, 0)
    except ChildProcessError:
        return UNKNOWN_STATUS, 0
    return status, used.ru_maxrss * 1024


def _guard(control: socket.socket, run: ProcessMain) -> NoReturn:
    """Run as the parent of a one-job zygote, in the executor's place: the job may kill its parent."""
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        _ZygoteServer(control, lambda: run).serve(guard)
    linux.set_process_name("hf:guard")
    control.close()
    with suppress(ChildProcessError):
        linux.wait4(pid, 0)
    os._exit(0)


def _connection(passed: bytes) -> socket.socket:
    """Return the socket that was passed. Naming its type saves Python system calls."""
    return linux.Socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, int.from_bytes(passed, sys.byteorder))


def _handler(number: int) -> Any:
    """Return the app's handler of a signal, as `set_signal` takes it; the default for one that is not Python's."""
    handler = signal.getsignal(number)
    return int(handler or signal.SIG_DFL) if handler is None or isinstance(handler, signal.Handlers) else handler


def _kill_all() -> None:
    """Kill all children at the end of a zygote. The supervisor kills those that are left."""
    with suppress(OSError):
        for _ in range(_LAST_CHECKS):
            if not processes.kill_children():
                return
            linux.sleep(0.01)


def _prefer_oom_kill() -> None:
    """Have Linux kill jobs, which inherit this, before other processes when memory runs out: the biggest first."""
    with suppress(OSError, ValueError):
        path = Path("/proc/self/oom_score_adj")
        path.write_text(str(max(_OOM_SCORE, int(path.read_text()))))


def main() -> None:
    parent, descriptor, app, level, stacks = sys.argv[1:]
    file = int(stacks) if stacks else None
    control = socket.socket(fileno=int(descriptor))
    control.set_inheritable(False)

    def run(kind: ProcessKind, connection: socket.socket) -> None:
        spawn(kind, connection, app, level, file)

    _ZygoteServer(control, lambda: run).serve(int(parent))


if __name__ == "__main__":
    main()
