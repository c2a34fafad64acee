"""The zygote: a process that has imported the app and does nothing but fork.

    executor ──(socket of a new job)──▶ zygote ──fork──▶ job
             ◀──(pid; later, how it ended)──┘

It has one thread, no event loop and no connection, so what it forks is clean. It is the jobs' parent: it learns at
once, by pidfd, when one dies. When its executor is gone it kills every job, with all that is in the job's process
group.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from holdfast.worker.system import adopt_orphans, die_with_parent, kill_group, reap

FORK = b"fork"
Run = Callable[[socket.socket], None]


def start(run: Run) -> tuple[int, socket.socket]:
    """Fork the zygote. Returns its process id, and the socket by which to ask it for jobs."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # what is there already will not be collected in the children, so their pages stay shared
    pid = os.fork()
    if pid == 0:
        ours.close()
        _Zygote(its, run).serve()
    its.close()
    return pid, ours


class _Zygote:
    def __init__(self, control: socket.socket, run: Run) -> None:
        self._control = control
        self._run = run
        self._jobs: dict[int, int] = {}  # pidfd -> pid
        self._poll = select.poll()

    def serve(self) -> NoReturn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        adopt_orphans()
        self._poll.register(self._control, select.POLLIN)
        try:
            while self._serve_once():
                pass
        finally:
            for pid in self._jobs.values():
                kill_group(pid)
            os._exit(0)

    def _serve_once(self) -> bool:
        """Do what there is to do, or wait for it. Returns whether the executor is still there."""
        for descriptor, _ in self._poll.poll():
            if descriptor != self._control.fileno():
                self._report_end(descriptor)
            elif not self._fork():
                return False
        return True

    def _fork(self) -> bool:
        """Fork one job, as the executor asks. Returns whether the executor is still there."""
        message, descriptors, _, _ = socket.recv_fds(self._control, 64, 1)
        if not message:
            return False
        connection = socket.socket(fileno=descriptors[0])
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # out of processes or memory; the executor sees that the job's connection ends
            connection.close()
            self._control.send(b"refused 0")
            return True
        if pid == 0:
            os.setsid()
            die_with_parent(parent)
            self._close_all()
            self._run(connection)
            os._exit(0)
        connection.close()
        pidfd = os.pidfd_open(pid)
        self._jobs[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        self._control.send(b"forked %d" % pid)
        return True

    def _close_all(self) -> None:
        self._control.close()
        for pidfd in self._jobs:
            os.close(pidfd)

    def _report_end(self, pidfd: int) -> None:
        pid = self._jobs.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        # The job's group first: while its leader is not reaped, no other process can get its number.
        kill_group(pid)
        _, status = os.waitpid(pid, 0)
        self._reap_strays()
        self._control.send(b"ended %d %d" % (pid, status))

    def _reap_strays(self) -> None:
        """Take note of dead orphans that jobs left behind."""
        known = set(self._jobs.values())
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None or dead.si_pid in known:
                return
            reap(dead.si_pid)
