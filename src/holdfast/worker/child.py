"""A job's own process: it hears which call to make, makes it, and says how that ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import running
from holdfast.outcome import Outcome, Release, Succeed, outcome_of
from holdfast.task import Task
from holdfast.worker import wire


class _Link:
    """A job's words go to the executor, and hearing that it is to stop costs one look at the socket."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._stopping = False

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        self._channel.send(wire.pack("save", checkpoint, progress))

    @property
    def stopping(self) -> bool:
        self._stopping = self._stopping or any(message[0] == "stop" for message in self._channel.arrived())
        return self._stopping


def run_job(connection: socket.socket, tasks: Mapping[str, Task[..., Any]]) -> None:
    """Run one job and end this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = wire.Channel(connection)
    try:
        ended = _attempt(channel, tasks)
    except SystemExit as exit:
        # Leaving the process is a crash, whatever the code says: nothing was returned.
        _leave(exit.code if isinstance(exit.code, int) else 1)
    with suppress(BrokenPipeError):
        channel.send(wire.pack_outcome(ended))
    _leave(0)


def _attempt(channel: wire.Channel, tasks: Mapping[str, Task[..., Any]]) -> Outcome:
    id, attempt, queue, name, payload, checkpoint, directory = channel.receive()
    task = tasks[name]
    running.set_current_job(
        running.RunningJob(
            _Link(channel),
            id=id,
            attempt=attempt,
            task=name,
            queue=queue,
            checkpoint=checkpoint,
            directory=Path(directory),
        )
    )
    try:
        args, kwargs = task.signature.decode(payload)
        value = task.function(*args, **kwargs)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        return Succeed(task.signature.result.encode(value, f"the result of task {name}"))
    except running.HandOver:
        return Release("handed over")
    except SystemExit:
        raise
    except BaseException as error:
        return outcome_of(error)


def _leave(code: int) -> None:
    """End without the interpreter's farewells, which belong to the process that this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
