"""A shared queue that an app serves, as an executor reports it to its supervisor."""

from __future__ import annotations

from typing import Any

import msgspec


class SharedQueue(msgspec.Struct, frozen=True, array_like=True):
    """A shared queue that an app serves."""

    queue: str
    prefix: bytes
    task: str
    runner: str  # that the task needs; "": that of the worker
    batch: dict[str, Any]  # the arguments of the store's `enqueue`
