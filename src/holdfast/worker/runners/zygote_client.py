"""The executor's side of a zygote: it requests processes, and learns how they ended."""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from holdfast.worker import messages
from holdfast.worker.messages import ProcessKind
from holdfast.worker.runners.job_process import DIED_WITH_ZYGOTE, ForkedProcess, JobProcess, ProcessEnd
from holdfast.worker.transport import Decode

RETRY_DELAY = 0.005  # seconds, if the zygote's socket is full

_decode: Decode[messages.FromZygote] = messages.decoder(messages.FromZygote)


class ZygoteClient:
    """The connection to a zygote. When the executor's own zygote has `died`, the executor ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._control.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control, self._receive)
        self._requested: deque[asyncio.Future[ForkedProcess | None]] = deque()  # the zygote replies in order
        self._processes: dict[int, ForkedProcess] = {}
        self.died = asyncio.Event()

    def start(self, kind: ProcessKind) -> JobProcess:
        """Request a process, and connect to it."""
        ours, theirs = socket.socketpair()
        return JobProcess(self._request(kind, theirs), ours)

    async def start_zygote(self) -> OneJobZygote | None:
        """Start a zygote for one job. None, if this machine has no resources left."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guard = await self._request(messages.ALONE, theirs)
        if guard is None:
            ours.close()
            return None
        return OneJobZygote(ZygoteClient(ours), guard)

    def report_all_dead(self) -> None:
        """The zygote is dead, and everything that it forked: report the ends that it has not reported itself."""
        if self._control.fileno() == -1:  # closed: nobody waits for them
            return
        while self._receive():
            pass
        for requested in self._requested:
            requested.set_result(None)
        for process in self._processes.values():
            process.ended.set_result(ProcessEnd(DIED_WITH_ZYGOTE, 0))

    def close(self) -> None:
        """Close the connection: the zygote ends, with everything that it forked."""
        self._loop.remove_reader(self._control)
        self._control.close()

    def _receive(self) -> bool:
        """Handle one message. Return whether there was one."""
        try:
            packet = self._control.recv(messages.MAX_PACKET)
        except BlockingIOError:
            return False
        except ConnectionError:
            packet = b""
        if not packet:
            self._loop.remove_reader(self._control)
            self.died.set()
            return False
        match _decode(packet):
            case messages.ProcessStarted(pid):
                process = self._processes[pid] = ForkedProcess(pid, self._loop.create_future())
                self._requested.popleft().set_result(process)
            case messages.ProcessRefused():
                self._requested.popleft().set_result(None)
            case messages.ProcessEnded(pid, status, memory):
                self._processes.pop(pid).ended.set_result(ProcessEnd(status, memory))
        return True

    def _request(self, kind: ProcessKind, theirs: socket.socket) -> asyncio.Future[ForkedProcess | None]:
        """Have the zygote start a process that gets a socket. Its reply is None if it cannot."""
        reply: asyncio.Future[ForkedProcess | None] = self._loop.create_future()
        self._send(kind, theirs, reply)
        return reply

    def _send(self, kind: ProcessKind, theirs: socket.socket, reply: asyncio.Future[ForkedProcess | None]) -> None:
        try:
            socket.send_fds(self._control, [messages.encode(messages.StartProcess(kind))], [theirs.fileno()])
        except BlockingIOError:
            self._loop.call_later(RETRY_DELAY, self._send, kind, theirs, reply)
            return
        except ConnectionError:  # the zygote is dead: this executor ends soon, or OneJobZygote replies
            self._requested.append(reply)
        except OSError:  # no resources are left
            reply.set_result(None)
        else:
            self._requested.append(reply)
        theirs.close()


class OneJobZygote:
    """A zygote for one job, with a guard as its parent. When the guard ends, the job has ended too."""

    def __init__(self, client: ZygoteClient, guard: ForkedProcess) -> None:
        self._client = client
        guard.ended.add_done_callback(lambda _: client.report_all_dead())

    def start(self, kind: ProcessKind) -> JobProcess:
        return self._client.start(kind)

    def close(self) -> None:
        self._client.close()
