"""The zygote: a process that has imported the app and does nothing but fork.

    executor ──(socket of a new process)──▶ zygote ──fork──▶ process
             ◀──(pid; later, how it ended)──┘

It has one thread, no event loop and no connection, so what it forks is clean. It is the jobs' parent: it learns at
once, by pidfd, when one dies. What a job has started and left behind falls to it, also what has left the job's group
and session: it kills that before it says that the job has ended. When its executor is gone it kills every job, with all
that they started.

A job that may have killed its zygote or its executor runs alone, under a zygote of its own:

    zygote ──fork──▶ guard ──fork──▶ zygote of one job ──fork──▶ process
                                            ▲ executor, by a socket of their own

The job's parent and grandparent are then processes that nobody else needs, each in a session of its own. Whichever of
them dies, the first zygote kills what is left and reports the end of the guard, and the job is charged.

    python -m holdfast.worker.runners.zygote PARENT DESCRIPTOR APP LEVEL STACKS

is a zygote that has not imported the app and can only spawn, for an app whose import leaves threads behind.
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

Run = Callable[[ProcessKind, socket.socket], None]

_PARENT_DIED = signal.SIGUSR1
_NOT_FOR_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the supervisor hears them
_LAST_LOOKS = 200  # at what is still to be killed, a hundredth of a second apart
_FIRST_TO_DIE = 500  # of 1000
_PASSED = socket.CMSG_SPACE(4)  # bytes that come along with a descriptor
_LOOKS = 1000  # at what dead jobs have left behind
_LOOK_EVERY = 2  # milliseconds
_decode: Callable[[bytes], StartProcess] = decoder(StartProcess)


class Zygote(NamedTuple):
    """A zygote as its executor sees it: the socket by which to ask it for processes."""

    control: socket.socket
    can_fork: bool  # or else only spawn


def start(prepare: Callable[[], Run], *, close: Iterable[socket.socket] = ()) -> Zygote:
    """Fork a zygote, which has no use for the sockets in `close`. What its processes run is made ready in it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # what is there already will not be collected in the children, so their pages stay shared
    parent = os.getpid()
    if linux.fork_quietly() == 0:
        for unused in (ours, *close):
            unused.close()
        _Server(its, prepare).serve(parent)
    its.close()
    return Zygote(ours, can_fork=True)


def start_apart(app: str, level: str, answers: int | None) -> Zygote:
    """Start a zygote that can only spawn, without forking this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        its.set_inheritable(True)
        line = [sys.executable, "-m", __name__, str(os.getpid()), str(its.fileno()), app, level, _inheritable(answers)]
        os.posix_spawn(sys.executable, line, os.environ)
    return Zygote(ours, can_fork=False)


def spawn(kind: ProcessKind, connection: socket.socket, app: str, level: str, answers: int | None) -> NoReturn:
    """Become an interpreter that imports the app and runs jobs; `answers` is where it writes its stacks to."""
    connection.set_inheritable(True)
    told = [kind, str(connection.fileno()), app, level, _inheritable(answers)]
    os.execv(sys.executable, [sys.executable, "-m", "holdfast.entrypoints.interpreter", *told])  # noqa: S606, no shell is wanted


def _inheritable(descriptor: int | None) -> str:
    """Let a program that we start have a descriptor. Returns its number as text, '' if there is none."""
    if descriptor is None:
        return ""
    os.set_inheritable(descriptor, True)
    return str(descriptor)


class _Job(NamedTuple):
    pid: int
    connection: socket.socket  # the job's end; kept to shut it down, whoever else has inherited it


class _Server:
    def __init__(self, control: socket.socket, prepare: Callable[[], Run]) -> None:
        self._control = linux.Socket(fileno=control.detach())
        self._control.setblocking(True)
        self._prepare = prepare
        self._jobs: dict[int, _Job] = {}  # by pidfd
        self._poll = linux.poll()
        self._ended: list[ProcessEnded] = []  # to be said, once nothing is left of them
        self._looks = 0
        self._immortal: set[int] = set()  # what jobs left behind and cannot be killed, as processes of another user

    def serve(self, parent: int) -> NoReturn:
        try:
            self._parent, self._pid = parent, os.getpid()
            linux.begin_session()  # a job that kills its parent's group kills no executor or supervisor
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)
            self._run = self._prepare()
            gc.freeze()
            for number in _NOT_FOR_US:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._handlers = {number: _handler(number) for number in (_PARENT_DIED, signal.SIGCHLD)}
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the app's handler, or nobody, would reap our children
            self._wake_when(_PARENT_DIED)
            linux.die_with_parent(parent, _PARENT_DIED)
            linux.adopt_orphans()
            _offer_to_die()
            self._poll.register(self._control, select.POLLIN)
            self._children = os.open(f"/proc/{self._pid}/task/{self._pid}/children", os.O_RDONLY | os.O_CLOEXEC)
            while self._serve_once():
                pass
        except ConnectionError:
            pass  # the executor is gone
        except Exception:
            log.exception("a zygote has failed, and ends with all its jobs")
        finally:
            _kill_all()
            os._exit(0)

    def _wake_when(self, number: int) -> None:
        """Have a signal do nothing but end the wait in `poll`. Others, that the app has handlers for, do that too."""
        self._signalled, self._signalling = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._signalling, warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)
        self._poll.register(self._signalled, select.POLLIN)

    def _serve_once(self) -> bool:
        """Do what there is to do, or wait for it. Returns whether the executor is still there."""
        for descriptor, _ in self._poll.poll(_LOOK_EVERY if self._ended else None):
            if descriptor == self._signalled:
                os.read(self._signalled, 4096)
                if os.getppid() != self._parent:
                    return False
            elif descriptor != self._control.fileno():
                self._report_end(descriptor)
            elif not self._start():
                return False
        if self._ended:
            self._say_ended()
        return True

    def _start(self) -> bool:
        """Fork a process, as the executor asks. Returns whether the executor is still there."""
        message, passed, _, _ = self._control.recvmsg(
            MAX_PACKET, _PASSED, socket.MSG_CMSG_CLOEXEC
        )  # for no program to inherit
        if not message:
            return False
        pid = self._fork(_decode(message).kind, _connection(passed[0][2])) if passed else 0
        self._control.send(encode(ProcessStarted(pid) if pid else ProcessRefused()))
        return True

    def _fork(self, kind: ProcessKind, connection: socket.socket) -> int:
        """Start a job's process. Returns its id, 0 if this machine is out of processes, memory or descriptors."""
        pid = 0
        try:
            pid = os.fork()
            if pid == 0:
                self._become_job(kind, connection)
            pidfd = os.pidfd_open(pid)
        except OSError:
            connection.close()
            if pid:  # it has heard of no job yet
                processes.kill(pid)
                with suppress(ChildProcessError):
                    linux.waitpid(pid, 0)
            return 0
        self._jobs[pidfd] = _Job(pid, connection)
        self._poll.register(pidfd, select.POLLIN)
        return pid

    def _become_job(self, kind: ProcessKind, connection: socket.socket) -> NoReturn:
        """In the forked process: run the job. Whatever happens, nothing of the zygote's may run here afterwards."""
        try:
            linux.begin_session()
            linux.die_with_parent(self._pid)
            linux.adopt_orphans()  # they stay its descendants, wherever they go, and fall to the zygote at its end
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

    def _report_end(self, pidfd: int) -> None:
        pid, connection = self._jobs.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        status, memory = _reap(pid)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        os.close(connection.detach())
        self._ended.append(ProcessEnded(pid, status, memory))
        self._looks = 0

    def _say_ended(self) -> None:
        """Kill what dead jobs have left behind; if there is nothing (more), say that they have ended."""
        try:
            left = self._kill_others() if self._has_others() else []
        except OSError:  # out of descriptors, for a while
            return
        self._looks += 1
        if left and self._looks < _LOOKS:
            return
        if left:
            log.error("processes %s of jobs that have ended cannot be killed", left)
            self._immortal.update(left)
        for message in self._ended:
            self._control.send(encode(message))
        self._ended.clear()

    def _has_others(self) -> bool:
        """Whether this process, which has one thread, has children but for jobs. It is asked at the end of each job."""
        found = os.pread(self._children, 4096, 0)
        # Of very many we have seen a part.
        return len(found) > 4000 or found.count(b" ") > len(self._jobs) + len(self._immortal)

    def _kill_others(self) -> list[int]:
        return processes.kill_children(but={job.pid for job in self._jobs.values()} | self._immortal)


def _reap(pid: int) -> tuple[int, int]:
    """Kill what is left of a dead job's group. Returns the job's status and the bytes of memory that it used at most.

    The group comes first: while its leader is not reaped, no other process can get its number. A leader that something
    else has reaped is another matter: what is left of its group is found among our children, as it falls to us.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        processes.kill_group(pid)
        _, status, used = linux.wait4(pid, 0)
    except ChildProcessError:
        return UNKNOWN_STATUS, 0
    return status, used.ru_maxrss * 1024


def _guard(control: socket.socket, run: Run) -> NoReturn:
    """Be the parent of a zygote for one job, in the place of an executor: a job may kill this process too."""
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        _Server(control, lambda: run).serve(guard)
    control.close()
    with suppress(ChildProcessError):
        linux.wait4(pid, 0)
    os._exit(0)


def _connection(passed: bytes) -> socket.socket:
    """The socket that was passed. To say what it is saves Python from asking the system."""
    return linux.Socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, int.from_bytes(passed, sys.byteorder))


def _handler(number: int) -> Any:
    """What the app has a signal do; what is not Python's is not set again."""
    handler = signal.getsignal(number)
    return int(handler or signal.SIG_DFL) if handler is None or isinstance(handler, signal.Handlers) else handler


def _kill_all() -> None:
    """At the end of a zygote. Whatever it cannot do, the supervisor does."""
    with suppress(OSError):
        for _ in range(_LAST_LOOKS):
            if not processes.kill_children():
                return
            linux.sleep(0.01)


def _offer_to_die() -> None:
    """Have Linux kill jobs, which inherit this, before others when the machine is out of memory: the biggest first."""
    with suppress(OSError, ValueError):
        path = Path("/proc/self/oom_score_adj")
        path.write_text(str(max(_FIRST_TO_DIE, int(path.read_text()))))


def main() -> None:
    parent, descriptor, app, level, stacks = sys.argv[1:]
    answers = int(stacks) if stacks else None
    control = socket.socket(fileno=int(descriptor))
    control.set_inheritable(False)

    def run(kind: ProcessKind, connection: socket.socket) -> None:
        spawn(kind, connection, app, level, answers)

    _Server(control, lambda: run).serve(int(parent))


if __name__ == "__main__":
    main()
