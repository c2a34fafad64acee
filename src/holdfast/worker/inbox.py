"""What arrives in a job's process, for whoever waits for it: calls for the main thread, answers for those who asked.

Whoever waits reads, one thread at a time, and for all. That may be a thread of a job that has ended: so what arrives
belongs to the process, not to a job.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, RLock, get_ident
from typing import Any

from holdfast.worker.wire import Channel

Answer = tuple[str, Any]


class Inbox:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._waiting = 0  # threads, for a change
        self._reader = 0  # the thread that waits at the socket
        self._asked = 0  # questions of all jobs of this process
        self._answers: dict[int, Answer | None] = {}  # of those who wait; None: not there yet
        self._calls: list[list[Any]] = []
        self._stop_reason = ""  # of the last call

    def next_call(self) -> list[Any]:
        """Wait for a call.

        Raises:
            EOFError: there will be none.
        """
        self._wait(lambda: self._calls)
        return self._calls.pop(0)

    def expect(self) -> int:
        """Return the number of a question. It is to be asked now, and its answer waited for."""
        with self._lock:
            self._asked += 1
            self._answers[self._asked] = None
            return self._asked

    def answer(self, number: int, is_over: Callable[[], bool]) -> Answer | None:
        """Wait for an answer. None if the job that asked is over before it is there.

        Raises:
            EOFError: there will be none.
        """
        try:
            self._wait(lambda: self._answers[number] or is_over())
            return self._answers[number]
        finally:
            del self._answers[number]

    def wake(self) -> None:
        """A job is over: have those look who wait for it."""
        with self._lock:
            self._have_look()

    def stop_reason(self) -> str:
        """Why the job is to stop, by what is there already. Another thread that reads hears of it as soon."""
        with self._lock:
            if not self._reader and not self._stop_reason:
                self._take()
            return self._stop_reason or ("worker" if self.channel.is_closed else "")

    def _wait(self, is_there: Callable[[], object]) -> None:
        while not self._read_unless(is_there):
            pass

    def _read_unless(self, is_there: Callable[[], object]) -> bool:
        """Returns true if it is there; false if something was read. A signal may end the main thread's waiting."""
        own = get_ident()
        try:
            with self._lock:
                while self._reader and not is_there():
                    self._wait_for_change()
                if is_there():
                    return True
                if self.channel.is_closed:
                    raise EOFError("the executor is gone")
                self._reader = own
            self.channel.wait()
            with self._lock:
                self._take()
            return False
        finally:
            if self._reader == own:
                with self._lock:
                    self._reader = 0
                    self._have_look()

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _take(self) -> None:
        """Put what has arrived where it is looked for."""
        with self.channel.undivided:
            for word, *rest in self.channel.arrived():
                match word:
                    case "call":
                        self._calls.append(rest)
                        self._stop_reason = ""  # a wish that the last job should stop may arrive after its end
                    case "stop":
                        self._stop_reason = self._stop_reason or rest[0]
                    case "answer" if rest[0] in self._answers:
                        self._answers[rest[0]] = (rest[1], rest[2])
            self._have_look()

    def _have_look(self) -> None:
        if self._waiting:
            self._changed.notify_all()
