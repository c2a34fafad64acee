"""What arrives in a job's process, for whoever waits for it: calls for the main thread, answers for those who asked.

Whoever waits reads, one thread at a time, and for all. That may be a thread of a job that has ended: so what arrives
belongs to the process, not to a job.

A job's own process: it hears which call to make, makes it, and says how that ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Condition, Lock, RLock, get_ident
from typing import Any, NoReturn

from holdfast.errors import LeaseLost
from holdfast.job.options import DEFAULTS
from holdfast.job.outcome import Outcome, Unknown
from holdfast.task.call import Call, app_of, call_task, exit_code, outcome_of_exception, outcome_of_return
from holdfast.task.program import PROGRAM
from holdfast.task.task import Task, make_task
from holdfast.worker import linux, messages, processes
from holdfast.worker.linux import DEFAULT, IGNORED, set_signal
from holdfast.worker.output.files import Redirected, append, make_spare_streams
from holdfast.worker.runners import programs
from holdfast.worker.transport import Channel

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
        self._calls: list[messages.RunCall] = []
        self._stop_reason = ""  # of the last call

    def next_call(self) -> messages.RunCall:
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
        with self.channel.uninterruptible:
            for message in self.channel.arrived():
                match message:
                    case messages.RunCall():
                        self._calls.append(message)
                        self._stop_reason = ""  # a wish that the last job should stop may arrive after its end
                    case messages.StopJob(reason):
                        self._stop_reason = self._stop_reason or reason
                    case messages.Reply(number, code, value):
                        if number in self._answers:
                            self._answers[number] = (code, value)
            self._have_look()

    def _have_look(self) -> None:
        if self._waiting:
            self._changed.notify_all()


UNHEARD = 76  # exit code of a process that could not say how its job ended
MOST_DEAD = 100  # children that nobody asks for, in a process that stays
REHEARSALS = 20
OVER = (LeaseLost.code, "the job that asks has ended")

Load = Callable[[], Mapping[str, Task[..., Any]]]


class _Link:
    """A job's words go to the executor, and hearing that it is to stop costs one look at the socket.

    After the job's last word, which is its outcome, nothing that it left running here is heard: the next words are
    those of another job. They say of which call they are, as copies that a job has forked know nothing of its end.
    """

    def __init__(self, inbox: Inbox, turn: int, log: str) -> None:
        self._channel = inbox.channel
        self._inbox = inbox
        self._turn = turn
        self._log = log
        self._reason = ""
        self._speaking = Lock()  # a job may have threads
        self._is_over = False

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        with self._speaking:
            if not self._is_over:
                self._channel.send(messages.pack(messages.Save(self._turn, checkpoint, progress, note)))

    def log(self, lines: str) -> None:
        with self._speaking:
            if not self._is_over:
                append(self._log, lines)

    def end(self, ended: Outcome) -> None:
        with self._speaking:
            self._is_over = True
            self._channel.send(messages.pack(messages.JobEnded.of(ended)))
        self._inbox.wake()

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        """Ask the executor, and wait for its answer; others may speak and ask meanwhile."""
        with self._speaking:
            if self._is_over:
                return OVER
            number = self._inbox.expect()
            self._channel.send(messages.pack(messages.Request(self._turn, number, word, [*parts])))
        return self._inbox.answer(number, lambda: self._is_over) or OVER

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]:
        return await asyncio.to_thread(self.ask, word, *parts)

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        if not self._reason and not self._is_over:
            self._reason = self._inbox.stop_reason()
        return self._reason


def run_jobs(inbox: Inbox, connection: socket.socket, load: Load, *, stay: bool) -> NoReturn:
    """Run one job, or if it is to `stay` one after the other, and end this process."""
    inbox.channel.connect(connection)
    try:
        _run_next(inbox, load, stay=stay)
        while not _has_many_dead():
            _run_next(inbox, load, stay=stay)
    except SystemExit as left:
        _leave(exit_code(left))
    except EOFError:  # there is no next one
        _leave(0)
    except OSError as error:
        with suppress(Exception):  # it may have closed that too
            print(f"the outcome of this job cannot be told: {error}; did it close its descriptors?", file=sys.stderr)
        _leave(UNHEARD)
    _leave(0)


def rehearse(log: str) -> Inbox:
    """Run a job that does nothing some times, in the process that others will be forked from; `log` is its log.

    A forked process copies each page of memory that it writes to, which is most of what it costs. What Python finds out
    and makes ready on the way of a job is then there already, and is not written again. Returns an inbox for them.
    """
    inbox = Inbox(Channel())
    task = make_task(_nothing, programs.Nowhere(), DEFAULTS)
    call = Call("rehearsal", 1, "", task.name, task.signature.encode((0,), {}), b"", "", log)
    ours, its = (linux.Socket(fileno=end.detach()) for end in socket.socketpair())
    with ours, its:
        inbox.channel.connect(its)
        for turn in range(REHEARSALS):
            ours.sendall(messages.pack(messages.RunCall(turn, [*call])))
            _run_next(inbox, lambda: {task.name: task}, stay=True)
            ours.recv(4096)
            _do_as_after_a_fork()
    make_spare_streams(log)
    return inbox


def _do_as_after_a_fork() -> None:
    """Do what Python will do first in each process: it has no public name. With one thread, it changes nothing here."""
    for module, name in ((threading, "_after_fork"), (logging, "_after_at_fork_child_reinit_locks")):
        if do := getattr(module, name, None):
            do()


def _nothing(number: int) -> int:
    return number


def _has_many_dead() -> bool:
    """Whether jobs have left dead processes here, that only our own end removes: they may be a library's to reap."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
    except ChildProcessError:
        return False
    return len(processes.children()) > MOST_DEAD


def _run_next(inbox: Inbox, load: Load, *, stay: bool) -> None:
    channel = inbox.channel
    set_signal(signal.SIGINT, signal.default_int_handler)
    set_signal(signal.SIGHUP, DEFAULT)
    set_signal(signal.SIGTERM, partial(_on_term, channel))
    message = inbox.next_call()
    call = Call(*message.call)
    channel.send(messages.pack(messages.JobReceived()))
    link, own = _Link(inbox, message.turn, call.log), os.getpid()
    context, printing = copy_context(), Redirected(call.log)
    with printing:
        ended = context.run(_attempt, call, link, load)
    if os.getpid() != own:  # a copy, that the task has forked, and that came back from it: it has no say
        _leave(0)
    set_signal(signal.SIGTERM, IGNORED)  # what has ended is said to the end
    link.end(ended)
    if not stay:  # before anything is cleared away
        _leave(0)


def _on_term(channel: Channel, number: int, _: object) -> None:
    """Leave the task through its `finally` blocks, if it is the executor that asks: it closes the connection first.

    Others ask too: systemd sends SIGTERM to all processes of a service, at the moment when the worker begins to stop.
    """
    if channel.is_closing:
        channel.uninterruptible.exit(128 + number)


def _attempt(call: Call, link: _Link, load: Load) -> Outcome:
    try:
        if call.task == PROGRAM:
            return programs.become(call)
        task = load().get(call.task)
        if task is None:  # in an interpreter that has imported the app anew, in the middle of a deploy
            return Unknown()
        call.make_current(link, app_of(task))
        return outcome_of_return(task, call_task(task, call.payload))
    except SystemExit:
        raise
    except BaseException as error:
        return outcome_of_exception(error)


def _leave(code: int) -> NoReturn:
    """End without the interpreter's farewells, which belong to the process that this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    linux.exit_now(code & 0xFF)
