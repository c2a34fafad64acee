"""The program of a spawned job process: a new interpreter, for CUDA, gRPC, and apps that start threads.

    python -m holdfast.entrypoints.interpreter KIND DESCRIPTOR APP LEVEL STACKS

The zygote executes it in a process that it has forked, so it is managed like any other job process. It runs one job, or
many if KIND is `reuse`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from holdfast.entrypoints.loading import load_app
from holdfast.task.task import Task
from holdfast.worker import stacks
from holdfast.worker.linux import flush_each_line
from holdfast.worker.messages import REUSE
from holdfast.worker.output.console import ConsoleStream, log_to
from holdfast.worker.runners.channel_reader import ChannelReader
from holdfast.worker.runners.child import run_jobs
from holdfast.worker.transport import Channel


def main() -> None:
    kind, descriptor, app, level, stack_file = sys.argv[1:]
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    flush_each_line()
    log_to(ConsoleStream(2), level)
    if stack_file:
        os.set_inheritable(int(stack_file), False)
        stacks.enable(int(stack_file))

    @cache
    def load() -> Mapping[str, Task[..., Any]]:
        return load_app(app).tasks

    run_jobs(ChannelReader(Channel()), connection, load, stay=kind == REUSE)


if __name__ == "__main__":
    main()
