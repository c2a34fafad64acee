"""A job's own process: it receives a call, makes it, and reports the outcome."""

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

from holdfast.errors import LeaseLost
from holdfast.job.options import DEFAULTS
from holdfast.job.outcome import Outcome, Unknown
from holdfast.task.call import Call, app_of, call_task, exit_code, outcome_of_exception, outcome_of_return
from holdfast.task.program import PROGRAM
from holdfast.task.task import Task, make_task
from holdfast.worker import linux, messages, processes
from holdfast.worker.linux import DEFAULT, IGNORED, set_signal
from holdfast.worker.output.files import RedirectedOutput, append, make_spare_streams
from holdfast.worker.runners import programs
from holdfast.worker.runners.channel_reader import ChannelReader
from holdfast.worker.runners.working_directory import Home, work_in
from holdfast.worker.transport import Channel

NO_CONNECTION = 76  # exit code of a process that could not report the outcome of its job
MAX_ZOMBIES = 100  # children that a job left unreaped in a process for many jobs
WARM_UP_RUNS = 20
JOB_ENDED = (LeaseLost.code, "this job has ended")

Load = Callable[[], Mapping[str, Task[..., Any]]]


class _ExecutorLink:
    """Sends the messages of a job to its executor. Checking `stopping` polls the socket once.

    After its outcome, a job sends nothing more, even from threads that it left running: the next messages are those of
    another job. Each message has the number of its job (`turn`), because a fork of an earlier job may still send.
    """

    def __init__(self, reader: ChannelReader, turn: int, log: str) -> None:
        self._channel = reader.channel
        self._reader = reader
        self._turn = turn
        self._log = log
        self._reason = ""
        self._sending = Lock()  # a job may have threads
        self._has_ended = False

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        with self._sending:
            if not self._has_ended:
                self._channel.send(messages.pack(messages.Save(self._turn, checkpoint, progress, note)))

    def log(self, lines: str) -> None:
        with self._sending:
            if not self._has_ended:
                append(self._log, lines)

    def end(self, outcome: Outcome) -> None:
        with self._sending:
            self._has_ended = True
            self._channel.send(messages.pack(messages.JobEnded.of(outcome)))
        self._reader.wake()

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        """Send a request, and wait for the reply; other threads may send and request meanwhile."""
        with self._sending:
            if self._has_ended:
                return JOB_ENDED
            number = self._reader.new_request()
            self._channel.send(messages.pack(messages.Request(self._turn, number, name, [*arguments])))
        return self._reader.reply(number, lambda: self._has_ended) or JOB_ENDED

    async def arequest(self, name: str, *arguments: Any) -> tuple[str, Any]:
        return await asyncio.to_thread(self.request, name, *arguments)

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        if not self._reason and not self._has_ended:
            self._reason = self._reader.stop_reason()
        return self._reason


def run_jobs(reader: ChannelReader, connection: socket.socket, load: Load, *, stay: bool) -> NoReturn:
    """Run one job, or with `stay` one after the other, and exit."""
    reader.channel.connect(connection)
    linux.set_process_name("hf:idle")
    try:
        _run_next(reader, load, stay=stay)
        while not _has_many_zombies():
            linux.set_process_name("hf:idle")
            _run_next(reader, load, stay=stay)
    except SystemExit as error:
        _exit(exit_code(error))
    except EOFError:  # there is no next job
        _exit(0)
    except OSError as error:
        with suppress(Exception):  # stderr may be closed too
            print(f"cannot report the outcome of this job: {error}; did it close its descriptors?", file=sys.stderr)
        _exit(NO_CONNECTION)
    _exit(0)


def warm_up(log: str) -> ChannelReader:
    """Run an empty job a few times in the zygote, with a log at this path. Return a reader for the children.

    What Python caches while running a job is then already in memory, so children copy fewer pages: copying is most of
    the cost of a fork.
    """
    reader = ChannelReader(Channel())
    task = make_task(_identity, programs.NoApp(), DEFAULTS)
    call = Call("warm-up", 1, "", task.name, task.signature.encode((0,), {}), b"", "", log)
    ours, theirs = (linux.Socket(fileno=end.detach()) for end in socket.socketpair())
    with ours, theirs:
        reader.channel.connect(theirs)
        for turn in range(WARM_UP_RUNS):
            ours.sendall(messages.pack(messages.RunCall(turn, [*call])))
            _run_next(reader, lambda: {task.name: task}, stay=True)
            ours.recv(4096)
            _run_after_fork_hooks()
    make_spare_streams(log)
    return reader


def _run_after_fork_hooks() -> None:
    """Run Python's private after-fork hooks; in a single-threaded process they change nothing."""
    for module, name in ((threading, "_after_fork"), (logging, "_after_at_fork_child_reinit_locks")):
        if act := getattr(module, name, None):
            act()


def _identity(number: int) -> int:
    return number


def _has_many_zombies() -> bool:
    """Return whether jobs left many unreaped children.

    They are not reaped here, because a library may do it; the process is replaced instead.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
    except ChildProcessError:
        return False
    return len(processes.children()) > MAX_ZOMBIES


def _run_next(reader: ChannelReader, load: Load, *, stay: bool) -> None:
    channel = reader.channel
    set_signal(signal.SIGINT, signal.default_int_handler)
    set_signal(signal.SIGHUP, DEFAULT)
    set_signal(signal.SIGTERM, partial(_on_term, channel))
    message = reader.next_call()
    call = Call(*message.call)
    linux.set_process_name(f"hf:{call.id}")
    channel.send(messages.pack(messages.JobReceived()))
    link, own = _ExecutorLink(reader, message.turn, call.log), os.getpid()
    context, output = copy_context(), RedirectedOutput(call.log)
    home = Home() if stay and call.in_directory else None
    with output:
        outcome = context.run(_attempt, call, link, load)
    if os.getpid() != own:  # a fork made by the task returned from it; ignore its outcome
        _exit(0)
    set_signal(signal.SIGTERM, IGNORED)  # the outcome is sent as a whole
    is_back = home is None or home.go_back()  # before the executor removes the directory
    link.end(outcome)
    if not stay or not is_back:  # before the interpreter frees anything
        _exit(0)


def _on_term(channel: Channel, number: int, _: object) -> None:
    """Leave the task through its `finally` blocks, if the signal comes from the executor: it closes its end first.

    Others send SIGTERM too: systemd, to all processes of a service, when the worker begins to stop.
    """
    if channel.is_closing:
        channel.deferred_exit.exit(128 + number)


def _attempt(call: Call, link: _ExecutorLink, load: Load) -> Outcome:
    task = None
    try:
        if call.task == PROGRAM:
            return programs.exec_program(call)
        task = load().get(call.task)
        if task is None:  # in an interpreter that has imported the app in the middle of a deploy
            return Unknown()
        call.make_current(link, app_of(task))
        if call.in_directory:  # the app was imported from the worker's
            work_in(call.directory)
        return outcome_of_return(task, call_task(task, call.payload))
    except SystemExit:
        raise
    except BaseException as error:
        # The import of the app, and the start of a program, are not part of a task: its retry policy does not apply.
        return outcome_of_exception(error, None if task is None else call.retry_policy)


def _exit(code: int) -> NoReturn:
    """Exit without the interpreter's exit handlers, which belong to the process that this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    linux.exit_now(code & 0xFF)
