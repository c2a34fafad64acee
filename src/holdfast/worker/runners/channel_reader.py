"""The messages that arrive in a job's process: calls for the main thread, replies for the threads that wait for them.

Any thread that waits reads for all, one thread at a time. It may belong to a job that has ended: so the reader belongs
to the process, not to a job.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, RLock, get_ident
from typing import Any

from holdfast.worker import messages
from holdfast.worker.transport import Channel

Reply = tuple[str, Any]  # an error code, '' for none; and a value, or the error message


class ChannelReader:
    """Reads the channel of a job's process, for all its threads."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._waiting = 0  # threads, for a change
        self._reader = 0  # the thread that waits at the socket
        self._requests = 0  # of all jobs of this process
        self._replies: dict[int, Reply | None] = {}  # by request that a thread waits for; None: not arrived yet
        self._calls: list[messages.RunCall] = []
        self._stop_reason = ""  # of the last call

    def next_call(self) -> messages.RunCall:
        """Wait for a call.

        Raises:
            EOFError: the executor has closed the connection.
        """
        self._wait(lambda: self._calls)
        return self._calls.pop(0)

    def new_request(self) -> int:
        """Return the number of a new request. The caller sends it, and waits for its `reply`."""
        with self._lock:
            self._requests += 1
            self._replies[self._requests] = None
            return self._requests

    def reply(self, number: int, is_over: Callable[[], bool]) -> Reply | None:
        """Wait for a reply. None if the job ends before it arrives.

        Raises:
            EOFError: the executor has closed the connection.
        """
        try:
            self._wait(lambda: self._replies[number] or is_over())
            return self._replies[number]
        finally:
            del self._replies[number]

    def wake(self) -> None:
        """Let the waiting threads check whether their job is over."""
        with self._lock:
            self._notify()

    def stop_reason(self) -> str:
        """Return why the job should stop, judging by the messages received so far; "" if it should not."""
        with self._lock:  # another thread may be reading
            if not self._reader and not self._stop_reason:
                self._take()
            return self._stop_reason or ("worker" if self.channel.is_closed else "")

    def _wait(self, has_arrived: Callable[[], object]) -> None:
        while not self._read_unless(has_arrived):
            pass

    def _read_unless(self, has_arrived: Callable[[], object]) -> bool:
        """Return true if it has arrived; false if something was read. A signal may end the main thread's waiting."""
        own = get_ident()
        try:
            with self._lock:
                while self._reader and not has_arrived():
                    self._wait_for_change()
                if has_arrived():
                    return True
                if self.channel.is_closed:
                    raise EOFError("the executor has closed the connection")
                self._reader = own
            self.channel.wait()
            with self._lock:
                self._take()
            return False
        finally:
            if self._reader == own:
                with self._lock:
                    self._reader = 0
                    self._notify()

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _take(self) -> None:
        """Sort the messages that have arrived."""
        with self.channel.deferred_exit:
            for message in self.channel.arrived():
                match message:
                    case messages.RunCall():
                        self._calls.append(message)
                        self._stop_reason = ""  # a StopJob for the last job may arrive after its end
                    case messages.StopJob(reason):
                        self._stop_reason = self._stop_reason or reason
                    case messages.Reply(number, code, value):
                        if number in self._replies:
                            self._replies[number] = (code, value)
            self._notify()

    def _notify(self) -> None:
        if self._waiting:
            self._changed.notify_all()
