"""A job's own process: it hears which call to make, makes it, and says how that ended."""

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
from threading import Lock
from typing import Any, NoReturn

from holdfast.calling import Call, app_of, called, exit_code, raised, returned
from holdfast.errors import LeaseLost
from holdfast.options import DEFAULTS
from holdfast.outcome import Outcome, Unknown
from holdfast.program import PROGRAM
from holdfast.task import Task, make_task
from holdfast.worker import programs, system, wire
from holdfast.worker.inbox import Inbox
from holdfast.worker.output import Redirected, append, make_spare_streams
from holdfast.worker.system import DEFAULT, IGNORED, children, set_signal

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
                self._channel.send(wire.pack("save", self._turn, checkpoint, progress, note))

    def log(self, lines: str) -> None:
        with self._speaking:
            if not self._is_over:
                append(self._log, lines)

    def end(self, ended: Outcome) -> None:
        with self._speaking:
            self._is_over = True
            self._channel.send(wire.pack_outcome(ended))
        self._inbox.wake()

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        """Ask the executor, and wait for its answer; others may speak and ask meanwhile."""
        with self._speaking:
            if self._is_over:
                return OVER
            number = self._inbox.expect()
            self._channel.send(wire.pack("ask", self._turn, number, word, *parts))
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
    inbox = Inbox(wire.Channel())
    task = make_task(_nothing, programs.Nowhere(), DEFAULTS)
    call = Call("rehearsal", 1, "", task.name, task.signature.encode((0,), {}), b"", "", log)
    ours, its = (system.Socket(fileno=end.detach()) for end in socket.socketpair())
    with ours, its:
        inbox.channel.connect(its)
        for turn in range(REHEARSALS):
            ours.sendall(wire.pack("call", turn, *call))
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
    return len(children()) > MOST_DEAD


def _run_next(inbox: Inbox, load: Load, *, stay: bool) -> None:
    channel = inbox.channel
    set_signal(signal.SIGINT, signal.default_int_handler)
    set_signal(signal.SIGHUP, DEFAULT)
    set_signal(signal.SIGTERM, partial(_on_term, channel))
    turn, *told = inbox.next_call()
    call = Call(*told)
    channel.send(wire.pack("begins"))
    link, own = _Link(inbox, turn, call.log), os.getpid()
    context, printing = copy_context(), Redirected(call.log)
    with printing:
        ended = context.run(_attempt, call, link, load)
    if os.getpid() != own:  # a copy, that the task has forked, and that came back from it: it has no say
        _leave(0)
    set_signal(signal.SIGTERM, IGNORED)  # what has ended is said to the end
    link.end(ended)
    if not stay:  # before anything is cleared away
        _leave(0)


def _on_term(channel: wire.Channel, number: int, _: object) -> None:
    """Leave the task through its `finally` blocks, if it is the executor that asks: it closes the connection first.

    Others ask too: systemd sends SIGTERM to all processes of a service, at the moment when the worker begins to stop.
    """
    if channel.is_closing:
        channel.undivided.leave(128 + number)


def _attempt(call: Call, link: _Link, load: Load) -> Outcome:
    try:
        if call.task == PROGRAM:
            return programs.become(call)
        task = load().get(call.task)
        if task is None:  # in an interpreter that has imported the app anew, in the middle of a deploy
            return Unknown()
        call.introduce(link, app_of(task))
        return returned(task, called(task, call.payload))
    except SystemExit:
        raise
    except BaseException as error:
        return raised(error)


def _leave(code: int) -> NoReturn:
    """End without the interpreter's farewells, which belong to the process that this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    system.leave(code & 0xFF)
