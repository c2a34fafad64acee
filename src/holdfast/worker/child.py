"""A job's own process: it hears which call to make, makes it, and says how that ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from holdfast.outcome import Outcome
from holdfast.task import Task
from holdfast.worker import wire
from holdfast.worker.call import Call, exit_code, raised, returned

UNHEARD = 76  # exit code of a process that could not say how its job ended


class _Link:
    """A job's words go to the executor, and hearing that it is to stop costs one look at the socket."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._stopping = False

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        self._channel.send(wire.pack("save", checkpoint, progress))

    @property
    def stopping(self) -> bool:
        if not self._stopping:
            said_so = any(message[0] == "stop" for message in self._channel.arrived())
            self._stopping = said_so or self._channel.is_closed
        return self._stopping


def run_job(connection: socket.socket, tasks: Mapping[str, Task[..., Any]]) -> NoReturn:
    """Run one job and end this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    channel = wire.Channel(connection)
    signal.signal(signal.SIGTERM, partial(_on_term, channel))
    try:
        ended = _attempt(channel, tasks)
    except SystemExit as left:
        _leave(exit_code(left))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what has ended is said to the end
    try:
        channel.send(wire.pack_outcome(ended))
    except OSError as error:
        print(f"the outcome of this job cannot be told: {error}; did it close its descriptors?", file=sys.stderr)
        _leave(UNHEARD)
    _leave(0)


def _on_term(channel: wire.Channel, number: int, _: object) -> None:
    """Leave the task through its `finally` blocks, if it is the executor that asks: it closes the connection first.

    Others ask too: systemd sends SIGTERM to all processes of a service, at the moment when the worker begins to stop.
    """
    if channel.is_closing:
        raise SystemExit(128 + number)


def _attempt(channel: wire.Channel, tasks: Mapping[str, Task[..., Any]]) -> Outcome:
    call = Call(*channel.receive())
    task = tasks[call.task]
    call.introduce(_Link(channel))
    try:
        args, kwargs = task.signature.decode(call.payload)
        value = task.function(*args, **kwargs)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        return returned(task, value)
    except SystemExit:
        raise
    except BaseException as error:
        return raised(error)


def _leave(code: int) -> NoReturn:
    """End without the interpreter's farewells, which belong to the process that this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
