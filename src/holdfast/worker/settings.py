"""What a worker is told: one frozen value, the same in the supervisor and in its executors."""

from __future__ import annotations

import os
import re
import socket
from typing import Literal

import msgspec

LONGEST_NODE = 24

SyncRunner = Literal["fork", "spawn", "process", "thread"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`app` is `module` or `module:name`; `runner` is for sync tasks that name none. Times are in milliseconds."""

    app: str
    queues: tuple[str, ...] = ("default",)
    executors: int = 1
    processes: int = os.cpu_count() or 2
    concurrency: int = 100
    runner: SyncRunner = "fork"
    lease: int = 30_000
    stop_within: int = 25_000
    node: str = ""
    directory: str = ""
    log_level: str = "INFO"
    accept_data_loss: bool = False


def node_name() -> str:
    """This host, as part of an executor's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:LONGEST_NODE] or "node"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor's process is told when it starts: its name, and the descriptors that it inherits."""

    name: str
    parent: int
    settings: WorkerSettings
    control: int
    pulse: int
